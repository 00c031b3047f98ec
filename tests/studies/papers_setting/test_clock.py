"""The page on simulated seconds."""

import pytest

from fedjax_sel.config import validate
from studies.boards import series
from studies.papers_setting import clock, grids, pages
from tests.studies.papers_setting import made_up


def test_worlds_are_valid_parts():
    parts = [grid for grid in grids.GRIDS.values() if grid.group == "clock"]
    assert len(parts) == 2 * len(clock.WORLDS) * len(clock.SETTINGS)
    for grid in parts:
        for config in list(grid.rows.values())[:5]:  # the others are strategies without settings of their own
            validate(config)


@pytest.mark.slow
def test_surviving_and_lost_leads(tmp_path):
    board = {"random": made_up.level(0.5), "fedcor": made_up.level(0.6), "afl": made_up.level(0.7)}
    world = {  # fedcor needs ten times as long, and has not learned yet
        "random": made_up.level(0.5, seconds=1.0),
        "fedcor": made_up.series([[0.2] * 5 + [0.6] * 15] * 10, seconds=10.0),
        "afl": made_up.level(0.7, seconds=1.0),
        "tifl": made_up.level(0.4, seconds=1.0),
    }
    for name, rows in (("fmnist-2spc", board), ("clock-tiers-deadline-fmnist-2spc", world)):
        series.write(tmp_path / name, rows, made_up.about(rows))
    pages.write(tmp_path)
    text = (tmp_path / "seconds" / "README.md").read_text()
    assert (
        "* **tiers, deadline**: ahead of random selection: afl; leads that survive: afl; that do not: fedcor." in text
    )
    assert "| fedcor | **+0.100** | **-0.300** |" in text and "| tifl |  | **-0.100** |" in text
    assert (tmp_path / "seconds" / "leads_in_seconds.png").stat().st_size > 5000
    assert "seconds to the target, restricted" in (tmp_path / "clock-tiers-deadline-fmnist-2spc/README.md").read_text()
