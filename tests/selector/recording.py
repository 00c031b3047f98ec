"""What a simulated run told its strategy and whom it named, and the same told to a Selector."""

import sys
from collections import defaultdict

import jax
import numpy as np

import fedjax_sel
from fedjax_sel import strategies
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.strategies.protocol import requests_at_start

N, K, CLASSES = 12, 3, 4
ENV = ("num_params", "num_classes", "params", "output_layer")
LEDGER = ("models_down", "models_up", "floats_up")


class Recording:
    """Looks over a strategy's shoulder while a run is computed."""

    def __init__(self, algo, rounds, available="1", lost=0.0, seed=5, timed=False, **parameters):
        self.strategy = algo if isinstance(algo, Strategy) else strategies.make(algo, **parameters)
        self.timed = timed or self.strategy.needs_clock
        timing = {"timing": "tiers", "timing_args": {"jitter": "0.5"}, "deadline": "q0.8"} if self.timed else {}
        self.rounds, self.seed = rounds, seed
        self.answered = defaultdict(dict)  # hook -> round -> what it was given
        experiment = fedjax_sel.Experiment.of(
            dataset=f"synthetic:train_size={20 * N},test_size=20,num_classes={CLASSES},image_size=4",
            num_clients=N, num_selected=K, local_steps=2, batch_size=8, holdout=0.2, server_validation=0.1,
            rounds=rounds, chunk=rounds, eval_every=rounds, available=available, report_failure_rate=lost,
            seeds=[seed], mesh="seeds=1,clients=1", partition="dirichlet", alpha=0.5, algo=self.watched(), **timing,
        )  # fmt: skip
        self.result = fedjax_sel.run(experiment)
        jax.effects_barrier()

    def note(self, hook):
        def write(round, *given):
            self.answered[hook][int(round)] = jax.tree.map(np.array, given)  # copies: the memory is the program's

        return write

    def watched(self):
        strategy = self.strategy

        def init(key, now):
            self.env = {name: getattr(now.env, name) for name in ENV}
            jax.debug.callback(self.note("init"), 0, now.env.sizes, now.env.all_sizes)
            if requests_at_start(strategy):
                jax.debug.callback(self.note("start"), 0, now.info)
            return strategy.init(key, now)

        def observe(state, now):
            jax.debug.callback(self.note("all"), now.round, now.info, now.available)
            return strategy.observe(state, now)

        def select(key, state, now):
            answer = strategy.select(key, state, now)
            jax.debug.callback(self.note("candidates"), now.round, now.info)
            jax.debug.callback(self.note("cohort"), now.round, answer)
            return answer

        def update(state, now, selection, outcome):
            metrics = outcome.metrics if isinstance(outcome.metrics, tuple) else None
            heard = (selection.ids, outcome.reported, outcome._replace(metrics=metrics))
            jax.debug.callback(self.note("selected"), now.round, now.info)
            jax.debug.callback(self.note("update"), now.round, *heard)

            def subset_loss(members):
                losses = outcome.subset_loss(members)
                jax.debug.callback(self.note("subsets"), now.round, members, losses)
                return losses

            return strategy.update(state, now, selection, outcome._replace(subset_loss=subset_loss))

        return strategy._replace(init=init, observe=observe, select=select, update=update)

    def selector(self, **others):
        """A Selector that is made for the same federation, with clients of names."""
        sizes, all_sizes = self.answered["init"][0]
        info = self.answered["candidates"][0][0]
        profile = info.profile.value.shape[-1] if "profile" in info.kinds() else None
        given = {"sizes": sizes, "all_sizes": all_sizes, "profile_size": profile, "seed": self.seed, "clients": NAMES}
        given["has_clock"] = self.timed
        return fedjax_sel.Selector(self.strategy, N, K, self.rounds, **self.env | given | others)

    def play(self, selector, first=0, last=None):
        """The rounds from `first` on; what the Selector selected, and whether that is what the run did."""
        for round in range(first, self.rounds if last is None else last):
            available = self.answered["all"][round][1]
            there = None if available is None else [NAMES[k] for k in np.flatnonzero(available)]
            if round == 0 and "start" in self.answered:
                self.answer(selector, "start")
            while selector.asks(there):
                self.answer(selector, None, there)
            names, weights = selector.select(there)
            cohort = self.answered["cohort"][round][0]
            assert list(names) == [NAMES[k] for k in cohort.ids[cohort.mask]], f"round {round}"
            if weights is None:
                assert cohort.weights is None
            else:
                # Two programs may round a probability differently.
                np.testing.assert_allclose(weights, cohort.weights[cohort.mask], rtol=1e-5)
            self.answer(selector)
            self.report(selector, round)
            spent = selector.bill().rounds[round]
            assert [int(getattr(self.result.ledger, name)[0, round]) for name in LEDGER] == list(spent)

    def answer(self, selector, group=None, available=None):
        """Tells what is due, from the tables as the strategy saw them next."""
        for ask in selector.asks(available):
            fact = getattr(self.answered[group or ask.who][selector.round][0], ask.kind)
            places = [NAMES.index(name) for name in ask.clients]
            heard = [place for place in places if fact.age[place] == 0]
            selector.tell(ask.kind, [NAMES[place] for place in heard], fact.value[heard])

    def report(self, selector, round):
        ids, mask, outcome = self.answered["update"][round]
        names = [NAMES[k] for k in ids[mask]]
        given = {name: jax.tree.map(lambda leaf: leaf[mask], getattr(outcome, name)) for name in COHORTS}
        broken = [name for name, finite in zip(names, outcome.finite[mask]) if not finite]
        others = {"step": outcome.step, "metrics": outcome.metrics, "broken": broken}
        if "subset_loss" in selector.reads:
            members, losses = self.answered["subsets"][round]
            table = {tuple(NAMES[k] for k in ids[row & mask]): loss for row, loss in zip(members, losses)}
            others["subset_loss"] = table.__getitem__
        selector.update(names, **{name: value for name, value in (given | others).items() if name in
                                  (*selector.reads, "path_lengths", "broken")})  # fmt: skip


COHORTS = ("updates", "losses_before", "losses_after", "path_lengths", "seconds")
NAMES = [("hospital", place) if place % 2 else f"phone {place}" for place in range(N)]

if __name__ == "__main__":  # without the flags of the suite
    algo, available, rounds = sys.argv[1:]
    recording = Recording(algo, int(rounds), available=available)
    recording.play(recording.selector())
