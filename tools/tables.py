#!/usr/bin/env python3
"""Fill the tables and numbers of Markdown pages from the result files that they name.

    python tools/tables.py              fill the tables of README.md, docs/ and results/
    python tools/tables.py --check      list pages that differ from their files, and exit with 1

A table stands between two comments; the first names its sources:

    <!-- table
    one = results/papers_setting/fmnist-1spc/table.csv where optimizer=fedavg
    two = results/papers_setting/fmnist-2spc/table.csv where optimizer=fedavg
    key algo
    only random, fl_dp3s as FL-DP3S
    | | one label | two labels |
    | {label} | {one.last_rounds_accuracy_mean:.3f} | {two.last_rounds_accuracy_mean:.3f} |
    -->
    <!-- end -->

Fields in the heading belong to sources with one record. Without `key`, each source selects one record, and each further
line is a row of the table:

    <!-- table
    one = results/papers_setting/fmnist-1spc/pairs.csv where measure=last_rounds_accuracy, row=clustered
    two = results/papers_setting/fmnist-2spc/pairs.csv where measure=last_rounds_accuracy, row=fedcor
    | your clients | start with | gain |
    | one label | clustered | {one.difference:+.3f} |
    | two labels | fedcor | {two.difference:+.3f} |
    -->
    <!-- end -->

A number in a sentence has the same form:
`<!-- value FILE where algo=fedcor: {rounds_to_target_mean:.0f} -->88<!-- end -->`.

A file is a CSV, or a JSON file with a list of records, such as `results/rounds_per_second.json#cases`. `where` keeps
the records with these values, which may contain commas and colons. `key` joins several files. `only` selects, orders
and renames the records (`{label}`, which may span cells), and may be repeated. `sort NAME.column` or
`sort -NAME.column` orders them by a number. `transpose` makes each record a column. A field takes a Python number
format; a value that is not a number ("N/A") is shown unchanged. `{one.gain_difference*:+.3f}` is bold if
`one.gain_verdict` is "better" or "worse". A cell is empty if the record is in none of the files of its fields.
"""

import argparse
import csv
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- (table|value)\b(.*?)-->)(.*?)(<!-- end -->)", re.DOTALL)
FIELD = re.compile(r"\{([\w.-]+)(\*)?(?::([^{}]*))?\}")
Record = Mapping[str, Any]


class WrongBlockError(Exception):
    """A block that cannot be filled; the message gives the reason."""


