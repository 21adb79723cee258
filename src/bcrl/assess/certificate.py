"""Certificates: is the mean cost of a policy below a threshold? From monitored episodes, by betting.

The only finite-sample statement of the package. It assumes nothing of the costs but a largest value B, and it
holds for any number of episodes, also if one looks after each of them and stops when it suits.

A gambler bets against "the mean cost is κ or more". A bet c in [0, 1] multiplies the wealth by
1 + c (κ - C)/(B - κ) after an episode that costs C <= B. No factor is negative, and none is above 1 in
expectation while the mean is κ or more, so the wealth K_n is a nonnegative supermartingale. By Ville's
inequality it then ever reaches 1/α with probability α at most: certified once max K_n >= 1/α.
(Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2024; c = λ (1 - κ/B).)

Which bets: the wealth is the mean over 64 gamblers who keep to one c each, c = 1 - u² with u even on (0, 1).
A mean of supermartingales is one too. The wealth after n episodes does not depend on their order, and no
number of episodes must be planned: a plan that is changed after a look at the costs voids the test. Median
episodes to a certificate at confidence .95, κ = 20 and a true mean of 16 (tests/assess/test_certificate.py),
for beta costs (a + b = 6), exponential ones cut at B, and rare disasters (5 % of episodes cost B):

    bets                                   B = 200                B = 60
                                     beta   exp.   rare     beta   exp.   rare
    c = 1 - u² (this file)            231    190    997       50     99     93
    predictable plug-in, c <= .75     260    194   1551       53    112     92
    aGRAPA, c <= .95                  268    210   2034       58    126    124
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bcrl.errors import BCRLError, brief_repr

BETS = 1 - ((np.arange(64) + 0.5) / 64) ** 2
SMALLEST = 1e-100  # of thresholds and bounds, so that their quotients and sums are numbers
MOST_RATIO = 1e12  # of the largest cost to the threshold: about as many episodes are the least for a test
_BLOCK = 4096  # episodes at a time: memory stays small for any number of them


class Verdict(StrEnum):
    """What the episodes say about "the mean cost is below the threshold"."""

    CERTIFIED = "certified"
    """It is, at this confidence."""
    NOT_YET = "not yet"
    """Undecided: more episodes may certify it."""
    NO = "no"
    """The opposite is certified, or the mean is more than two standard errors above the threshold."""
    NOT_TESTED = "not tested"
    """An earlier test of a sequence was not certified."""


@dataclass(frozen=True, repr=False)
class Certificate:
    """What `certify` found. `sentence` says it in words."""

    verdict: Verdict
    threshold: float
    confidence: float
    largest: float
    """B: no episode can cost more."""
    abort_at: float | None
    """Episodes are stopped at this cost; the certificate holds only while they are."""
    episodes: int
    mean_cost: float
    minimum_episodes: int
    """No valid test can certify with fewer, even if every episode costs 0: ln α / ln(1 - κ/B)."""
    cost_high: float | None
    """The mean cost is below this at the same confidence; a statement on its own, outside a sequence."""
    p_value: float | None
    """For "the mean cost is the threshold or more"; valid whenever one stops."""
    p_value_above: float | None
    """For the opposite, "the mean cost is the threshold or less"."""
    certified_at: int | None
    """The episode after which the evidence sufficed."""
    more: int | None
    """About how many more episodes a certificate takes if they cost what these did; None if none would do."""

    @property
    def certified(self) -> bool:
        return self.verdict is Verdict.CERTIFIED

    def __repr__(self) -> str:
        of = f"mean cost < {self.threshold:g}, confidence {self.confidence:g}, {self.episodes} episodes"
        return f"Certificate({self.verdict}: {of})"

    @property
    def sentence(self) -> str:
        """The verdict in one or two sentences."""
        threshold, level = f"{self.threshold:g}", f"{100 * self.confidence:g} % confidence"
        if self.verdict is Verdict.CERTIFIED:
            stop = "" if self.abort_at is None else f", if episodes are stopped at {self.abort_at:g}"
            return (
                f"Certified: the mean cost is below {threshold} with {level}{stop}. "
                f"The evidence sufficed after {self.certified_at:,} of {self.episodes:,} episodes."
            )
        if self.verdict is Verdict.NOT_TESTED:
            return "Not tested: a test before it was not certified."
        if self.verdict is Verdict.NO and self.certified_at is not None:
            return (
                f"No: the episodes up to {self.certified_at:,} say that the mean cost is below {threshold}, "
                f"others that it is above, each with {level}. The costs have changed."
            )
        alpha = 1 - self.confidence
        if self.verdict is Verdict.NO and self.p_value_above is not None and self.p_value_above <= alpha:
            return f"No: the mean cost is above {threshold} with {level}."
        mean = f"the mean so far, {self.mean_cost:.4g}, is"
        if self.verdict is Verdict.NO:
            return f"No: {mean} more than two standard errors above {threshold}."
        least = f"Even at zero cost it takes {self.minimum_episodes:,} episodes."
        if self.more is None:
            return f"Not yet: {mean} not clearly below {threshold}, so how many more is unknown. {least}"
        return f"Not yet: about {_about(self.more)} more, if they cost what these did. {least}"


def certify(
    costs: ArrayLike,
    threshold: float,
    *,
    abort_at: float | None = None,
    largest: float | None = None,
    confidence: float = 0.95,
) -> Certificate:
    """Tests whether the mean cost of an episode is below `threshold`, from monitored episodes.

    The guarantee: if the mean is `threshold` or more, the verdict is ever "certified" with probability
    1 - `confidence` at most, however many episodes are run and whenever one looks or stops. It assumes
    independent episodes of one policy at one budget, with the starts of deployment, all of them in `costs`.

    Args:
        costs: one cost per episode, in the order in which they were run.
        threshold: what the mean is to stay below.
        abort_at: the cost at which an episode is stopped, here and in deployment.
        largest: a cost that no episode can exceed (default: `abort_at`). One of the two is needed.
        confidence: 1 - α.
    """
    bound, threshold = largest_cost(threshold, abort_at, largest), float(threshold)
    if not _is_finite(confidence) or not 0.5 <= confidence < 1:
        raise BCRLError(f"confidence is {_short(confidence)}, but must be from 0.5 to below 1, such as 0.95")
    array = _checked(costs, bound, abort_at)
    alpha = 1 - confidence
    count, mean = len(array), float(array.mean())
    minimum = math.ceil(math.log(alpha) / math.log1p(-threshold / bound) - 1e-9)  # 2, not 2.0000001
    wealth = log_wealth(_gains(array, threshold, bound))
    above = log_wealth((array - threshold) / threshold)  # the same test for B - C: its mean is below B - κ
    p_value, p_above = (math.exp(-max(0.0, float(path.max()))) for path in (wealth, above))
    enough = p_value <= alpha
    error = float(array.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf
    hopeless = count >= minimum and mean - 2 * error > threshold
    verdict = Verdict.NOT_YET
    if p_above <= alpha or (hopeless and not enough):
        verdict = Verdict.NO
    elif enough:
        verdict = Verdict.CERTIFIED
    return Certificate(
        verdict=verdict,
        threshold=float(threshold),
        confidence=float(confidence),
        largest=bound,
        abort_at=None if abort_at is None else float(abort_at),
        episodes=count,
        mean_cost=mean,
        minimum_episodes=minimum,
        cost_high=_cost_high(array, bound, alpha, threshold, enough),
        p_value=p_value,
        p_value_above=p_above,
        certified_at=int(np.argmax(np.exp(-np.maximum(wealth, 0)) <= alpha)) + 1 if enough else None,
        more=_more(array, threshold, bound, alpha) if verdict is Verdict.NOT_YET else None,
    )


def certify_sequence(
    costs: Sequence[ArrayLike],
    thresholds: float | Sequence[float],
    *,
    abort_at: float | Sequence[float] | None = None,
    largest: float | Sequence[float] | None = None,
    confidence: float = 0.95,
) -> list[Certificate]:
    """Tests several policies or thresholds in the given order, the safest first (fixed-sequence testing).

    It stops at the first that is not certified. The probability that any of the certificates is wrong is
    1 - `confidence` at most. The order must be chosen before the costs are seen. What is given as one number
    is the same for all tests.
    """
    tests = len(costs)
    if not tests:
        raise BCRLError("costs is empty, but must hold the costs of at least one test")
    limits, stops, bounds = (
        _for_each(name, value, tests)
        for name, value in (("thresholds", thresholds), ("abort_at", abort_at), ("largest", largest))
    )
    found: list[Certificate] = []
    for index in range(tests):
        try:
            one = certify(
                costs[index],
                limits[index],
                abort_at=stops[index],
                largest=bounds[index],
                confidence=confidence,
            )
        except BCRLError as error:
            raise BCRLError(f"test {index + 1}: {error}" if tests > 1 else str(error)) from None
        found.append(one if all(earlier.certified for earlier in found) else _untested(one))
    return found


def largest_cost(threshold: float, abort_at: float | None = None, largest: float | None = None) -> float:
    """B, the largest cost that an episode can have; refuses what nothing can be certified with."""
    for name, value in (("threshold", threshold), ("abort_at", abort_at), ("largest", largest)):
        if value is None and name != "threshold":
            continue
        if value is None or not _is_finite(value) or value <= 0:
            raise BCRLError(f"{name} is {_short(value)}, but must be a number above 0")
        if not SMALLEST <= float(value) <= 1 / SMALLEST:
            raise BCRLError(f"{name} is {_short(value)}, but must be from {SMALLEST:g} to {1 / SMALLEST:g}")
    threshold = float(threshold)
    abort_at, largest = (None if x is None else float(x) for x in (abort_at, largest))
    bound = abort_at if largest is None else largest
    if bound is None:
        raise BCRLError(
            "a certificate needs the largest cost that an episode can have: give abort_at (--abort-at), the "
            "cost at which episodes are stopped, in deployment too; or largest (--largest), which none can "
            "exceed, such as the largest cost of a step times the horizon"
        )
    if abort_at is not None and bound < abort_at:
        raise BCRLError(f"largest is {bound:g}, below abort_at {abort_at:g}: give the larger of the two")
    if threshold >= bound:
        raise BCRLError(
            f"threshold is {threshold:g}, but no episode can cost more than {bound:g}: there is nothing to "
            "test; give a lower threshold"
        )
    if bound > MOST_RATIO * threshold:
        raise BCRLError(
            f"threshold is {threshold:g} and the largest cost {bound:g}: a certificate would take more than "
            f"{MOST_RATIO:g} episodes; give a higher threshold or a lower largest cost"
        )
    return bound


def cost_fault(cost: float, bound: float, abort_at: float | None) -> str | None:
    """What is wrong with the cost of an episode, if anything is."""
    if not math.isfinite(cost) or cost < 0:
        return f"cost is {cost:g}, but must be a number from 0 up"
    if cost <= bound:
        return None
    if bound == abort_at:
        return (
            f"cost is {cost:.10g}, above abort_at {bound:g}: if the last step before a stop can exceed it, "
            "give largest too, abort_at plus the largest cost of a step"
        )
    return f"cost is {cost:.10g}, above largest {bound:g}: give a cost that no episode can exceed"


def log_wealth(gains: np.ndarray) -> np.ndarray:
    """ln K_n after each episode. K_n is the mean over bets c of the products of 1 + c·gain; gains >= -1."""
    products = np.zeros(len(BETS))
    paths = []
    for start in range(0, len(gains), _BLOCK):
        logs = products + np.cumsum(np.log1p(np.outer(gains[start : start + _BLOCK], BETS)), axis=0)
        products = logs[-1]
        paths.append(_log_mean(logs))
    return np.concatenate(paths)


def _gains(costs: np.ndarray, threshold: float, bound: float) -> np.ndarray:
    """What a bet of 1 wins: (κ - C)/(B - κ), from -1 up."""
    return (threshold - costs) / (bound - threshold)


def _log_mean(logs: np.ndarray) -> np.ndarray:
    """The logarithm of the mean of exp(logs) over the last axis."""
    top = logs.max(axis=-1)
    return top + np.log(np.exp(logs - top[..., None]).mean(axis=-1))


def _cost_high(costs: np.ndarray, bound: float, alpha: float, threshold: float, certified: bool) -> float:
    """The smallest threshold that these episodes certify, B if there is none.

    Every factor 1 + c (κ - C)/(B - κ) rises with κ, so the running maximum does, and bisection finds it.
    """
    low, high = (0.0, threshold) if certified else (threshold, bound)
    for _ in range(20):
        middle = (low + high) / 2
        if log_wealth(_gains(costs, middle, bound)).max() >= -math.log(alpha):
            high = middle
        else:
            low = middle
    return high


def _more(costs: np.ndarray, threshold: float, bound: float, alpha: float) -> int | None:
    """About how many more episodes it takes if each bet grows on as it did; None if no bet grows.

    After n episodes the wealth of bet c is exp(n r_c), with r_c its mean logarithm so far. The logarithm of
    their mean is convex in n and 0 at 0, so it reaches ln 1/α once.
    """
    gains = _gains(costs, threshold, bound)
    rates = np.array([np.log1p(bet * gains).mean() for bet in BETS])
    if rates.max() <= 0:
        return None

    def enough(episodes: int) -> bool:
        return bool(_log_mean(episodes * rates) >= -math.log(alpha))

    low, high = len(costs), 2 * len(costs)
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high - len(costs)


def _checked(costs: ArrayLike, bound: float, abort_at: float | None) -> np.ndarray:
    try:
        array = np.asarray(costs, float)
    except (TypeError, ValueError, OverflowError):
        raise BCRLError("costs must be numbers, one per episode") from None
    if array.ndim != 1 or not len(array):
        raise BCRLError(f"costs has shape {array.shape}, but must be one number per episode, at least one")
    for index in np.flatnonzero(~((array >= 0) & (array <= bound)))[:1]:
        raise BCRLError(f"episode {index + 1}: {cost_fault(float(array[index]), bound, abort_at)}")
    return array


def _is_finite(value: Any) -> bool:
    """Whether it is a number that fits into a float."""
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError):
        return False


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else brief_repr(value)


def _for_each(name: str, value: Any, tests: int) -> Sequence[Any]:
    if value is None or np.ndim(value) == 0:
        return [value] * tests
    if len(value) != tests:
        raise BCRLError(f"{name} has {len(value)} numbers for {tests} tests: give one, or one for each")
    return value


def _untested(one: Certificate) -> Certificate:
    """Without what a user could take for a result."""
    none = dict.fromkeys(("cost_high", "p_value", "p_value_above", "certified_at", "more"))
    return replace(one, verdict=Verdict.NOT_TESTED, **none)


def _about(number: int) -> str:
    """Two significant digits, rounded up."""
    unit = 10 ** max(0, len(str(number)) - 2)
    rounded = -(-number // unit) * unit
    return f"{rounded:,} episode{'s' if rounded != 1 else ''}"
