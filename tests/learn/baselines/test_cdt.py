"""CDT: its transformer, losses and memory by numpy, its windows and relabelling, and what it learns."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from finite_differences import compare_every_leaf, random_like
from lane import Lane, fit_lane, lane_log

import bcrl
from bcrl.assess.rollout import roll_out
from bcrl.errors import BCRLError
from bcrl.learn.baselines import cdt_data
from bcrl.learn.baselines.cdt import CDT, SequenceActor, Windows
from bcrl.learn.baselines.parts import dropout
from bcrl.learn.protocol import Normaliser, Spec
from bcrl.worlds.tasks import tasks

SPEC = Spec(3, 2, 1, 20, (1.0,), 10)
METHOD = CDT(width=8, layers=2, heads=2, context=3, batch_size=4)
FAITHFUL = dataclasses.replace(METHOD, variant="faithful")


def make_policy(method: CDT = METHOD):
    return random_like(
        jax.eval_shape(lambda: method.init(jax.random.key(0), SPEC)).networks["policy"], seed=1
    )


def make_batch() -> Windows:
    rng = np.random.default_rng(0)
    return Windows(
        goals=jnp.asarray(rng.normal(size=(4, 3, 2))),
        features=jnp.asarray(rng.normal(size=(4, 3, 3))),
        action=jnp.asarray(rng.uniform(-1, 1, (4, 3, 2))),
        costs=jnp.asarray([[0.0, 1, 1], [0, 0, 0], [1, 0, 1], [1, 1, 1]]),
        time=jnp.asarray([[0, 1, 2], [7, 8, 9], [19, 20, 21], [3, 4, 5]]),
        valid=jnp.asarray([[1.0, 1, 1], [1, 1, 1], [1, 0, 0], [1, 1, 0]]),
    )


gradients = jax.jit(lambda *inputs: jax.grad(METHOD.losses, has_aux=True)(*inputs, SPEC))


# ---- the network --------------------------------------------------------------------------------


say = jax.jit(lambda policy, *inputs, half=False: policy(*inputs, half=half), static_argnames="half")


def plain_transformer(policy, goals, states, actions, time):
    """One sequence, one token and one head at a time, with every block on every token."""
    policy = jax.tree.map(np.asarray, policy)

    def linear(layer, x, number=None):
        weight, bias = (p if number is None else p[number] for p in (layer.weight, layer.bias))
        return x @ weight + bias

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    gelu = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))
    tokens = []
    for step, t in enumerate(time):
        of_step = [linear(policy.goals, goals[step, i : i + 1], i) for i in range(2)]
        of_step += [linear(policy.states, states[step]), linear(policy.actions, actions[step])]
        tokens += [token + policy.times[t] for token in of_step]
    x = norm(np.stack(tokens)) * policy.scale + policy.offset
    for number in range(policy.blocks.mix.weight.shape[0]):
        normal, mixed = norm(x), np.zeros_like(x)
        query = linear(policy.blocks.query, normal, number)
        key, value = np.split(linear(policy.blocks.key_and_value, normal, number), 2, axis=-1)
        for head in np.split(np.arange(x.shape[1]), policy.blocks.heads):
            for place in range(len(x)):
                score = key[: place + 1, head] @ query[place, head] / np.sqrt(len(head))
                weight = np.exp(score - score.max())
                mixed[place, head] = weight / weight.sum() @ value[: place + 1, head]
        x = x + linear(policy.blocks.mix, mixed, number)
        x = x + linear(policy.blocks.down, gelu(linear(policy.blocks.up, norm(x), number)), number)
    x = norm(x)
    mean, log_std = np.split(linear(policy.act, x[2::4]), 2, axis=-1)
    return mean, np.clip(log_std, -20, 2), linear(policy.foresee, x[3::4])


def test_the_transformer_by_numpy(double):
    """Heads are read at two tokens of each step alone, and the last block works on no others."""
    policy, batch = make_policy(), make_batch()
    found = say(policy, batch.goals, batch.features, batch.action, batch.time)
    for row in range(4):
        inputs = (np.asarray(x)[row] for x in (batch.goals, batch.features, batch.action, batch.time))
        for one, other in zip(found, plain_transformer(policy, *inputs), strict=True):
            np.testing.assert_allclose(one[row], other, rtol=1e-9, atol=1e-10)


def test_bfloat16_is_near(double):
    policy, batch = make_policy(), make_batch()
    inputs = (batch.goals, batch.features, batch.action, batch.time)
    for one, other in zip(say(policy, *inputs, half=True), say(policy, *inputs), strict=True):
        np.testing.assert_allclose(one, other, atol=0.1)
        assert not np.array_equal(one, other)


def test_no_step_sees_what_comes_after_its_state(double):
    policy, batch = make_policy(), make_batch()
    mean, _, logits = say(policy, batch.goals, batch.features, batch.action, batch.time)
    later = say(
        policy, batch.goals.at[:, 2].add(1.0), batch.features.at[:, 2].add(1.0), batch.action, batch.time
    )
    np.testing.assert_array_equal(later[0][:, :2], mean[:, :2])
    np.testing.assert_array_equal(later[2][:, :2], logits[:, :2])
    assert np.abs(later[0] - mean)[:, 2].min() > 1e-6
    acted = say(policy, batch.goals, batch.features, batch.action.at[:, 1].add(0.5), batch.time)
    np.testing.assert_array_equal(acted[0][:, :2], mean[:, :2])
    assert np.abs(acted[0] - mean)[:, 2].min() > 1e-6
    assert np.abs(acted[2] - logits)[:, 1].min() > 1e-6


def test_dropout():
    x = jnp.ones((100, 101))
    for rate, exact in ((0.1, 26 / 256), (0.5, 0.5)):
        dropped = np.asarray(dropout(x, rate, jax.random.key(0)))
        assert set(np.unique(dropped).tolist()) == {0.0, np.float32(1 / (1 - exact))}
        # 10,100 draws: three standard deviations are 0.009 and 0.015.
        np.testing.assert_allclose(
            np.mean(dropped == 0), exact, atol=3 * np.sqrt(exact * (1 - exact) / x.size)
        )
        assert not np.array_equal(dropped, dropout(x, rate, jax.random.key(1)))
    np.testing.assert_array_equal(dropout(x, 0.0, jax.random.key(0)), x)
    np.testing.assert_array_equal(dropout(x, 0.5, None), x)


# ---- losses -------------------------------------------------------------------------------------


def test_losses_by_numpy(double):
    batch, rng = make_batch(), np.random.default_rng(3)
    mean, log_std, logits = rng.normal(size=(3, 4, 3, 2))
    density = -0.5 * ((batch.action - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    entropy = log_std + 0.5 * np.log(2 * np.pi * np.e)
    mask = np.asarray(batch.valid) > 0
    found = METHOD.likelihood(jnp.asarray(mean), jnp.asarray(log_std), batch)
    np.testing.assert_allclose(found, (density[mask].mean(), entropy[mask].mean()), rtol=1e-10)

    label = np.asarray(batch.costs).astype(int)[..., None]
    chance = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    each = -np.log(np.take_along_axis(chance, label, -1)[..., 0])
    np.testing.assert_allclose(METHOD.cost_loss(jnp.asarray(logits), batch), each[mask].mean(), rtol=1e-10)
    released = FAITHFUL.cost_loss(jnp.asarray(logits), batch)
    np.testing.assert_allclose(released, (each * mask).sum() / 12, rtol=1e-10)

    entropy = jnp.asarray(-1.5)
    log_eta = jnp.log(jnp.asarray(0.2))
    np.testing.assert_allclose(METHOD.eta_loss(log_eta, entropy, SPEC), 0.2 * (-1.5 + 1), rtol=1e-10)
    np.testing.assert_allclose(FAITHFUL.eta_loss(log_eta, entropy, SPEC), 0.2 * (-1.5 + 2), rtol=1e-10)


@pytest.mark.slow
def test_gradients(double):
    """Of the sum of both losses, with dropout; the differences are of the policy's loss and of η's alone."""
    batch, key = make_batch(), jax.random.key(2)
    policy, log_eta = make_policy(), jnp.asarray(-0.7)
    gradient, metrics = gradients({"policy": policy, "log_eta": log_eta}, batch, key)

    def policy_loss(policy):
        return gradients({"policy": policy, "log_eta": log_eta}, batch, key)[1]["policy/loss"]

    compare_every_leaf(policy, policy_loss, gradient["policy"])
    wanted = np.exp(-0.7) * (metrics["policy/entropy"] + 1.0)
    np.testing.assert_allclose(gradient["log_eta"], wanted, rtol=1e-10)


def test_padding_teaches_nothing(double):
    batch = make_batch()
    hidden = np.asarray(batch.valid) == 0
    other = dataclasses.replace(
        batch,
        features=jnp.where(hidden[..., None], 9.0, batch.features),
        action=jnp.where(hidden[..., None], 0.3, batch.action),
        costs=jnp.where(hidden, 1 - batch.costs, batch.costs),
    )
    trained = {"policy": make_policy(), "log_eta": jnp.asarray(0.0)}
    one, two = (gradients(trained, b, jax.random.key(2))[0] for b in (batch, other))
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_a_step_keeps_every_type():
    """A state whose types change on the way is compiled for again and again."""
    state = jax.eval_shape(lambda: METHOD.init(jax.random.key(0), SPEC))
    batch = jax.eval_shape(lambda: jax.tree.map(jnp.float32, make_batch()))
    batch = dataclasses.replace(batch, time=jax.ShapeDtypeStruct((4, 3), jnp.int32))
    after = jax.eval_shape(
        lambda s, b: METHOD.update(s, b, jax.random.key(0), SPEC, ("all",))[0], state, batch
    )
    kinds = [[(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(tree)] for tree in (state, after)]
    assert kinds[0] == kinds[1]


def test_warm_up_and_clipping():
    """Adam's first steps have the size of the rate, which rises to its full size in 500."""
    method = dataclasses.replace(METHOD, learning_rate=0.5, weight_decay=0.0)
    weights: Any = {"a": jnp.zeros(2), "b": jnp.zeros(1)}
    slope: Any = {"a": jnp.asarray([3.0, -4.0]), "b": jnp.asarray([12.0])}
    optimiser = method.optimisers["policy"]
    state = optimiser.init(weights)
    for step in (1, 2):
        change, state = optimiser.update(slope, state, weights)
        np.testing.assert_allclose(change["a"], [-0.001 * step, 0.001 * step], rtol=1e-4)
    assert isinstance(state, tuple)
    # The norm was 13, and its first moment after two steps is 0.19 of what the gradient was cut to.
    np.testing.assert_allclose(optax.tree_utils.tree_get(state, "mu")["b"], 0.19 * 0.25 * 12 / 13, rtol=1e-4)


