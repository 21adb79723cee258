"""Worlds and files that are wrong: refused in one line, never counted as kept."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from bcrl.assess import evaluate, read_results
from bcrl.errors import BCRLError
from bcrl.worlds import make_world


class Bad(type(make_world("point-circle"))):
    """Says the same numbers at every step. They are arrays, so that one program runs all."""

    reward: jax.Array = eqx.field(kw_only=True)
    cost: jax.Array = eqx.field(kw_only=True)

    def move(self, state, action, key):
        after, *_, terminal = super().move(state, action, key)
        return after, self.reward, self.cost, terminal


@pytest.mark.parametrize(
    ("reward", "cost", "wanted"),
    [
        (0.0, -1.0, "in episode 0 the cost of step 0 is -1"),
        (0.0, jnp.nan, "the cost of step 0 is nan"),
        (jnp.nan, 0.0, "the reward of step 0 is nan"),
    ],
)
def test_bad_numbers_of_a_jax_world_are_refused(reward, cost, wanted, tiny_policy):
    with pytest.raises(BCRLError, match=wanted):
        evaluate(tiny_policy, Bad(reward=jnp.asarray(reward), cost=jnp.asarray(cost)), (5.0,), episodes=2)


@pytest.mark.parametrize("line", [1, 2])
def test_a_field_that_is_too_long_is_one_line(line, tiny_policy, tmp_path):
    path = tmp_path / "results.csv"
    evaluate(tiny_policy, "point-circle", (5.0,), episodes=2).save(path)
    lines = path.read_text().splitlines()
    lines[line - 1] += "x" * 200_000
    path.write_text("\n".join(lines))
    with pytest.raises(BCRLError, match=rf"line {line} is damaged \(field larger"):
        read_results(path)


@pytest.mark.parametrize("odd", ["policy.bcrl", None, [], [None], 5])
def test_what_is_no_trained_policy_is_refused(odd):
    with pytest.raises(BCRLError, match=r"^policies hold .*bcrl\.load"):
        evaluate(odd, "point-circle", (5.0,), episodes=1)


def test_a_tabular_policy_is_refused(tiny_policy):
    from bcrl.cmdp import GridWorld, plan

    tabular = plan(GridWorld("tiny", ("SXG", "..."), 0.1).cmdp, 0.3, bins=5)
    for given in (tabular, [tiny_policy, tabular]):
        with pytest.raises(BCRLError, match=r"policies hold .*policy\.evaluate\(budget\)"):
            evaluate(given, "point-circle", (5.0,), episodes=1)


@pytest.mark.parametrize("odd", [None, 5, [], object])
def test_what_is_no_world_is_refused(odd, tiny_policy):
    with pytest.raises(BCRLError, match=r"^world is .*the name of one"):
        evaluate(tiny_policy, odd, (5.0,), episodes=1)
