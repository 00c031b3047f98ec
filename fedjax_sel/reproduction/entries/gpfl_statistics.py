"""GPFL Table I: statistics of the data sets."""

from fedjax_sel.papers import published
from fedjax_sel.reproduction import verdicts
from fedjax_sel.reproduction.entry import Entry, Results, Scale
from fedjax_sel.reproduction.page import Page, Row

RULE = (
    "CIFAR-10's mean agrees if it is the samples over the clients of the same table. FEMNIST's column describes LEAF's "
    "files, of which Table II uses nothing: it is not comparable without them."
)
WHERE = "not at hand: LEAF's files are the user's own (python -m fedjax_sel.data --dataset leaf:FOLDER counts them)"


def _judge(results: Results, scale: Scale) -> Page:
    numbers = published.get("gpfl/table1").numbers
    assert numbers is not None
    table, rows = numbers[0], []
    for name in table.rows:
        value = table.cell(name, "femnist")
        assert value is not None
        rows.append(Row("femnist", name, f"{value.value:g}", WHERE, 0, "", verdicts.NOT_COMPARABLE))
    samples, clients, printed = (
        table.cell(name, "cifar10") for name in ("samples", "clients", "mean samples a client")
    )
    assert samples is not None and clients is not None and printed is not None
    mean = samples.value / clients.value
    ours = f"{samples.value:g} / {clients.value:g} = {mean:g}"
    rows.append(
        Row("cifar10", "mean samples a client", f"{printed.value:g}", ours,
            0, f"{mean - printed.value:+g}", verdicts.AGREES if mean == printed.value else verdicts.DIFFERS)
    )  # fmt: skip
    return Page(rows)


ENTRIES = (Entry("gpfl/table1", RULE, {}, _judge, "seconds"),)
