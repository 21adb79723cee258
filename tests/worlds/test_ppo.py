"""The recording agent's arithmetic against plain loops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.worlds._ppo import (
    TRACE,
    Agent,
    Played,
    Recipe,
    advantages,
    draw_shares,
    learn,
    start_learner,
    with_share,
)

GAMMA = 0.9
T, N = 12, 5


def random_steps(seed: int) -> Played:
    random = np.random.default_rng(seed)
    terminals = random.random((T, N)) < 0.2
    timeouts = random.random((T, N)) < 0.1
    shares = np.repeat(random.choice([0.0, 0.5, 0.9], (T // 4, N)), 4, axis=0)
    arrays = (
        random.normal(size=(T, N, 3)),
        random.normal(size=(T, N, 3)),
        random.normal(size=(T, N, 2)),
        random.normal(size=(T, N)),
        random.random((T, N)) < 0.3,
        terminals,
        terminals | timeouts,
        np.ones((T, N), bool),
        shares,
    )
    return Played(*(np.asarray(a, bool if a.dtype == bool else np.float32) for a in arrays))


def test_advantages_are_sums_of_surprises_within_an_episode_and_a_penalty() -> None:
    played = random_steps(0)
    agent = eqx.filter_jit(lambda: Agent(jax.random.key(1), 3, 2, 0.0))()
    scale = 2.0
    batch = eqx.filter_jit(advantages)(agent, played, jnp.asarray(scale), GAMMA)
    see = jax.jit(lambda rows: jax.vmap(jax.vmap(agent.critic))(with_share(rows, played.shares)))
    before, behind = (np.asarray(see(rows)) for rows in (played.observations, played.following))
    found = np.asarray(batch.advantage).reshape(T, N)
    for n in range(N):
        for t in range(T):
            total, weight = 0.0, 1.0
            for i in range(t, T):
                share = float(played.shares[i, n])
                paid = (1 - share) * played.rewards[i, n] / scale - share * played.costs[i, n]
                paid = float(paid) * (1 - GAMMA) / np.sqrt(1 - share)
                after = 0.0 if played.terminals[i, n] else float(behind[i, n])
                total += weight * (paid + GAMMA * after - float(before[i, n]))
                if played.ends[i, n] or (i + 1 < T and played.shares[i + 1, n] != share):
                    break
                weight *= GAMMA * TRACE
            np.testing.assert_allclose(found[t, n], total, rtol=1e-4, atol=1e-6)


def test_learning_raises_what_it_is_paid_for() -> None:
    """Reward is the first action; after some rounds the actor's mean is near the edge of the box."""
    recipe = Recipe(gamma=0.5, entropy=0.0, log_std=-0.5, epochs=2, minibatches=4, learning_rate=1e-2)
    learner = start_learner(jax.random.key(0), 3, 2, recipe, 20)
    step = eqx.filter_jit(learn)
    actor = eqx.filter_jit(lambda agent, *rows: jax.vmap(jax.vmap(agent.actor))(with_share(*rows)))

    def act(*given) -> np.ndarray:
        return np.asarray(actor(*given))

    random = np.random.default_rng(0)
    for number in range(20):
        seen = random.normal(size=(8, 16, 3)).astype(np.float32)
        shares = draw_shares(jax.random.key(number), 8, 16)
        means = act(learner.agent, seen, shares)
        noise = random.normal(size=(8, 16, 2)).astype(np.float32)
        drawn = means + noise * np.exp(learner.agent.log_std)
        never = np.zeros((8, 16), bool)
        played = Played(
            seen,
            seen,
            drawn,
            np.clip(drawn[..., 0], -1, 1),
            np.zeros((8, 16), np.float32),
            never,
            ~never,
            ~never,
            shares,
        )
        learner = step(learner, played, jax.random.key(number), recipe, 20)
    means = act(learner.agent, seen, shares)[0]
    assert float(means[:, 0].mean()) > 0.7
    assert abs(float(means[:, 1].mean())) < 0.5


def test_shares_reach_from_greed_to_caution() -> None:
    shares = np.asarray(draw_shares(jax.random.key(0), 50, 4000))
    assert shares.min() == 0.0
    np.testing.assert_allclose(shares.max(), 10 / 11)
    assert 0.1 < (shares[0] == 0.0).mean() < 0.25
    assert 0.4 < (shares[0] != shares[-1]).mean() < 0.6


def test_a_round_keeps_every_type() -> None:
    """Else the second round would be compiled again."""
    recipe = Recipe(gamma=0.5, entropy=0.0, log_std=-0.5, epochs=2, minibatches=4, learning_rate=1e-2)
    before = start_learner(jax.random.key(0), 3, 2, recipe, 20)
    after = eqx.filter_eval_shape(learn, before, random_steps(0), jax.random.key(1), recipe, 20)
    types = [
        [(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(learner) if hasattr(x, "dtype")]
        for learner in (before, after)
    ]
    assert types[0] == types[1]
