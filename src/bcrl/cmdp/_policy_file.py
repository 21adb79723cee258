"""Tabular policies as files: safetensors with a JSON header and a digest, as learned policies have.

A file holds the model too, so that a loaded policy acts and evaluates exactly as the saved one. Loading
checks the theorem's premises: values solve their Bellman equations, and each action is safe at its slack.
"""

import os
from math import prod
from typing import Any

import numpy as np

from bcrl.cmdp._augmented import SlackPolicy
from bcrl.cmdp._controller import MixturePolicy
from bcrl.cmdp._frontier import Column
from bcrl.cmdp._model import CMDP
from bcrl.cmdp._paper_mode import PaperPolicy
from bcrl.cmdp._slack import SlackGrid
from bcrl.cmdp._values import CostCritic, policy_matrix, q_values, under
from bcrl.errors import BCRLError

Arrays = dict[str, np.ndarray]
LARGEST = 2**31 - 1
# With more costs even the smallest grid, 3 levels each, would have over 10⁷ bins.
MOST_COSTS = 16
# Stored values may differ by this fraction of the largest from what the model gives.
TOLERANCE = 1e-6


def save_slack(policy: SlackPolicy, path: str | os.PathLike) -> None:
    """Writes a `SlackPolicy`: the base policy and the optimum's columns, in this order, as one stack."""
    columns = (policy.base, *policy.whole.columns)
    arrays = {
        "levels": policy.grid.levels,
        "base_value": policy.grid.base_value,
        "advantage": policy.grid.advantage,
        "value": policy.value,
        "actions": policy.actions,
        "lower": policy.lower,
        "upper": policy.upper,
        "policies": np.stack([column.policy for column in columns]),
        "values": np.stack([[column.value, *column.cost_value] for column in columns]),
        "totals": np.stack([[column.total_return, *column.cost] for column in columns]),
        "fallback": policy.whole.fallback_policy,
    }
    sizes = {"levels": policy.grid.levels.shape[1], "columns": len(columns)}
    _write(path, policy.model, arrays, sizes, {"kind": "slack", "shield": policy.shield})


def save_paper(policy: PaperPolicy, path: str | os.PathLike) -> None:
    """Writes a `PaperPolicy`."""
    arrays = {
        "budgets": policy.budgets,
        "base_policy": policy.critic.policy,
        "base_value": policy.critic.value,
        "base_critic": policy.critic.critic,
        "actions": policy.actions,
    }
    _write(
        path, policy.model, arrays, {"bins": len(policy.budgets)}, {"kind": "paper", "update": policy.update}
    )


def _write(
    path: str | os.PathLike, model: CMDP, arrays: Arrays, sizes: dict[str, int], more: dict[str, Any]
) -> None:
    from bcrl.tensors import write_tensors  # imports JAX, which nothing else here needs

    whole = model.arrays() | arrays
    # Index arrays are int32 or int64, as scipy chose.
    whole = {name: x.astype(np.int64) if x.dtype.kind == "i" else x for name, x in whole.items()}
    sizes = {
        "states": model.states,
        "actions": model.actions,
        "costs": len(model.costs),
        "transitions": model.transitions.nnz,
    } | sizes
    write_tensors(path, whole, {"format": "bcrl-tabular", "version": 1, "sizes": sizes, **more})