class Source(NamedTuple):
    """The selected records of a file."""

    name: str  # the prefix of its fields
    records: list[Record]


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages with blocks.

    Args:
        root: the repository's root.
    """
    found = [root / name for name in ("README.md", "CONTRIBUTING.md")]
    found += [path for folder in ("docs", "results") for path in sorted((root / folder).rglob("*.md"))]
    return [path for path in found if path.exists()]


def filled(text: str, root: Path = ROOT) -> str:
    """Return a page with its blocks filled.

    Args:
        text: the page.
        root: folder to which the page's file names are relative.

    Raises:
        WrongBlockError: a block has a syntax error, or names a missing file, record or column.
    """
    code = [match.span() for match in re.finditer(r"^```.*?^```|`[^`\n]*`", text, flags=re.DOTALL | re.MULTILINE)]

    def fill(match: re.Match) -> str:
        if any(start <= match.start() < end for start, end in code):
            return match[0]  # an example
        start, kind, about, _, end = match.groups()
        try:
            content = _table(about, root) if kind == "table" else _value(about, root)
        except (OSError, ValueError, KeyError) as error:
            raise WrongBlockError(f"{start}: {type(error).__name__}: {error}") from error
        return f"{start}{content}{end}"

    return BLOCK.sub(fill, text)


def _value(about: str, root: Path) -> str:
    place, begins, rest = about.strip().partition(": {")  # a condition may have a colon of its own
    if not begins:
        raise ValueError("no ': {' before the field")
    (record,) = _one(_source(f"value = {place}", root).records)
    return _filled(f"{{{rest}", record)


def _one(records: list[Record]) -> list[Record]:
    if len(records) != 1:
        raise ValueError(f"{len(records)} lines of the file match; expected one")
    return records


def _table(about: str, root: Path) -> str:
    lines = [line.strip() for line in about.strip().splitlines()]
    template = [line for line in lines if line.startswith("|")]
    if len(template) < 2:
        raise ValueError("expected two lines that begin with |: the heading and the record template")
    sources = [_source(line, root) for line in lines if re.match(r"\w+ = ", line)]
    words: dict[str, str] = {}
    for line in lines:
        if re.match(r"(key|only|sort) ", line):
            word, rest = line.split(maxsplit=1)
            words[word] = f"{words[word]}, {rest}" if word in words else rest
    transposes = "transpose" in lines
    unknown = [line for line in lines if not re.match(r"\||\w+ = |(key|only|sort) |transpose$", line)]
    if unknown or not sources:
        raise ValueError(f"not understood: {unknown[0]!r}" if unknown else "no source file")
    heading, *rows = template
    several = len(rows) > 1
    if several and (words or transposes):
        raise ValueError("several rows take no key, only, sort or transpose: each source selects one record")
    singles = [(name, _one(found)[0]) for name, found in sources if several or len(found) == 1]
    values = {f"{name}.{column}": value for name, record in singles for column, value in record.items()}
    heading = _filled(heading, values)
    if several:
        return _lines(heading, [_filled(row, values) for row in rows])
    joined = _joined(sources, words.get("key"))
    if "sort" in words:
        column = words["sort"].removeprefix("-")
        joined = dict(sorted(joined.items(), key=lambda item: float(_of(item[1], column))))
        joined = dict(reversed(joined.items())) if words["sort"].startswith("-") else joined
    (line,), rows = rows, []
    for key, label in _chosen(words.get("only"), joined):
        record = {**joined[key], "label": label}
        rows.append("|".join(_cell(cell, record) for cell in line.split("|")))
    if transposes:
        columns = ([cell.strip() for cell in row.split("|")[1:-1]] for row in (heading, *rows))
        heading, *rows = (f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True))
    return _lines(heading, rows)


def _lines(heading: str, rows: Sequence[str]) -> str:
    return "\n".join(["", heading, "|" + "---|" * (heading.count("|") - 1), *rows, ""])


def _cell(cell: str, record: Record) -> str:
    """Return a filled cell; an empty one if it has fields and none has a value."""
    fields = [_of(record, column) for column, *_ in FIELD.findall(cell)]
    return _filled(cell, record) if not fields or any(value != "" for value in fields) else "  "


def _filled(line: str, record: Record) -> str:
    def fill(field: re.Match) -> str:
        column, marked, spec = field.groups()
        text = shown(_of(record, column), spec)
        significant = marked and _of(record, f"{column.rpartition('_')[0]}_verdict") in ("better", "worse")
        return f"**{text}**" if significant else text

    return FIELD.sub(fill, line)


def _chosen(only: str | None, joined: Mapping[str, Record]) -> list[tuple[str, str]]:
    if only is None:
        return [(key, key) for key in joined]
    pairs = [re.split(r"\s+as\s+", one.strip(), maxsplit=1) for one in only.split(",")]
    return [(pair[0], pair[-1]) for pair in pairs]


def _joined(sources: Sequence[Source], key: str | None) -> dict[str, Record]:
    if key is None:
        if len(sources) > 1:
            raise ValueError("several files need a key")
        name, records = sources[0]
        return {str(place): {f"{name}.{column}": value for column, value in record.items()}
                for place, record in enumerate(records)}  # fmt: skip
    joined: dict[str, dict[str, Any]] = {}
    for name, records in sources:
        seen = [record[key] for record in records]
        if len(set(seen)) < len(seen):
            raise ValueError(f"{name} has several lines of one {key}; select one with where")
        for record in records:
            joined.setdefault(str(record[key]), {}).update(
                {f"{name}.{column}": value for column, value in record.items()}
            )
    empty = {f"{name}.{column}": "" for name, records in sources for column in records[0]}
    return {one: {**empty, **record} for one, record in joined.items()}


def _source(line: str, root: Path) -> Source:
    name, _, rest = line.partition(" = ")
    place, _, condition = rest.partition(" where ")
    wanted = dict(one.strip().split("=", 1) for one in re.split(r",\s*(?=[\w.]+=)", condition)) if condition else {}
    records = _records(place.strip(), root)
    kept = [
        one for one in records if all(str(one[column.strip()]) == value.strip() for column, value in wanted.items())
    ]
    if not kept:
        raise ValueError(f"no line of {place.strip()} matches")
    return Source(name.strip(), kept)


def _records(place: str, root: Path) -> list[Record]:
    path, _, inside = place.partition("#")
    if path.endswith(".csv"):
        with (root / path).open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    content = json.loads((root / path).read_text(encoding="utf-8"))
    for step in filter(None, inside.split(".")):
        content = content[step]
    return [_flat(one) for one in (content if isinstance(content, list) else [content])]


def _flat(record: Any, before: str = "") -> dict[str, Any]:
    """Return nested values by their dotted paths."""
    if not isinstance(record, dict):
        return {before.removesuffix("."): record}
    return {name: value for key, one in record.items() for name, value in _flat(one, f"{before}{key}.").items()}


def _of(record: Record, column: str) -> Any:
    if column not in record:
        raise KeyError(f"there is no {column}; available: {', '.join(record)}")
    return record[column]


def shown(value: Any, spec: str | None) -> str:
    """Return a value in a Python number format, or unchanged if it is not a number.

    Args:
        value: a CSV cell or a JSON value.
        spec: the format; None leaves the value unchanged.
    """
    if not spec:
        return str(value)
    try:
        return format(float(value), spec)
    except (TypeError, ValueError):
        return str(value)


def main(arguments: Sequence[str]) -> int:
    """Fill all pages, or check them.

    Args:
        arguments: `--check`, or none.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and exit with 1 if a page would change")
    check, code = parser.parse_args(arguments).check, 0
    for path in pages():
        text = path.read_text(encoding="utf-8")
        try:
            new = filled(text)
        except WrongBlockError as error:
            print(f"{path.relative_to(ROOT)}: {error}", file=sys.stderr)
            return 2
        if new == text:
            continue
        print(path.relative_to(ROOT))
        if check:
            code = 1
        else:
            path.write_text(new, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
