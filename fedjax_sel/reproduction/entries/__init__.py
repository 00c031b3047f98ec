"""All entries by name, paper by paper."""

from fedjax_sel.reproduction.entries import fedcor, fedcor_toy, fedgp_toy, fl_dp3s, gpfl
from fedjax_sel.reproduction.entry import Entry

ENTRIES: dict[str, Entry] = {
    entry.name: entry for entry in (fedgp_toy.ENTRY, fedcor_toy.ENTRY, *fedcor.ENTRIES, *gpfl.ENTRIES, *fl_dp3s.ENTRIES)
}