def load_tabular(path: str | os.PathLike, header: dict[str, Any]) -> SlackPolicy | PaperPolicy:
    """The policy of a file with this header; names, shapes, types and values are checked."""
    from bcrl.tensors import read_tensors

    kind = header.get("kind")
    if kind not in ("slack", "paper"):
        raise BCRLError(f"{path}: the header's kind is damaged: it is neither 'slack' nor 'paper'")
    if "sha256" not in header:
        raise BCRLError(f"{path}: is damaged (it has no digest): solve again")
    layout = _layout(kind, _sizes(path, header, kind))
    size = sum(prod(shape) * np.dtype(word).itemsize for word, shape in layout.values())
    if size > os.path.getsize(path):
        raise BCRLError(f"{path}: the header's sizes are damaged: they ask for more than the file holds")
    # Views of one number: they have shapes and types, but take no memory.
    like = {name: np.broadcast_to(np.zeros((), word), shape) for name, (word, shape) in layout.items()}
    arrays = read_tensors(path, like, header, as_array=np.asarray)
    try:
        model = CMDP.from_arrays(arrays)
        return _slack(model, arrays, header) if kind == "slack" else _paper(model, arrays, header)
    except BCRLError as error:
        raise BCRLError(f"{path}: {error}") from None
    except (FloatingPointError, OverflowError, ValueError) as error:
        raise BCRLError(f"{path}: its arrays do not make a policy ({error}): solve again") from None


def _sizes(path: str | os.PathLike, header: dict[str, Any], kind: str) -> dict[str, int]:
    """The sizes that the header names, each a whole number in its range."""
    names = (
        "states",
        "actions",
        "costs",
        "transitions",
        *(("levels", "columns") if kind == "slack" else ("bins",)),
    )
    sizes = header.get("sizes")
    if not isinstance(sizes, dict) or set(sizes) != set(names):
        raise BCRLError(f"{path}: the header's sizes are damaged: they must be {', '.join(names)}")
    for name in names:
        most = MOST_COSTS if name == "costs" else LARGEST
        value, least = sizes[name], 2 if name in ("levels", "bins") else 1
        if type(value) is not int or not least <= value <= most:
            raise BCRLError(f"{path}: the header's size {name} is damaged: it must be from {least} to {most}")
    return sizes


