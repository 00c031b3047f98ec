"""The bill of a real run against the requests of its strategy.

The prices of facts are deliberately written a second time: an oracle that read `strategies/facts.py` would repeat its
errors.
"""

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

import fedjax_sel
from fedjax_sel.strategies import checks
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.strategies.facts import ALL, CANDIDATES, SELECTED, Request, Schedule
from fedjax_sel.strategies.protocol import fields_read

CLIENTS, SELECTED_CLIENTS, ROUNDS, CLASSES = 12, 3, 8, 4
LOST = 0.2  # fraction of lost reports


class Counts(NamedTuple):
    """The traffic of one round."""

    models_down: int
    models_up: int
    floats_up: int


def check(strategy: Strategy) -> None:
    """Compare the ledger of a real run with the cost implied by the requests."""
    candidates: dict[int, set[int]] = defaultdict(set)
    reporting: dict[int, set[int]] = defaultdict(set)
    experiment = fedjax_sel.Experiment.of(
        dataset=f"synthetic:train_size={20 * CLIENTS},test_size=60,num_classes={CLASSES},image_size=4",
        num_clients=CLIENTS, num_selected=SELECTED_CLIENTS, local_steps=2, batch_size=8, holdout=0.2, rounds=ROUNDS,
        chunk=ROUNDS, eval_every=ROUNDS, report_failure_rate=LOST,
        algo=_watched(strategy, candidates, reporting), timing="tiers" if strategy.needs_clock else "none",
    )  # fmt: skip
    result = fedjax_sel.run(experiment)
    jax.effects_barrier()
    hooks = checks.traced(strategy, (CLIENTS, SELECTED_CLIENTS, ROUNDS), True, strategy.needs_clock)
    update, arguments = hooks["update"]
    outcome = fields_read(update, *arguments)[-1]
    reports = int(outcome.losses_before) + int(outcome.losses_after)
    for round in range(ROUNDS):
        lost = int(result.ledger.reports_lost[0, round])
        cohort = set(result.cohorts[0, round].tolist()) - {-1}
        queried = {ALL: set(range(CLIENTS)), CANDIDATES: candidates[round], SELECTED: reporting[round]}
        implied = expected(strategy, result.model, queried, cohort, round, reports, lost)
        billed = Counts(*(int(getattr(result.ledger, name)[0, round]) for name in Counts._fields))
        assert implied == billed, round


def _watched(strategy: Strategy, candidates: dict[int, set[int]], reporting: dict[int, set[int]]) -> Strategy:
    """Return the strategy with callbacks that record its candidates, and the clients whose reports arrive."""

    def named(key, state, now):
        ids = strategy.candidates(key, state, now)  # pyright: ignore[reportOptionalCall]
        jax.debug.callback(functools.partial(_note, candidates), now.round, ids, np.ones(ids.shape, bool))
        return ids

    def update(state, now, selection, outcome):
        jax.debug.callback(functools.partial(_note, reporting), now.round, selection.ids, outcome.reported)
        return strategy.update(state, now, selection, outcome)

    return strategy._replace(candidates=None if strategy.candidates is None else named, update=update)


def _note(table: dict[int, set[int]], round: Any, ids: Any, mask: Any) -> None:
    table[int(round)] = set(np.asarray(ids)[np.asarray(mask)].tolist())


def expected(
    strategy: Strategy,
    model: Any,
    queried: Mapping[str, set[int]],
    cohort: set[int],
    round: int,
    reports: int,
    lost: int,
) -> Counts:
    """Return the cost of a round with all clients available, from plain sets and sums.

    The cohort's answers travel with its reports, and are lost with them. Each selected client sends `reports` losses
    with its update. The ledger counts `lost` reports: the cohort's are known, the others belong to probes. Models down
    are the distinct queried or selected clients, plus the models that probes send.
    """
    reporting, downloads = queried[SELECTED], set(cohort)
    lost_by_probes = lost - (len(cohort) - len(reporting))
    down, up, floats = 0, len(reporting) - lost_by_probes, reports * len(reporting)
    for request in strategy.requests:
        if request.kind in ("server_metrics", "subset_loss"):
            continue
        answer = queried[request.who]
        probes = request.option("probes", 1) if request.kind == "loss_change" else 0
        for _ in range(times_due(request.when, round)):
            if request.kind != "label_histogram":
                downloads |= answer
            down += probes * CLIENTS
            up += probes * SELECTED_CLIENTS
            floats += len(answer) * length(request, model)
    return Counts(len(downloads) + down, up, floats)


def times_due(when: Schedule, round: int) -> int:
    """Return how often a fact is bought in a round; the first round pays also for facts bought before it."""
    due = any(
        rule.first <= round and (rule.last is None or round <= rule.last) and (round - rule.first) % rule.period == 0
        for rule in when.rules
    )
    return int(due) + int(when.before_first_round and round == 0)


def length(request: Request, model: Any) -> int:
    """Return the number of floats of one answer."""
    return {
        "loss_change": 1 + request.option("probes", 1),
        "profile": model.profile_size,
        "gradient": model.num_params,
        "update": model.num_params,
        "label_histogram": CLASSES,
    }.get(request.kind, 1)
