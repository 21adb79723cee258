"""Whether bcrl.runtime (numpy) and the ONNX export act as JAX does: every method, rule and option of acting.

Random networks in the shape of trained ones, saved to a policy file and loaded by each. For each case and
rule: whole episodes of 40 random states under random thresholds, by default 250 (10,000 states). JAX's random
numbers are handed to the others. Two numbers that are compared can be equal up to rounding (a
slack and `fallback_below`, the Q_R of two candidates), so that the runtimes choose differently; such ties are
counted, and the row is put right.

    python benchmarks/runtime_agreement.py [--episodes 250] [--hidden 64 64] [--only NAME]
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import bcrl
from bcrl import runtime
from bcrl.data import Schema
from bcrl.export import export_onnx
from bcrl.learn.protocol import Spec, blank_actor
from bcrl.learn.units import Units
from bcrl.policy import Policy
from bcrl.progress import progress

TOLERANCE = 1e-5
ANOTHER = 1e-3  # a share of the action's range that rounding cannot explain: another action was chosen
STEPS = 40
RULES = ("finite-horizon", "soft", "direct", "min")


@dataclass(frozen=True)
class Case:
    """A method with the options that change acting, and the task."""

    name: str
    method: str = "bcrl"
    options: dict[str, Any] = field(default_factory=dict)
    costs: int = 1
    discrete: bool = False
    units: tuple[float, ...] | None = None
    schema: Schema = field(default_factory=Schema)
    candidates: int = 0


CASES = [
    Case("bcrl"),
    Case("bcrl, candidates", candidates=8),
    Case("bcrl-xql", "bcrl-xql"),
    Case("bcrl-sparse", "bcrl-sparse", candidates=4),
    Case("bcrl-gradient", "bcrl-gradient", candidates=6),
    Case("td3", "bcrl-td3bc"),
    Case("td3, candidates", "bcrl-td3bc", candidates=8),
    Case("td3, direct, episodic", "bcrl-td3bc", {"tracking": "direct", "criterion": "episodic"}),
    Case("direct", options={"tracking": "direct"}, candidates=5),
    Case("episodic", options={"criterion": "episodic"}, candidates=3),
    Case("episodic, direct", options={"criterion": "episodic", "tracking": "direct"}),
    Case("raw budgets", options={"budget_input": "raw", "nonnegative_values": False}),
    Case("mean fallback", options={"fallback_draws": 0, "fallback_below": 0.5}),
    Case("ramped fallback", options={"fallback_ramp": 3.0, "fallback_below": 0.5}),
    Case("mixtures", options={"fallback_mixtures": 5, "fallback_below": 0.5}),
    Case(
        "mixtures, candidates",
        options={"fallback_mixtures": 3, "cost_weights": (1.0, 4.0)},
        costs=2,
        candidates=4,
    ),
    Case("mixtures, Q_F", options={"fallback_mixtures": 4, "fallback_critic": True}),
    Case("fallback critic", options={"fallback_critic": True}),
    Case(
        "fallback critic, candidates", options={"fallback_critic": True, "fallback_below": 0.5}, candidates=5
    ),
    Case("fallback critic, episodic", options={"fallback_critic": True, "criterion": "episodic"}, costs=2),
    Case("two costs", costs=2, candidates=6),
    Case("two costs, ramped", options={"fallback_ramp": 2.0, "cost_weights": (1.0, 4.0)}, costs=2),
    Case("two weighted costs", options={"cost_weights": (1.0, 4.0)}, costs=2),
    Case(
        "units and bounds",
        units=(7.5,),
        schema=Schema(action_low=(-30.0, 0.0, 2.0), action_high=(30.0, 0.5, 9.0)),
        candidates=4,
    ),
    Case("labels", discrete=True, schema=Schema(action_labels=("a", "b", "c"))),
    Case("labels, direct", options={"tracking": "direct", "support": 0.3}, discrete=True, costs=2),
    Case("bc-all", "bc-all"),
    Case("bc-safe", "bc-safe", {"threshold": 10.0}),
    Case("bc-all, labels", "bc-all", discrete=True),
    Case("caps", "caps"),
    Case("caps, five heads", "caps", {"heads": 5, "variant": "faithful"}, units=(3.0,)),
]


def make_policy(
    case: Case, hidden: tuple[int, ...] = (16, 16), observations: int = 5, actions: int = 3
) -> Policy:
    """Random networks with costs of a size where rules differ and the fallback comes in."""
    method = bcrl.make_method(case.method, hidden=hidden, **case.options)
    spec = Spec(observations, actions, case.costs, STEPS, (1.0,) * case.costs, 10, case.discrete)
    blank = jax.eval_shape(lambda: blank_actor(method, spec))
    random = np.random.default_rng(sum(map(ord, case.name)))

    def filled(path: Any, leaf: Any) -> jax.Array:
        name = jax.tree_util.keystr(path)
        if "weights" in name:
            values = random.normal(size=leaf.shape) * np.sqrt(
                2.0 / max(leaf.shape[-2:])
            )  # as before training
        elif "norms" in name or "std" in name:
            values = random.uniform(0.5, 1.5, size=leaf.shape)
        elif "slack_limit" in name:
            values = np.full(leaf.shape, 30.0)
        elif "mean_start_value" in name:
            values = np.full(leaf.shape, 2.0)
        else:
            values = 0.3 * random.normal(size=leaf.shape)
        last = f"[{len(hidden)}]"
        costs = ("cost_value", "cost_critic", "fallback_critic", "critics")
        if name in (f".{network}.biases{last}" for network in costs):
            values = values + (2.0 if "value" in name else 2.3)  # a least cost of about 2, actions cost more
        return jnp.asarray(values, leaf.dtype)

    learned = jax.tree_util.tree_map_with_path(filled, blank)
    units = Units(case.units) if case.units else None
    low, high = np.full(observations, -2.0, np.float32), np.full(observations, 2.0, np.float32)
    observed = runtime.ObservedRange(low, high)
    return Policy(learned, method, spec, {"seed": 0}, units, case.schema, observed=observed)


def rules_of(case: Case) -> tuple[str, ...]:
    return RULES if case.method.startswith("bcrl") else ("finite-horizon",)


def noise_of(episode: Any) -> Callable[[str, tuple[int, ...]], np.ndarray]:
    """The random numbers that a JAX episode is about to draw, or has drawn since it last observed."""

    def draw(key: Any, step: Any, kind: str, count: int, size: int) -> jax.Array:
        key = jax.random.fold_in(key, step)
        key = jax.random.fold_in(key, 1) if kind == "fallback" else key
        return jax.random.normal(key, (count, size))

    def noise(kind: str, shape: tuple[int, ...]) -> np.ndarray:
        memory = episode.memory
        one = lambda key, step: draw(key, step, kind, shape[-2], shape[-1])  # noqa: E731
        return np.asarray(
            jax.vmap(one)(memory.key, memory.step) if episode.batched else one(memory.key, memory.step)
        )

    return noise


@dataclass
class Found:
    """The largest differences of a comparison: shares of half the action's range, and of slack + 3.

    `state_*` are between runtimes that are given the same state, `*` between those that keep their own.
    """

    compared: int = 0
    state_action: float = 0.0
    state_slack: float = 0.0
    action: float = 0.0
    slack: float = 0.0
    ties: int = 0
    fallback: int = 0

    def add(self, other: "Found") -> None:
        for name in ("compared", "ties", "fallback"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("state_action", "state_slack", "action", "slack"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))

    @property
    def worst(self) -> float:
        return max(self.state_action, self.state_slack, self.action, self.slack)


def compare(
    case: Case,
    rule: str,
    jax_policy: Policy,
    start: Callable[..., Any],
    rows: int,
    steps: int,
    adopt: Callable[[Any, Any, np.ndarray], None],
    out_of_range: str = "ignore",
) -> Found:
    """`rows` episodes of `steps` steps by JAX and by another runtime, with the same noise.

    `start(**arguments)` begins the other's, twice; `adopt(theirs, ours, rows)` copies JAX's state into those
    rows: after each step for one of the two, after a tie for the other.
    """
    random = np.random.default_rng(rows + steps)
    k, d = case.costs, jax_policy.spec.observation_size
    unit = np.array(jax_policy.units.cost)
    told = {
        "threshold": random.uniform(0, 60, (rows, k)) * unit,
        "horizon": random.integers(steps, STEPS + 1, rows),
        "execution": rule,
        "candidates": case.candidates,
        "out_of_range": out_of_range,
    }
    if not case.method.startswith("bcrl"):
        del told["execution"], told["candidates"]
    ours = jax_policy.start(**told)
    own, led = (start(noise=noise_of(ours), **told) for _ in range(2))
    width = np.ones(jax_policy.spec.action_size)
    if case.schema.action_low:
        width = (np.array(case.schema.action_high) - np.array(case.schema.action_low)) / 2
    found = Found()
    for _ in range(steps):
        seen = random.normal(size=(rows, d)).astype(np.float32)
        cost = random.uniform(0, 1, (rows, k)).astype(np.float32) * unit.astype(np.float32)
        wanted = ours.act(seen)
        ties = []
        for prefix, theirs in (("", own), ("state_", led)):
            got = theirs.act(seen)
            gap = (wanted != got) * 1.0 if case.discrete else (np.abs(wanted - got) / width).max(-1)
            slack_gap = (np.abs(ours.slack - theirs.slack) / (unit * (3.0 + np.abs(ours.slack / unit)))).max(
                -1
            )
            ties.append((gap > ANOTHER) | (ours.fallback != theirs.fallback))
            worst: dict[str, Any] = {
                "action": float(gap[~ties[-1]].max(initial=0)),
                "slack": float(slack_gap.max()),
            }
            found.add(Found(**{f"{prefix}{name}": value for name, value in worst.items()}))
            theirs.observe(cost)
        found.add(Found(compared=rows, ties=int(ties[0].sum()), fallback=int(ours.fallback.sum())))
        ours.observe(cost)
        adopt(led, ours, np.ones(rows, bool))
        if ties[0].any():
            adopt(own, ours, ties[0])
    return found


def adopt_numpy(theirs: runtime.Episode, ours: Any, rows: np.ndarray) -> None:
    for name in ("budget", "slack", "spent"):
        if name in theirs.memory:
            theirs.memory[name] = np.where(
                rows[:, None], np.asarray(getattr(ours.memory, name)), theirs.memory[name]
            )


class OnnxEpisode:
    """An exported policy in onnxruntime, with the calls of an episode."""

    def __init__(self, files: dict[str, Path], noise: Callable[[str, tuple[int, ...]], np.ndarray]):
        import onnxruntime

        one = onnxruntime.SessionOptions()
        one.intra_op_num_threads = 1
        self.parts = {name: onnxruntime.InferenceSession(path, one) for name, path in files.items()}
        self.noise = noise
        self.state: Any = None

    def start(self, threshold: np.ndarray, horizon: np.ndarray) -> None:
        told = {"threshold": np.float32(threshold), "horizon": np.asarray(horizon, np.int64)[:, None]}
        (self.state,) = self.parts["start"].run(None, told)

    def act(self, seen: np.ndarray) -> np.ndarray:
        given = {"observation": seen, "state": self.state}
        for entry in self.parts["act"].get_inputs():
            if entry.name.startswith("noise_"):
                given[entry.name] = self.noise(entry.name[6:], (len(seen), *entry.shape[1:]))
        names = [entry.name for entry in self.parts["act"].get_outputs()]
        found: dict[str, Any] = dict(zip(names, self.parts["act"].run(None, given), strict=True))
        self.slack, self.fallback, self.state = (found[name] for name in ("slack", "fallback", "state_out"))
        self.outside = found.get("outside")
        return found["action"]

    def observe(self, cost: np.ndarray) -> None:
        (self.state,) = self.parts["observe"].run(None, {"state": self.state, "cost": cost})


def onnx_start(path: Path) -> Callable[..., OnnxEpisode]:
    """`start` of an exported policy, as `compare` takes it."""

    def start(noise: Any, threshold: Any, horizon: Any, out_of_range: str, **how: Any) -> OnnxEpisode:
        leave: Any = "fallback" if out_of_range == "fallback" else "warn"
        files = export_onnx(path, path.with_suffix(".onnx"), out_of_range=leave, **how)
        episode = OnnxEpisode(files, noise)
        episode.start(threshold, horizon)
        return episode

    return start


def adopt_onnx(theirs: OnnxEpisode, ours: Any, rows: np.ndarray) -> None:
    about = json.loads(theirs.parts["act"].get_modelmeta().custom_metadata_map["bcrl"])
    for name in ("budget", "slack"):
        if name in about["state"]:
            place = slice(*about["state"][name])
            now = np.asarray(getattr(ours.memory, name))
            theirs.state[:, place] = np.where(rows[:, None], now, theirs.state[:, place])


def check(case: Case, episodes: int, hidden: tuple[int, ...]) -> Iterator[tuple[str, str, Found]]:
    """(rule, runtime, what was found) of whole episodes of a case."""
    policy = make_policy(case, hidden)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.bcrl"
        policy.save(path)
        others: dict[str, Any] = {"numpy": (runtime.load(path).start, adopt_numpy)}
        if find_spec("onnxruntime"):
            others["onnx"] = onnx_start(path), adopt_onnx
        for rule in rules_of(case):
            for name, (start, adopt) in others.items():
                yield rule, name, compare(case, rule, policy, start, episodes, STEPS, adopt)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=250)
    parser.add_argument("--hidden", type=int, nargs="*", default=[64, 64])
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    cases = [case for case in CASES if asked.only in case.name]
    worst = Found()
    rows = []
    with progress("comparing", len(cases), "cases") as tick:
        for case in cases:
            for rule, name, found in check(case, asked.episodes, tuple(asked.hidden)):
                rows.append((case.name, rule, name, found))
                worst.add(found)
            tick(note=case.name)
    print(f"{'':<45}  the same state      own state")
    print(
        f"{'case':<22}{'rule':<15}{'by':<8}{'action':>9}{'slack':>8} {'action':>9}{'slack':>8}{'ties':>5}  fb"
    )
    for case_name, rule, name, f in rows:
        states = f"{f.state_action:>9.1e}{f.state_slack:>8.0e}"
        own = f"{f.action:>9.1e}{f.slack:>8.0e}"
        print(f"{case_name:<22}{rule:<15}{name:<8}{states} {own}{f.ties:>5}{f.fallback / f.compared:>4.0%}")
    print(
        f"{len(rows)} comparisons, {worst.compared:,} states; worst with the same state: action "
        f"{worst.state_action:.1e}, slack {worst.state_slack:.1e}; in whole episodes: action "
        f"{worst.action:.1e}, slack {worst.slack:.1e}; {worst.ties} ties"
    )
    if worst.worst > TOLERANCE or worst.ties > 1e-4 * worst.compared:
        raise SystemExit(f"the runtimes differ by more than {TOLERANCE:g}")


if __name__ == "__main__":
    main()
