"""Acting with a policy file on numpy alone: nothing else is imported, JAX least of all.

    policy = load("policy.bcrl")
    episode = policy.start(threshold=20, horizon=200)
    action = episode.act(observation)
    episode.observe(cost)

In the package this is `bcrl.runtime`. `bcrl export --to numpy` copies it next to a policy as
`bcrl_runtime.py`; that is why it is one file, though a long one. The file format and the rules are in
docs/policy-file.md. `bcrl.policy` and `bcrl.episode` take their checks from here, so that misuse is the same
error in both. All arithmetic is float32, as in training.
"""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
else:  # importing it takes as long as reading a policy
    ArrayLike = Any

if TYPE_CHECKING or __name__ == "bcrl.runtime":
    from bcrl.errors import BCRLError, brief, brief_repr
else:  # a copy without the package

    def brief(text: object, most: int = 200) -> str:
        """Text for a message: printable, one line, `most` characters of it."""
        cut = str(text) if len(str(text)) <= most else f"{str(text)[:most]}..."
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)

    def brief_repr(value: object) -> str:
        """The repr of a value for a message; files may hold anything."""
        try:
            return brief(repr(value))
        except RecursionError:
            return f"a {type(value).__name__} that is nested too deeply"
        except ValueError:  # Python writes no more than 4,300 digits
            return f"a {type(value).__name__} with an integer of thousands of digits"

    class BCRLError(Exception):
        """A mistake that a user can correct, in one line."""

        def __init__(self, message: object):
            super().__init__(brief(message, 2_000))


class UnknownMethod(BCRLError):
    """A policy of a method that this module cannot execute."""


LARGEST = 2**31 - 1
MOST_LABELS = 4_096  # of discrete actions; the critics compare all of them, each as long as their number
MOST_DRAWS = 10_000  # candidates, or samples of the fallback
MOST_EPISODES = 10_000_000  # of a batch
MOST_TABLE = 2**24  # bytes of a file's JSON; those of real files have some thousand
Execution = Literal["finite-horizon", "soft", "direct", "min"]
EXECUTIONS = get_args(Execution)
OutOfRange = Literal["warn", "fallback", "ignore"]
Noise = Callable[[str, tuple[int, ...]], ArrayLike]
"""Called with "candidates" or "fallback" and a shape, (n, a) or (batch, n, a): standard normal numbers."""


# ---- what every episode checks, here and in JAX -----------------------------------------------------------


def numbers(name: str, value: Any) -> np.ndarray:
    """What a user gives, as float32; text, times and complex numbers are refused."""
    try:
        array = np.asarray(value)
        if array.dtype == np.float32:
            return array
        if array.dtype.kind not in "cmMSU":
            with np.errstate(over="ignore"):  # infinity is refused where it matters
                return array.astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        pass
    raise BCRLError(f"{name} is {brief_repr(value)}, but must be a number, or an array of them")


class ObservedRange(NamedTuple):
    """The least and the largest of each observation in the log."""

    low: np.ndarray
    high: np.ndarray

    def to_dict(self) -> dict[str, list[float]]:
        return {"low": self.low.tolist(), "high": self.high.tolist()}

    @classmethod
    def read(cls, header: dict[str, Any], size: int, source: Any) -> "ObservedRange | None":
        """That of a policy file; None where it has none, as older ones."""
        if "observation_range" not in header:
            return None
        parts = header["observation_range"]
        fits = isinstance(parts, dict) and set(parts) == {"low", "high"}
        fits = fits and all(isinstance(x, list) and len(x) == size for x in parts.values())
        if not fits or not all(_is_number(x) for row in parts.values() for x in row):
            raise BCRLError(f"{source}: the header's observation_range is damaged ({brief_repr(parts)})")
        return cls(*(np.array(parts[name], np.float32) for name in ("low", "high")))


class Asked(NamedTuple):
    """What the caller of an episode asks for, checked; (..., k), and () or (batch,)."""

    allowed: np.ndarray
    steps: np.ndarray
    execution: Any
    candidates: int
    limited: bool
    """Whether it is a threshold, with a last step, and not a bare budget."""


class CheckedPolicy:
    """What is asked of a policy, checked. A subclass has these attributes."""

    name: str
    spec: Any
    schema: Any
    calibration: Any
    observed: ObservedRange | None
    tracks_budgets: bool
    longest: int | None

    @property
    def largest_costs(self) -> np.ndarray:
        """(k,) the largest cost of a step: the declared one, or else that of the log."""
        raise NotImplementedError

    def meaning(self) -> dict[str, Any]:
        """The parts of the schema that the file has: names and units of columns, for messages."""
        parts = self.schema if isinstance(self.schema, dict) else self.schema.to_dict()
        return {name: value for name, value in parts.items() if value}

    def above_largest(self, costs: ArrayLike) -> np.ndarray:
        """Which costs of a step, (..., k), are above the largest; float32 is rounded."""
        return np.asarray(costs) > 1.00001 * self.largest_costs

    def asked(
        self,
        threshold: ArrayLike | None,
        budget: ArrayLike | None,
        horizon: ArrayLike | None,
        execution: str | None,
        candidates: int,
        batch: int | None,
        calibrated: bool,
    ) -> Asked:
        """The arguments of `start`, brought to shape (..., k)."""
        if (threshold is None) == (budget is None):
            raise BCRLError(
                "start needs either threshold=κ (cost of a whole episode) or budget=δ (discounted)"
            )
        if execution is None:
            # A bare budget has no horizon to convert by; soft is the rule the paper's theorem covers.
            execution = "finite-horizon" if budget is None else "soft"
        if not isinstance(execution, str) or execution not in EXECUTIONS:
            known = ", ".join(EXECUTIONS)
            raise BCRLError(f"execution is {brief_repr(execution)}, but must be one of {known}")
        if budget is not None and execution in ("finite-horizon", "min"):
            raise BCRLError(f"execution {execution!r} needs threshold=κ and a horizon, not budget=δ")
        if not isinstance(candidates, int) or not 0 <= candidates <= MOST_DRAWS:
            raise BCRLError(
                f"candidates is {brief_repr(candidates)}, but must be 0 (off) or a number of actions to draw "
                f"up to {MOST_DRAWS:,}"
            )
        if not self.tracks_budgets and (candidates or execution != "finite-horizon"):
            raise BCRLError(
                f"{self.name} tracks no budget: give threshold, not budget, execution or candidates"
            )
        if batch is not None and (type(batch) is not int or not 1 <= batch <= MOST_EPISODES):
            raise BCRLError(
                f"batch is {brief_repr(batch)}, but must be a whole number from 1 to {MOST_EPISODES:,}"
            )
        steps = self._horizon(horizon)
        if type(calibrated) is not bool:
            raise BCRLError(f"calibrated is {brief_repr(calibrated)}, but must be True or False")
        if calibrated:
            if self.calibration is None or threshold is None:
                lack = "the policy is not calibrated" if threshold is not None else "it needs threshold=κ"
                raise BCRLError(f"calibrated=True, but {lack}: see bcrl calibrate")
            threshold = self.calibration.told(threshold, steps, execution, candidates)
        name, given = ("budget", budget) if threshold is None else ("threshold", threshold)
        allowed = self._costs(name, given)
        shapes = [allowed.shape[:-1], steps.shape, () if batch is None else (batch,)]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            raise BCRLError(f"{name}, horizon and batch have shapes {shapes}: use one length") from None
        if len(shape) > 1:
            raise BCRLError(f"{name} has shape {allowed.shape[:-1]}, but a batch is a single row")
        if 0 in shape:
            raise BCRLError(f"{name} is {brief_repr(given)}, but a batch has at least one episode")
        allowed = np.broadcast_to(allowed, (*shape, self.spec.cost_count))
        steps = np.broadcast_to(steps, shape).astype(np.int32)
        return Asked(allowed, steps, execution, candidates, budget is None)

    def _horizon(self, horizon: ArrayLike | None) -> np.ndarray:
        """A user's horizon(s) in whole steps."""
        try:
            steps = np.asarray(self.spec.horizon if horizon is None else horizon)
        except ValueError:  # nested lists of unequal length
            steps = np.zeros(())
        if steps.dtype.kind not in "iu" or np.any(steps < 1) or np.any(steps > LARGEST):
            raise BCRLError(
                f"horizon is {brief_repr(horizon)}, but must be a whole number of steps from 1 to 2³¹ − 1"
            )
        if self.longest is not None and np.any(steps > self.longest):
            raise BCRLError(
                f"horizon is {horizon}, but this episodic policy knows episodes of {self.longest} steps "
                "at most: train on a log of longer ones, or with the discounted criterion"
            )
        return steps

    def _costs(self, name: str, value: ArrayLike | None) -> np.ndarray:
        """A user's cost number(s) as (..., k)."""
        array = numbers(name, value)
        k = self.spec.cost_count
        if k == 1 and array.ndim <= 1:
            array = array[..., None]
        if array.shape[-1:] != (k,):
            raise BCRLError(
                f"{name} has shape {array.shape}, but this policy bounds {k} costs: give (..., {k})"
            )
        if not np.all(np.isfinite(array)) or np.any(array < 0):
            raise BCRLError(f"{name} is {brief_repr(value)}, but must be finite and not negative")
        return array

    def range_for(self, out_of_range: str) -> ObservedRange | None:
        """The range that observations are checked against, if the caller wants that and the file has it."""
        known = ("warn", "fallback", "ignore")
        if not isinstance(out_of_range, str) or out_of_range not in known:
            raise BCRLError(
                f"out_of_range is {brief_repr(out_of_range)}, but must be one of {', '.join(known)}"
            )
        if out_of_range == "fallback" and (not self.tracks_budgets or self.observed is None):
            lack = "its file has no range of observations: train again"
            raise BCRLError(
                f"out_of_range='fallback', but {self.name} has no fallback"
                if not self.tracks_budgets
                else f"out_of_range='fallback', but {lack}"
            )
        return None if out_of_range == "ignore" else self.observed


