"""Options out of range are refused in one line, and the log becomes the arrays the options ask for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCAll, BCSafe
from bcrl.learn.bcrl import BCRL
from bcrl.learn.bcrl_options import PARTS
from bcrl.learn.protocol import Normaliser, Spec
from bcrl.learn.registry import default_steps, find_method, make_method

BAD = {
    "tau_c": [0.0, -0.1, 0.6, float("nan")],
    "tau_r": [0.4, 1.1],
    "gamma": [-0.1, 1.1],
    "gamma_cost": [0.0, 1.0, 1.5],
    "target_rate": [-0.1, 2.0],
    "dropout": [-0.1, 1.0],
    "beta": [0.0, -1.0, float("nan")],
    "learning_rate": [0.0, float("nan")],
    "clip_norm": [0.0],
    "weight_limit": [0.0],
    "batch_size": [0],
    "budget_samples": [0],
    "cost_share": [0.0, 1.1],
    "hidden": [(), (8, 0), 5, [8], (8,) * 65, "8", None],
    "max_budget": [0.0, -1.0],
    "cost_price": [0.0, -1.0, (1.0, float("inf"))],
    "decay": ["never"],
    "tracking": ["hard"],
    "criterion": ["monthly"],
    "slack_draw": ["normal"],
    "budget_input": ["squared"],
    "phases": ["never"],
    "label_values": ["guessed"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_a_bad_option_is_named(name, value):
    with pytest.raises(BCRLError, match=name) as refused:
        BCRL(**{name: value})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"), [("batch_size", 0), ("hidden", ()), ("learning_rate", 0.0), ("dropout", 1.0)]
)
def test_a_bad_option_of_cloning_is_named(name, value):
    with pytest.raises(BCRLError, match=name):
        BCAll(**{name: value})


@pytest.mark.parametrize("threshold", [float("nan"), -1.0])
def test_cloning_of_safe_episodes_needs_a_threshold(threshold):
    with pytest.raises(BCRLError, match="threshold"):
        BCSafe(threshold=threshold)


def test_cloning_of_safe_episodes_takes_only_those(tiny_log):
    middle = float(np.median(tiny_log.episode_costs))
    chosen = BCSafe(threshold=middle).chosen(tiny_log)
    assert 0 < chosen.episode_count < tiny_log.episode_count
    assert chosen.episode_count == int(np.sum(tiny_log.episode_costs <= middle))
    assert chosen.episode_costs.max() <= middle
    least = tiny_log.episode_costs.min()
    with pytest.raises(BCRLError, match=f"the least costs {least:g}"):
        BCSafe(threshold=float(least) - 0.5).chosen(tiny_log)


def test_unknown_names_list_the_known():
    with pytest.raises(BCRLError, match=r"known: bcrl, .*, bc-all, bc-safe"):
        find_method("cpo")
    with pytest.raises(BCRLError, match=r"no option 'tau'.*tau_c"):
        make_method("bcrl", tau=0.1)
    with pytest.raises(BCRLError, match="known: paper, cpu"):
        make_method("bcrl", preset="gpu")


def test_a_method_shows_what_is_not_its_default():
    assert repr(BCRL()) == "BCRL()"
    assert (
        repr(make_method("bcrl", family="safety-gym"))
        == "BCRL(reward_unit=1.0, tau_c=0.01, tau_r=0.6, n_step=10)"
    )
    assert repr(BCSafe(threshold=5.0)) == "BCSafe(threshold=5.0)"


def test_given_options_win_over_preset_and_preset_over_family():
    method = make_method("bcrl", preset="cpu", family="metadrive", beta=5.0, hidden=[7])
    assert (method.tracking, method.tau_c, method.beta, method.hidden) == ("direct", 0.4, 5.0, (7,))
    assert (method.batch_size, default_steps("bcrl", "cpu", "metadrive")) == (256, 20_000)
    method = make_method("bcrl", family="metadrive")
    assert (method.hidden, method.batch_size) == ((256, 256), 512)
    assert default_steps("bcrl", "paper", "metadrive") == 200_000


@pytest.mark.parametrize("time_limits", ["go-on", "end"])
@pytest.mark.parametrize("criterion", ["discounted", "episodic"])
def test_prepared_rows(criterion, time_limits, tiny_log):
    method = BCRL(criterion=criterion, time_limits=time_limits, batch_size=512)
    normaliser = Normaliser.of(tiny_log.observations)
    arrays = method.prepare(tiny_log, normaliser)
    batch = method.sample(arrays, jax.random.key(0))
    # Each sampled row is some row of the log, whole.
    rewards = tiny_log.rewards.tolist()
    row = np.array([rewards.index(r) for r in np.asarray(batch.reward)])
    assert len(set(row.tolist())) > 100
    size = tiny_log.observation_size

    def normal(x):
        return (x - tiny_log.observations.mean(0)) / (tiny_log.observations.std(0) + 1e-5)

    np.testing.assert_allclose(batch.features[:, :size], normal(tiny_log.observations)[row], atol=1e-5)
    np.testing.assert_allclose(
        batch.next_features[:, :size], normal(tiny_log.next_observations)[row], atol=1e-5
    )
    np.testing.assert_array_equal(batch.cost, tiny_log.costs_2d[row])
    np.testing.assert_allclose(batch.action, tiny_log.actions[row], atol=2e-5)
    np.testing.assert_allclose(
        arrays.initial_features[:, :size], normal(tiny_log.initial_observations), atol=1e-5
    )
    if criterion == "discounted" and time_limits == "go-on":
        np.testing.assert_array_equal(batch.bootstrap, ~tiny_log.terminals[row])
    else:
        np.testing.assert_array_equal(batch.bootstrap, ~(tiny_log.terminals | tiny_log.timeouts)[row])
    if criterion == "discounted":
        assert batch.features.shape[1] == size
    else:
        np.testing.assert_allclose(batch.features[:, size], tiny_log.steps[row] / 20, atol=1e-6)
        np.testing.assert_allclose(batch.next_features[:, size], (tiny_log.steps[row] + 1) / 20, atol=1e-6)
        np.testing.assert_array_equal(arrays.initial_features[:, size], 0)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("decay", ["policies", "all"])
def test_step_sizes_that_decay_end_at_nothing(tiny_log, share, decay):
    """Those of the policies always; those of the cost critics also after their share of the steps."""
    spec, method = Spec.of(tiny_log, 10), BCRL(decay=decay, cost_share=share)
    for name, rule in method.optimisers(PARTS, spec).items():
        memory = rule.init(jnp.ones(3))
        for _ in range(spec.steps):
            _, memory = rule.update(jnp.ones(3), memory)
        change, _ = rule.update(jnp.ones(3), memory)
        ended = decay == "all" or name in ("actor", "fallback") or (share < 1 and name.startswith("cost"))
        assert bool(jnp.all(change == 0.0)) == ended, name
