"""Episodes as a client sees them: numbered steps, the same answer to a request that is repeated."""

import asyncio
from typing import Any

from bcrl.errors import BCRLError
from bcrl.serve import fields
from bcrl.serve.engine import Engine, Running

GOAL = ("threshold", "budget", "horizon", "execution", "candidates", "calibrated", "seed")
ENDS = ("client", "horizon", "idle", "unobserved")
"""How an episode ends: the client said so; its steps are used up; no step for too long, in the second case
with an action whose cost is unknown."""
STEPS = 2**53  # what every reader of JSON takes for a whole number


class Conflict(Exception):
    """A request that does not fit the state of its episode."""


def read_goal(engine: Engine, body: dict[str, Any]) -> dict[str, Any]:
    """What `Engine.start` takes, from the fields of a request, checked."""
    goal: dict[str, Any] = {}
    if ("threshold" in body) == ("budget" in body):
        raise BCRLError("give either threshold (cost of a whole episode) or budget (discounted)")
    if "budget" in body and not engine.executions:
        raise BCRLError(f"budget is given, but {engine.name} tracks no budget: give threshold")
    name = "threshold" if "threshold" in body else "budget"
    goal[name] = fields.costs(name, body[name], engine.cost_count)
    if "horizon" in body:
        if name == "budget":
            raise BCRLError("horizon is given, but a budget is for any number of steps: give threshold")
        goal["horizon"] = fields.whole("horizon", body["horizon"], 1, engine.longest)
    if "execution" in body:
        rules = engine.executions if name == "threshold" else ("soft", "direct")
        goal["execution"] = fields.choice("execution", body["execution"], rules)
    if "candidates" in body:
        goal["candidates"] = fields.choice("candidates", body["candidates"], engine.candidates)
    if "calibrated" in body:
        goal["calibrated"] = fields.truth("calibrated", body["calibrated"])
    goal["seed"] = fields.whole("seed", body.get("seed"), 0, 2**32 - 1)
    return goal