class CheckedEpisode:
    """A running episode, or a batch of them: `act`, then `observe` what the step cost."""

    needs_reward = False

    def __init__(self, policy: Any, asked: Asked, out_of_range: str):
        self.policy = policy
        self.batched = asked.steps.ndim == 1
        self._shape = asked.allowed.shape  # (k,) or (batch, k)
        self._horizon = asked.steps if asked.limited else np.full(asked.steps.shape, np.inf)
        self._count = np.zeros(asked.steps.shape, np.int64)
        self._acted = False  # an action waits for its cost
        self._insight: tuple[Any, Any] | None = None
        self._range = policy.range_for(out_of_range)
        self._warns = out_of_range == "warn"
        self._seen = self._beyond = 0
        self._warns_of_cost = True

    def __repr__(self) -> str:
        steps = f"step {self._count.max():,} of {self._horizon.max():,}"
        many = f"{len(self._count):,} episodes, " if self.batched else ""
        return f"Episode({self.policy.name}, {many}{steps})"

    def act(self, observation: ArrayLike) -> np.ndarray:
        """The action for this observation, (a,) or (batch, a), in [−1, 1] or the bounds of `policy.schema`.

        Of discrete actions it is the index of the label, () or (batch,).

        Each action is followed by `observe`; an episode has as many steps as its horizon.
        """
        self._ready()
        if self._acted:
            raise BCRLError("act was called twice: tell the episode what its last action cost, observe(cost)")
        if np.any(self._count >= self._horizon):
            way = "restart those that ended" if self.batched else "start a new one, or give a longer horizon"
            raise BCRLError(f"the episode has had its {self._horizon.max():,} steps: {way}")
        observed = numbers("observation", observation)
        wanted = (*self._shape[:-1], self.policy.spec.observation_size)
        if observed.shape != wanted:
            names = ", ".join(self.policy.meaning().get("observation_names", []))
            raise BCRLError(
                f"observation has shape {observed.shape}, but this episode expects {wanted}"
                f"{names and ': '}{brief(names, 400)}"
            )
        if not (finite := np.isfinite(observed)).all():
            where = tuple(np.argwhere(~finite)[0])
            raise BCRLError(
                f"observation: {self._column(int(where[-1]))[0]} is {observed[where]:g}: mend the reading, "
                "or give the last good one, before acting on it"
            )
        if self._range is not None:
            self._look_beyond(observed, self._range)
        action, insight = self._act(observed)
        if not np.isfinite(action).all():
            raise BCRLError(
                f"the policy has no finite action for an observation as large as {np.abs(observed).max():g}: "
                "is it in the unit of the log?"
            )
        self._insight, self._acted = insight, True
        return action.argmax(-1) if self.policy.spec.discrete else action

    def observe(self, cost: ArrayLike, reward: ArrayLike | None = None) -> None:
        """Tells the episode what its last action cost (and earned, where the policy needs to know).

        The first cost above the largest one that the policy knows is a warning. It is charged like any other.
        """
        self._ready()
        if not self._acted:
            raise BCRLError("observe comes after act: no action is waiting for its cost")
        if reward is None and self.needs_reward:
            raise BCRLError(f"{self.policy.name} needs the reward too: observe(cost, reward)")
        shape = self._shape
        costs = numbers("cost", cost)
        costs = costs[..., None] if shape[-1] == 1 and costs.shape == shape[:-1] else costs
        if costs.shape != shape:
            raise BCRLError(f"cost has shape {np.shape(cost)}, but this episode expects {shape}")
        if not np.all(np.isfinite(costs)) or np.any(costs < 0):
            raise BCRLError(f"cost is {brief_repr(cost)}, but must be finite and not negative")
        rewards = numbers("reward", np.zeros(shape[:-1], np.float32) if reward is None else reward)
        if rewards.shape != shape[:-1] or not np.isfinite(rewards).all():
            raise BCRLError(f"reward is {brief_repr(reward)}, but must be finite and of shape {shape[:-1]}")
        self._observe(costs, rewards)
        self._count, self._acted = self._count + 1, False
        above = self.policy.above_largest(costs)
        if self._warns_of_cost and above.any():  # last: where warnings are errors, the cost is charged too
            self._warn_of_cost(costs, above)

    def restart(self, which: ArrayLike) -> None:
        """Begins the marked episodes of a batch anew, for vectorised environments that reset themselves."""
        if not self.batched:
            raise BCRLError("restart is for batches: call policy.start for a new single episode")
        self._ready()
        if self._acted:
            raise BCRLError("restart comes after observe: an action is waiting for its cost")
        marked = numbers("which", which).astype(bool)
        if marked.shape != self._shape[:-1]:
            raise BCRLError(f"restart marks {marked.shape}, but the batch is {self._shape[:-1]}")
        self._count = np.where(marked, 0, self._count)
        self._restart(marked)

    @property
    def slack(self) -> np.ndarray:
        """The slack that decided the last action, (k,) or (batch, k); negative when overspent."""
        return np.asarray(self._decided()[0])

    @property
    def fallback(self) -> np.ndarray:
        """Whether the least-cost fallback chose the last action."""
        return np.asarray(self._decided()[1])

    @property
    def outside(self) -> float:
        """The share of the observations so far that lie outside the log's range; 0 if that is not known."""
        return self._beyond / max(self._seen, 1)

    def _decided(self) -> tuple[Any, Any]:
        if self._insight is None:
            raise BCRLError("nothing has been decided yet: call act first")
        return self._insight

    def _warn_of_cost(self, costs: np.ndarray, above: np.ndarray) -> None:
        self._warns_of_cost = False
        where = tuple(np.argwhere(above)[0])
        i, known = int(where[-1]), self.policy.meaning()
        name = known.get("cost_names", {i: ""})[i]
        unit = known.get("units", {}).get(name, "")
        unit = f" {brief(unit, 40)}" if unit else ""
        most = "the declared largest cost of a step" if "max_cost" in known else "the largest cost of the log"
        warnings.warn(
            f"cost{name and ' '}{brief(name, 80)} is {costs[where]:g}{unit}, above {most}, "
            f"{self.policy.largest_costs[i]:g}{unit}: it is charged in full, but the policy has learned "
            "nothing of such steps; is it in the unit of the log?",
            stacklevel=3,
        )

    def _look_beyond(self, observed: np.ndarray, log: ObservedRange) -> None:
        """Counts observations outside the log's range; the first of an episode is a warning."""
        odd = (observed < log.low) | (observed > log.high)
        self._seen += max(self._count.size, 1)
        if not odd.any():
            return
        self._beyond += int(np.count_nonzero(odd.any(-1)))
        if self._warns:
            self._warns = False  # once is enough; `outside` tells how it goes on
            where = tuple(np.argwhere(odd)[0])
            i = int(where[-1])
            what, unit = self._column(i)
            value = f"{observed[where]:g}" + (f" {brief(unit, 40)}" if unit else "")
            warnings.warn(
                f"{self.outside:.1%} of the observations so far lie outside the log's range: "
                f"{what} is {value}, the log's {log.low[i]:g} to {log.high[i]:g} "
                "(more: episode.outside; out_of_range='fallback' leaves these steps to the fallback)",
                stacklevel=3,
            )

    def _column(self, i: int) -> tuple[str, str]:
        """A column of observations, by its number and its name if it has one; and its unit."""
        known = self.policy.meaning()
        name = known.get("observation_names", {i: ""})[i]
        what = f"number {i}" + (f" ({brief(name, 80)})" if name else "")
        return what, known.get("units", {}).get(name, "")

    def _ready(self) -> None:
        """What a subclass checks before each call."""

    def _act(self, observed: np.ndarray) -> tuple[np.ndarray, tuple[Any, Any]]:
        """An action, and slack and fallback."""
        raise NotImplementedError

    def _observe(self, costs: np.ndarray, rewards: np.ndarray) -> None:
        raise NotImplementedError

    def _restart(self, marked: np.ndarray) -> None:
        raise NotImplementedError


