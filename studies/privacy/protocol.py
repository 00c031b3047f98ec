"""Protocol of the study of privacy, committed before the first run.

**Question.** How much of a strategy's gain over random selection is left if each client's answers to the server have a
privacy budget epsilon for the whole run (`--privacy`, docs/privacy.md)?

**Settings.** Three of the leaderboard, with its rates, rounds and seeds. Random selection and the strategies without
noise are the leaderboard's rows. The model's training has no noise.

**Strategies.** `fed_cbs`, `fl_dp3s`, `fedcor` and `pow_d` hide one example of a client. `clustered` and `hics_fl` read
updates, whose sensitivity to one example has no bound; they hide all examples of a client. These guarantees differ in
strength, so compare a strategy with itself. In `HIDE_CLIENTS`, the first four hide all examples too.

**Budgets.** `EPSILONS`, with a delta of 1e-5. The bounds are the defaults of `--privacy`: a loss of 5, a norm of 10 for
profiles, of 1 for updates, 100 examples for the label counts of a hidden client. They were not tuned.

**Tests.** Test accuracy, mean of the last ten rounds, paired by seed. A family is all comparisons of a setting with
random selection, with and without noise. A strategy *keeps its lead* down to the smallest epsilon such that this and
all larger ones are significantly better (family-wise error of 5 %, `fedjax_sel.statistics.compare`).
"""

from pathlib import Path

from fedjax_sel import Config
from studies.boards.grid import BASELINE, Grid
from studies.leaderboard import protocol as leaderboard
from studies.leaderboard.protocol import Rates

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
DELTA = 1e-5
HIDING_EXAMPLES = ("fed_cbs", "fl_dp3s", "fedcor", "pow_d")
HIDING_CLIENTS = ("clustered", "hics_fl")
ALGOS = (*HIDING_EXAMPLES, *HIDING_CLIENTS)
HIDE_CLIENTS = ("gray-2labels",)
CLIENT = "-client"
LEADERBOARD = Path("results/leaderboard")
"""Folder of the rows without noise, from the repository."""
RATES = {"gray-2labels": Rates(0.03), "color-2labels": Rates(0.03), "gray-dir0.1": Rates(0.1)}
"""Learning rate of each setting, tuned on the leaderboard for random selection; on color, by its first tuning."""
PLAIN = {"color-2labels": "color-2labels-first"}
"""Parts of the leaderboard with the rows without noise, if they have other names than the setting."""


def row(algo: str, epsilon: float) -> str:
    """Return the name of a row."""
    return f"{algo} epsilon={epsilon:g}"


def _rows(setting: str, algos: tuple[str, ...], hide_clients: bool = False) -> dict[str, Config]:
    config = RATES[setting].apply(leaderboard.SETTINGS[setting].config)
    return {
        row(algo, epsilon): config.replace(
            algo=algo,
            privacy=f"epsilon={epsilon:g},delta={DELTA:g}",
            privacy_unit="client" if hide_clients or algo in HIDING_CLIENTS else "example",
        )
        for epsilon in reversed(EPSILONS)
        for algo in algos
    }


def _grids() -> dict[str, Grid]:
    found = [Grid(name, "all", leaderboard.SETTINGS[name].title, _rows(name, ALGOS)) for name in RATES]
    for name in HIDE_CLIENTS:
        title = f"{leaderboard.SETTINGS[name].title}; all examples of a client are hidden"
        found.append(Grid(name + CLIENT, "all", title, _rows(name, HIDING_EXAMPLES, hide_clients=True)))
    return {grid.name: grid for grid in found}


GRIDS: dict[str, Grid] = _grids()
"""Runs by part; the largest epsilon first."""

__all__ = ["ALGOS", "BASELINE", "CLIENT", "EPSILONS", "GRIDS", "LEADERBOARD", "PLAIN", "RATES", "row"]
