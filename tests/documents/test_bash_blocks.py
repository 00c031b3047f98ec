"""Every command on every page can be parsed: by bash, and by the parser of the command that it names."""

import contextlib
import functools
import io
import re
import runpy
import shlex
import subprocess
import sys

import pytest

from fedjax_sel import cli
from fedjax_sel.cli import command_line, compare
from fedjax_sel.config import validate
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment
from fedjax_sel.experiment.checking import check as check_experiment
from fedjax_sel.runs import tuning
from tests.documents import pages

BASH = [block for page in pages.everywhere() for block in pages.blocks(page, "bash")]
OTHERS = {  # programs whose flags are not ours
    ".", ".ci/run", "cd", "dask", "eval", "export", "flwr", "gcloud", "git", "pip", "pre-commit", "pyright", "pytest",
    "python3", "ruff",
}  # fmt: skip
VALUES = {"compare", "data", "list", "train", "tune"}  # commands whose values are checked too
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|\.\.\.")


def commands(text: str) -> list[list[str]]:
    """The words of each command in a block; what starts several processes is taken off."""
    text = re.sub(r"\\\n", " ", text)
    found = []
    for line in text.splitlines():
        for part in re.split(r"&&|\|\|?|;(?= )", _without_comment(line)):
            words = shlex.split(part)
            while words and (words[0] in ("srun", "do", "for", "done") or "=" in words[0]):
                words = words[1:]
                while words and words[0].startswith("--") and "python" in words:  # srun's own
                    words = words[1:] if words[1].startswith("--") or words[1] == "python" else words[2:]
            if words:
                found.append(words)
    return found


def _without_comment(line: str) -> str:
    return re.split(r"(?:^|\s)#", line)[0]


@functools.cache
def known_flags(*command: str) -> frozenset[str]:
    """The flags that the --help of a command of ours names."""
    if command[:2] == ("-m", "fedjax_sel") and command[-1] in cli.COMMANDS:
        return _flags(cli.module_of(command[-1]).make_parser().format_help())
    module = command[0] == "-m"
    program, *words = command[1:] if module else command
    assert module or (pages.ROOT / program).is_file(), f"{program} is not there"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setenv("COLUMNS", "200")
        patch.setattr(sys, "argv", [program, *words, "--help"])
        patch.delitem(sys.modules, f"{program}.__main__", raising=False)
        patch.syspath_prepend(str((pages.ROOT / program).parent))
        with pytest.raises(SystemExit) as end:
            if module:
                runpy.run_module(program, run_name="__main__")
            else:
                runpy.run_path(str(pages.ROOT / program), run_name="__main__")
    assert not end.value.code, f"{shlex.join(command)} --help: {printed.getvalue()}"
    return _flags(printed.getvalue())


def _flags(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))


def check_values(command: str, arguments: list[str]) -> None:
    """Fails where a command of ours could not begin: names of strategies, ranges, flags without effect."""
    if PLACEHOLDER.search(" ".join(arguments)) or {"--config", "--help"} & {*arguments}:
        return
    if command == "list":
        with contextlib.redirect_stdout(io.StringIO()):
            assert cli.module_of(command).main(arguments) == 0
        return
    config, flags = command_line.parse(cli.module_of(command).make_parser(), arguments)
    if command == "compare":
        experiments = [job.experiment for job in compare.plan(config, flags)[0]]
    else:
        experiments = [Experiment(config)]
        if command == "train":
            command_line.reject_ineffective(flags, [config])
        if command == "tune":
            tuning.parse_space(flags.space, config)
    elsewhere = "--mesh" in arguments  # devices that are not here
    elsewhere |= any(re.fullmatch(r"[\w.]+:[a-z][\w./]*(\[.*\])?", word) for word in arguments)  # code or files
    for experiment in experiments:
        validate(experiment.config) if elsewhere else check_experiment(experiment)


def check(words: list[str], in_text: bool = False) -> None:
    """Fails where a command could not be started as it stands; one in a text may lack flags that its command needs."""
    if words[0] == "tools/test_versions.py":
        words = ["python", *words]
    if words[0] == "python":
        words = [word for word in words if word != "-P"]
    if words in (["python"], ["python", "-m"]):
        return
    if words[0] == "python":
        program, rest = (words[1:3], words[3:]) if words[1] == "-m" else (words[1:2], words[2:])
        if program[0] == "-m" and program[1].split(".")[0] not in ("fedjax_sel", "studies"):
            return
        if program[-1] in ("fedjax_sel", "studies") and rest and not rest[0].startswith("-"):
            program = [*program, rest[0]]
        known = known_flags(*program) | {"--help"}
        used = {word.split("=")[0] for word in rest if word.startswith("--")}
        assert used <= known, f"{program[-1]} does not know {', '.join(sorted(used - known))}"
        if program[-1] == "fedjax_sel.train":
            check_values("train", rest)
    elif words[0].startswith("fedjax-sel"):
        if PLACEHOLDER.search(" ".join(words[1:2])):
            return
        command = [word for word in words[1:2] if not word.startswith("-")]
        known = known_flags("-m", "fedjax_sel", *command) | {"--help"}
        used = {word.split("=")[0] for word in words[1:] if word.startswith("--")}
        assert used <= known, f"{words[0]} does not know {', '.join(sorted(used - known))}"
        if command and command[0] in ({"train"} if in_text else VALUES):
            check_values(command[0], words[2:])
    else:
        assert words[0] in OTHERS, f"{words[0]} is no program that a page should name without a test of it"


@pytest.mark.parametrize("block", BASH, ids=[f"{pages.name(block.page)}:{block.line}" for block in BASH])
def test_a_block_can_be_parsed(block):
    done = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for words in commands(block.code):
        check(words)


@pytest.mark.parametrize("page", [pages.name(page) for page in pages.everywhere()])
def test_commands_in_the_text_can_be_parsed(page):
    text = re.sub(
        r"^( *)```.*?^\1```", "", (pages.ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for span in re.findall(r"`((?:python|fedjax-sel) [^`]+)`", text):
        for words in commands(" ".join(span.split())):
            if len(words) > 1 and not PLACEHOLDER.fullmatch(words[-1].split(".")[-1]):
                check(words, in_text=True)


@pytest.mark.parametrize(
    "command,words",
    [
        ("python -m fedjax_sel.train --allgo random", "does not know --allgo"),
        ("python -m fedjax_sel.train --alpha 3", "--alpha 3.*: has no effect"),  # with shards
        ("fedjax-sel train --allgo random", "does not know --allgo"),
        ("fedjax-sel train --algo randm", "did you mean 'random'"),
        ("fedjax-sel train --preset nothing", "nothing"),
        ("fedjax-sel compare --algos random fedcorr --out x", "did you mean 'fedcor'"),
        ("fedjax-sel compare --algos random 'fl_dp3s[profil=gradient]' --out x", "profil"),
        ("fedjax-sel tune --algo random --space learning_rat=0:1 --out x", "learning_rat"),
        ("fedjax-sel list fedcorr", "fedcorr"),
        ("python -m fedjax_sel compare --algos random --lst", "does not know --lst"),
        ("python benchmarks/rounds_per_second.py --prests x", "does not know --prests"),
        ("python benchmarks/nowhere.py", "is not there"),
        ("tools/test_versions.py --nonsense", "does not know --nonsense"),
        ("srun --nodes 4 python -m fedjax_sel.train --seed 3", "does not know --seed"),
        ("sudo reboot", "no program that a page should name"),
    ],
)
def test_what_could_not_be_started_is_found(command, words):
    with pytest.raises((AssertionError, UserError), match=words):
        for words in commands(command):
            check(words)
