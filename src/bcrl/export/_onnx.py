"""A policy as three ONNX graphs, start, act and observe, with the state of its budget as a tensor.

The graphs say what `bcrl.runtime` computes, from the same arrays. docs/policy-file.md has the columns of the
state and what a caller must check itself.
"""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.errors import BCRLError, need
from bcrl.export._graph import IR_VERSION, OPSET, Graph, whole
from bcrl.runtime import MLP, ClonedActor, Execution, OutOfRange, Policy, SwitchingActor, TrackingActor, load

INFINITE = np.float32(np.inf)


def export_onnx(
    source: str | os.PathLike,
    out: str | os.PathLike,
    *,
    execution: Execution | None = None,
    candidates: int = 0,
    out_of_range: OutOfRange = "warn",
) -> dict[str, Path]:
    """Writes the graphs of a policy file for one execution rule: act into `out`, start and observe beside it.

    With `out_of_range="fallback"` the fallback acts outside the log's range; else the graph only says so.
    """
    need("onnx", extra="onnx")
    policy, out = load(source), Path(out)
    told = 0.0 if policy.spec.cost_count == 1 else np.zeros(policy.spec.cost_count)
    asked = policy.asked(told, None, None, execution, candidates, None, False)
    log = policy.range_for(out_of_range)
    if asked.candidates > 10_000:
        raise BCRLError(f"candidates is {candidates}, but a graph takes 10,000 at most")
    export = _Export(policy, asked.execution, asked.candidates, log, out_of_range == "fallback")
    files = {"act": out, **{part: out.with_name(f"{out.stem}-{part}.onnx") for part in ("start", "observe")}}
    for part, path in files.items():
        graph = Graph(f"bcrl-{part}")
        getattr(export, part)(graph)
        graph.save(path, export.about(part))
    return files