def _layout(kind: str, sizes: dict[str, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of every array of a file."""
    states, actions, costs, entries = (sizes[name] for name in ("states", "actions", "costs", "transitions"))
    real, whole, truth = "f8", "i8", "?"
    model = {
        "indptr": (whole, (states * actions + 1,)),
        "indices": (whole, (entries,)),
        "probabilities": (real, (entries,)),
        "rewards": (real, (states, actions)),
        "costs": (real, (costs, states, actions)),
        "gamma": (real, ()),
        "start": (real, (states,)),
        "terminal": (truth, (states,)),
        "available": (truth, (states, actions)),
    }
    if kind == "paper":
        table = (states, sizes["bins"])
        return model | {
            "budgets": (real, (sizes["bins"],)),
            "base_policy": (whole, (states,)),
            "base_value": (real, (states,)),
            "base_critic": (real, (states, actions)),
            "actions": (whole, table),
        }
    table, columns = (states, sizes["levels"] ** costs), sizes["columns"]
    return model | {
        "levels": (real, (costs, sizes["levels"])),
        "base_value": (real, (costs, states)),
        "advantage": (real, (costs, states, actions)),
        "value": (real, table),
        "actions": (whole, table),
        "lower": (whole, table),
        "upper": (whole, table),
        "policies": (whole, (columns, states)),
        "values": (real, (columns, 1 + costs, states)),
        "totals": (real, (columns, 1 + costs)),
        "fallback": (whole, (states,)),
    }


def _slack(model: CMDP, arrays: Arrays, header: dict[str, Any]) -> SlackPolicy:
    shield = header.get("shield")
    if not isinstance(shield, bool):
        raise BCRLError("the header's shield is damaged: it must be true or false")
    levels, advantage, actions = arrays["levels"], arrays["advantage"], arrays["actions"]
    _check("levels", np.all(levels[:, 0] == 0) and np.all(np.diff(levels) > 0), "rise from 0")
    policies, values, totals = arrays["policies"], arrays["values"], arrays["totals"]
    for policy, value in zip(policies, values, strict=True):
        _check_policy(model, "policies", policy)
        for signal, stored in zip((model.rewards, *model.costs), value, strict=True):
            _check_values(model, "values", policy, signal, stored)
    _check_close("totals", totals, values @ model.start)
    _check_policy(model, "fallback", arrays["fallback"])
    _check_close("base_value", arrays["base_value"], values[0, 1:])
    for i, value in enumerate(arrays["base_value"]):
        _check_close("advantage", advantage[i], q_values(model, model.costs[i], value) - value[:, None])
    states = np.arange(model.states)
    own = np.all(advantage[:, states, policies[0]] == 0)
    _check("advantage", own, "be 0 for the base policy's own actions")
    _check_policy(model, "actions", actions.T)
    grid = SlackGrid(model, levels, arrays["base_value"], advantage)
    spent = advantage[:, states[:, None], actions]
    _check("actions", np.all(spent <= grid.slacks.T[:, None]), "be safe at the slack of their bin")
    lower, upper, bins = arrays["lower"], arrays["upper"], np.arange(grid.bins)
    within = (lower >= 0) & (lower <= bins) & (bins <= upper) & (upper < grid.bins)
    alone = len(levels) == 1 or bool(np.all(lower == upper))
    _check("lower and upper", np.all(within) and alone, "enclose each bin")
    base, *columns = (
        Column(policy, value[0], value[1:], float(total[0]), total[1:])
        for policy, value, total in zip(policies, values, totals, strict=True)
    )
    _check("columns", len(columns) > 0, "be the base policy and at least one more")
    whole = MixturePolicy(model, columns, arrays["fallback"])
    return SlackPolicy(model, grid, base, arrays["value"], actions, lower, upper, whole, shield)


def _paper(model: CMDP, arrays: Arrays, header: dict[str, Any]) -> PaperPolicy:
    update = header.get("update")
    if update not in ("soft", "direct"):
        raise BCRLError("the header's update is damaged: it is neither 'soft' nor 'direct'")
    _check("costs", len(model.costs) == 1, "be one cost in mode 'paper'")
    budgets, value, actions = arrays["budgets"], arrays["base_value"], arrays["actions"]
    even = np.linspace(0.0, budgets[-1], len(budgets))
    _check("budgets", budgets[-1] > 0 and np.array_equal(budgets, even), "be evenly spaced from 0")
    critic = CostCritic(arrays["base_policy"], value, arrays["base_critic"])
    _check_policy(model, "base_policy", critic.policy)
    _check_values(model, "base_value", critic.policy, model.costs[0], value)
    _check_close("base_critic", critic.critic, q_values(model, model.costs[0], value))
    _check_policy(model, "actions", actions.T)
    policy = PaperPolicy(model, budgets, critic, actions, update)
    spent = value[:, None] + critic.advantage[np.arange(model.states)[:, None], actions]
    fits = np.where(policy.safe, spent <= budgets + 1e-12, actions == critic.policy[:, None])
    _check("actions", np.all(fits | model.terminal[:, None]), "be safe at the budget of their bin")
    return policy


def _check(name: str, fits: Any, must: str) -> None:
    if not fits:
        raise BCRLError(f"{name} must {must}: the file is damaged, solve again")


def _check_policy(model: CMDP, name: str, policy: np.ndarray) -> None:
    """Actions (..., S) must exist in their states."""
    inside = np.all((policy >= 0) & (policy < model.actions))
    _check(name, inside and np.all(model.available[np.arange(model.states), policy]), "be available actions")


def _check_values(model: CMDP, name: str, policy: np.ndarray, signal: np.ndarray, value: np.ndarray) -> None:
    """V = signal_π + γ T_π V."""
    _check_close(name, value, under(policy, signal) + model.gamma * (policy_matrix(model, policy) @ value))


def _check_close(name: str, stored: np.ndarray, wanted: np.ndarray) -> None:
    with np.errstate(all="ignore"):  # huge values: their difference is NaN, which is not close
        scale = max(1.0, float(np.abs(wanted).max()))
        fits = np.abs(stored - wanted).max() <= TOLERANCE * scale
    _check(name, fits, "agree with the model")
