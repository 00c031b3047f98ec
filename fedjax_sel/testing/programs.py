"""Checks of a strategy as a program: keys, state, jit, scan, vmap, no recompilation."""

import numpy as np

from fedjax_sel.strategies import contract
from fedjax_sel.strategies.base import keep_state
from fedjax_sel.strategies.dependencies import read
from fedjax_sel.testing.bench import UNCHECKED, Bench
from fedjax_sel.testing.report import Violation, violations


def state(bench: Bench) -> None:
    """Check that structure, shapes and dtypes of the state are the same after every hook as after `init`."""
    old = bench.start.state
    for name in ("prepare", "observe", "update"):
        hook = bench.hooks()[name]
        if hook[0] is keep_state:
            continue
        with violations():
            contract.same_state(name, old, contract.trace(name, hook))


def key_used(bench: Bench) -> None:
    """Check that `select` draws with the key that it is given."""
    select, arguments = bench.hooks()["select"]
    if not read(select, *arguments)[0]:
        raise Violation(
            "`select` does not use its key: break ties with it (sampling.top_k) and draw with it, not with a key of "
            "one's own or one kept in the state"
        )


def key_used_once(bench: Bench) -> str:
    """Check that no key is consumed twice, as far as JAX's own checker can tell."""
    remark = bench.loop.key_reuse
    if remark and not remark.startswith(UNCHECKED):
        raise Violation(f"a key is consumed twice ({remark}); split it, one key a random act")
    return remark


def same_key(bench: Bench) -> None:
    """Check that the same keys give the same cohorts."""
    for round, (a, b) in enumerate(zip(bench.loop.records, bench.once_more())):
        if (np.asarray(a.ids) != np.asarray(b.ids)).any():
            raise Violation(
                f"the same keys give another cohort in round {round} of a second game: something outside of the "
                "state is remembered, or drawn without the key"
            )


def scan_and_vmap(bench: Bench) -> None:
    """Check that a scan over rounds under a vmap over seeds gives the cohorts of compiled rounds in a Python loop."""
    together = bench.games["ordinary"].ids
    for game, records in enumerate((bench.loop.records, *bench.loop.others)):
        for round, record in enumerate(records):
            if (np.asarray(record.ids) != together[game, round]).any():
                raise Violation(
                    f"under scan and vmap the cohort of round {round} is {together[game, round].tolist()}, and in a "
                    f"loop of single rounds {record.ids.tolist()}; look for Python state, and for sums whose rounding "
                    "decides"
                )


def eager(bench: Bench) -> None:
    """Check that without jit the cohort of the last round is the same."""
    round = bench.options.rounds - 1
    try:
        ids = bench.eager_round(round).ids.tolist()
    except Exception as error:
        raise Violation(f"without jit, round {round} raises {type(error).__name__}: {error}") from error
    compiled = bench.loop.records[round].ids.tolist()
    if ids != compiled:
        raise Violation(
            f"without jit the cohort of round {round} is {ids}, and with it {compiled}; look for Python state, and for "
            "rounding that decides"
        )


def no_retrace(bench: Bench) -> None:
    """Check that a compiled round serves all rounds."""
    # The state of `init` may be weakly typed and that of `update` not: one more trace, not one a round.
    for name in ("select", "observe", "update"):
        count = bench.loop.traces[name]
        if count > 2:
            raise Violation(
                f"`{name}` is traced {count} times in {bench.options.rounds} rounds; what changes from round to round "
                "must be an array in the state, not Static"
            )
