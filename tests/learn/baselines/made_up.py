"""Inputs and checks that the tests of several methods share."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from forward import forward
from jaxtyping import PRNGKeyArray

import bcrl
from bcrl.learn.baselines.parts import VAE
from bcrl.learn.batch import Batch
from bcrl.learn.protocol import Normaliser
from bcrl.policy import Policy


def six_transitions(rng: np.random.Generator, action_size: int) -> Batch:
    """Of two features; the episode ends at the fourth."""
    batch = Batch(
        features=rng.normal(size=(6, 2)),
        action=rng.uniform(-1, 1, (6, action_size)),
        reward=rng.normal(size=6),
        cost=rng.random((6, 1)),
        next_features=rng.normal(size=(6, 2)),
        bootstrap=np.array([1.0, 1, 1, 0, 1, 1]),
    )
    return jax.tree.map(lambda x: x.astype(jax.dtypes.canonicalize_dtype(float)), batch)


def vae_loss(vae: VAE, batch: Batch, key: PRNGKeyArray, weight: float) -> float:
    """Means over rows and dimensions of the squared error, and of the KL with its weight."""
    features, action = np.asarray(batch.features), np.asarray(batch.action)
    both = np.asarray(forward(vae.encoder, np.concatenate([features, action], 1)))
    mean, log_std = np.split(both, 2, axis=1)
    latent = mean + np.exp(log_std) * np.asarray(jax.random.normal(key, mean.shape))
    rebuilt = np.tanh(np.asarray(forward(vae.decoder, np.concatenate([features, latent], 1))))
    kl = 0.5 * np.mean(mean**2 + np.exp(2 * log_std) - 1 - 2 * log_std)
    return float(np.mean((rebuilt - action) ** 2) + weight * kl)


def check_file_of_squashed_mean(method, state, spec, folder) -> None:
    """A policy file acts as what was saved, by tanh of the actor's mean; faithful sees raw observations."""
    normaliser = Normaliser(jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, 4.0]))
    policy = Policy(method.actor(state, None, normaliser, spec), method, spec, {})
    policy.save(folder / "p.bcrl")
    loaded = bcrl.load(folder / "p.bcrl")
    assert loaded.method == method
    observations = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    action = policy.start(threshold=6, batch=3).act(observations)
    np.testing.assert_array_equal(action, loaded.start(threshold=6, batch=3).act(observations))
    seen = observations if method.faithful else (observations - normaliser.mean) / normaliser.std
    np.testing.assert_allclose(action, np.tanh(forward(state.networks["actor"], seen)[0]), rtol=1e-5)


def step_size_after(optimiser: optax.GradientTransformation, steps: int) -> float:
    """The step of an Adam that has seen the gradient 1 so many times."""
    one = jnp.ones(1)
    state = optax.tree_utils.tree_set(optimiser.init(one), count=jnp.asarray(steps), mu=one, nu=one)
    return -float(optimiser.update(one, state, one)[0][0])
