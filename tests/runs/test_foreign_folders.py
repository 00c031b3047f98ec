"""Run folders whose files are something else than a run wrote: folders, archives, other texts."""

import os
import shutil

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config
from fedjax_sel.cli import command_line, report


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("foreign") / "run"
    fedjax_sel.run(
        Config().replace(
            dataset="synthetic:train_size=100,test_size=20", num_clients=5, num_selected=2, local_epochs=1, rounds=2,
            chunk=2, algo="random", out=str(out),
        )
    )  # fmt: skip
    return out


def lose_a_comma(path):
    header, row, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, row.replace(",", "", 1), *others]))


def zip_up(path):
    np.savez(path.with_suffix(".npz"), np.load(path))
    path.with_suffix(".npz").rename(path)


def replace(make):
    def change(path):
        path.unlink()
        make(path)

    return change


DAMAGES = {
    "a folder": replace(os.mkdir),
    "empty": lambda path: path.write_bytes(b""),
    "not a text": lambda path: path.write_bytes(b"\xff\xfe\0\0" * 99),
    "no object": lambda path: path.write_text("5"),
    "a lost comma": lose_a_comma,
    "zipped": zip_up,
    "objects": lambda path: np.save(path, np.array([{}]), allow_pickle=True),
    "one axis": lambda path: np.save(path, np.zeros(4, np.int32)),
}
FILES = {
    "config.json": ("a folder", "empty", "not a text", "no object"),
    "metrics.csv": ("a folder", "empty", "not a text", "a lost comma"),
    "cohorts.npy": (
        "a folder", "empty", "not a text", "zipped", "objects", "one axis",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name,damage", [(name, damage) for name in FILES for damage in FILES[name]])
def test_a_report_does_not_break(run, tmp_path, capsys, monkeypatch, name, damage):
    """It is one sentence, or a table where the file's content is known from elsewhere."""
    monkeypatch.chdir(tmp_path)
    own = shutil.copytree(run, tmp_path / "run")
    DAMAGES[damage](own / name)
    code = command_line.guarded(report.main, ["run"])
    out, err = capsys.readouterr()
    assert code in (0, 2) and "pickle" not in err
    assert code == 0 or (out == "" and err.startswith("error: ") and err.count("\n") == 1)