# ---- the policy file --------------------------------------------------------------------------------------

OF_BCRL = {
    "hidden": (512, 512),
    "tracking": "soft",
    "criterion": "discounted",
    "gamma_cost": 0.99,
    "nonnegative_values": True,
    "cost_weights": None,
    "fallback_below": 0.1,
    "fallback_draws": 8,
    "fallback_beta": 5.0,
    "support": 0.01,
    "budget_input": "log",
    "extraction": "clone",
    "critic_norm": False,
    "fallback_critic": False,
    "fallback_ramp": 0.0,
    "fallback_mixtures": 0,
    # Two that older files do not have:
    "check_action": False,
    "safety_factor": 1.0,
}
BCRL_TRAINS_WITH = (
    "cost_unit reward_unit time_limits tau_c cost_regression temperature_c tau_r reward_regression "
    "temperature_r gamma beta weight_limit sparse_extraction batch_size learning_rate target_rate clip_norm "
    "dropout phases budget_samples max_budget slack_draw temperature_unit exponent_limit greed unsafe_price "
    "cost_share label_values n_step cost_price decay"
)
CLONING_TRAINS_WITH = "cost_unit reward_unit batch_size learning_rate dropout"
# For each method: the options that acting needs with their defaults, and those that training alone uses. A
# file with an option that is in neither list may act otherwise than this module knows.
METHODS: dict[str, tuple[dict[str, Any], str]] = {
    "bcrl": (OF_BCRL, BCRL_TRAINS_WITH),
    "bcrl-td3bc": (OF_BCRL, f"{BCRL_TRAINS_WITH} noise noise_limit"),
    "bc-all": ({"hidden": (512, 512)}, CLONING_TRAINS_WITH),
    "bc-safe": ({"hidden": (512, 512)}, f"{CLONING_TRAINS_WITH} threshold"),
    "caps": (
        {"hidden": (512, 512), "heads": 2, "gamma": 0.99},
        "cost_unit reward_unit variant batch_size target_rate tau_r tau_c beta weight_limit learning_rate "
        "reward_scale",
    ),
}
# The values that options may have: choices, or least and largest number.
VALUES: dict[str, Any] = {
    "tracking": ("soft", "direct"),
    "criterion": ("discounted", "episodic"),
    "budget_input": ("log", "raw"),
    "extraction": ("clone", "gradient"),
    "nonnegative_values": (True, False),
    "check_action": (True, False),
    "critic_norm": (True, False),
    "fallback_critic": (True, False),
    "gamma_cost": [1e-300, 1.0],
    "gamma": [0.0, 1.0],
    "safety_factor": [1.0, 1e6],
    "fallback_below": [0.0, 1e300],
    "fallback_draws": [0, MOST_DRAWS],
    "fallback_beta": [0.0, 1e300],
    "fallback_ramp": [0.0, 1e300],
    "fallback_mixtures": [0, MOST_DRAWS],
    "support": [0.0, 1.0],
    "heads": [2, 1_024],
}


def _is_number(value: Any, most: float = 3.5e38) -> bool:
    return type(value) in (int, float) and abs(value) < most


def _fits_int32(value: Any) -> bool:
    """Whether JAX takes the number too: it takes a whole one as int32."""
    return _is_number(value, 1e300) and (type(value) is float or abs(value) <= LARGEST)


class Spec(NamedTuple):
    """The sizes of the task."""

    observation_size: int
    action_size: int
    cost_count: int
    horizon: int
    max_cost: tuple[float, ...]
    steps: int
    discrete: bool = False


class Calibration(NamedTuple):
    """Pairs of wanted and told thresholds, and all that they hold for."""

    table: tuple[tuple[float, float], ...]
    data_sha256: str
    execution: str
    candidates: int
    horizon: int

    def told(self, wanted: Any, horizon: Any, execution: str, candidates: int) -> np.ndarray:
        return told(self, wanted, horizon, execution, candidates)


