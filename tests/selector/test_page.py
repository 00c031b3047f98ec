"""docs/selector.md: its server runs, learns the line, and its bill is what it asked."""

import re
from pathlib import Path

import numpy as np

PAGE = (Path(__file__).parents[2] / "docs" / "selector.md").read_text()


def test_its_server_runs(capsys):
    code = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)[0]  # the others are Flower's
    names = {}
    exec(compile(code, "docs/selector.md", "exec"), names)
    np.testing.assert_allclose(names["model"], [3, -1], atol=0.2)
    bill = names["selector"].bill()
    assert len(bill.rounds) == 30 and bill.total == tuple(np.sum(bill.rounds, axis=0))
    assert bill.total.models_up <= 90 < bill.total.floats_up <= bill.total.models_down <= 180
    assert "Spent(" in capsys.readouterr().out
