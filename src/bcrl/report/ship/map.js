"use strict";
// Draws every map of the page from the JSON in it. Places are metres from the south-west corner, y to the north.
const startMap = (root) => {
  const find = (name) => root.querySelector(`.${name}`);
  const data = JSON.parse(find("data").textContent);
  const map = find("picture"), slider = find("slider"), strips = find("strips"), play = find("play");
  const alone = root.hasAttribute("data-alone"); // the page is this map: keys and wheel are its own
  const last = data.moments - 1;
  const trail = 180 / data.step_seconds; // steps of a neighbour's past that are shown
  const thumb = 8; // half the width of a slider's handle: the strips begin and end at its middle

  const shown = data.routes.map(() => true);
  let moment = 0;
  let view = { x: 0, y: 0, scale: 1 }; // the place in the middle, and pixels to the metre
  let fitted = null; // what the view shows as a whole, until the reader moves it
  let timer = null;

  // Drawing.

  const draw = (parent, name, attributes = {}) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return parent.appendChild(made);
  };
  const way = (places) => places.map((p, i) => `${i ? "L" : "M"}${p[0]} ${p[1]}`).join("");
  const set = (shape, attributes) => {
    for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
  };
  const show = (shape, visible) => shape.setAttribute("visibility", visible ? "inherit" : "hidden");

  const sea = draw(map, "g", { class: "scaled" }); // turned and scaled: one unit is a metre
  const layer = (name) => draw(sea, "g", { class: `layer-${name}` });

  const cells = data.water.map(([row, first, count]) => {
    const x = first * data.cell, y = row * data.cell;
    const right = Math.min(x + count * data.cell, data.size[0]), top = Math.min(y + data.cell, data.size[1]);
    return `M${x} ${y}H${right}V${top}H${x}Z`;
  });
  draw(layer("water"), "path", { class: "sea", d: cells.join("") });
  const coast = layer("coast");
  for (const rings of data.land) draw(coast, "path", { class: "land", d: rings.map((r) => `${way(r)}Z`).join("") });
  for (const line of data.coast) draw(coast, "path", { class: "line shore", d: way(line) });

  const [width, height] = data.size;
  let grid = "";
  for (let x = 1000; x < width; x += 1000) grid += `M${x} 0V${height}`;
  for (let y = 1000; y < height; y += 1000) grid += `M0 ${y}H${width}`;
  draw(sea, "path", { class: "line grid", d: grid });
  draw(sea, "rect", { class: "box", width, height });
  draw(sea, "circle", { class: "goal", cx: data.goal[0], cy: data.goal[1], r: data.goal_metres });

  const under = data.routes.map((route) => draw(sea, "g", { class: route.look }));
  const traffic = layer("neighbours");
  const arrow = "M0 9L6 -7L0 -3.5L-6 -7Z"; // a ship of its own size in pixels, bow to the north

  const routes = data.routes.map((route, i) => {
    const bands = route.place.map((p, t) => (t && route.close[t] ? way([route.place[t - 1], p]) : ""));
    draw(under[i], "path", { class: "line band", d: bands.join("") });
    draw(under[i], "path", { class: "line ahead", d: way(route.place) });
    return { sailed: draw(under[i], "path", { class: "line sailed" }), ring: draw(under[i], "circle", { class: "ring", r: data.close_metres }) };
  });
  const others = data.neighbours.map(() => ({
    trail: draw(traffic, "path", { class: "line trail" }),
    ship: draw(traffic, "path", { class: "ship other", d: arrow }),
  }));
  routes.forEach((drawn, i) => {
    drawn.ship = draw(sea, "path", { class: `ship ${data.routes[i].look}`, d: arrow, "data-ship": data.routes[i].name });
  });
  const goalLabel = draw(map, "text", { "text-anchor": "middle" });
  goalLabel.textContent = "goal";
  routes.forEach((drawn, i) => {
    drawn.label = draw(map, "text");
    drawn.label.textContent = data.routes[i].name;
  });

  const north = draw(map, "g", { transform: "translate(26 18)" });
  draw(north, "path", { class: "north", d: "M0 0L7 20L0 15L-7 20Z" });
  draw(north, "text", { y: 35, "text-anchor": "middle" }).textContent = "N";
  const bar = draw(map, "path", { class: "bar" });
  const barLabel = draw(map, "text");

  // Where things are.

  const pixels = (place) => {
    const { clientWidth, clientHeight } = map;
    return [(place[0] - view.x) * view.scale + clientWidth / 2, (view.y - place[1]) * view.scale + clientHeight / 2];
  };
  const metres = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
  const ends = (route) => route.place.length - 1;
  const at = (route) => Math.min(moment, ends(route));
  const pose = (ship, t) =>
    `translate(${ship.place[t][0]} ${ship.place[t][1]}) scale(${1 / view.scale}) rotate(${-ship.heading[t]})`;
  const two = (number) => String(Math.floor(number)).padStart(2, "0");

  const clock = () => {
    const since = moment * data.step_seconds;
    const utc = new Date((data.start + since) * 1000).toISOString().slice(11, 19);
    return `${utc} UTC, ${Math.floor(since / 60)}:${two(since % 60)} min after the start`;
  };

  const nearest = (place) => {
    const away = data.neighbours.map((ship) => ship.place[moment]).filter(Boolean).map((p) => metres(p, place));
    return away.length ? Math.min(...away) : Infinity;
  };

  const speed = (route) => {
    const from = Math.max(moment - 1, 0); // on the step to here, and at the start on the first
    return metres(route.place[Math.min(from + 1, ends(route))], route.place[from]) / data.step_seconds;
  };

  // What changes with the time.

  const drawShips = () => {
    const egos = [];
    data.routes.forEach((route, i) => {
      const t = at(route), { sailed, ring, ship } = routes[i];
      const sailing = moment <= ends(route);
      const close = sailing && Boolean(route.close[t]);
      show(under[i], shown[i]);
      show(ship, shown[i]);
      sailed.setAttribute("d", way(route.place.slice(0, t + 1)));
      set(ring, { cx: route.place[t][0], cy: route.place[t][1] });
      show(ring, close);
      ship.setAttribute("transform", pose(route, t));
      ship.classList.toggle("ended", !sailing);
      if (close && shown[i]) egos.push(route.place[t]);
      const away = sailing ? nearest(route.place[t]) : Infinity;
      root.querySelector(`[data-speed="${i}"]`).textContent = sailing ? `${speed(route).toFixed(1)} m/s` : "–";
      const cell = root.querySelector(`[data-nearest="${i}"]`);
      cell.textContent = away < Infinity ? `${Math.round(away)} m` : "–";
      cell.classList.toggle("inside", close);
    });
    data.neighbours.forEach((neighbour, i) => {
      const { ship, trail: line } = others[i];
      const here = neighbour.place[moment];
      show(ship, here);
      show(line, here);
      if (!here) return;
      const past = [here];
      for (let t = moment - 1; t >= Math.max(0, moment - trail) && neighbour.place[t]; t -= 1) past.push(neighbour.place[t]);
      line.setAttribute("d", way(past));
      ship.setAttribute("transform", pose(neighbour, moment));
      ship.classList.toggle("inside", egos.some((ego) => metres(ego, here) < data.close_metres));
    });
    drawLabels();
  };

  const drawLabels = () => {
    const [x, y] = pixels([data.goal[0], data.goal[1] - data.goal_metres]);
    set(goalLabel, { x, y: y + 16 });
    const taken = [];
    routes.forEach((drawn, i) => {
      const { label } = drawn;
      show(label, shown[i]);
      if (!shown[i]) return;
      const [east, south] = pixels(data.routes[i].place[at(data.routes[i])]);
      const long = (drawn.long ||= label.getComputedTextLength());
      // To the right of the ship, or to its left where the map ends.
      const turned = east < map.clientWidth && east + 13 + long > map.clientWidth && east > 13 + long;
      const left = turned ? east - 13 - long : east + 13;
      let middle = south + 4;
      // One below another where they would meet.
      const meets = (other) => Math.abs(other.middle - middle) < 15 && left < other.right + 6 && other.left < left + long + 6;
      while (taken.some(meets)) middle += 3;
      taken.push({ left, right: left + long, middle });
      set(label, { x: left, y: middle });
    });
  };

  const drawStrips = () => {
    const line = 9, span = strips.clientWidth - 2 * thumb;
    strips.replaceChildren();
    strips.style.height = `${data.routes.length * line}px`;
    const x = (t) => thumb + (span * t) / Math.max(last, 1);
    data.routes.forEach((route, i) => {
      if (!shown[i]) return;
      const group = draw(strips, "g", { class: route.look });
      draw(group, "rect", { class: "strip", x: x(0), y: i * line + 1, width: x(ends(route)) - x(0), height: line - 3 });
      const spans = route.close.map((close, t) => (close && t ? `M${x(t - 1)} ${i * line + 1}H${x(t)}v${line - 3}H${x(t - 1)}Z` : ""));
      draw(group, "path", { class: "strip close", d: spans.join(""), "shape-rendering": "crispEdges" });
    });
    draw(strips, "rect", { class: "strip now", y: 0, width: 2, height: data.routes.length * line });
    moveNeedle();
  };
  const moveNeedle = () => {
    const span = strips.clientWidth - 2 * thumb;
    find("now").setAttribute("x", thumb + (span * moment) / Math.max(last, 1) - 1);
  };

  const go = (wanted) => {
    moment = Math.max(0, Math.min(last, Math.round(wanted)));
    slider.value = moment;
    find("clock").textContent = clock();
    const inside = data.routes.filter((route, i) => shown[i] && moment <= ends(route) && route.close[moment]);
    const words = inside.length ? `; in close quarters: ${inside.map((route) => route.name).join(", ")}` : "";
    slider.setAttribute("aria-valuetext", clock() + words);
    drawShips();
    moveNeedle();
  };

  // What changes with the view.

  const drawView = () => {
    const { clientWidth, clientHeight } = map;
    const [x, y] = pixels([0, 0]);
    sea.setAttribute("transform", `matrix(${view.scale} 0 0 ${-view.scale} ${x} ${y})`);
    const lengths = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];
    const length = lengths.filter((metres) => metres * view.scale <= Math.min(170, clientWidth / 3)).pop() ?? lengths[0];
    const long = length * view.scale, bottom = clientHeight - 18;
    bar.setAttribute("d", `M18 ${bottom - 6}V${bottom}H${18 + long}V${bottom - 6}`);
    set(barLabel, { x: 26 + long, y: bottom });
    barLabel.textContent = length < 1000 ? `${length} m` : `${length / 1000} km`;
    drawShips();
  };

  const fit = (corners) => {
    const [west, south, east, north] = corners;
    const scale = Math.min(map.clientWidth / (east - west), map.clientHeight / (north - south));
    view = { x: (west + east) / 2, y: (south + north) / 2, scale: Math.max(scale, 1e-4) };
    fitted = corners;
    drawView();
  };
  const wholeBox = () => fit([-0.04 * width, -0.04 * height, 1.04 * width, 1.04 * height]);
  const allRoutes = () => {
    const places = [data.goal, ...data.routes.filter((_, i) => shown[i]).flatMap((route) => route.place)];
    const margin = data.close_metres; // room for a ring, but little outside the box
    const x = places.map((p) => p[0]), y = places.map((p) => p[1]);
    const low = (values) => Math.max(Math.min(...values) - margin, -200);
    const high = (values, edge) => Math.min(Math.max(...values) + margin, edge + 200);
    fit([low(x), low(y), high(x, width), high(y, height)]);
  };
  // Zooms so that the place under the pointer, or in the middle, stays where it is.
  const zoom = (factor, px = map.clientWidth / 2, py = map.clientHeight / 2) => {
    const scale = Math.max(0.005, Math.min(5, view.scale * factor));
    const right = px - map.clientWidth / 2, down = py - map.clientHeight / 2;
    view = { x: view.x + right / view.scale - right / scale, y: view.y - down / view.scale + down / scale, scale };
    fitted = null;
    drawView();
  };
  const move = (right, down) => {
    view = { ...view, x: view.x - right / view.scale, y: view.y + down / view.scale };
    fitted = null;
    drawView();
  };

  // What the reader does.

  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  };
  const toggle = () => {
    if (timer !== null) return stop();
    if (moment === last) go(0);
    play.textContent = "Pause";
    const each = Math.max(50, Math.min(250, 25000 / data.moments)); // all of it in about 25 s
    timer = setInterval(() => (moment === last ? stop() : go(moment + 1)), each);
  };

  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  play.addEventListener("click", toggle);
  find("closer").addEventListener("click", () => zoom(1.5));
  find("farther").addEventListener("click", () => zoom(1 / 1.5));
  find("routes").addEventListener("click", allRoutes);
  find("whole").addEventListener("click", wholeBox);

  for (const box of root.querySelectorAll("[data-route]")) {
    box.addEventListener("change", () => {
      shown[Number(box.dataset.route)] = box.checked;
      drawStrips();
      go(moment);
    });
  }
  for (const box of root.querySelectorAll("[data-layer]")) {
    box.addEventListener("change", () => show(find(`layer-${box.dataset.layer}`), box.checked));
  }

  const keys = {
    ArrowLeft: (event) => go(moment - (event.shiftKey ? 10 : 1)),
    ArrowRight: (event) => go(moment + (event.shiftKey ? 10 : 1)),
    Home: () => go(0),
    End: () => go(last),
    " ": toggle,
    "+": () => zoom(1.25),
    "=": () => zoom(1.25),
    "-": () => zoom(0.8),
    w: () => move(0, 60),
    s: () => move(0, -60),
    a: () => move(60, 0),
    d: () => move(-60, 0),
  };
  (alone ? document : root).addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const act = keys[event.key] ?? keys[event.key.toLowerCase()];
    // Space works the button or box it is on.
    if (!act || (event.key === " " && event.target.closest("button, input[type=checkbox]"))) return;
    event.preventDefault();
    if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") stop();
    act(event);
  });

  map.addEventListener("wheel", (event) => {
    // Between other things the wheel goes on past the map, until the reader has chosen it.
    if (!alone && !event.ctrlKey && document.activeElement !== map) return;
    event.preventDefault();
    const frame = map.getBoundingClientRect();
    const lines = event.deltaMode === 1 ? 16 : 1;
    zoom(Math.exp(-0.0015 * lines * event.deltaY), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });
  let held = null;
  map.addEventListener("pointerdown", (event) => {
    held = [event.clientX, event.clientY];
    map.setPointerCapture(event.pointerId);
    map.classList.add("dragged");
  });
  map.addEventListener("pointermove", (event) => {
    if (!held) return;
    move(event.clientX - held[0], event.clientY - held[1]);
    held = [event.clientX, event.clientY];
  });
  for (const end of ["pointerup", "pointercancel"]) {
    map.addEventListener(end, () => { held = null; map.classList.remove("dragged"); });
  }

  // page.html#t=12 opens at the 12th step.
  const fromAddress = () => {
    const found = /^#t=(\d+)$/.exec(location.hash);
    if (found) go(Number(found[1]));
  };
  addEventListener("hashchange", fromAddress);
  new ResizeObserver(() => {
    if (fitted) fit(fitted); else drawView();
    drawStrips();
  }).observe(map);

  allRoutes();
  drawStrips();
  go(0);
  fromAddress();
};
for (const root of document.querySelectorAll(".ship-map")) startMap(root);
