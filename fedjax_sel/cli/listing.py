"""`fedjax-sel list`: an overview of strategies, data sets, presets and more, or the details of one name."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedjax_sel.cli import command_line
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.core.parsing import did_you_mean
from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    from fedjax_sel.cli.catalogue import Item, Section

DESCRIPTION = (
    "Lists strategies, optimizers, models, data sets, partitions, tasks, simulated devices, modes of availability and "
    "presets; or one name in full."
)
EPILOG = """examples:
  fedjax-sel list                            everything, briefly
  fedjax-sel list presets models             two sections
  fedjax-sel list fedcor                     one strategy in full
  fedjax-sel list tiers                      the parameters of --timing tiers
  fedjax-sel list fedcor/fmnist-1spc         a preset, with the flags it sets
  fedjax-sel list mypackage.module:factory   your own strategy

For the papers' tables and figures, run python -m studies reproduce --list in the repository.
"""
WITHOUT_ARGS = ("--partition", "--model", "--dataset", "--task", "--preset")
SECTIONS = (
    "strategies", "optimizers", "models", "datasets", "partitions", "tasks", "timing", "availability", "presets",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    print(text(make_parser().parse_args(arguments).names))
    return 0


def make_parser() -> Parser:
    """Make the command's parser."""
    parser = Parser(prog="fedjax-sel list", usage="fedjax-sel list [NAME ...]", description=DESCRIPTION, epilog=EPILOG)
    what = parser.add_argument_group("what to show")
    what.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(SECTIONS)}, or any name listed there (default: all)"
    )
    return parser


def text(names: Sequence[str] = ()) -> str:
    """Return the text on sections or entries by name; no names mean all sections."""
    from fedjax_sel.cli import catalogue
    from fedjax_sel.core import plugins

    found = catalogue.sections()
    parts = []
    for name in names or found:
        holders = {key: section for key, section in found.items() if name in section.items}
        if name in found:
            parts.append(_section(found[name]))
        elif holders:
            parts += [_in_full(name, section.items[name], section, found) for section in holders.values()]
        elif plugins.is_plugin(name):
            parts.append(_in_full(name, catalogue.strategy(name), found["strategies"], found))
        else:
            known = [*found, *(item for section in found.values() for item in section.items)]
            raise UserError(f"list: unknown name {name!r}; {did_you_mean(name, known)}")
    return "\n\n".join(parts)


def _section(section: "Section") -> str:
    flags = section.flag if section.flag in WITHOUT_ARGS else f"{section.flag}; parameters: {section.flag}-args"
    lines = [command_line.fill(f"{section.title} ({flags})"), ""]
    column = max(map(len, section.items)) + 2
    for name, item in section.items.items():
        lines.append(command_line.hanging(name, item.about, column, 2))
        lines += _facts(item.facts, 4)
        given = [f"{one.default} ({one.allowed})" for one in item.parameters.values() if one.default]
        if names := [name for name, one in item.parameters.items() if not one.default]:
            given.append(f"from preset: {', '.join(names)}")
        labels = ["takes:"] + [""] * len(given)
        lines += [command_line.hanging(label, one, 8, 4) for label, one in zip(labels, given)]
        lines += [""] if item.facts or item.parameters else []
    if lines[-1]:
        lines.append("")
    return "\n".join([*lines, *filter(None, [command_line.fill(section.note)])]).rstrip()


def _facts(facts: Mapping[str, str], indent: int) -> list[str]:
    return [command_line.hanging(f"{key}:", value, 8, indent) for key, value in facts.items()]


def _in_full(name: str, item: "Item", section: "Section", found: "Mapping[str, Section]") -> str:
    lines = [f"{section.flag} {name}", "", command_line.fill(item.about), "", *_facts(item.facts, 0)]
    if item.parameters:
        lines += ["", "Takes:" if section.flag in WITHOUT_ARGS else f"Takes ({section.flag}-args):"]
        for key, one in item.parameters.items():
            default = one.default or f"{key}: from preset"
            lines.append(command_line.fill(f"{default} ({one.allowed})", "  ", " " * 6))
            lines += [command_line.fill(one.meaning, " " * 6)] if one.meaning else []
    if rest := item.page.removeprefix(item.about).strip():
        lines += ["", command_line.page(rest)]
    if related := [one for section in found.values() for one in section.items if one.startswith(f"{name}/")]:
        lines += ["", command_line.fill(f"See also: {', '.join(related)}.")]
    return "\n".join(lines).rstrip().replace("\n\n\n", "\n\n")
