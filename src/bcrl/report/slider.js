"use strict";
// A slider over thresholds. Between two estimated ones everything is interpolated, and the worse light counts.
for (const root of document.querySelectorAll(".estimate-slider")) {
  const data = JSON.parse(root.querySelector(".data").textContent);
  const input = root.querySelector("input");
  const lights = Object.keys(data.lights);
  const [low, high] = [data.thresholds[0], data.thresholds[data.thresholds.length - 1]];
  const step = (high - low) / Number(input.max);
  const number = (value, digits) => value.toFixed(digits);
  const short = (value) => String(Number(value.toPrecision(6)));
  const decimals = Math.min(Math.max(0, Math.ceil(-Math.log10(step))), 12);

  function place() {
    const asked = low + step * Number(input.value);
    const near = data.thresholds.filter((value) => Math.abs(value - asked) <= step / 2);
    return near.length ? near[0] : asked;
  }

  function at(line, threshold) {
    const right = line.thresholds.findIndex((value) => value >= threshold);
    if (right < 0 || threshold < line.thresholds[0]) return null;
    const left = line.thresholds[right] === threshold ? right : right - 1;
    const gap = line.thresholds[right] - line.thresholds[left];
    const share = gap > 0 ? (threshold - line.thresholds[left]) / gap : 0;
    const triple = (rows, digits) => {
      const [mean, from, to] = rows[left].map((value, i) => (1 - share) * value + share * rows[right][i]);
      return `${number(mean, digits)} (${number(from, digits)} to ${number(to, digits)})`;
    };
    const worst = Math.max(lights.indexOf(line.light[left]), lights.indexOf(line.light[right]));
    return {
      cost: triple(line.cost, data.digits[0]),
      earned: triple(line.earned, data.digits[1]),
      light: lights[worst],
      between:
        left === right
          ? "estimated"
          : `interpolated between ${short(line.thresholds[left])} and ${short(line.thresholds[right])}`,
    };
  }

  const pictures = [...document.querySelectorAll(".guided svg")];
  const guides = pictures.map((svg, i) => {
    const { width, height } = svg.viewBox.baseVal;
    const line = document.createElementNS(svg.namespaceURI, "line");
    const [, , bottom, top] = data.panels[i].box;
    line.setAttribute("class", "guide");
    line.setAttribute("y1", height * (1 - top));
    line.setAttribute("y2", height * (1 - bottom));
    svg.append(line);
    return (threshold) => {
      const { box, span } = data.panels[i];
      const x = width * (box[0] + ((box[1] - box[0]) * (threshold - span[0])) / (span[1] - span[0]));
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
    };
  });

  function show() {
    const threshold = place();
    const told = data.thresholds.includes(threshold) ? short(threshold) : threshold.toFixed(decimals);
    input.setAttribute("aria-valuetext", told);
    root.querySelector("[data-told]").textContent = told;
    root.querySelectorAll("[data-line]").forEach((row) => {
      const found = at(data.lines[Number(row.dataset.line)], threshold);
      const cell = (name, text) => (row.querySelector(`[data-${name}]`).textContent = text);
      cell("cost", found ? found.cost : "not estimated");
      cell("earned", found ? found.earned : "not estimated");
      cell("between", found ? found.between : "");
      cell("word", found ? found.light : "");
      cell("mark", found ? data.lights[found.light] : "");
      row.querySelector("[data-mark]").className = found ? `light ${found.light}` : "light";
    });
    guides.forEach((move) => move(threshold));
  }

  input.addEventListener("input", show);
  root.hidden = false;
  show();
}
