"""All entries by name, paper by paper, in the order of the published results."""

from studies.papers import published
from studies.papers.entries import (
    embeddings,
    fedcor,
    fedcor_centralised,
    fedcor_hours,
    fedcor_normality,
    fedcor_proxy,
    fedcor_stationarity,
    fedcor_toy,
    fedcor_variants,
    fedgp_toy,
    fl_dp3s,
    fl_dp3s_profiles,
    fl_dp3s_untrained,
    gpfl,
    gpfl_descent,
    gpfl_exploration,
    gpfl_selections,
    gpfl_statistics,
    gpfl_time,
)
from studies.papers.entry import Entry

_MODULES = (
    *(embeddings, fedcor, fedcor_centralised, fedcor_hours, fedcor_normality, fedcor_proxy, fedcor_stationarity),
    *(fedcor_toy, fedcor_variants, fedgp_toy, fl_dp3s, fl_dp3s_profiles, fl_dp3s_untrained),
    *(gpfl, gpfl_descent, gpfl_exploration, gpfl_selections, gpfl_statistics, gpfl_time),
)
_FOUND = {entry.name: entry for module in _MODULES for entry in module.ENTRIES}
ENTRIES: dict[str, Entry] = {name: _FOUND[name] for name in published.ENTRIES if name in _FOUND}
