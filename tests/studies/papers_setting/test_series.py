"""What is kept of runs comes back as it was."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from fedjax_sel.errors import UserError
from studies.boards import series
from tests.studies.papers_setting import made_up


@pytest.mark.parametrize("seconds", [None, 0.1])
def test_series_come_back(tmp_path, seconds):
    worst = np.full((2, 3), np.nan)
    worst[:, 2] = 0.25, 1 / 3
    rows = {
        "random": made_up.series(np.random.default_rng(0).random((2, 3)), worst=worst, seeds=(4, 9), seconds=seconds),
        "fedcor + fedyogi": made_up.series(np.full((2, 3), 0.1), down=2**40, seeds=(4, 9), seconds=seconds),
    }
    series.write(tmp_path / "a", rows, made_up.about(rows))
    found = series.read(tmp_path / "a")
    assert found.about == made_up.about(rows) and list(found.rows) == list(rows)
    for name, one in rows.items():
        assert found.rows[name].seeds == (4, 9)
        for ours, theirs in zip(found.rows[name][1:], one[1:]):
            assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None)
            np.testing.assert_array_equal(ours, theirs)
    series.write(tmp_path / "b", rows, made_up.about(rows))
    assert (tmp_path / "a" / series.CURVES).read_bytes() == (tmp_path / "b" / series.CURVES).read_bytes()
    assert series.read(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"no", gzip.compress(b"a,b\n1,2\n"), gzip.compress(b"")],
    ids=["empty", "no archive", "other columns", "no rows"],
)
def test_damage_is_one_sentence(tmp_path, content):
    rows = {"random": made_up.series([[0.5]])}
    series.write(tmp_path, rows, made_up.about(rows))
    (tmp_path / series.CURVES).write_bytes(content)
    with pytest.raises(UserError, match="is not as it was written"):
        series.read(tmp_path)


def test_what_cannot_be_written(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(UserError, match=r"^--out: cannot write to .*/a/b \(Not a directory\)"):
        series.write(tmp_path / "a" / "b", {}, {})


@pytest.mark.parametrize("path", sorted(Path("results").glob("**/about.json")), ids=lambda path: str(path.parent))
def test_other_readers_of_json_read_the_provenance(path):
    def unknown(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(path.read_text(), parse_constant=unknown)
