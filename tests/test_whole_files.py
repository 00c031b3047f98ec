"""A writer by rename writes files alone: pipes, devices and folders are rejected, and links stay links."""

import os
import stat

import pytest

from fedjax_sel import Selector, UserError
from fedjax_sel.core import files
from fedjax_sel.runs import folder


def test_a_pipe_is_rejected_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        with pytest.raises(OSError, match="it is a pipe or a device"):
            files.write(path, b"new")
    assert stat.S_ISFIFO(pipe.stat().st_mode) and (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_selector_is_not_saved_over_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    selector = Selector("random", num_clients=4, num_selected=2, num_rounds=2, sizes=[3] * 4)
    with pytest.raises(UserError, match=r"^save: \S+pipe cannot be written \(it is a pipe or a device\); choose "):
        selector.save(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_file_is_written(tmp_path, there):
    (tmp_path / "disk").mkdir()
    target = tmp_path / "disk" / "target"
    if there:
        target.write_bytes(b"old")
    (tmp_path / "link").symlink_to(target)
    files.write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and target.read_bytes() == b"new"
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["target"]


@pytest.mark.parametrize("name", ["folder", "folder-link", "."])
def test_what_cannot_be_a_file_is_rejected(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder-link").symlink_to("folder")
    with pytest.raises(OSError, match="directory"):
        files.write(type(tmp_path)(name), b"new")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("target", ["gone", "loop"])
def test_a_folder_that_is_a_broken_link_is_named(tmp_path, target, below):
    loop = tmp_path / "loop"
    loop.symlink_to(target)
    with pytest.raises(UserError, match=r"^--out: .*(circular or whose target is missing|Too many levels)"):
        folder.make(loop / "run" if below else loop)
    assert [*tmp_path.iterdir()] == [loop]
