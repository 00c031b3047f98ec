"""Checks of a strategy as a program: keys, state, jit, scan, vmap, no recompilation."""

import numpy as np

from fedjax_sel.strategies import contract
from fedjax_sel.strategies.base import keep_state
from fedjax_sel.strategies.dependencies import read
from fedjax_sel.testing.bench import UNCHECKED, Bench
from fedjax_sel.testing.report import Violation, violations


def state(bench: Bench) -> None:
    """Check that every hook keeps the structure, shapes and dtypes of the state."""
    old = bench.start.state
    for name in ("prepare", "observe", "update"):
        hook = bench.hooks()[name]
        if hook[0] is keep_state:
            continue
        with violations():
            contract.same_state(name, old, contract.trace(name, hook))


def key_used(bench: Bench) -> None:
    """Check that `select` uses its key."""
    select, arguments = bench.hooks()["select"]
    if not read(select, *arguments)[0]:
        raise Violation(
            "`select` does not use its key: use it to break ties (sampling.top_k) and to draw, instead of a key "
            "created elsewhere or stored in the state"
        )


def key_used_once(bench: Bench) -> str:
    """Check that no key is consumed twice, with JAX's key-reuse checker."""
    remark = bench.loop.key_reuse
    if remark and not remark.startswith(UNCHECKED):
        raise Violation(f"a key is consumed twice ({remark}); split it into one key per draw")
    return remark


def same_key(bench: Bench) -> None:
    """Check that the same keys give the same cohorts."""
    for round, (a, b) in enumerate(zip(bench.loop.records, bench.repeat())):
        if (np.asarray(a.ids) != np.asarray(b.ids)).any():
            raise Violation(
                f"the same keys give another cohort in round {round} of a second game: the strategy stores values "
                "outside the state or draws without the key; use the state and the key"
            )


def scan_and_vmap(bench: Bench) -> None:
    """Check that a scan over rounds under a vmap over seeds gives the same cohorts as a Python loop over rounds."""
    together = bench.games["ordinary"].ids
    for game, records in enumerate((bench.loop.records, *bench.loop.others)):
        for round, record in enumerate(records):
            if (np.asarray(record.ids) != together[game, round]).any():
                raise Violation(
                    f"under scan and vmap the cohort of round {round} is {together[game, round].tolist()}, but in a "
                    f"Python loop {record.ids.tolist()}; look for Python state, and for ties decided by rounding"
                )


def eager(bench: Bench) -> None:
    """Check that the cohort of the last round is the same without jit."""
    round = bench.options.rounds - 1
    try:
        ids = bench.eager_round(round).ids.tolist()
    except Exception as error:
        raise Violation(f"without jit, round {round} raises {type(error).__name__}: {error}") from error
    compiled = bench.loop.records[round].ids.tolist()
    if ids != compiled:
        raise Violation(
            f"without jit the cohort of round {round} is {ids}, but with jit {compiled}; look for Python state, and "
            "for ties decided by rounding"
        )


def no_retrace(bench: Bench) -> None:
    """Check that a compiled round serves all rounds."""
    # `init` may return weak types and `update` strong types, which costs one more trace, but not one per round.
    for name in ("select", "observe", "update"):
        count = bench.loop.traces[name]
        if count > 2:
            raise Violation(
                f"`{name}` is traced {count} times in {bench.options.rounds} rounds; store values that change between "
                "rounds as arrays in the state, not as Static"
            )