# ---- data ---------------------------------------------------------------------------------------


def test_windows_are_pieces_of_episodes():
    log = lane_log(episodes=12)
    method = dataclasses.replace(METHOD, batch_size=400, context=6, relabel=0.9)
    arrays = method.prepare(log, Normaliser.of(log.observations))
    batch = jax.tree.map(np.asarray, jax.jit(method.sample)(arrays, jax.random.key(1)))
    place = (log.observations - log.observations.mean()) / (log.observations.std() + 1e-5)
    place = place.reshape(12, 20).astype(np.float32)
    to_go = np.stack(
        [np.cumsum(x.reshape(12, 20)[:, ::-1], 1)[:, ::-1] for x in (log.rewards, log.costs)], -1
    )
    scale = np.asarray(arrays.goals.mean), np.asarray(arrays.goals.std)
    np.testing.assert_allclose(scale[0], to_go.reshape(-1, 2).mean(0), rtol=1e-4)
    first, lengths, shifted = set(), set(), 0
    for row in range(400):
        length = int(batch.valid[row].sum())
        time = np.asarray(batch.time[row])
        np.testing.assert_array_equal(time, time[0] + np.arange(6))
        np.testing.assert_array_equal(batch.valid[row], time < 20)
        piece = slice(time[0], time[0] + length)
        # What was done tells the episode.
        unlike = np.abs(log.actions.reshape(12, 20)[:, piece] - batch.action[row, :length, 0]).sum(1)
        episode = int(np.argmin(unlike + np.abs(place[:, piece] - batch.features[row, :length, 0]).sum(1)))
        np.testing.assert_allclose(batch.features[row, :length, 0], place[episode, piece], atol=1e-4)
        np.testing.assert_array_equal(
            batch.action[row, :length, 0], log.actions.reshape(12, 20)[episode, piece]
        )
        np.testing.assert_array_equal(batch.costs[row, :length], log.costs.reshape(12, 20)[episode, piece])
        more = np.asarray(batch.goals[row, :length]) * scale[1] + scale[0] - to_go[episode, piece]
        np.testing.assert_allclose(more, np.broadcast_to(more[0], more.shape), atol=1e-3)
        shifted += np.abs(more[0]).max() > 1e-3
        first.add(episode)
        lengths.add(length)
    assert len(first) > 8
    assert lengths == {1, 2, 3, 4, 5, 6}
    assert shifted > 0


