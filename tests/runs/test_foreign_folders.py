"""Run folders whose files are something else than a run wrote: pipes, devices, archives, JSON without end."""

import os
import shutil
import signal

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


def promise_more(path):
    header = {"descr": "<i4", "fortran_order": False, "shape": (1, 10**12, 2)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)


def replace(make):
    def change(path):
        path.unlink()
        make(path)

    return change


DAMAGES = {
    "a pipe": replace(os.mkfifo),
    "a device": replace(lambda path: path.symlink_to("/dev/zero")),
    "a folder": replace(os.mkdir),
    "empty": lambda path: path.write_bytes(b""),
    "not a text": lambda path: path.write_bytes(b"\xff\xfe\0\0" * 99),
    "JSON without end": lambda path: path.write_text("[" * 100_000),
    "no object": lambda path: path.write_text("5"),
    "a lost comma": lose_a_comma,
    "zipped": zip_up,
    "a header that lies": promise_more,
    "objects": lambda path: np.save(path, np.array([{}]), allow_pickle=True),
    "one axis": lambda path: np.save(path, np.zeros(4, np.int32)),
}
FILES = {
    "config.json": ("a pipe", "a device", "a folder", "empty", "not a text", "JSON without end", "no object"),
    "data.json": ("a pipe", "a device", "a folder", "empty", "not a text", "JSON without end", "no object"),
    "metrics.csv": ("a pipe", "a device", "a folder", "empty", "not a text", "a lost comma"),
    "cohorts.npy": (
        "a pipe", "a device", "a folder", "empty", "not a text", "zipped", "a header that lies", "objects", "one axis",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name,damage", [(name, damage) for name in FILES for damage in FILES[name]])
def test_a_report_neither_waits_nor_breaks(run, tmp_path, capsys, monkeypatch, name, damage):
    """It is one sentence, or a table where the file's content is known from elsewhere."""
    monkeypatch.chdir(tmp_path)
    own = shutil.copytree(run, tmp_path / "run")
    DAMAGES[damage](own / name)
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(20)
    try:
        code = command_line.guarded(report.main, ["run"])
    finally:
        signal.alarm(0)
    out, err = capsys.readouterr()
    assert code in (0, 2) and "pickle" not in err
    assert code == 0 or (out == "" and err.startswith("error: ") and err.count("\n") == 1)