class Episode:
    """One episode: what it was asked for, its steps so far, and the last answers."""

    def __init__(
        self,
        engine: Engine,
        id: str,
        key: str | None,
        goal: dict[str, Any],
        at: float,
        *,
        running: bool = True,
    ):
        self.id, self.key, self.goal, self.started, self.touched = id, key, goal, at, at
        self.ended: str | None = None
        self.saved: asyncio.Future[None] | None = None
        """Done when the last change is on the disk."""
        self._engine = engine
        self._running: Running | None = engine.start(goal) if running else None
        limited = "budget" not in goal
        self.horizon: int | None = goal.get("horizon", engine.horizon) if limited else None
        self.step = 0
        self.spent = [0.0] * engine.cost_count
        self.earned: float | None = 0.0
        self.fallbacks = 0
        self._acted: dict[str, Any] | None = None  # the last act: its request and its answer
        self._observed: dict[str, Any] | None = None

    @property
    def next(self) -> str | None:
        """What the client does next; None at the end."""
        if self.ended is not None:
            return None
        return "observe" if self._acted is not None and self._acted["step"] == self.step else "act"

    def act(
        self, step: int, observation: list[float], at: float, said: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], bool]:
        """The answer, and whether it is new: an action for an observation, once for each step.

        `said` is the answer that a client has already got, from a journal.
        """
        last = self._acted
        if last is not None and last["step"] == step:
            if last["observation"] != observation:
                raise Conflict(f"step {step} was acted on with another observation: observe, then go on")
            return last["answer"], False
        if self.next == "observe":
            raise Conflict(
                f"step is {step}, but the action of step {self.step} waits for its cost: observe it"
            )
        self._expect("act", step)
        answer = said or {}
        if self._running is not None:
            action = self._running.act(observation).tolist()
            slack, fallback = fields.plain(self._running.slack.tolist()), bool(self._running.fallback)
            answer = said or {"action": action, "slack": slack, "fallback": fallback}
        answer = {"episode": self.id, "step": step, **answer}
        self._acted = {"step": step, "observation": observation, "answer": answer}
        self.fallbacks += answer["fallback"]
        self.touched = at
        return answer, True

    def observe(
        self, step: int, cost: float | list[float], reward: float | None, at: float
    ) -> tuple[dict[str, Any], bool]:
        """The answer, and whether it is new: the last action's cost, counted once for each step."""
        last = self._observed
        if last is not None and last["step"] == step:
            if (last["cost"], last["reward"]) != (cost, reward):
                raise Conflict(
                    f"step {step} was observed with cost {last['cost']} and reward {last['reward']}: a step "
                    "is counted once"
                )
            return last["answer"], False
        if self.ended is None and step == self.step and self.next == "act":
            raise Conflict(f"step {step} has no action yet: act first, then observe its cost")
        self._expect("observe", step)
        if self._running is not None:
            self._running.observe(cost, reward)
        self.step, self.touched = step + 1, at
        paid = cost if isinstance(cost, list) else [cost]
        self.spent = [before + one for before, one in zip(self.spent, paid, strict=True)]
        self.earned = None if reward is None or self.earned is None else self.earned + reward
        if self.horizon is not None and self.step >= self.horizon:
            self.end("horizon", at)
        answer = {
            "episode": self.id,
            "step": step,
            "next_step": self.step,
            "spent": self._spent(),
            "above_largest": bool(self._engine.policy.above_largest(paid).any()),
            "ended": self.ended,
        }
        self._observed = {"step": step, "cost": cost, "reward": reward, "answer": answer}
        return answer, True

    def end(self, how: str, at: float) -> None:
        """Frees what acting needs; the last answers stay for a client that asks again."""
        self.ended, self.touched, self._running = how, at, None

    def check_end(self, step: int) -> bool:
        """Whether a client's end after `step` steps is new."""
        if step != self.step:
            raise Conflict(f"step is {step}, but the episode has had {self.step} steps: give that number")
        if self.next == "observe":
            raise Conflict(f"the action of step {step} waits for its cost: observe it, then end")
        return self.ended is None

    def state(self) -> dict[str, Any]:
        """All that a client may ask for."""
        goal = {name: self.goal.get(name) for name in GOAL} | {
            "horizon": self.horizon,
            "execution": self.execution,
            "candidates": self.goal.get("candidates", 0),
            "calibrated": self.goal.get("calibrated", False),
        }
        return {
            "episode": self.id,
            "step": self.step,
            **goal,
            "spent": self._spent(),
            "next": self.next,
            "ended": self.ended,
        }

    @property
    def execution(self) -> str | None:
        """The execution rule, as `policy.start` chooses it where none is given."""
        default = "soft" if "budget" in self.goal else "finite-horizon"
        return self.goal.get("execution", default) if self._engine.executions else None

    def facts(self) -> dict[str, Any]:
        """Its row in the log of costs."""
        unknown = [float("nan")] * len(self.spent)
        actions = 0 if self._acted is None else self._acted["step"] + 1
        told = {
            name: unknown
            if (value := self.goal.get(name)) is None
            else value
            if isinstance(value, list)
            else [value]
            for name in ("threshold", "budget")
        }
        return told | {
            "episode": self.id,
            "policy": self._engine.digest[:16],
            "execution": self.execution or "",
            "horizon": self.horizon or "",
            "candidates": self.goal.get("candidates", 0),
            "calibrated": str(self.goal.get("calibrated", False)).lower(),
            "episode_seed": self.goal["seed"],
            "steps": self.step,
            "cost": self.spent,
            "return": "" if self.earned is None else self.earned,
            "fallback_share": self.fallbacks / actions if actions else 0.0,
            "end": self.ended,
            "started": self.started,
            "ended": self.touched,
        }

    def _expect(self, verb: str, step: int) -> None:
        if self.ended is not None:
            raise Conflict(f"the episode has ended ({self.ended}) after {self.step} steps: create another")
        if step != self.step:
            raise Conflict(f"step is {step}, but the next to {verb} is {self.step}: ask for the state")

    def _spent(self) -> float | list[float]:
        return self.spent[0] if len(self.spent) == 1 else self.spent
