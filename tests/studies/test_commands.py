"""`python -m studies`: reproduce, leaderboard and papers-setting."""

import subprocess
import sys
from pathlib import Path

import pytest

import fedjax_sel
from fedjax_sel.cli import command_line
from studies import __main__ as studies

REPOSITORY = Path(fedjax_sel.__file__).parents[1]


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["reprodcue"], "error: COMMAND: unknown 'reprodcue'; did you mean 'reproduce'?"),
        (["papers-setting", "--pages", "--rounds", "5"], "error: --rounds: has no effect with --pages"),
        (["reproduce", "fedgp/fig1", "--jobs", "2", "--scheduler", "x:1"], "error: --jobs and --scheduler exclude"),
        (["reproduce", "fedgp/fig1", "--output", "x"], "error: unknown flag --output; did you mean '--out'?"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    assert command_line.guarded(studies.main, arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith(message) and err.count("\n") == 1


def test_help_needs_no_jax():
    code = (
        "import sys\nfrom studies.__main__ import main\n"
        "for arguments in ((), ('reproduce',), ('leaderboard',), ('papers-setting',)):\n"
        "    try: main([*arguments, '--help'])\n    except SystemExit as end: assert not end.code\n"
        "assert not {'jax', 'numpy', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
