"""Files of episode costs: both kinds are read, and what is wrong is named by file, line and field."""

import dataclasses

import pytest

from bcrl.assess import Result, write_results
from bcrl.assess.cost_file import read_costs
from bcrl.errors import BCRLError

EPISODE = Result("bcrl", "soft", "discounted", "min", "w", "d", 0, 10.0, 0, 1.5, 3.0, 0.5, 0.3, 200, 0.0)


def rows(**columns) -> list[Result]:
    """One result for each value, all other fields alike; episodes are numbered."""
    count = len(next(iter(columns.values())))
    return [
        dataclasses.replace(EPISODE, **{"episode": i, **{name: v[i] for name, v in columns.items()}})
        for i in range(count)
    ]


def test_a_column_cost_is_enough(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("cost\n3\n0\n2.5\n\n1e1\n")
    assert read_costs(path, bound=10, told=20).tolist() == [3, 0, 2.5, 10]


def test_other_columns_quotes_a_byte_order_mark_and_spaces_do_no_harm(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_bytes('\ufeffday, cost ,note\r\nMonday,3,"wind, rain"\r\nTuesday, 4 ,\r\n'.encode())
    assert read_costs(path, bound=10).tolist() == [3, 4]


def test_results_are_read_by_the_threshold_that_was_told(tmp_path):
    path = tmp_path / "results.csv"
    write_results(rows(threshold=[10.0, 20.0, 10.0, 20.0], cost=[1.0, 2.0, 3.0, 4.0]), path)
    assert read_costs(path, bound=60, told=10).tolist() == [1, 3]
    assert read_costs(path, bound=60, where={"threshold": "20"}).tolist() == [2, 4]
    with pytest.raises(BCRLError, match="no episode was told the threshold 40; there are 10, 20"):
        read_costs(path, bound=60, told=40)


def test_one_policy_is_chosen_from_several(tmp_path):
    path = tmp_path / "results.csv"
    write_results(rows(seed=[0, 10, 0, 10], cost=[1.0, 2.0, 3.0, 4.0]), path)
    assert read_costs(path, bound=60, told=10, where={"seed": "10", "method": "bcrl"}).tolist() == [2, 4]
    with pytest.raises(BCRLError, match=r"line 3 has seed '10' and line 2 '0'.*--where seed=0"):
        read_costs(path, bound=60, told=10)
    with pytest.raises(BCRLError, match="no row has seed '5'; there are '0', '10'"):
        read_costs(path, bound=60, told=10, where={"seed": "5"})


DAMAGED = {
    "no file": (None, "there is no such file"),
    "empty": (b"", "line 1 has no column 'cost' but nothing"),
    "no head": (b"3\n4\n", "line 1 has no column 'cost' but '3'"),
    "another separator": (b"cost;note\n3;a\n", "no column 'cost' but 'cost;note'.*with commas"),
    "no episodes": (b"cost\n", "has no episodes"),
    "text": (b"cost\n3\nmuch\n", "line 3: cost is 'much'"),
    "a gap": (b"cost,x\n3,1\n,1\n", "line 3: cost is ''"),
    "NaN": (b"cost\n3\nnan\n", "line 3: cost is nan"),
    "infinity": (b"cost\n-inf\n", "line 2: cost is -inf"),
    "a negative cost": (b"cost\n3\n4\n-1\n", "line 4: cost is -1"),
    "above the bound": (b"cost\n3\n60.5\n", "line 3: cost is 60.5, above abort_at 60"),
    "a decimal comma": (b"cost\n3\n4,5\n", "line 3 has 2 fields, but the head has 1"),
    "a row cut short": (b"cost,x\n3,1\n4\n", "line 3 has 1 fields, but the head has 2"),
    "cost twice": (b"cost,cost\n3,4\n", "the column 'cost' twice"),
    "a threshold of text": (b"threshold,cost\n20,3\nlow,3\n", "line 3: threshold is 'low'"),
    "two policies": (b"policy,cost\na,3\nb,3\n", "line 3 has policy 'b' and line 2 'a'"),
    "an episode twice": (b"episode,cost\n1,3\n2,3\n1,3\n", "line 4 has the same episode as line 2, '1'"),
    "not text": (b"cost\n" + bytes(range(128, 256)), "no text in UTF-8"),
    "an open quote": (b'cost\n"3\n', "cannot be read"),
    "a huge field": (b"cost\n" + b"1" * 200_000, "cannot be read"),
    "control characters": (b"cost\n3\n\x1b[31m\n", r"line 3: cost is '\\x1b\[31m'"),
    "zeros": (b"cost\n" + b"\0" * 9 + b"\n", "line 2: cost is|cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused(name, tmp_path):
    content, wanted = DAMAGED[name]
    path = tmp_path / "costs.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BCRLError, match=wanted) as refused:
        read_costs(path, bound=60, abort_at=60, told=20)
    line = str(refused.value)
    assert line.startswith(f"{path}: ")
    assert line.isprintable()


def test_a_column_to_choose_by_must_exist(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("cost\n3\n")
    with pytest.raises(BCRLError, match="has no column 'seed' to choose by; it has 'cost'"):
        read_costs(path, bound=60, where={"seed": "0"})