def test_expensive_episodes_are_drawn_less():
    log = lane_log(episodes=200)
    labels = cdt_data.labels(log, cdt_data.from_log(log), 0.0, 0, faithful=False)
    np.testing.assert_allclose(
        cdt_data.odds(log, labels, faithful=False) * np.sum(22.0 - log.episode_costs),
        22.0 - log.episode_costs,
    )
    dear = dataclasses.replace(log, costs=4 * log.costs)
    odds = cdt_data.odds(dear, labels, faithful=True)
    np.testing.assert_array_equal(odds == 0, dear.episode_costs >= 70)
    assert (odds == 0).any()
    ratio = odds[odds > 0] / (70 - dear.episode_costs[odds > 0])
    np.testing.assert_allclose(ratio, ratio[0])
    arrays = FAITHFUL.prepare(dear, Normaliser.of(log.observations))
    batch = jax.jit(dataclasses.replace(FAITHFUL, batch_size=2000).sample)(arrays, jax.random.key(0))
    assert np.asarray(50 - batch.goals[..., 1]).max() < 70
    with pytest.raises(BCRLError, match="every episode costs 70 or more"):
        cdt_data.odds(dataclasses.replace(log, costs=log.costs + 4), labels, faithful=True)


def test_the_front_by_brute_force():
    rng = np.random.default_rng(0)
    costs, returns = rng.integers(0, 8, 40).astype(float), rng.integers(0, 30, 40).astype(float)
    front = cdt_data.pareto_front(costs, returns)
    for cost in range(9):
        kept = costs[front] <= cost
        assert returns[front][kept].max() == returns[costs <= cost].max()
    assert np.all(np.diff(costs[front]) > 0)
    assert np.all(np.diff(returns[front]) > 0)


