"""A small real experiment, and its ledger worked out by hand from the requests and from whom the strategy named.

What facts cost is written here a second time, on purpose: an oracle that read the catalogue of facts
(`strategies/kinds.py`) would agree with it where it is wrong.
"""

from collections import defaultdict
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel.strategies.base import ALL, CANDIDATES, Env, Request, Schedule, Strategy
from fedjax_sel.testing.bench import Bench, Options
from fedjax_sel.testing.declaration import losses_read
from fedjax_sel.testing.report import NotApplicable, Violation

LOST = 0.2  # of the reports in that experiment


class Counts(NamedTuple):
    """Of one round."""

    models_down: int
    models_up: int
    floats_up: int


def ledger(bench: Bench) -> None:
    """Check that a real run bills what the requests imply."""
    if not bench.options.run:
        raise NotApplicable("run=False")
    log = Log(bench.strategy)
    result = _run(log.watched(), bench.options)
    reports = losses_read(bench.strategy, bench)
    for round in range(bench.options.rounds):
        lost = int(result.ledger.reports_lost[0, round])
        wanted = expected(bench.strategy, log, round, reports, lost)
        billed = Counts(*(int(getattr(result.ledger, name)[0, round]) for name in Counts._fields))
        if wanted != billed:
            raise Violation(
                f"round {round + 1} of a real run is billed {billed} and its requests imply {wanted}; if the strategy "
                "reads what it does not buy, buy it, else report this as a fault of the simulator"
            )


class Log:
    """Writes down what a strategy is told and whom it names, while it runs inside the compiled program."""

    def __init__(self, strategy: Strategy):
        self.strategy = strategy
        self.env: Env | None = None
        self.profile_size = 0
        self.candidates: dict[int, set[int]] = defaultdict(set)
        self.cohorts: dict[int, set[int]] = defaultdict(set)
        self.reports: dict[int, set[int]] = defaultdict(set)  # those of the cohort who are heard of

    def watched(self) -> Strategy:
        """Return the strategy, looked over its shoulder."""
        strategy = self.strategy

        def init(key, env):
            self.env = env
            return strategy.init(key, env)

        def candidates(key, state, info, round, available):
            assert strategy.candidates is not None
            ids = strategy.candidates(key, state, info, round, available)
            jax.debug.callback(self._note_candidates, round, ids)
            return ids

        def select(key, state, info, round, available):
            if "profile" in info.kinds():
                self.profile_size = info.profile.value.shape[-1]
            selection = strategy.select(key, state, info, round, available)
            jax.debug.callback(self._note_cohort, round, selection.ids, selection.mask)
            return selection

        def update(state, info, round, selection, outcome):
            jax.debug.callback(self._note_reports, round, selection.ids, selection.mask)
            return strategy.update(state, info, round, selection, outcome)

        named = None if strategy.candidates is None else candidates
        return strategy._replace(init=init, select=select, candidates=named, update=update)

    def _note_candidates(self, round: Any, ids: Any) -> None:
        self.candidates[int(round)] = set(np.asarray(ids).tolist())

    def _note_cohort(self, round: Any, ids: Any, mask: Any) -> None:
        self.cohorts[int(round)] = set(np.asarray(ids)[np.asarray(mask)].tolist())

    def _note_reports(self, round: Any, ids: Any, mask: Any) -> None:
        self.reports[int(round)] = set(np.asarray(ids)[np.asarray(mask)].tolist())


def expected(strategy: Strategy, log: Log, round: int, reports: int, lost: int) -> Counts:
    """Count what a round costs when everybody is available, in plain sets and sums.

    What the cohort is asked travels with its reports, and is lost with them.

    Args:
        strategy: whose requests.
        log: whom it named, and who of them was heard of.
        round: from 0.
        reports: losses that each client of the cohort sends with its update.
        lost: reports that are said to be lost; those of the cohort are known, the others are of probes.

    Returns:
        The counts: downloads are the distinct clients asked or selected, and the copies that probes send out.
    """
    assert log.env is not None
    everyone, cohort, heard = set(range(log.env.num_clients)), log.cohorts[round], log.reports[round]
    asked = set(cohort)
    lost_by_probes = lost - (len(cohort) - len(heard))
    down, up, floats = 0, len(heard) - lost_by_probes, reports * len(heard)
    for request in strategy.requests:
        if request.kind in ("server_metrics", "subset_loss"):
            continue
        answer = {ALL: everyone, CANDIDATES: log.candidates[round]}.get(request.who, heard)
        for _ in range(times_due(request.when, round)):
            if request.kind != "label_histogram":
                asked |= answer
            if request.kind == "loss_change":
                down += _probes(request) * log.env.num_clients
                up += _probes(request) * log.env.num_selected
            floats += len(answer) * _length(request, log)
    return Counts(len(asked) + down, up, floats)


def times_due(when: Schedule, round: int) -> int:
    """Count how often a fact is bought in a round: at its opening, and in the first one perhaps before."""
    due = any(
        rule.first <= round and (rule.last is None or round <= rule.last) and (round - rule.first) % rule.period == 0
        for rule in when.rules
    )
    return int(due) + int(when.before_first_round and round == 0)


def _probes(request: Request) -> int:
    return request.option("probes", 1)


def _length(request: Request, log: Log) -> int:
    """Return the floats of one answer."""
    assert log.env is not None
    return {
        "loss_change": 1 + _probes(request),
        "profile": log.profile_size,
        "gradient": log.env.num_params,
        "update": log.env.num_params,
        "label_histogram": log.env.num_classes,
    }.get(request.kind, 1)


def _run(strategy: Strategy, options: Options) -> Any:
    """Run a tiny experiment with one seed."""
    import fedjax_sel

    n, rounds = options.num_clients, options.rounds
    experiment = fedjax_sel.Experiment.of(
        dataset=f"synthetic:train_size={20 * n},test_size=60,num_classes=4,image_size=4",
        num_clients=n, num_selected=options.num_selected, local_steps=2, batch_size=8, holdout=0.2, rounds=rounds,
        chunk=rounds, eval_every=rounds, report_failure_rate=LOST, algo=strategy,
    )  # fmt: skip
    result = fedjax_sel.run(experiment)
    jax.effects_barrier()
    return result
