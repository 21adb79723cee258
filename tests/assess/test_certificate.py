"""Certificates: false ones are rare whenever one stops, true ones come soon."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bcrl
from bcrl.assess.certificate import BETS, Verdict, certify, certify_sequence, log_wealth
from bcrl.errors import BCRLError

KAPPA = 20.0


def draw(kind: str, mean: float, largest: float, shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    """Costs in [0, largest] with exactly this mean."""
    random = np.random.default_rng(seed)
    share = mean / largest
    if kind == "beta":
        return largest * random.beta(6 * share, 6 * (1 - share), shape)
    if kind == "exponential":  # cut at the largest cost: its mean is scale·(1 - exp(-largest/scale))
        scales = np.geomspace(mean, 1e4 * largest, 2_000_000)
        scale = scales[np.searchsorted(scales * -np.expm1(-largest / scales), mean)]
        return np.minimum(random.exponential(scale, shape), largest)
    assert kind == "rare disasters"  # one episode in twenty costs the most
    usual = (mean - 0.05 * largest) / 0.95
    return np.where(random.random(shape) < 0.05, largest, usual * random.uniform(0, 2, shape))


KINDS = ("beta", "exponential", "rare disasters")


def first_certified(costs: np.ndarray, largest: float, alpha: float = 0.05) -> np.ndarray:
    """For each row, the episode after which it is certified; infinity if it never is."""
    gains = (KAPPA - costs) / (largest - KAPPA)
    found = np.full(len(gains), np.inf)
    for episodes in (200, gains.shape[1]):  # many rows need few; the rest of a row changes nothing
        rows = np.flatnonzero(np.isinf(found))
        if len(rows):
            wealths = np.array([log_wealth(row) for row in gains[rows, :episodes]])
            found[rows] = first_reached(wealths, alpha)
    return found


def first_reached(log_wealths: np.ndarray, alpha: float = 0.05) -> np.ndarray:
    reached = log_wealths >= -math.log(alpha)
    return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, np.inf)


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_costs_have_the_mean_they_are_to_have(kind):
    costs = draw(kind, KAPPA, 60, (1000, 1000))
    assert costs.mean() == pytest.approx(KAPPA, abs=5 * costs.std() / 1000)
    assert costs.min() >= 0
    assert costs.max() <= 60


@pytest.mark.parametrize("largest", [60.0, 200.0])
@pytest.mark.parametrize("kind", KINDS)
def test_false_certificates_are_rare_though_one_looks_after_each_of_2000_episodes(kind, largest):
    """The mean is exactly the threshold. At most α, plus three standard errors of 500 repetitions."""
    alpha, rows = 0.1, 500
    ever = np.isfinite(first_certified(draw(kind, KAPPA, largest, (rows, 2000)), largest, alpha))
    assert ever.mean() <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wealth_has_mean_one_at_the_threshold(kind):
    """Unlike a count of false certificates, this also fails if bets lose more than they must."""
    gains = (KAPPA - draw(kind, KAPPA, 60, (40_000, 8), seed=1)) / (60 - KAPPA)
    wealth = np.exp(np.array([log_wealth(row)[-1] for row in gains]))
    assert wealth.mean() == pytest.approx(1, abs=4 * wealth.std() / math.sqrt(len(wealth)))


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_cover_the_mean(kind):
    """The upper bound is the test turned round: below the mean in at most a share α of all files."""
    rows = draw(kind, KAPPA, 60, (300, 40), seed=2)
    low = np.mean([certify(row, 30, largest=60, confidence=0.9).cost_high <= KAPPA for row in rows])
    assert low <= 0.1 + 3 * math.sqrt(0.09 / 300)


# As in the module's docstring: the median number of episodes to a certificate at a mean of .8 κ.
MEDIANS = {
    (200, "beta"): 231,
    (200, "exponential"): 190,
    (200, "rare disasters"): 997,
    (60, "beta"): 50,
    (60, "exponential"): 99,
    (60, "rare disasters"): 93,
}


def other_bets(costs: np.ndarray, largest: float) -> dict[str, np.ndarray]:
    """When two other bets certify; their λ depend on mean and variance of the episodes before."""
    values, m, evidence = costs / largest, KAPPA / largest, math.log(20)
    first = np.ones((len(values), 1))
    counts = np.arange(1, values.shape[1] + 1)
    means = np.hstack([first / 2, (0.5 + values.cumsum(axis=1)) / (counts + 1)])[:, :-1]
    squares = ((values - means) ** 2).cumsum(axis=1)
    variances = np.hstack([first / 4, (0.25 + squares) / (counts + 1)])[:, :-1]
    gaps = m - means
    bets = {
        "plug-in": np.minimum(
            np.sqrt(2 * evidence / (variances * counts * np.log1p(counts))), 0.75 / (1 - m)
        ),
        "aGRAPA": np.clip(gaps / (variances + gaps**2), 0, 0.95 / (1 - m)),
    }
    return {name: first_reached(np.log1p(bet * (m - values)).cumsum(axis=1)) for name, bet in bets.items()}


@pytest.mark.parametrize(("largest", "kind"), MEDIANS)
def test_true_certificates_come_soon_and_other_bets_are_not_much_better(largest, kind):
    rows = draw(kind, 0.8 * KAPPA, largest, (400, 2500), seed=3)
    ours = np.median(first_certified(rows, largest))
    assert ours == pytest.approx(MEDIANS[largest, kind], rel=0.1)
    for name, theirs in other_bets(rows, largest).items():
        assert ours <= 1.1 * np.median(theirs), name


def test_an_abort_rule_saves_episodes():
    """The same episodes of 200 steps, run to their end and stopped at 3 κ, as in docs/certify.md."""
    rows = draw("beta", 0.8 * KAPPA, 200, (200, 1500), seed=4)
    assert np.median(first_certified(rows, 200)) == pytest.approx(216, rel=0.1)
    assert np.median(first_certified(np.minimum(rows, 60), 60)) == pytest.approx(92, rel=0.1)


costs_up_to_1 = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0, 1), min_size=1, max_size=60)


@settings(max_examples=60)
@given(costs_up_to_1, st.floats(0.01, 0.99))
def test_wealth_is_never_negative_and_does_not_depend_on_the_order(costs, threshold):
    gains = (threshold - np.array(costs)) / (1 - threshold)
    assert np.all(1 + np.outer(gains, BETS) >= 0)
    wealth = log_wealth(gains)
    assert np.all(np.isfinite(wealth))
    assert log_wealth(gains[::-1])[-1] == pytest.approx(wealth[-1], abs=1e-9)
    products = np.prod(1 + np.outer(gains, BETS), axis=0)
    assert math.exp(wealth[-1]) == pytest.approx(products.mean(), rel=1e-6)


@settings(max_examples=60)
@given(costs_up_to_1, st.floats(0.01, 0.99), st.floats(0.5, 0.999), st.floats(0.5, 0.999))
def test_what_is_certified_is_certified_at_less_confidence_and_at_a_higher_threshold(
    costs, kappa, one, other
):
    low, high = sorted((one, other))
    bold, careful = (certify(costs, kappa, largest=1, confidence=level) for level in (low, high))
    assert bold.p_value == careful.p_value
    assert bold.cost_high <= careful.cost_high + 1e-5
    if careful.certified:  # or the opposite is certified too, with less confidence: costs that change
        assert bold.certified or (bold.verdict is Verdict.NO and bold.p_value_above <= 1 - low)
        assert careful.cost_high <= kappa
        higher = (1 + 3 * kappa) / 4
        assert certify(costs, higher, largest=1, confidence=high).p_value <= careful.p_value * (1 + 1e-9)


@settings(max_examples=40)
@given(costs_up_to_1, st.floats(0.05, 0.95), st.floats(1e-6, 1e6))
def test_another_unit_of_cost_changes_nothing(costs, threshold, unit):
    one = certify(costs, threshold, largest=1)
    scaled = np.minimum(np.array(costs) * unit, unit)
    other = certify(scaled, threshold * unit, largest=unit)
    assert (other.minimum_episodes, other.certified_at) == (one.minimum_episodes, one.certified_at)
    assert other.p_value == pytest.approx(one.p_value, rel=1e-6)
    assert other.p_value_above == pytest.approx(one.p_value_above, rel=1e-6)
    assert other.cost_high == pytest.approx(one.cost_high * unit, rel=1e-3)


@pytest.mark.parametrize(
    ("threshold", "largest", "confidence", "wanted"),
    [(20, 60, 0.95, 8), (20, 200, 0.95, 29), (1, 2, 0.75, 2), (1, 1000, 0.99, 4603)],
)
def test_at_zero_cost_no_test_can_do_with_fewer_episodes_and_ours_needs_few_more(
    threshold, largest, confidence, wanted
):
    """If each episode costs B with probability κ/B and else 0, all n cost 0 with probability (1 - κ/B)ⁿ."""
    alpha = 1 - confidence
    assert (
        (1 - threshold / largest) ** wanted <= alpha * (1 + 1e-9) < (1 - threshold / largest) ** (wanted - 1)
    )
    short = certify(np.zeros(wanted - 1), threshold, largest=largest, confidence=confidence)
    assert short.minimum_episodes == wanted
    assert short.verdict is Verdict.NOT_YET
    assert f"Even at zero cost it takes {wanted:,} episodes" in short.sentence
    needed = wanted - 1 + short.more
    assert needed <= 1.5 * wanted + 1
    before, enough = (certify(np.zeros(n), threshold, largest=largest, confidence=confidence)
                      for n in (needed - 1, needed))  # fmt: skip
    assert (before.certified, enough.certified) == (False, True)
    assert enough.certified_at == needed


def test_the_number_of_missing_episodes_is_about_right():
    rows = draw("beta", 0.7 * KAPPA, 60, (200, 1500), seed=5)
    short = [certify(row[:15], KAPPA, abort_at=60) for row in rows]
    foretold = np.median([15 + one.more for one in short if one.more is not None])
    assert foretold == pytest.approx(np.median(first_certified(rows, 60)), rel=0.4)


def test_verdicts():
    certified = certify([10.0] * 40, 20, abort_at=60)
    assert certified.verdict == "certified"
    assert "below 20 with 95 % confidence, if episodes are stopped at 60." in certified.sentence
    assert f"after {certified.certified_at} of 40 episodes" in certified.sentence
    assert 10 < certified.cost_high < 20
    assert repr(certified) == "Certificate(certified: mean cost < 20, confidence 0.95, 40 episodes)"

    early = certify([10.0, 12.0, 9.0], 20, largest=60)
    assert (early.verdict, early.cost_high > 20) == ("not yet", True)
    assert "stopped" not in early.sentence
    assert early.sentence.startswith("Not yet: about ")

    unclear = certify([0.0, 55.0, 20.0], 20, largest=60)
    assert (unclear.verdict, unclear.more) == ("not yet", None)
    assert "the mean so far, 25, is not clearly below 20" in unclear.sentence

    above = certify([40.0] * 30, 20, abort_at=60)
    assert (above.verdict, above.more) == ("no", None)
    assert above.sentence == "No: the mean cost is above 20 with 95 % confidence."

    hopeless = certify([21.0, 23.0, 22.0, 24.0] * 2, 20, abort_at=60)
    assert hopeless.verdict == "no"
    assert "more than two standard errors above 20" in hopeless.sentence
    assert hopeless.p_value_above > 0.05
    assert certify([21.0, 23.0, 22.0], 20, abort_at=60).verdict == "not yet"  # fewer than at zero cost

    changed = certify([5.0] * 40 + [60.0] * 60, 20, abort_at=60)
    assert changed.verdict == "no"
    assert changed.certified_at is not None
    assert "The costs have changed" in changed.sentence


def test_a_verdict_stays_when_costs_get_a_little_worse():
    """The running maximum decides: whoever stopped at the certificate keeps it by going on."""
    costs = [10.0] * 30 + [24.0] * 30
    assert certify(costs[:30], 20, abort_at=60).certified
    assert certify(costs, 20, abort_at=60).certified


def test_long_files_are_summed_in_blocks():
    gains = np.random.default_rng(0).uniform(-1, 1, 10_000)
    logs = np.log1p(np.outer(gains, BETS)).sum(axis=0)
    top = logs.max()
    assert log_wealth(gains)[-1] == pytest.approx(top + np.log(np.exp(logs - top).mean()), rel=1e-9)


def test_a_sequence_ends_at_the_first_that_is_not_certified():
    good, poor = [5.0] * 40, [19.0] * 40
    found = certify_sequence([good, poor, good], [10, 20, 40], abort_at=[30, 60, 120])
    assert [one.verdict for one in found] == ["certified", "not yet", "not tested"]
    assert (found[2].p_value, found[2].cost_high, found[2].more) == (None, None, None)
    assert found[0] == certify(good, 10, abort_at=30)
    assert all(one.certified for one in certify_sequence([good, good], 20, largest=60))


def test_a_sequence_keeps_the_error_of_all_tests_together():
    """Three policies with means exactly at the threshold: any certificate is wrong."""
    alpha, rows = 0.2, 300
    wrong = 0
    for index in range(rows):
        costs = [draw("beta", KAPPA, 60, (1, 60), seed=3 * index + k)[0] for k in range(3)]
        found = certify_sequence(costs, KAPPA, largest=60, confidence=1 - alpha)
        wrong += any(one.certified for one in found)
    assert wrong / rows <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / rows)


BAD_CALLS = {
    "no bound": ({}, "largest cost that an episode can have.*abort_at.*deployment too.*largest"),
    "a cost above abort_at": ({"abort_at": 25}, "episode 3: cost is 30, above abort_at 25.*largest"),
    "a cost above largest": ({"largest": 25}, "episode 3: cost is 30, above largest 25"),
    "largest below abort_at": ({"abort_at": 60, "largest": 50}, "largest is 50, below abort_at 60"),
    "threshold at the bound": ({"threshold": 60, "abort_at": 60}, "threshold is 60.*nothing to test"),
    "threshold 0": ({"threshold": 0, "abort_at": 60}, "threshold is 0"),
    "no end of a bound": ({"largest": math.inf}, "largest is inf"),
    "a bound of 400 digits": ({"largest": 10**400}, "largest is 1000.*above 0"),
    "an abort of 5,000 digits": ({"abort_at": 10**5_000}, "abort_at is a int with an integer of thousands"),
    "a threshold of 400 digits": ({"threshold": 10**400, "largest": 60}, "threshold is 1000.*above 0"),
    "a cost of 400 digits": ({"largest": 60, "costs": [10**400]}, "must be numbers"),
    "no threshold": ({"threshold": None, "largest": 60}, "threshold is None"),
    "a threshold in words": ({"threshold": "20", "largest": 60}, "threshold is '20'"),
    "the least of all thresholds": ({"threshold": 5e-324, "largest": 60}, "threshold is 4.9.*from 1e-100"),
    "the largest of all bounds": ({"largest": 1.7e308}, "largest is 1.7e[+]308, but must be from"),
    "more episodes than there are": ({"largest": 1e30}, "more than 1e[+]12 episodes"),
    "confidence in words": ({"largest": 60, "confidence": "high"}, "confidence is 'high'"),
    "percent": ({"largest": 60, "confidence": 95}, "confidence is 95.*0.95"),
    "certain": ({"largest": 60, "confidence": 1}, "confidence is 1"),
    "no episodes": ({"largest": 60, "costs": []}, "at least one"),
    "two columns": ({"largest": 60, "costs": [[1, 2]]}, r"shape \(1, 2\)"),
    "words": ({"largest": 60, "costs": ["a"]}, "must be numbers"),
    "NaN": ({"largest": 60, "costs": [1, math.nan]}, "episode 2: cost is nan"),
    "a negative cost": ({"largest": 60, "costs": [-1]}, "episode 1: cost is -1"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_are_refused(name):
    change, wanted = BAD_CALLS[name]
    given = {"costs": [10, 20, 30], "threshold": 20, **change}
    with pytest.raises(BCRLError, match=wanted):
        bcrl.certify(given.pop("costs"), given.pop("threshold"), **given)


def test_bad_sequences_are_refused():
    with pytest.raises(BCRLError, match="thresholds has 3 numbers for 2 tests"):
        certify_sequence([[1], [2]], [10, 20, 40], largest=60)
    with pytest.raises(BCRLError, match="test 2: episode 1: cost is 70"):
        certify_sequence([[1], [70]], 20, largest=60)
    with pytest.raises(BCRLError, match="at least one test"):
        certify_sequence([], 20, largest=60)