def make_actor(method: CDT, target: np.ndarray) -> SequenceActor:
    policy = jax.tree.map(jnp.float32, make_policy())
    normaliser = Normaliser(jnp.zeros(3), jnp.ones(3))
    goals = Normaliser(jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, 4.0]))
    return SequenceActor(normaliser, goals, jnp.asarray(target), policy, 3, not method.faithful)


def asked(target: np.ndarray, threshold: float) -> float:
    policy = bcrl.Policy(make_actor(METHOD, target), METHOD, SPEC, {})
    return float(policy.start(threshold=threshold).memory.to_go[0])


def test_target_returns():
    log = lane_log(episodes=60)
    settings = cdt_data.from_log(log)
    target = cdt_data.target_returns(log, settings, None)
    for threshold in (0.0, 2.5, 6.0, 100.0):
        best = log.episode_returns[log.episode_costs <= threshold].max()
        assert asked(target, threshold) == pytest.approx(best)
    costly = dataclasses.replace(log, costs=log.costs + 1)  # nothing is as cheap as the threshold
    cheapest = costly.episode_returns[costly.episode_costs == costly.episode_costs.min()].max()
    assert asked(cdt_data.target_returns(costly, settings, None), 1.0) == pytest.approx(cheapest)
    circle = cdt_data.target_returns(log, cdt_data.published("carcircle"), None)
    assert [asked(circle, k) for k in (5, 10, 20, 39, 40, 80)] == [450, 450, 500, 500, 550, 550]
    assert asked(cdt_data.target_returns(log, cdt_data.published("CarPush1"), None), 80.0) == 15
    assert asked(cdt_data.target_returns(log, settings, -3.0), 20.0) == -3
    many = dataclasses.replace(log, rewards=np.arange(1200.0), costs=np.repeat(np.arange(60.0), 20))
    steps = cdt_data.target_returns(many, settings, None)
    assert steps.shape == (cdt_data.FRONTIER_SIZE, 2)
    assert asked(steps, 2000.0) == many.episode_returns.max()


