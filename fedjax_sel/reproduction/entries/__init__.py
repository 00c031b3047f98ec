"""All entries by name, paper by paper, in the order of the published results."""

from fedjax_sel.papers import published
from fedjax_sel.reproduction.entries import fedcor, fedcor_toy, fedcor_variants, fedgp_toy, fl_dp3s, gpfl
from fedjax_sel.reproduction.entry import Entry

_FOUND = {
    entry.name: entry
    for module in (fedcor, fedcor_variants, fedgp_toy, fedcor_toy, gpfl, fl_dp3s)
    for entry in module.ENTRIES
}
ENTRIES: dict[str, Entry] = {name: _FOUND[name] for name in published.ENTRIES if name in _FOUND}