class _Export:
    """The three graphs; every one has rows of episodes."""

    def __init__(self, policy: Policy, execution: str, candidates: int, log: Any, leaves: bool):
        self.policy, self.spec, self.actor = policy, policy.spec, policy.actor
        self.execution, self.candidates, self.log, self.leaves = execution, candidates, log, leaves
        k = self.spec.cost_count
        sizes = {"horizon": 1, "step": 1, "threshold": k, "spent": k}
        if policy.tracks_budgets:
            sizes |= {"budget": k} if execution == "direct" else {}
            sizes |= {"slack": k, "charge": k} if execution in ("soft", "min") else {}
        ends = np.cumsum(list(sizes.values())).tolist()
        self.places = {name: (end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}
        self.width = ends[-1]

    def about(self, part: str) -> dict[str, Any]:
        """What the metadata of a graph says."""
        return {
            "format": "bcrl-onnx",
            "version": 1,
            "part": part,
            "opset": OPSET,
            "ir_version": IR_VERSION,
            "method": self.policy.name,
            "execution": self.execution,
            "candidates": self.candidates,
            "out_of_range": "fallback" if self.leaves else "report",
            "state": {name: list(place) for name, place in self.places.items()},
            "policy_sha256": self.policy.header.get("sha256"),
        }

    def state(self, g: Graph) -> dict[str, str]:
        state = g.input("state", "FLOAT", self.width)
        return {name: g.columns(state, *place) for name, place in self.places.items()}

    # ---- start and observe -----------------------------------------------------------------------------

    def start(self, g: Graph) -> None:
        """(threshold, horizon) → state. Horizon 0 makes the threshold a bare budget."""
        k = self.spec.cost_count
        threshold, horizon = g.input("threshold", "FLOAT", k), g.input("horizon", "INT64", 1)
        steps = g("Cast", horizon, to=1)
        budget = g("Div", g("Mul", threshold, self.factor(g, steps)), self.policy.units)
        zero = g("Mul", steps, 0.0)
        zeros = g("Expand", zero, g("Shape", threshold))
        parts = {"horizon": steps, "step": zero, "threshold": g("Div", threshold, self.policy.units)}
        parts |= {"spent": zeros, "budget": budget, "charge": zeros}
        if "slack" in self.places:
            parts["slack"] = g("Sub", budget, self.actor.factor * self.actor.mean_start_value)  # type: ignore[attr-defined]
        g.output(g.concat(*(parts[name] for name in self.places)), "state_out", "FLOAT", self.width)

    def observe(self, g: Graph) -> None:
        """(state, cost) → state."""
        state, cost = self.state(g), g.input("cost", "FLOAT", self.spec.cost_count)
        paid = g("Div", cost, self.policy.units)
        parts = state | {"step": g("Add", state["step"], 1.0), "spent": g("Add", state["spent"], paid)}
        for name, price in (("budget", paid), ("slack", state.get("charge", ""))):
            if name in state:
                left = g("Mul", g("Sub", state[name], price), self.actor.growth)  # type: ignore[attr-defined]
                parts[name] = g("Min", left, self.actor.slack_limit)  # type: ignore[attr-defined]
        g.output(g.concat(*(parts[name] for name in self.places)), "state_out", "FLOAT", self.width)

    def factor(self, g: Graph, steps_left: str) -> str:
        """(1 − γ^n) / ((1 − γ) n), in float64: ONNX has no expm1."""
        gamma = self.actor.gamma
        n = g("Max", g("Cast", steps_left, to=11), np.float64(1.0))
        if gamma == 1.0:
            return g("Cast", g("Div", n, n), to=1)
        spent = g("Sub", np.float64(1.0), g("Exp", g("Mul", n, np.float64(math.log(gamma)))))
        return g("Cast", g("Div", spent, g("Mul", n, np.float64(1.0 - gamma))), to=1)

    def by_horizon(self, g: Graph, state: dict[str, str]) -> str:
        left = g("Max", g("Sub", state["threshold"], state["spent"]), 0.0)
        return g("Mul", left, self.factor(g, g("Sub", state["horizon"], state["step"])))

    # ---- act -------------------------------------------------------------------------------------------

    def act(self, g: Graph) -> None:
        """(observation, state, noise) → action, slack, fallback, outside, state."""
        actor, k, a = self.actor, self.spec.cost_count, self.spec.action_size
        seen, state = g.input("observation", "FLOAT", self.spec.observation_size), self.state(g)
        features = g("Div", g("Sub", seen, actor.mean), actor.std)
        outside = self.outside(g, seen)
        if isinstance(actor, ClonedActor):
            out = g.network(actor.policy, features)
            action = g("ArgMax", out, axis=-1, keepdims=0) if self.spec.discrete else self.mean(g, out)
            slack = g("Sub", state["threshold"], state["spent"])
            fallback = g("Less", g("ReduceMax", g("Mul", slack, 0.0), whole(-1), keepdims=0), 0.0)
        elif isinstance(actor, SwitchingActor):
            action, slack, fallback = self.switched(g, actor, features, state)
        else:
            assert isinstance(actor, TrackingActor)
            action, slack, fallback = self.tracked(g, actor, features, state, outside)
        if self.spec.discrete:
            g.output(action, "action", "INT64")
        else:
            g.output(self.in_bounds(g, action), "action", "FLOAT", a)
        g.output(g("Mul", slack, self.policy.units), "slack", "FLOAT", k)
        g.output(fallback, "fallback", "BOOL")
        if outside:
            g.output(outside, "outside", "BOOL")
        g.output(g.concat(*(state[name] for name in self.places)), "state_out", "FLOAT", self.width)

    def outside(self, g: Graph, seen: str) -> str:
        """Whether an observation lies outside the log's range; nothing where that is not known."""
        if self.log is None:
            return ""
        return self.any(g, g("Or", g("Less", seen, self.log.low), g("Greater", seen, self.log.high)))

    def in_bounds(self, g: Graph, action: str) -> str:
        low, high = (self.policy.schema.get(f"action_{end}") for end in ("low", "high"))
        if not low or not high:
            return action
        least, most = np.array(low, np.float32), np.array(high, np.float32)
        scaled = g("Mul", g("Div", g("Add", action, 1.0), 2.0), most - least)
        return g("Min", g("Max", g("Add", least, scaled), least), most)

    def switched(
        self, g: Graph, actor: SwitchingActor, features: str, state: dict[str, str]
    ) -> tuple[str, str, str]:
        heads, a = actor.options["heads"], self.spec.action_size
        actions = g.reshape(g("Tanh", g.network(actor.heads, features)), -1, heads, a)
        q = g.reshape(g.network(actor.critics, self.pairs(g, features, actions, heads)), 4, -1, heads)
        worth = g("ReduceMin", g("Slice", q, whole(0), whole(2), whole(0)), whole(0), keepdims=0)
        cost = g("ReduceMax", g("Slice", q, whole(2), whole(4), whole(0)), whole(0), keepdims=0)
        budget = self.by_horizon(g, state)
        fits = g("Less", cost, budget)
        some = self.any(g, fits)
        best = self.best(g, fits, worth)
        cheapest = g("ArgMin", cost, axis=-1, keepdims=1)
        chosen = g("Where", self.column(g, some), best, cheapest)
        slack = g("Sub", budget, g("ReduceMin", cost, whole(-1)))
        return g("GatherND", actions, chosen, batch_dims=1), slack, g("Not", some)

    def tracked(
        self, g: Graph, actor: TrackingActor, features: str, state: dict[str, str], outside: str
    ) -> tuple[str, str, str]:
        """BCRL; puts the charge of the action into `state`."""
        if actor.episodic:
            time = g("Min", g("Div", state["step"], float(self.spec.horizon)), 1.0)
            features = g.concat(features, time)
        value = g.network(actor.cost_value, features)
        value = g("Max", value, 0.0) if actor.options["nonnegative_values"] else value
        value = g("Mul", value, actor.factor)
        slack = self.slack_by_rule(g, state, value)
        decisive = slack
        if self.leaves:
            decisive = g("Where", self.column(g, outside), -INFINITE, slack)
        budget = g("Add", decisive, value)
        shown = self.encoded(g, actor, decisive if actor.soft else budget)
        inputs = g.concat(features, shown)
        if self.spec.discrete:
            action, vector, allowed = self.label(g, actor, features, inputs, budget)
        else:
            action, allowed = self.drawn(g, actor, features, inputs, decisive, budget)
            vector = action
        if "charge" in state:
            q = g.network(actor.cost_critic, g.concat(features, vector))
            q = g("Mul", g("ReduceMax", q, whole(0), keepdims=0), actor.factor)
            state["charge"] = g("Sub", q, value)
        return action, slack, g("Not", allowed)

    def slack_by_rule(self, g: Graph, state: dict[str, str], value: str) -> str:
        if self.execution == "soft":
            return state["slack"]
        if self.execution == "direct":
            return g("Sub", state["budget"], value)
        by_horizon = g("Sub", self.by_horizon(g, state), value)
        return by_horizon if self.execution == "finite-horizon" else g("Min", by_horizon, state["slack"])

    def drawn(
        self, g: Graph, actor: TrackingActor, features: str, inputs: str, slack: str, budget: str
    ) -> tuple[str, str]:
        """Continuous actions, and whether they are the policy's own."""
        out = g.network(actor.actor, inputs)
        action = self.mean(g, out)
        allowed = self.all(g, g("GreaterOrEqual", slack, float(actor.options["fallback_below"])))
        draws = max(self.candidates, int(actor.guarded))
        if draws:
            actions = g("Unsqueeze", action, whole(1))
            if draws > 1:  # the first candidate is the mean
                noise = g.input("noise_candidates", "FLOAT", draws, self.spec.action_size)
                others = self.spread(g, out, action, g("Slice", noise, whole(1), whole(draws), whole(1)))
                actions = g("Concat", actions, others, axis=1)
            cost, worth = self.compared(g, actor, features, actions, budget, draws)
            if actor.fallback_critic is not None:
                cost = g("Mul", self.cost_ahead(g, actor, features, actions, draws), actor.factor)
            safe = self.safe(g, cost, budget)
            action = g("GatherND", actions, self.best(g, safe, worth), batch_dims=1)
            allowed = g("And", allowed, self.any(g, safe))
        careful = self.first_safe(
            g, actor, features, action, self.careful(g, actor, features, budget), budget
        )
        careful = g("Max", g("Min", careful, 1.0), -1.0)
        return g("Where", self.column(g, allowed), action, careful), allowed

    def careful(self, g: Graph, actor: TrackingActor, features: str, budget: str) -> str:
        out = g.network(actor.fallback, features)
        mean, draws = self.mean(g, out), actor.options["fallback_draws"]
        if not draws:
            return mean
        noise = g.input("noise_fallback", "FLOAT", draws, self.spec.action_size)
        actions = self.spread(g, out, mean, noise)
        cost = self.cost_ahead(g, actor, features, actions, draws)
        total = self.urgent(g, actor, cost, budget)
        weight = g("Softmax", g("Mul", total, -float(actor.options["fallback_beta"])), axis=-1)
        return g("Squeeze", g("MatMul", g("Unsqueeze", weight, whole(1)), actions), whole(1))

    def first_safe(
        self, g: Graph, actor: TrackingActor, features: str, action: str, careful: str, budget: str
    ) -> str:
        """The first safe action of n on the way from the policy's to the fallback's, which ends it."""
        n = actor.options["fallback_mixtures"]
        if not n:
            return careful
        share = (np.arange(1, n + 1, dtype=np.float32) / np.float32(n))[:, None]
        start, end = (
            g("Mul", g("Unsqueeze", x, whole(1)), w) for x, w in ((action, 1 - share), (careful, share))
        )
        actions = g("Add", start, end)
        cost = g("Mul", self.cost_ahead(g, actor, features, actions, n), actor.factor)
        safe = g("Or", self.safe(g, cost, budget), np.arange(n) == n - 1)
        first = self.best(g, safe, np.arange(n, 0, -1).astype(np.float32))
        return g("GatherND", actions, first, batch_dims=1)

    def cost_ahead(self, g: Graph, actor: TrackingActor, features: str, actions: str, count: int) -> str:
        """Q_F (batch, n, k) if the file has it, else Q_C."""
        critic = actor.fallback_critic or actor.cost_critic
        q = g.network(critic, self.pairs(g, features, actions, count))
        return g.reshape(g("ReduceMax", q, whole(0), keepdims=0), -1, count, self.spec.cost_count)

    def urgent(self, g: Graph, actor: TrackingActor, cost: str, budget: str) -> str:
        """Σ ω_i u_i Q_i of each draw, u_i = φ mean(Q_i) / (R δ_i), at most 1; R is `fallback_ramp`."""
        ramp = float(actor.options["fallback_ramp"])
        if not ramp:
            return g("MatMul", cost, actor.omega)
        enough = g("Max", g("Mul", budget, ramp), 1e-6)
        need = g("Mul", g("ReduceMean", cost, whole(1), keepdims=0), actor.factor)
        urgency = g("Max", g("Min", g("Div", need, enough), 1.0), 0.0)
        weights = g("Unsqueeze", g("Mul", urgency, actor.omega), whole(2))
        return g("Squeeze", g("MatMul", cost, weights), whole(2))

    def label(
        self, g: Graph, actor: TrackingActor, features: str, inputs: str, budget: str
    ) -> tuple[str, str, str]:
        """The chosen label (−1 where a critic is not finite), the same as a vector, and whose it is."""
        n = self.spec.action_size
        every = np.eye(n, dtype=np.float32)
        good, cheap = self.supported(g, actor.actor, inputs), self.supported(g, actor.fallback, features)
        rows = g("Concat", g("Shape", features, start=0, end=1), whole(n, n), axis=0)
        actions = g("Expand", every, rows)
        cost, worth = self.compared(g, actor, features, actions, budget, n)
        safe = g("And", good, self.safe(g, cost, budget))
        allowed = self.any(g, safe)
        total = g("MatMul", cost, actor.omega)
        cheapest = g("ArgMin", g("Where", cheap, total, INFINITE), axis=-1, keepdims=1)
        chosen = g("Where", self.column(g, allowed), self.best(g, safe, worth), cheapest)
        vector = g("Gather", every, g("Squeeze", chosen, whole(1)), axis=0)
        # x − x is 0 unless x is infinite or NaN.
        sums = g(
            "Add",
            g("ReduceSum", cost, whole(-1, -2), keepdims=0),
            g("ReduceSum", worth, whole(-1), keepdims=0),
        )
        known = g("Equal", g("Sub", sums, sums), 0.0)
        label = g("Where", known, g("Squeeze", chosen, whole(1)), np.int64(-1))
        return label, vector, allowed

    def supported(self, g: Graph, network: MLP, x: str) -> str:
        logits = g.network(network, x)
        below = g("Sub", logits, g("ReduceMax", logits, whole(-1)))
        with np.errstate(divide="ignore"):
            least = np.log(np.float32(self.actor.options["support"]))
        return g("GreaterOrEqual", below, least)

    def compared(
        self, g: Graph, actor: TrackingActor, features: str, actions: str, budget: str, count: int
    ) -> tuple[str, str]:
        """Q_C (batch, n, k) and Q_R (batch, n)."""
        k = self.spec.cost_count
        pairs = self.pairs(g, features, actions, count)
        q = g("ReduceMax", g.network(actor.cost_critic, pairs), whole(0), keepdims=0)
        cost = g("Mul", g.reshape(q, -1, count, k), actor.factor)
        each = g("Expand", g("Unsqueeze", budget, whole(1)), g("Shape", cost))
        shown = self.encoded(g, actor, g("Sub", each, cost) if actor.soft else each)
        worth = g.network(actor.critic, g.concat(pairs, g.reshape(shown, -1, k)))
        return cost, g.reshape(g("ReduceMin", worth, whole(0), keepdims=0), -1, count)

    # ---- pieces ----------------------------------------------------------------------------------------

    def mean(self, g: Graph, out: str) -> str:
        return g("Tanh", g.columns(out, 0, self.spec.action_size))

    def spread(self, g: Graph, out: str, mean: str, noise: str) -> str:
        """Draws around the mean, inside their bounds."""
        a = self.spec.action_size
        log_std = g("Max", g("Min", g.columns(out, a, 2 * a), 2.0), -20.0)
        width = g("Mul", g("Unsqueeze", g("Exp", log_std), whole(1)), noise)
        return g("Max", g("Min", g("Add", g("Unsqueeze", mean, whole(1)), width), 1.0), -1.0)

    def encoded(self, g: Graph, actor: TrackingActor, budget: str) -> str:
        inside = g("Min", g("Max", budget, 0.0), actor.slack_limit)
        return g("Log", g("Add", inside, 1.0)) if actor.options["budget_input"] == "log" else inside

    def pairs(self, g: Graph, features: str, actions: str, count: int) -> str:
        """(batch, f) and (batch, n, a) as (batch · n, f + a)."""
        rows = g("Shape", actions, start=0, end=2)
        width = g("Shape", features, start=1, end=2)
        repeated = g("Expand", g("Unsqueeze", features, whole(1)), g("Concat", rows, width, axis=0))
        inputs = self.spec.observation_size + getattr(self.actor, "episodic", False) + self.spec.action_size
        return g.reshape(g.concat(repeated, actions), -1, inputs)

    def safe(self, g: Graph, cost: str, budget: str) -> str:
        return self.all(g, g("LessOrEqual", cost, g("Unsqueeze", budget, whole(1))))

    def best(self, g: Graph, fits: str, worth: str) -> str:
        return g("ArgMax", g("Where", fits, worth, -INFINITE), axis=-1, keepdims=1)

    def any(self, g: Graph, marks: str) -> str:
        return g("Cast", g("ReduceMax", g("Cast", marks, to=6), whole(-1), keepdims=0), to=9)

    def all(self, g: Graph, marks: str) -> str:
        return g("Cast", g("ReduceMin", g("Cast", marks, to=6), whole(-1), keepdims=0), to=9)

    def column(self, g: Graph, marks: str) -> str:
        return g("Unsqueeze", marks, whole(1))
