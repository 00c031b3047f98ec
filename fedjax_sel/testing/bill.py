"""The ledger of a small real experiment, compared with the cost implied by the strategy's requests and selections.

The prices of facts are deliberately written a second time here. An oracle that read the catalog (`strategies/kinds.py`)
would repeat its errors.
"""

from collections import defaultdict
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel.strategies.base import ALL, CANDIDATES, Env, Request, Schedule, Strategy
from fedjax_sel.testing.bench import Bench, Options
from fedjax_sel.testing.declaration import losses_read
from fedjax_sel.testing.report import NotApplicable, Violation

LOST = 0.2  # fraction of lost reports in the experiment


class Counts(NamedTuple):
    """The traffic of one round."""

    models_down: int
    models_up: int
    floats_up: int


def ledger(bench: Bench) -> None:
    """Check that the ledger of a real run equals the cost implied by the requests."""
    if not bench.options.run:
        raise NotApplicable("run=False")
    log = Log(bench.strategy)
    result = _run(log.watched(), bench.options)
    reports = losses_read(bench.strategy, bench)
    for round in range(bench.options.rounds):
        lost = int(result.ledger.reports_lost[0, round])
        implied = expected(bench.strategy, log, round, reports, lost)
        billed = Counts(*(int(getattr(result.ledger, name)[0, round]) for name in Counts._fields))
        if implied != billed:
            raise Violation(
                f"round {round + 1} of a real run is billed {billed}, but its requests imply {implied}; request every "
                "fact that the strategy reads, or report a bug of the simulator"
            )


class Log:
    """A log of a strategy's environment, candidates and cohorts during a compiled run."""

    def __init__(self, strategy: Strategy):
        self.strategy = strategy
        self.env: Env | None = None
        self.profile_size = 0
        self.candidates: dict[int, set[int]] = defaultdict(set)
        self.cohorts: dict[int, set[int]] = defaultdict(set)
        self.reports: dict[int, set[int]] = defaultdict(set)  # clients whose reports arrive

    def watched(self) -> Strategy:
        """Return the strategy with callbacks that fill this log."""
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
    """Return the cost of a round with all clients available, from plain sets and sums.

    The cohort's answers travel with its reports, and are lost with them.

    Args:
        strategy: the strategy, for its requests.
        log: the candidates, cohorts and reports of the run.
        round: round number, from 0.
        reports: number of losses that each selected client sends with its update.
        lost: number of lost reports in the ledger. The cohort's are known; the others belong to probes.

    Returns:
        The counts. Models down: distinct queried or selected clients, plus the models that probes send.
    """
    assert log.env is not None
    everyone, cohort, reporting = set(range(log.env.num_clients)), log.cohorts[round], log.reports[round]
    downloads = set(cohort)
    lost_by_probes = lost - (len(cohort) - len(reporting))
    down, up, floats = 0, len(reporting) - lost_by_probes, reports * len(reporting)
    for request in strategy.requests:
        if request.kind in ("server_metrics", "subset_loss"):
            continue
        answer = {ALL: everyone, CANDIDATES: log.candidates[round]}.get(request.who, reporting)
        for _ in range(times_due(request.when, round)):
            if request.kind != "label_histogram":
                downloads |= answer
            if request.kind == "loss_change":
                down += _probes(request) * log.env.num_clients
                up += _probes(request) * log.env.num_selected
            floats += len(answer) * _length(request, log)
    return Counts(len(downloads) + down, up, floats)


def times_due(when: Schedule, round: int) -> int:
    """Return how often a fact is bought in a round; the first round pays also for facts bought before it."""
    due = any(
        rule.first <= round and (rule.last is None or round <= rule.last) and (round - rule.first) % rule.period == 0
        for rule in when.rules
    )
    return int(due) + int(when.before_first_round and round == 0)


def _probes(request: Request) -> int:
    return request.option("probes", 1)


def _length(request: Request, log: Log) -> int:
    """Return the number of floats of one answer."""
    assert log.env is not None
    return {
        "loss_change": 1 + _probes(request),
        "profile": log.profile_size,
        "gradient": log.env.num_params,
        "update": log.env.num_params,
        "label_histogram": log.env.num_classes,
    }.get(request.kind, 1)


def _run(strategy: Strategy, options: Options) -> Any:
    """Run a small experiment with one seed."""
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