def told(calibration: Any, wanted: Any, horizon: Any, execution: str, candidates: int) -> np.ndarray:
    """The thresholds to tell a calibrated policy; refuses other settings than those of its table.

    Nothing is interpolated: between two entries the cost may lie above both.
    """
    for name, value in (("horizon", horizon), ("execution", execution), ("candidates", candidates)):
        if np.any(np.asarray(value) != getattr(calibration, name)):
            raise BCRLError(
                f"{name} is {value}, but the policy was calibrated with {getattr(calibration, name)}: "
                "use that, or calibrate again"
            )
    known = dict(calibration.table)
    try:
        given = np.asarray(wanted, float)
        return np.reshape([known[value] for value in given.ravel().tolist()], given.shape)
    except (KeyError, TypeError, ValueError, OverflowError):
        listed = ", ".join(f"{value:g}" for value in known)
        raise BCRLError(
            f"threshold is {wanted}, but the policy was calibrated for {listed}: give one of these, "
            "or calibrate again"
        ) from None


def check_file(path: Any, kind: str) -> None:
    """Refuses what is no path of a file; of the folder of a run, the error names a policy in it."""
    if not isinstance(path, str | os.PathLike):
        raise BCRLError(f"a {kind} is named by its path, not by {brief_repr(path)}")
    if os.path.isdir(path):
        names = []
        with suppress(OSError):
            names = sorted(name for name in os.listdir(os.fsdecode(path)) if name.endswith(".bcrl"))
        if kind == "policy" and names:
            raise BCRLError(f"{path}: is the folder of a run; give {os.path.join(path, names[0])}")
        raise BCRLError(f"{path}: is a folder; give the file of a {kind}")
    if not os.path.isfile(path):
        raise BCRLError(f"{path}: there is no such file")


def load(path: str | os.PathLike) -> "Policy":
    """Reads a policy file. Executes nothing from it; names, shapes, types and values are checked."""
    check_file(path, "policy")
    try:
        with open(path, "rb") as file:
            return _read(path, file, os.fstat(file.fileno()).st_size)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise BCRLError(f"{path}: not a readable bcrl policy, it may be cut short ({brief(error)})") from None