def test_relabelled_episodes_promise_more_than_the_log():
    log = lane_log()
    settings = cdt_data.from_log(log)
    labels = cdt_data.labels(log, settings, 0.2, 0, faithful=False)
    count = log.episode_count
    np.testing.assert_array_equal(labels.episode[:count], np.arange(count))
    assert not labels.more_return[:count].any()
    assert not labels.more_cost[:count].any()
    copies = labels.episode[count:]
    assert 20 <= len(copies) <= 0.2 * count
    # The promised cost is enough for what the episode did, and the promised return at most the largest.
    cost = log.episode_costs[copies] + labels.more_cost[count:]
    promised = log.episode_returns[copies] + labels.more_return[count:]
    assert labels.more_cost[count:].min() >= -1e-9
    assert promised.max() <= settings.max_return
    # Mostly above the best return of that cost: the curve through the front is not the front.
    best = np.array([log.episode_returns[log.episode_costs <= c + 1e-9].max() for c in cost])
    assert np.mean(promised > best) > 0.8
    again, other = (cdt_data.labels(log, settings, 0.2, seed, faithful=False) for seed in (0, 1))
    np.testing.assert_array_equal(again.more_return, labels.more_return)
    assert not np.array_equal(other.more_return, labels.more_return)


def test_as_released_promises_go_to_other_episodes():
    costs, returns = np.arange(6.0), np.array([3.0, 0, 5, 1, 9, 4])
    goals = np.array([[5.0, 9.0], [0.0, 3.5], [2.0, 5.5]])
    random = np.random.default_rng(0)
    fixed = cdt_data.matched(costs, returns, goals, 1.0, False, random)
    np.testing.assert_array_equal(fixed, [4, 0, 2])
    np.testing.assert_array_equal(cdt_data.matched(costs, returns, goals, 1.0, True, random), [0, 2, 4])
    # An episode that is hit again passes the promise on to one that costs no more and returns as much.
    twice = cdt_data.matched(costs, returns, np.array([[4.0, 10.0]] * 30), 4.5, False, random)
    assert twice[0] == 4
    assert set(twice[1:].tolist()) == {2, 4}


def test_thinning_drops_lonely_episodes():
    costs = np.array([0.0] * 30 + [5.0] * 3 + [10.0] * 2)
    returns = np.array([0.0] * 30 + [1.0] * 3 + [2.0] * 2)
    kept = cdt_data.thinned(costs, returns, np.random.default_rng(0))
    assert [np.sum(costs[kept] == c) for c in (0.0, 5.0, 10.0)] == [10, 3, 0]
    np.testing.assert_array_equal(
        cdt_data.thinned(costs[-2:], returns[-2:], np.random.default_rng(0)), [0, 1]
    )


@pytest.mark.parametrize("faithful", [False, True])
def test_poor_fronts_do_no_harm(faithful):
    """One episode that beats all others, or equal ones: the polynomial falls back to a lower degree."""
    settings = cdt_data.Settings((), 4, 10.0, 1.0)
    for costs, returns in (([0.0, 1, 2], [9.0, 3, 1]), ([2.0, 2, 2], [1.0, 1, 1]), ([0.0, 9], [1.0, 2])):
        goals = cdt_data.promises(
            np.array(costs), np.array(returns), settings, 5, faithful, np.random.default_rng(0)
        )
        assert np.isfinite(goals).all()
        assert goals[:, 1].max() <= 10.0


def test_returns_above_the_largest_are_not_promised():
    settings = cdt_data.Settings((), 0, 5.0, 1.0)
    costs, returns = np.arange(4.0), np.full(4, 8.0)
    random = np.random.default_rng(0)
    assert np.all(cdt_data.promises(costs, returns, settings, 6, False, random)[:, 1] == 5.0)
    released = cdt_data.promises(costs, returns, settings, 6, True, random)[:, 1]
    assert np.all((released > 5.0) & (released < 9.0))


def test_variants_prepare_data_differently():
    log = lane_log(episodes=30)
    log = dataclasses.replace(log, costs=0.5 * log.costs)
    normaliser = Normaliser.of(log.observations)
    fixed, released = (method.prepare(log, normaliser) for method in (METHOD, FAITHFUL))
    np.testing.assert_allclose(released.rows.table[:, 0], log.observations[:, 0], rtol=1e-6)
    np.testing.assert_allclose(np.mean(fixed.rows.table[:, 0]), 0.0, atol=1e-5)
    # A cost of a half is none as released.
    np.testing.assert_array_equal(released.rows.table[:, -1], 0)
    np.testing.assert_array_equal(fixed.rows.table[:, -1], log.costs > 0)
    np.testing.assert_allclose(released.goals(jnp.asarray([300.0, 12.0])), [30.0, 38.0], rtol=1e-6)


