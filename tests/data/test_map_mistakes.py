"""Mistakes in a map of columns: each is one line that names the field, the value and the way out."""

import polars as pl
import pytest

import bcrl
from bcrl.errors import BCRLError

FRAME = pl.DataFrame(
    {
        "id": [0, 0, 0],
        "t": [0, 1, 2],
        "x1": [1.0, 2, 3],
        "x2": [1.0, 2, 3],
        "u": [0.0, 1, 0],
        "v": [0.0, 1, 0],
    }
    | {"r": [1.0, 1, 1], "c": [0.0, 1, 0], "d": [0.0, 1, 0]}
)
PARTS = {
    "observations": ["x1", "x2"],
    "actions": "u",
    "reward": "r",
    "costs": "c",
    "episode": "id",
    "time": "t",
}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"separator": ",", "decimal": ","}, "separator and decimal are both ','; they must differ"),
        ({"split_gap": 0}, "split_gap is 0, but must be above 0"),
        ({"split_gap": 5, "time": ""}, "split_gap needs the column of the time; give time"),
        (
            {"discrete": True, "action_bounds": {"u": (0, 1)}},
            "labels, which have no action_bounds; leave them out",
        ),
        ({"discrete": True, "actions": ["u", "v"]}, "actions names 2; join them into one column"),
        ({"discrete": "yes"}, "discrete is 'yes', but must be true or false"),
        ({"categories": {"x1": ["a", "a"]}}, "categories of x1 is ['a', 'a'], but names one thing twice"),
        ({"units": {"x1": 3}}, "units of x1 is 3, but must be text"),
        ({"observations": ["x1", "x1"]}, "observations names x1 twice; name it once"),
        (
            {"next_observations": ["x2"]},
            "there are 1 next_observations for 2 observations; give one for each",
        ),
        ({"fill": {"x1": 0}, "categories": {"x1": []}}, "fill gives a number for a category; give forward"),
        (
            {"actions": ["u", "v"], "action_bounds": {"u": (0, 1)}},
            "action_bounds is not given for v; give it",
        ),
        (
            {"costs": ["c", "d"], "max_cost": {"c": 1}},
            "max_cost is not given for d; give it for each, or for none",
        ),
        ({"max_cost": {"c": 0}}, "max_cost of c is 0, but must be a number above 0"),
        ({"fill": {"x1": "backward"}}, "fill of x1 is 'backward'; give a number, or one of"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(change, line):
    with pytest.raises(BCRLError) as said:
        bcrl.from_frame(FRAME, **PARTS | change)
    assert line in str(said.value)
