"""A policy that learned from another log: refused where a column is another, else one line of warning."""

import dataclasses

import pytest
from speeding import make_log, policy_of

import bcrl
from bcrl.data import NO_SCHEMA, Schema
from bcrl.errors import BCRLError
from bcrl.estimates.log import check_policies, warn_of_another_log

SCHEMA = Schema(
    observation_names=("speed",),
    action_names=("throttle",),
    action_low=(0.0,),
    action_high=(5.0,),
    units={"speed": "m/s"},
)


def trained_on(schema: Schema, **provenance: str) -> bcrl.Policy:
    policy = policy_of(make_log(episodes=5))
    policy.schema, policy.provenance = schema, provenance
    return policy


@pytest.fixture(scope="module")
def log():
    return dataclasses.replace(make_log(episodes=5), schema=SCHEMA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation_names": ("pain",)}, "observation 1 is 'speed', but the policy learned from 'pain'"),
        ({"action_names": ("dose",)}, "action 1 is 'throttle', but the policy learned from 'dose'"),
        ({"units": {"speed": "km/h"}}, "the unit of speed is 'm/s', but the policy learned from 'km/h'"),
        ({"action_high": (2.5,)}, "the range of action 1 is 0 to 5, but the policy learned from 0 to 2.5"),
    ],
    ids=["observation", "action", "unit", "bounds"],
)
@pytest.mark.parametrize("verb", ["estimate", "calibrate", "choose"])
def test_other_columns_are_refused(verb, change, message, log):
    policy = trained_on(dataclasses.replace(SCHEMA, **change))
    given = {"it": policy} if verb == "choose" else policy
    with pytest.raises(BCRLError, match=f"^speeding.npz: {message}: estimate with the log"):
        getattr(bcrl, verb)(given, log, (5.0,))


@pytest.mark.parametrize("schema", [NO_SCHEMA, Schema(observation_names=("speed",)), SCHEMA])
def test_what_is_left_out_is_no_difference(schema, log):
    check_policies([trained_on(schema)], log)
    check_policies([trained_on(SCHEMA)], dataclasses.replace(log, schema=schema))
    warn_of_another_log([trained_on(schema), trained_on(schema, data_sha256=log.fingerprint())], log)


def test_another_log_of_the_same_columns_is_one_warning(log):
    policies = [trained_on(SCHEMA, data="night.npz", data_sha256="0" * 64)] * 2
    with pytest.warns(UserWarning, match=r"^the policy learned from another log \(night.npz\): ") as said:
        warn_of_another_log(policies, log)
    assert len(said) == 1