def _read(path: Any, file: Any, size: int) -> "Policy":
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(MOST_TABLE, size - 8):
        raise ValueError(f"its table would have {length:,} bytes")
    table = json.loads(file.read(length), parse_constant=_no_number)
    header = json.loads((table.pop("__metadata__", None) or {}).get("bcrl", "{}"))
    if header.get("format") == "bcrl-tabular":
        raise BCRLError(f"{path}: is a tabular policy, which this runtime cannot execute: use bcrl.load")
    if header.get("format") != "bcrl-policy":
        raise BCRLError(f"{path}: not a bcrl policy (its header does not say so)")
    if header.get("version") != 1:
        raise BCRLError(
            f"{path}: policy format version is {brief_repr(header.get('version'))}, this runtime reads 1: "
            "use the bcrl that wrote it, or train again"
        )
    policy = Policy.__new__(Policy)
    try:
        policy.name, policy.options = _options(header)
        policy.spec = _spec(header["spec"])
        policy.units = _units(header, policy.spec.cost_count)
        policy.schema = _schema(header.get("schema", {}), policy.spec)
        policy.calibration = _calibration(header)
        wanted = _shapes(policy.name, policy.options, policy.spec)
    except BCRLError as error:
        raise type(error)(f"{path}: {error}") from None
    policy.observed = ObservedRange.read(header, policy.spec.observation_size, path)
    policy.provenance = header.get("provenance")
    if not isinstance(policy.provenance, dict):
        raise BCRLError(f"{path}: the header's provenance is damaged ({brief_repr(policy.provenance)})")
    policy.header = header
    tensors = _tensors(path, file, size - 8 - length, table, wanted)
    _check_digest(path, header, tensors)
    policy.actor = _actor(policy, tensors)
    policy.tracks_budgets = policy.actor.tracks_budgets
    # Episodic critics know the time up to the log's horizon alone.
    policy.longest = policy.spec.horizon if policy.options.get("criterion") == "episodic" else None
    return policy


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _tensors(
    path: Any, file: Any, size: int, table: dict[str, Any], wanted: dict[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """The arrays, after their names, types, shapes and places; only then memory is taken."""
    odd = sorted(wanted.keys() ^ table.keys())
    if odd:
        fault = "is missing" if odd[0] in wanted else "is unknown"
        raise BCRLError(f"{path}: tensor {brief(odd[0])} {fault}")
    for name, shape in wanted.items():
        places = (*table[name]["shape"], *table[name]["data_offsets"])
        if not all(type(place) is int for place in places):  # true is 1 to Python, but not in JSON
            raise ValueError(f"tensor {name} has a shape or place that is no number")
        if table[name]["dtype"] != "F32" or tuple(table[name]["shape"]) != shape:
            found = f"{brief(table[name]['dtype'])}{brief_repr(table[name]['shape'])}"
            raise BCRLError(f"{path}: tensor {name} is {found}, expected float32{list(shape)}")
    end = 0
    for begin, stop, name in sorted((*table[name]["data_offsets"], name) for name in wanted):
        if begin != end or stop - begin != 4 * math.prod(wanted[name]):
            raise ValueError(f"tensor {name} is not where it should be")
        end = stop
    if end != size:
        raise ValueError(f"{size:,} bytes of tensors, {end:,} expected")
    body = np.empty(end // 4, "<f4")
    if file.readinto(body.data.cast("B")) != end:
        raise ValueError("it ends too early")
    found = {}
    for name, shape in wanted.items():
        begin = table[name]["data_offsets"][0] // 4
        found[name] = body[begin : begin + math.prod(shape)].reshape(shape)
    with np.errstate(over="ignore", invalid="ignore"):
        suspect = not np.isfinite(
            body.sum()
        )  # ten times as fast as looking at each; large numbers may overflow
    for name, array in found.items() if suspect else ():
        if not np.isfinite(array).all():
            raise BCRLError(f"{path}: tensor {name} holds NaN or infinity: train again with other options")
    return found


def _check_digest(path: Any, header: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """SHA-256 of the header without its own `sha256` as sorted JSON, then of the tensors by name."""
    if "sha256" not in header and not any(isinstance(x, str) and len(x) == 64 for x in header.values()):
        warnings.warn(
            f"{path}: has no digest (an older bcrl wrote it), so damage would not be noticed: "
            "load and save it again",
            stacklevel=4,
        )
        return
    known = {name: value for name, value in header.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name} float32 {tensors[name].shape}\n".encode())
        digest.update(tensors[name].data)
    if header.get("sha256") != digest.hexdigest():
        raise BCRLError(f"{path}: is damaged (its digest does not agree): copy it again, or train again")


def _options(header: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The method, and the options that acting needs."""
    name, values = header.get("method"), header.get("options", {})
    if name not in METHODS:
        known = ", ".join(METHODS)
        raise UnknownMethod(
            f"the method is {brief_repr(name)}, but this runtime knows {known}: use bcrl.load"
        )
    defaults, training = METHODS[name]
    if not isinstance(values, dict):
        raise BCRLError(f"the header's options are damaged ({brief_repr(values)})")
    unknown = sorted(set(values) - set(defaults) - set(training.split()))
    if unknown:
        raise BCRLError(
            f"option {brief_repr(unknown[0])} is unknown to this runtime: update it, or train again"
        )
    options = {option: values.get(option, default) for option, default in defaults.items()}
    for option, value in options.items():
        allowed = VALUES.get(option)
        if isinstance(allowed, tuple):
            fits = any(value is x or (isinstance(x, str) and value == x) for x in allowed)
        elif isinstance(allowed, list):
            fits = _fits_int32(value) and allowed[0] <= value <= allowed[1]
            fits = fits and (isinstance(value, int) or not isinstance(allowed[0], int))
        elif option == "hidden":
            fits = isinstance(value, list | tuple) and 1 <= len(value) <= 64
            fits = fits and all(type(n) is int and 1 <= n <= 65_536 for n in value)
        else:  # cost_weights
            fits = value is None or all(_is_number(w) and w > 0 for w in value)
        if not fits:
            raise BCRLError(f"an option in the header is damaged ({option} is {brief_repr(value)})")
    return name, options


def _spec(parts: Any) -> Spec:
    try:
        spec = Spec(**{**parts, "max_cost": tuple(parts["max_cost"])})
    except (TypeError, KeyError):
        raise BCRLError(f"the header's spec is damaged ({brief_repr(parts)})") from None
    sizes = (spec.observation_size, spec.action_size, spec.cost_count, spec.horizon, spec.steps)
    whole = all(type(n) is int and 1 <= n <= LARGEST for n in sizes) and type(spec.discrete) is bool
    costs = all(_fits_int32(cost) and cost >= 0 for cost in spec.max_cost)
    if not whole or len(spec.max_cost) != spec.cost_count or not costs:
        raise BCRLError(f"the header's spec is damaged ({brief_repr(parts)})")
    if spec.discrete and spec.action_size > MOST_LABELS:
        raise BCRLError(f"action_size is {spec.action_size}, but there may be {MOST_LABELS:,} labels at most")
    return spec


def _units(header: dict[str, Any], k: int) -> np.ndarray:
    """What cost 1 inside the networks is in the user's unit, for each cost; the reward's is not needed."""
    units = header.get("units", {"cost": [1.0] * k, "reward": 1.0})
    fits = isinstance(units, dict) and isinstance(units.get("cost"), list) and len(units["cost"]) == k
    if not fits or not all(_is_number(x, 3.4e38) and x > 1.2e-38 for x in units["cost"]):
        raise BCRLError(f"the header's units are damaged ({brief_repr(units)})")
    return np.array(units["cost"], np.float32)


def _schema(parts: Any, spec: Spec) -> dict[str, Any]:
    """Names, labels, bounds and units of the log's columns; every part may be absent."""
    actions = spec.action_size
    lengths = {"observation_names": spec.observation_size, "action_names": 1 if spec.discrete else actions}
    lengths |= {"cost_names": spec.cost_count, "action_labels": actions, "max_cost": spec.cost_count}
    lengths |= {"action_low": actions, "action_high": actions}
    if not isinstance(parts, dict) or not set(parts) <= {*lengths, "units"}:
        raise BCRLError(f"the header's schema is damaged ({brief_repr(parts)})")
    low, high = parts.get("action_low", []), parts.get("action_high", [])
    fits = all(
        isinstance(parts[n], list) and len(parts[n]) in (0, lengths[n]) for n in set(parts) - {"units"}
    )
    fits = fits and len(low) == len(high) and all(_is_number(x, 1e30) for x in (*low, *high))
    fits = fits and all(_is_number(x, 1e300) and x > 0 for x in parts.get("max_cost", []))
    units, names = (
        parts.get("units", {}),
        [parts.get(n, []) for n in lengths if n.endswith(("names", "labels"))],
    )
    fits = fits and isinstance(units, dict) and all(isinstance(unit, str) for unit in units.values())
    fits = fits and all(isinstance(text, str) and text for texts in names for text in texts)
    fits = fits and all(len(set(texts)) == len(texts) for texts in names)
    if not fits or not all(a < b for a, b in zip(low, high, strict=True)):
        raise BCRLError(f"the header's schema is damaged ({brief_repr(parts)})")
    return parts


def _calibration(header: dict[str, Any]) -> Calibration | None:
    if "calibration" not in header:
        return None
    parts = header["calibration"]
    if isinstance(parts, dict) and "prune" in parts:  # the name of `candidates` in older files
        parts = {("candidates" if name == "prune" else name): value for name, value in parts.items()}
    try:
        found = Calibration(**{**parts, "table": tuple((float(a), float(b)) for a, b in parts["table"])})
        wanted = [pair[0] for pair in parts["table"]]
        fits = bool(wanted) and wanted == sorted(set(wanted))
        fits = fits and all(_is_number(x, 1e30) and x >= 0 for pair in parts["table"] for x in pair)
        fits = fits and type(found.candidates) is int and type(found.horizon) is int
    except (TypeError, ValueError, KeyError, OverflowError):
        fits, found = False, None
    if not fits:
        raise BCRLError(f"the header's calibration is damaged ({brief_repr(parts)})")
    return found


def _shapes(method: str, options: dict[str, Any], spec: Spec) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor of a file."""
    d, a, k = spec.observation_size, spec.action_size, spec.cost_count
    shapes: dict[str, tuple[int, ...]] = {".normaliser.mean": (d,), ".normaliser.std": (d,)}

    def network(name: str, inputs: int, outputs: int, members: int = 0, norms: bool = False) -> None:
        sizes, lead = (inputs, *options["hidden"], outputs), (members,) * (members > 0)
        for i in range(len(sizes) - 1):
            shapes[f"{name}.weights[{i}]"] = (*lead, sizes[i], sizes[i + 1])
            shapes[f"{name}.biases[{i}]"] = (*lead, sizes[i + 1])
            if norms and i < len(sizes) - 2:
                shapes[f"{name}.norms[{i}][0]"] = shapes[f"{name}.norms[{i}][1]"] = (*lead, sizes[i + 1])

    if method in ("bc-all", "bc-safe"):
        network(".policy.trunk", d, a if spec.discrete else 2 * a)
    elif method == "caps":
        if k != 1 or spec.discrete:
            raise BCRLError(f"the header's spec is damaged (caps with {k} costs, discrete {spec.discrete})")
        network(".heads.trunk", d, options["heads"] * a)
        network(".critics", d + a, 1, members=4)
        shapes[".heads.log_std"] = (options["heads"], a)
    else:
        if method == "bcrl-td3bc" and spec.discrete:
            raise BCRLError("the header's spec is damaged (bcrl-td3bc knows no discrete actions)")
        if options["cost_weights"] is not None and len(options["cost_weights"]) != k:
            raise BCRLError(f"cost_weights is {brief_repr(options['cost_weights'])}, but there are {k} costs")
        s = d + (options["criterion"] == "episodic")
        network(".actor.trunk", s + k, a if spec.discrete else 2 * a)
        network(".fallback.trunk", s, a if spec.discrete else 2 * a)
        network(".cost_value", s, k, norms=True)
        network(".cost_critic", s + a, k, members=2)
        network(".critic", s + k + a, 1, members=2, norms=options["critic_norm"])
        if options["fallback_critic"] and not spec.discrete:
            network(".fallback_critic", s + a, k, members=2)
        shapes[".mean_start_value"] = shapes[".slack_limit"] = (k,)
    return shapes


# ---- networks ---------------------------------------------------------------------------------------------


class MLP:
    """Layers of ReLU, with LayerNorm before each where the file has it; an ensemble has a leading axis."""

    def __init__(self, tensors: dict[str, np.ndarray], name: str):
        count = sum(key.startswith(f"{name}.weights[") for key in tensors)
        self.weights = [tensors[f"{name}.weights[{i}]"] for i in range(count)]
        self.biases = [tensors[f"{name}.biases[{i}]"][..., None, :] for i in range(count)]
        self.norms = [
            (tensors[f"{name}.norms[{i}][0]"][..., None, :], tensors[f"{name}.norms[{i}][1]"][..., None, :])
            for i in range(count - 1)
            if f"{name}.norms[{i}][0]" in tensors
        ]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """(rows, inputs) to (rows, outputs), or (members, rows, outputs)."""
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = _product(x, weight)
            x += bias
            if i == len(self.weights) - 1:
                break
            if self.norms:
                x = _standardised(x)
                x *= self.norms[i][0]
                x += self.norms[i][1]
            np.maximum(x, 0.0, out=x)
        return x


def _product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x @ weight. For a few rows by columns: OpenBLAS copies no weights for products up to this size."""
    rows, inputs = x.shape[-2:]
    columns = 2**19 // (rows * inputs)
    if rows < 3 or not 64 <= columns < weight.shape[-1]:
        return x @ weight
    out = np.empty((*weight.shape[:-2], rows, weight.shape[-1]), np.float32)
    for j in range(0, weight.shape[-1], columns):
        np.matmul(x, weight[..., j : j + columns], out=out[..., j : j + columns])
    return out


def _standardised(x: np.ndarray) -> np.ndarray:
    mean = x.mean(-1, keepdims=True)
    variance = np.maximum(np.square(x).mean(-1, keepdims=True) - np.square(mean), 0.0)
    x -= mean
    x /= np.sqrt(variance + np.float32(1e-6))
    return x


def gaussian(network: MLP, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and log standard deviation of a policy over continuous actions."""
    out = network(x)
    half = out.shape[-1] // 2
    return np.tanh(out[:, :half]), np.clip(out[:, half:], -20.0, 2.0)


def supported(network: MLP, x: np.ndarray, share: float) -> np.ndarray:
    """The labels that are at least `share` times as likely as the most likely one."""
    logits = network(x)
    with np.errstate(divide="ignore"):
        return logits - logits.max(-1, keepdims=True) >= np.log(np.float32(share))


def horizon_factor(steps_left: np.ndarray, gamma: float) -> np.ndarray:
    """(1 − γ^n) / ((1 − γ) n); 1 for n ≤ 1 and for γ = 1."""
    n = np.maximum(steps_left.astype(np.float32), np.float32(1.0))
    if gamma == 1.0:
        return np.ones_like(n)
    rate = np.float32(math.log(gamma) if gamma > 0.0 else -math.inf)
    factor = -np.expm1(n * rate) / (np.float32(1.0 - gamma) * n)
    return np.where(n == 1.0, np.float32(1.0), factor)


# ---- actors: rows of episodes, costs in the networks' unit ------------------------------------------------

State = dict[str, np.ndarray]


class Actor:
    """Counts steps and costs; a subclass chooses actions. Every array has a row for each episode."""

    tracks_budgets = False
    gamma = 1.0

    def __init__(self, policy: "Policy", tensors: dict[str, np.ndarray]):
        self.spec, self.options = policy.spec, policy.options
        self.mean, self.std = tensors[".normaliser.mean"], tensors[".normaliser.std"]

    def start(self, allowed: np.ndarray, budget: np.ndarray, steps: np.ndarray) -> State:
        """The memory of new episodes: (rows, k), (rows, k), (rows,)."""
        step = np.zeros((len(steps), 1), np.int32)
        return {
            "threshold": allowed,
            "horizon": steps[:, None],
            "step": step,
            "spent": np.zeros_like(allowed),
        }

    def act(
        self, state: State, seen: np.ndarray, execution: str, candidates: int, outside: Any, noise: Noise
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Actions, slack and whether it is the fallback's; `outside` marks rows that are left to that."""
        raise NotImplementedError

    def observe(self, state: State, cost: np.ndarray) -> None:
        state["step"] = state["step"] + 1
        state["spent"] = state["spent"] + cost

    def by_horizon(self, state: State) -> np.ndarray:
        """δ = max(κ − C, 0) · (1 − γ_C^(H−t)) / ((1 − γ_C)(H − t))."""
        left = np.maximum(state["threshold"] - state["spent"], 0.0)
        return left * horizon_factor(state["horizon"] - state["step"], self.gamma)


class ClonedActor(Actor):
    """BC-All and BC-Safe: the most likely action."""

    def __init__(self, policy: "Policy", tensors: dict[str, np.ndarray]):
        super().__init__(policy, tensors)
        self.policy = MLP(tensors, ".policy.trunk")

    def act(self, state, seen, execution, candidates, outside, noise):
        features = (seen - self.mean) / self.std
        if self.spec.discrete:
            action = np.eye(self.spec.action_size, dtype=np.float32)[self.policy(features).argmax(-1)]
        else:
            action = gaussian(self.policy, features)[0]
        return action, state["threshold"] - state["spent"], np.zeros(len(seen), bool)


class SwitchingActor(Actor):
    """CAPS: of the heads' actions the best by Q_R with Q_C below the budget; if none is, the least Q_C."""

    def __init__(self, policy: "Policy", tensors: dict[str, np.ndarray]):
        super().__init__(policy, tensors)
        self.heads, self.critics = MLP(tensors, ".heads.trunk"), MLP(tensors, ".critics")
        self.gamma = float(self.options["gamma"])

    def act(self, state, seen, execution, candidates, outside, noise):
        features = (seen - self.mean) / self.std
        rows, heads = len(seen), self.options["heads"]
        actions = np.tanh(self.heads(features)).reshape(rows, heads, -1)
        q = self.critics(_pairs(features, actions)).reshape(4, rows, heads)
        worth, cost = q[:2].min(0), q[2:].max(0)
        budget = self.by_horizon(state)
        fits = cost < budget
        some = fits.any(-1)
        best = np.where(fits, worth, -np.inf).argmax(-1)
        chosen = np.where(some, best, cost.argmin(-1))
        return actions[np.arange(rows), chosen], budget - cost.min(-1, keepdims=True), ~some


class TrackingActor(Actor):
    """BCRL: policies and critics, and the budget that the cost critics track."""

    tracks_budgets = True

    def __init__(self, policy: "Policy", tensors: dict[str, np.ndarray]):
        super().__init__(policy, tensors)
        self.actor, self.fallback = MLP(tensors, ".actor.trunk"), MLP(tensors, ".fallback.trunk")
        self.cost_value = MLP(tensors, ".cost_value")
        self.cost_critic, self.critic = MLP(tensors, ".cost_critic"), MLP(tensors, ".critic")
        learned = self.options["fallback_critic"] and not self.spec.discrete
        self.fallback_critic = MLP(tensors, ".fallback_critic") if learned else None
        self.mean_start_value, self.slack_limit = tensors[".mean_start_value"], tensors[".slack_limit"]
        self.soft, self.episodic = self.options["tracking"] == "soft", self.options["criterion"] == "episodic"
        self.gamma = 1.0 if self.episodic else float(self.options["gamma_cost"])
        # 1/γ_C: XLA turns the division by a constant into this product, and the rounding adds up.
        self.growth = np.float32(1.0) / np.float32(self.gamma)
        weights = self.options["cost_weights"]
        self.omega = np.ones(self.spec.cost_count, np.float32) if weights is None else np.float32(weights)
        # Policies that leave the log are always asked whether their action is safe.
        leaves = policy.name == "bcrl-td3bc" or self.options["extraction"] == "gradient"
        self.guarded = leaves or self.options["check_action"]
        self.factor = np.float32(1.0 if self.spec.discrete else self.options["safety_factor"])

    def start(self, allowed: np.ndarray, budget: np.ndarray, steps: np.ndarray) -> State:
        soft = {"slack": budget - self.factor * self.mean_start_value, "charge": np.zeros_like(budget)}
        return {**super().start(allowed, budget, steps), "budget": budget, **soft}

    def act(self, state, seen, execution, candidates, outside, noise):
        features = self.features(seen, state["step"])
        value = self.cost_value(features)
        value = self.factor * (np.maximum(value, 0.0) if self.options["nonnegative_values"] else value)
        slack = self.slack_by_rule(state, value, execution)
        decisive = slack if outside is None else np.where(outside[:, None], np.float32(-np.inf), slack)
        choose = self.choose_label if self.spec.discrete else self.choose
        action, allowed, cost = choose(features, decisive, value, candidates, noise)
        if execution in ("soft", "min"):  # the others never look at soft slack
            cost = self.factor * self.cost_to_go(features, action[:, None])[:, 0] if cost is None else cost
            state["charge"] = cost - value
        return action, slack, ~allowed

    def observe(self, state: State, cost: np.ndarray) -> None:
        super().observe(state, cost)
        state["budget"] = np.minimum((state["budget"] - cost) * self.growth, self.slack_limit)
        state["slack"] = np.minimum((state["slack"] - state["charge"]) * self.growth, self.slack_limit)

    def features(self, seen: np.ndarray, step: np.ndarray) -> np.ndarray:
        normal = (seen - self.mean) / self.std
        if not self.episodic:
            return normal
        time = np.minimum(step.astype(np.float32) / np.float32(self.spec.horizon), np.float32(1.0))
        return np.concatenate([normal, time], -1)

    def slack_by_rule(self, state: State, value: np.ndarray, execution: str) -> np.ndarray:
        if execution == "soft":
            return state["slack"]
        if execution == "direct":
            return state["budget"] - value
        by_horizon = self.by_horizon(state) - value
        return by_horizon if execution == "finite-horizon" else np.minimum(by_horizon, state["slack"])

    def choose(
        self, features: np.ndarray, slack: np.ndarray, value: np.ndarray, candidates: int, noise: Noise
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Actions, whether they are the policy's own, and their Q_C, times the factor, where it is known."""
        rows, a, k = len(features), self.spec.action_size, self.spec.cost_count
        allowed: np.ndarray = np.all(slack >= np.float32(self.options["fallback_below"]), -1)
        action, cost = np.empty((rows, a), np.float32), None
        mixes = self.options["fallback_mixtures"] > 0  # then the policy's action is needed in every row
        go = slice(None) if mixes else _where(allowed)
        if go is not None:
            shown = slack[go] if self.soft else slack[go] + value[go]
            mean, log_std = gaussian(self.actor, np.concatenate([features[go], self.encoded(shown)], -1))
            draws = max(candidates, int(self.guarded))
            if draws:
                drawn = np.asarray(noise("candidates", (rows, draws, a)), np.float32)[go]
                options = np.clip(mean[:, None] + np.exp(log_std)[:, None] * drawn, -1.0, 1.0)
                options[:, 0] = mean
                budget = slack[go] + value[go]
                q_c, worth = self.compared(features[go], options, budget)
                ahead = q_c
                if self.fallback_critic is not None:
                    ahead = self.factor * self.cost_ahead(features[go], options)
                safe = (ahead <= budget[:, None]).all(-1)
                best = (np.arange(len(mean)), np.where(safe, worth, -np.inf).argmax(-1))
                mean, allowed[go] = options[best], allowed[go] & safe.any(-1)
                cost = np.empty((rows, k), np.float32)
                cost[go] = q_c[best]
            action[go] = mean
        stop = _where(~allowed)
        if stop is not None:
            budget = slack + value
            careful = self.careful(features, budget, stop, noise)
            if mixes:
                careful = self.first_safe(features[stop], action[stop], careful, budget[stop])
            action[stop], cost = np.clip(careful, -1.0, 1.0), None
        return action, allowed, cost

    def careful(self, features: np.ndarray, budget: np.ndarray, rows: Any, noise: Noise) -> np.ndarray:
        """The fallback's action: its mean, or the exp(−β Σ ω_i u_i Q_i)-weighted mean of n draws."""
        count, features = len(features), features[rows]
        mean, log_std = gaussian(self.fallback, features)
        draws = self.options["fallback_draws"]
        if not draws:
            return mean
        drawn = np.asarray(noise("fallback", (count, draws, self.spec.action_size)), np.float32)[rows]
        actions = np.clip(mean[:, None] + np.exp(log_std)[:, None] * drawn, -1.0, 1.0)
        cost = self.cost_ahead(features, actions)
        urgency = self.urgency(cost, budget[rows])
        weight = np.float32(-self.options["fallback_beta"]) * np.matmul(cost, urgency[..., None])[..., 0]
        weight = np.exp(weight - weight.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        return np.matmul(weight[:, None], actions)[:, 0]

    def first_safe(
        self, features: np.ndarray, action: np.ndarray, careful: np.ndarray, budget: np.ndarray
    ) -> np.ndarray:
        """The first safe action of n on the way from the policy's to the fallback's, which ends it."""
        n = self.options["fallback_mixtures"]
        share = (np.arange(1, n + 1, dtype=np.float32) / np.float32(n))[:, None]
        actions = (1 - share) * action[:, None] + share * careful[:, None]
        safe: np.ndarray = np.all(self.factor * self.cost_ahead(features, actions) <= budget[:, None], -1)
        safe[:, -1] = True
        return actions[np.arange(len(actions)), safe.argmax(-1)]

    def urgency(self, cost: np.ndarray, budget: np.ndarray) -> np.ndarray:
        """ω_i u_i, u_i = φ mean(Q_i) / (R δ_i), at most 1: R is `fallback_ramp`, φ the safety factor."""
        ramp = np.float32(self.options["fallback_ramp"])
        if not ramp:
            return np.broadcast_to(self.omega, budget.shape)
        enough = np.maximum(ramp * budget, np.float32(1e-6))
        return self.omega * np.clip(self.factor * cost.mean(-2) / enough, 0.0, 1.0)

    def choose_label(
        self, features: np.ndarray, slack: np.ndarray, value: np.ndarray, candidates: int, noise: Noise
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The best supported label by Q_R with Q_C ≤ δ; if there is none, the fallback's cheapest by Q_C."""
        rows, n, share = len(features), self.spec.action_size, self.options["support"]
        shown = self.encoded(slack if self.soft else slack + value)
        good = supported(self.actor, np.concatenate([features, shown], -1), share)
        cheap = supported(self.fallback, features, share)
        every, budget = np.eye(n, dtype=np.float32), slack + value
        cost, worth = self.compared(features, np.broadcast_to(every, (rows, n, n)), budget)
        safe = good & np.all(cost <= budget[:, None], -1)
        allowed: np.ndarray = np.any(safe, -1)
        best = np.where(safe, worth, -np.inf).argmax(-1)
        cheapest = np.where(cheap, cost @ self.omega, np.inf).argmin(-1)
        chosen = np.where(allowed, best, cheapest)
        known: np.ndarray = np.all(np.isfinite(cost), (-2, -1)) & np.all(np.isfinite(worth), -1)
        action = np.where(known[:, None], every[chosen], np.float32(np.nan))
        return action, allowed, cost[np.arange(rows), chosen]

    def compared(
        self, features: np.ndarray, actions: np.ndarray, budget: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Q_C (rows, n, k), times the safety factor, and Q_R (rows, n) of n actions in each state."""
        pairs, shape = _pairs(features, actions), actions.shape[:2]
        cost = self.factor * self.cost_critic(pairs).max(0).reshape(*shape, -1)
        shown = budget[:, None] - cost if self.soft else np.broadcast_to(budget[:, None], cost.shape)
        inputs = np.concatenate([pairs, self.encoded(shown).reshape(len(pairs), -1)], -1)
        return cost, self.critic(inputs)[..., 0].min(0).reshape(shape)

    def cost_to_go(self, features: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Q_C (rows, n, k), the larger of the two critics."""
        return self.cost_critic(_pairs(features, actions)).max(0).reshape(*actions.shape[:2], -1)

    def cost_ahead(self, features: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Q_F (rows, n, k) if the file has it, else Q_C: what decides whether actions are safe."""
        if self.fallback_critic is None:
            return self.cost_to_go(features, actions)
        return self.fallback_critic(_pairs(features, actions)).max(0).reshape(*actions.shape[:2], -1)

    def encoded(self, budget: np.ndarray) -> np.ndarray:
        """A budget or slack as the networks take it."""
        inside = np.clip(budget, 0.0, self.slack_limit)
        return np.log1p(inside) if self.options["budget_input"] == "log" else inside


def _pairs(features: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """(rows, f) and (rows, n, a) as (rows · n, f + a)."""
    rows, n = actions.shape[:2]
    repeated = np.broadcast_to(features[:, None], (rows, n, features.shape[-1]))
    return np.concatenate([repeated, actions], -1).reshape(rows * n, -1)


def _where(marked: np.ndarray) -> Any:
    """The marked rows as an index, None where there are none; a slice costs nothing."""
    if marked.all():
        return slice(None)
    return np.flatnonzero(marked) if marked.any() else None


def _actor(policy: "Policy", tensors: dict[str, np.ndarray]) -> Actor:
    if not np.all(tensors[".normaliser.std"] > 0):
        raise ValueError("the normaliser's standard deviation is not positive")
    kinds = {"bc-all": ClonedActor, "bc-safe": ClonedActor, "caps": SwitchingActor}
    return kinds.get(policy.name, TrackingActor)(policy, tensors)


# ---- policies and episodes --------------------------------------------------------------------------------


class Policy(CheckedPolicy):
    """A trained policy, from `load`. `start` begins an episode (or a batch of them) under a budget."""

    options: dict[str, Any]
    units: np.ndarray
    schema: dict[str, Any]
    provenance: dict[str, Any]
    header: dict[str, Any]
    actor: Actor

    def __repr__(self) -> str:
        sizes = f"{self.spec.observation_size} observations, {self.spec.action_size} actions"
        return f"Policy({self.name}, {sizes}, {self.spec.cost_count} cost, horizon {self.spec.horizon})"

    @property
    def largest_costs(self) -> np.ndarray:
        return np.multiply(self.spec.max_cost, self.units)

    def start(
        self,
        *,
        threshold: ArrayLike | None = None,
        budget: ArrayLike | None = None,
        horizon: ArrayLike | None = None,
        execution: Execution | None = None,
        candidates: int = 0,
        batch: int | None = None,
        calibrated: bool = False,
        seed: int = 0,
        out_of_range: OutOfRange = "warn",
        noise: Noise | None = None,
    ) -> "Episode":
        """Begins an episode. Arrays of thresholds, budgets or horizons, or `batch`, begin many at once.

        `noise` takes the place of the random numbers that `seed` gives.
        """
        asked = self.asked(threshold, budget, horizon, execution, candidates, batch, calibrated)
        if not isinstance(seed, int | np.integer) or not -(2**63) <= seed < 2**63:
            raise BCRLError(f"seed is {brief_repr(seed)}, but must be a whole number below 2⁶³")
        if noise is not None and not callable(noise):
            raise BCRLError(f"noise is {brief_repr(noise)}, but must be a function of a kind and a shape")
        return Episode(self, asked, int(seed) % 2**64, out_of_range, noise)


class Episode(CheckedEpisode):
    """A running episode, or a batch of them: `act`, then `observe` what the step cost."""

    def __init__(self, policy: Policy, asked: Asked, seed: int, out_of_range: str, noise: Noise | None):
        super().__init__(policy, asked, out_of_range)
        self._asked, self._seed, self._noise = asked, seed, noise
        self._leaves = out_of_range == "fallback"
        self._random: Any = None
        bounds = [policy.schema.get(name) for name in ("action_low", "action_high")]
        self._bounds = [np.array(b, np.float32) for b in bounds] if all(bounds) else None
        self.memory = self._begin()

    def _begin(self) -> State:
        asked, actor = self._asked, self.policy.actor
        allowed = asked.allowed.reshape(-1, self._shape[-1])
        steps = asked.steps.reshape(-1)
        budget = allowed
        if asked.limited and actor.tracks_budgets:
            budget = allowed * horizon_factor(steps[:, None], actor.gamma)
        with np.errstate(over="ignore", invalid="ignore"):  # as JAX: what is too much is infinite
            return actor.start(allowed / self.policy.units, budget / self.policy.units, steps)

    def _act(self, observed: np.ndarray) -> tuple[np.ndarray, tuple[Any, Any]]:
        seen = observed.reshape(-1, observed.shape[-1])
        outside = None
        if self._leaves and self._range is not None:
            outside = ((seen < self._range.low) | (seen > self._range.high)).any(-1)
        asked = self._asked
        with np.errstate(over="ignore", invalid="ignore"):  # an action that is not finite is an error
            action, slack, fallback = self.policy.actor.act(
                self.memory, seen, asked.execution, asked.candidates, outside, self._draw
            )
            if self._bounds is not None:
                low, high = self._bounds
                action = np.clip(low + (action + 1) / 2 * (high - low), low, high)
            slack = slack * self.policy.units
        if self.batched:
            return action, (slack, fallback)
        return action[0], (slack[0], fallback[0])

    def _observe(self, costs: np.ndarray, rewards: np.ndarray) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            self.policy.actor.observe(self.memory, costs.reshape(-1, self._shape[-1]) / self.policy.units)

    def _restart(self, marked: np.ndarray) -> None:
        fresh = self._begin()
        self.memory = {n: np.where(marked[:, None], fresh[n], old) for n, old in self.memory.items()}

    def _draw(self, kind: str, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal numbers of this shape, (rows, n, a)."""
        if self._noise is not None:
            given = numbers("noise", self._noise(kind, shape if self.batched else shape[1:]))
            if given.size != math.prod(shape):
                raise BCRLError(f"noise has shape {given.shape}, but the {kind} need {shape}")
            return given.reshape(shape)
        if self._random is None:
            self._random = np.random.default_rng(self._seed)
        return self._random.standard_normal(shape, np.float32)