def test_the_published_tasks_are_the_known_ones():
    assert cdt_data.PUBLISHED.keys() == tasks().keys()
    for name, settings in cdt_data.PUBLISHED.items():
        assert settings.thresholds == tasks()[name].thresholds
        assert len(settings.targets) in (1, 3)


# ---- acting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [METHOD, FAITHFUL])
def test_the_memory_is_the_last_steps(method):
    """Each action is what the policy says of the steps so far, three at most, without any padding."""
    actor = make_actor(method, np.full((cdt_data.FRONTIER_SIZE, 2), 7.0, np.float32))
    rng = np.random.default_rng(0)
    longest = len(actor.policy.times)
    episode = bcrl.Policy(actor, method, SPEC, {}).start(threshold=2.0, horizon=longest + 3, seed=4)
    to_go, history = np.array([7.0, 2.0]), []
    for step in range(longest + 3):
        observation = rng.normal(size=3).astype(np.float32)
        action = episode.act(observation)
        history.append([(to_go - [1.0, 2.0]) / [3.0, 4.0], observation, action])
        goals, states, actions = (np.stack(x).astype(np.float32) for x in zip(*history[-3:], strict=True))
        time = np.minimum(np.arange(len(history))[-3:], longest - 1)
        if step < 6 or step > longest - 2:
            said = plain_transformer(actor.policy, goals, states, actions, time)[0][-1]
            np.testing.assert_allclose(action, np.clip(said, -1, 1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(episode.slack, [2.0 - 0.5 * step], rtol=1e-6)
        episode.observe(0.5, 0.25)
        to_go = to_go - [0.25, 0.5]
        if method is METHOD:
            to_go[1] = max(to_go[1], 0.0)
    np.testing.assert_allclose(episode.memory.to_go, to_go, rtol=1e-5)


@pytest.fixture(scope="module")
def trained():
    method = CDT(
        width=32, layers=1, heads=2, context=5, batch_size=64, learning_rate=1e-3, warmup=100, dropout=0.0
    )
    return fit_lane(method, steps=1000, seeds=(0, 1, 2))


@pytest.mark.slow
def test_learns_to_spend_what_it_is_given(trained):
    """Cloning earns −14 here: it knows not whom to clone. Asked for a cost, this finds those who had it.

    Seeds differ, and so do machines by their rounding: the middle one of three seeds counts.
    """
    asked = (2.0, 6.0, 12.0)
    played = [roll_out(trained.policy(seed), Lane(), asked, episodes=200) for seed in trained.seeds]
    returns = np.median([episodes.returns.mean(axis=1) for episodes in played], axis=0)
    costs = np.median([episodes.costs.mean(axis=1) for episodes in played], axis=0)
    # Five seeds reached −1.4…1.6, 3.4…6.3 and 9.9…12.3 at a cost of 0…2.8, 3.6…6.3 and 10.3…12.6.
    assert np.all(returns > [-5.0, 1.0, 8.0])
    assert np.all(np.abs(costs - [1.0, 6.0, 12.0]) < 2.0)


@pytest.mark.slow
def test_the_policy_file_acts_the_same(trained, tmp_path):
    policy = trained.policy()
    policy.save(tmp_path / "policy.bcrl")
    again = bcrl.load(tmp_path / "policy.bcrl")
    assert again.method == policy.method
    before, after = (roll_out(p, Lane(), (2.0, 6.0, 12.0)) for p in (policy, again))
    np.testing.assert_array_equal(before.returns, after.returns)
    np.testing.assert_array_equal(before.costs, after.costs)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("heads", 3),
        ("context", 0),
        ("width", 2.5),
        ("warmup", 0),
        ("initial_eta", 0.0),
        ("relabel", -0.1),
        ("dropout", 1.0),
        ("task", "CarSquare"),
        ("variant", "both"),
    ],
)
def test_a_bad_option_is_named(name, value):
    with pytest.raises(BCRLError, match=name) as refused:
        CDT(**{name: value})
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_other_rules_are_refused(trained):
    with pytest.raises(BCRLError, match="cdt tracks no budget"):
        trained.policy().start(budget=1.0)
