"""The Selector: cohorts for real clients, one protocol step per call, with its saved file."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import files
from fedjax_sel.core.jax_settings import as_numpy, is_key
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.selector import standing
from fedjax_sel.selector.answers import Name, answer_rows
from fedjax_sel.selector.hooks import Hooks
from fedjax_sel.selector.reports import LOSSES, outcome_fields, required_arguments
from fedjax_sel.selector.standing import Account, Ask, SelectorBill, Standing
from fedjax_sel.selector.terms import Size, make_terms
from fedjax_sel.simulation import keys
from fedjax_sel.simulation.availability import LARGEST
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.strategies.privacy import Unit, epsilons

ABOUT = "about"  # entry of a Selector's file with JSON; the other entries are arrays


def _filled(like: Any, leaves: Sequence[np.ndarray]) -> Any:
    """Return `like` with the leaves of a file; raise ValueError if their number, shapes or dtypes differ."""
    old, structure = jax.tree.flatten(like)
    plain = [as_numpy(leaf) for leaf in old]
    if len(leaves) == len(plain):  # files hold types that NumPy lacks, such as bfloat16, as raw bytes
        leaves = [leaf.view(own.dtype) if leaf.dtype.kind == "V" else leaf for own, leaf in zip(plain, leaves)]
    if [(leaf.shape, leaf.dtype) for leaf in plain] != [(leaf.shape, leaf.dtype) for leaf in leaves]:
        raise ValueError("the arrays differ")
    values = [
        jax.random.wrap_key_data(jnp.asarray(leaf), impl=jax.random.key_impl(before)) if is_key(before) else leaf
        for before, leaf in zip(old, leaves)
    ]
    return jax.tree.unflatten(structure, values)


class Selector:
    """A selection strategy for your own server loop.

    Invalid input raises `UserError` with a one-line message and leaves the Selector unchanged. Call it from
    one thread at a time.
    """

    def __init__(
        self,
        strategy: str | Strategy,
        num_clients: int,
        num_selected: int,
        num_rounds: int,
        *,
        sizes: Sequence[int] | Mapping[Name, int] | np.ndarray,
        all_sizes: Sequence[int] | Mapping[Name, int] | np.ndarray | None = None,
        num_params: int | None = None,
        num_classes: int | None = None,
        profile_size: int | None = None,
        seed: int = 0,
        clients: Sequence[Name] | None = None,
        params: Any = None,
        output_layer: tuple[Any, Any] | None = None,
        has_clock: bool = False,
        privacy: str | None = None,
        privacy_unit: Unit = "example",
    ):
        """Initialize the strategy before the first round.

        Args:
            strategy: a name, a name with parameters such as "pow_d[num_candidates=8]", or a `Strategy`.
            num_clients: number of clients, N.
            num_selected: cohort size, K; for a strategy whose cohort size is random, its mean.
            num_rounds: number of rounds, T.
            sizes: training examples per client, integers [N] in the order of `clients`, or a mapping from name.
            all_sizes: training and held-out examples per client, as `sizes`; None: no client holds examples out.
            num_params: number of trained weights, P; required if the strategy reads gradients, updates or steps. None:
                `env.num_params` is 1.
            num_classes: number of classes, C; required if the strategy reads label histograms. None: `env.num_classes`
                is 1.
            profile_size: number of floats per profile, Q; required if the strategy reads profiles.
            seed: seed of all random draws, as `--seeds` of a run.
            clients: N hashable client names; None: 0 to N - 1.
            params: the trained weights, or a pytree of their shapes; determines `num_params`. Required if the strategy
                reads parts of the updates, such as the output layer's. None: `env.params` is None.
            output_layer: paths in `params` of the weight and the bias (or None) of the layer that returns the logits,
                such as (("Dense_1", "kernel"), ("Dense_1", "bias")). None: `env.output_layer` is None.
            has_clock: whether the server measures durations, as `env.has_clock`; required if the strategy requests the
                fact `seconds`.
            privacy: budget and bounds, as for `--privacy`; each client then perturbs its answers as `Ask.noise` states.
            privacy_unit: what the guarantee hides: one "example" of a client, or all of them ("client").

        Raises:
            UserError: an argument is invalid, or the strategy breaks its contract.
        """
        self._terms = make_terms(
            strategy,
            Size(num_clients, num_selected, num_rounds),
            sizes=sizes,
            all_sizes=all_sizes,
            lengths={"num_params": num_params, "num_classes": num_classes, "profile_size": profile_size},
            seed=seed,
            clients=clients,
            params=params,
            output_layer=output_layer,
            has_clock=has_clock,
            privacy=privacy,
            privacy_unit=privacy_unit,
        )
        self._strategy, self._clients = self._terms.strategy, self._terms.clients
        self._hooks = Hooks(self._terms)
        state, info = self._hooks.before_start()
        self._reads = self._hooks.outcome_reads(state, info)
        if (self._reads.updates or self._reads.step) and num_params is None and params is None:
            raise UserError(f"num_params: strategy {self._strategy.name!r} reads updates; pass num_params or params")
        silent = np.zeros((num_clients,), bool)
        account = Account((), silent, np.zeros((num_clients,), np.int32))
        now = Standing("start", 0, state, info, account, None, silent)
        self._now = self._opening = now if protocol.requests_at_start(self._strategy) else self._started(now)

    @property
    def round(self) -> int:
        """Current round, from 0; `num_rounds` after the last one."""
        return self._now.round

    @property
    def num_rounds(self) -> int:
        """Number of rounds, T."""
        return self._terms.size.num_rounds

    @property
    def num_selected(self) -> int:
        """Cohort size, K."""
        return self._terms.size.num_selected

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the arguments that `update` requires besides `reported`."""
        return required_arguments(self._reads)

    def asks(self, available: Iterable[Name] | None = None) -> tuple[Ask, ...]:
        """Return the facts that are due now; () if the server can select the cohort or close the round.

        Before the first round, every client is queried, available or not. In each round, the available clients are
        queried first, then the strategy's candidates among them. After `select`, the cohort is queried about the model
        that it trains from (for `training_loss`: during training). Repeated calls return the same facts until `tell`.
        Queries for perturbed answers count as sent.

        Args:
            available: names of the clients that are available in this round. The set is final after the first `tell` or
                `select` of the round, or after candidates are drawn. None: the set of an earlier call, or all clients.

        Raises:
            UserError: a name is unknown, the set differs from the final one, or it has fewer than K clients to query.
        """
        now = self._now
        self._not_over("asks", now)
        if available is not None and now.phase != "start":
            reachable = self._clients.mask("asks: available", available)
            final = now.phase != "all" or bool(now.answered)
            if not final:
                now = now._replace(reachable=reachable)
            elif (reachable != (True if now.reachable is None else now.reachable)).any():
                raise UserError(
                    f"asks: `available` differs from the clients fixed for round {now.round + 1}; leave `available` out"
                )
        if now.phase == "all" and not now.answered and (self._due(now) or self._strategy.candidates is not None):
            self._check_enough("asks", now.available(), "wait for more clients")
        if now.phase == "all" and not self._due(now):
            observed = self._observed(now)
            now = now if observed.candidates is None else observed  # without candidates, `available` stays open
        asks = self._due(now)
        self._now = standing.asked(self._terms, now, asks)
        return asks

    def probe_cohorts(self) -> tuple[tuple[Name, ...], ...]:
        """Return the cohort of each probe if a `loss_change` is due, else ().

        Cohorts are drawn uniformly from the available clients, with the simulator's keys. A probe's cohort trains from
        the round's model. All clients then evaluate the mean of its trained models, which is discarded afterwards.
        """
        terms, now = self._terms, self._now
        available = now.available()
        reachable = None if available is None else jnp.asarray(available)
        stream = keys.streams(keys.roots([terms.seed], {})).facts[0]
        drawn = []
        for number in range(sum(ask.shape[0] for ask in self._due(now) if ask.kind == "loss_change")):
            key = jax.random.fold_in(keys.probe_key(stream, jnp.int32(now.round), number), keys.COHORT)
            ids = np.asarray(sampling.uniform_without_replacement(key, *terms.size[:2], reachable))
            drawn.append(self._clients.named(ids if available is None else ids[available[ids]]))
        return tuple(drawn)

    def tell(self, kind: str, ids: Iterable[Name], values: Any) -> None:
        """Record the clients' answers to one `Ask`. Call it once per `Ask`.

        Queried clients that are missing from `ids` did not answer. They count as unavailable for the rest of the round
        and are not selected. Before the first round and in the cohort, a missing answer only leaves the fact unknown or
        at its previous value.

        Args:
            kind: kind of the fact, as in the `Ask`.
            ids: names of the M clients that answered, a subset of `Ask.clients`; may be empty.
            values: one row per client in `ids`, real numbers [M, *shape] with the `shape` of the `Ask`. A loss that is
                not finite means divergence, not silence: replace it by `fedjax_sel.adapters.rounds.finite_losses`, or
                pass it if the `Ask` has the option `nonfinite="missing"`.
                If the `Ask` has `noise`, each value is a `Perturbed` with the noise of that client.
        """
        after = standing.record(self._terms, self._now, kind, ids, values)
        if after.phase == "start" and not self._due(after):
            after = self._opening = self._started(after)
        self._now = after

    def select(self, available: Iterable[Name] | None = None) -> tuple[tuple[Name, ...], np.ndarray | None]:
        """Select the cohort of the round.

        Args:
            available: names of the clients that are available now. A client is never selected if it was unavailable
                when the round opened or left a query unanswered. None: the set passed to `asks`, or all clients.

        Returns:
            Names of the cohort, at most K, and its aggregation weights, float32; None if the strategy leaves them to
            the server. The cohort has fewer than K clients if candidates did not answer, or if the strategy draws with
            replacement. If the strategy's cohort size is random, the cohort may be larger than K, or empty, and the
            weights sum to one only on average: add the weighted updates without dividing by the sum.

        Raises:
            UserError: a fact is still due, a name is unknown, or fewer than K clients are available.
        """
        now = self._now
        self._not_over("select", now)
        if now.phase == "cohort":
            raise UserError(f"select: round {now.round + 1} already has its cohort; call `update` first")
        named = None if available is None else self._clients.mask("select: available", available)
        if named is not None and now.phase == "all" and not now.answered and now.reachable is None:
            now = now._replace(reachable=named)
        if now.phase == "all" and not self._due(now):
            now = self._observed(now)
        if due := self._due(now):
            raise UserError(
                f"select: {' and '.join(repr(ask.kind) for ask in due)} is due but was not reported; call `asks`, then "
                "`tell`, with empty `ids` if no client answered"
            )
        reachable = now.available()
        if named is not None:
            reachable = named if reachable is None else reachable & named
        final = self._now.phase == "candidates" or self._now.answered
        self._check_enough("select", reachable, f"{'`reopen` the round and ' if final else ''}wait for more clients")
        answer = self._hooks.select(now.state, now.info, now.round, reachable)
        self._check_names("a cohort", np.asarray(answer.ids), np.asarray(answer.mask))
        if answer.weights is not None and not np.isfinite(answer.weights[answer.mask]).all():
            raise UserError(f"strategy {self._strategy.name!r} returns a weight that is not finite; fix its `select`")
        if reachable is not None:
            answer = answer._replace(mask=answer.mask & reachable[answer.ids])
        received = np.array(now.account.received)
        received[answer.ids[answer.mask]] = True
        self._now = now._replace(
            phase="cohort", answered=(), selection=answer, account=now.account._replace(received=received),
            reachable=now.reachable if named is None else reachable,
        )  # fmt: skip
        names = self._clients.named(answer.ids[answer.mask])
        return names, None if answer.weights is None else np.asarray(answer.weights[answer.mask])

    def update(
        self,
        reported: Iterable[Name] | None = None,
        *,
        updates: Any = None,
        losses_before: Any = None,
        losses_after: Any = None,
        path_lengths: Any = None,
        seconds: Any = None,
        step: Any = None,
        metrics: Any = None,
        subset_loss: Callable[[tuple[Name, ...]], float] | None = None,
        broken: Iterable[Name] = (),
    ) -> None:
        """Close the round: update the strategy's state from the cohort's reports and open the next round.

        Arguments outside `reads` are optional; they are neither checked nor billed.

        Args:
            reported: names of the M cohort clients that sent an update; None: the whole cohort, as `select` returns it.
            updates: model updates w_k - w in the order of `reported`, a pytree with leaves [M, ...].
            losses_before: per-client losses of the received model, [M], nats.
            losses_after: per-client losses after local training, [M], nats.
            path_lengths: learning rate times local steps, per client, [M]; None: 1, so that an update stands for minus
                a gradient.
            seconds: durations from the dispatch of the model to the client's report, [M]; needs `has_clock`.
            step: change of the global model in this round, a pytree as `updates` without the leading axis.
            metrics: the server's evaluations before and after the round, each an `Evaluation` or a mapping with the
                fields that the strategy reads among `correct`, `accuracy` and `loss`.
            subset_loss: function from names of reporting clients to the loss of their average model on the server's
                data, nats, averaged with the aggregation weights; for no names, the loss of the round's model. Return
                1e6 if it is not finite, as in the simulator.
            broken: names in `reported` whose update is not finite.
        """
        now = self._now
        self._not_over("update", now)
        selection = now.selection
        if now.phase != "cohort" or selection is None:
            raise UserError(f"update: round {now.round + 1} has no cohort yet; call `select` first")
        if due := self._due(now):
            raise UserError(
                f"update: the cohort's {' and '.join(repr(ask.kind) for ask in due)} was not reported; call `tell`, "
                "with empty `ids` if no client answered"
            )
        values = {"updates": updates, "losses_before": losses_before, "losses_after": losses_after, "step": step}
        values |= {"path_lengths": path_lengths, "seconds": seconds, "metrics": metrics, "subset_loss": subset_loss}
        fields = outcome_fields(self._terms, self._reads, now.round, selection, reported, broken, values)

        def loss_of(members: np.ndarray) -> float:
            assert subset_loss is not None
            names = self._clients.named(selection.ids[members & fields["reported"] & fields["finite"]])
            loss = answer_rows("update: subset_loss", subset_loss(names), ())
            return float(np.clip(loss, -LARGEST, LARGEST))

        state, info = self._hooks.learn(now.state, now.info, now.round, now.available(), selection, fields, loss_of)
        self._now = self._opening = Standing(
            phase="all",
            round=now.round + 1,
            state=state,
            info=info,
            account=now.account.closed(int(fields["reported"].sum()), sum(name in fields for name in LOSSES)),
            reachable=None,
            silent=np.zeros_like(now.silent),
        )

    def bill(self) -> SelectorBill:
        """Return the communication so far, per round and in total, at the catalogue's prices."""
        return self._now.account.bill()

    def epsilons(self) -> dict[Name, float]:
        """Return the epsilon that each client has spent so far, by name; it counts queries, answered or not."""
        spent = epsilons(self._terms.noise, None) or (0.0,)
        return {name: spent[count] for name, count in zip(self._clients.names, self._now.perturbed())}

    def reopen(self) -> None:
        """Return to the opening of the round, before its first query. Queries for perturbed answers stay counted."""
        self._now = self._from(self._opening)

    def save(self, path: str | os.PathLike) -> None:
        """Save the state between two rounds to a file, from which `load` resumes exactly."""
        if self._now.phase not in ("start", "all") or self._now.answered:
            raise UserError(
                f"save: round {self._now.round + 1} has begun; save after `update`, before the next round's first query"
            )
        path, about = Path(path), {"selector": self._terms.identity(), "standing": self._now.words()}
        leaves = enumerate(jax.tree.leaves(self._now.arrays()))
        entries: dict[str, Any] = {f"leaf_{place}": as_numpy(leaf) for place, leaf in leaves}
        entries[ABOUT] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        try:
            files.write_arrays(path, entries)
        except OSError as error:
            raise UserError(
                f"save: {path} cannot be written ({error.strerror or error}); choose another path"
            ) from error

    def load(self, path: str | os.PathLike) -> None:
        """Resume from a file that a Selector with the same arguments saved; else raise UserError."""
        path, own = Path(path), self._terms.identity()
        try:
            entries = files.read_arrays(path)
            about = json.loads(entries.pop(ABOUT).tobytes())
            saved = about["selector"]
            if saved == own:
                arrays = _filled(self._now.arrays(), list(entries.values()))
                self._now = self._opening = self._from(standing.restored(about["standing"], arrays))
                return
        except OSError as error:
            raise UserError(
                f"load: {path} cannot be read ({error.strerror or error}); pass the path of a saved file"
            ) from error
        except (KeyError, ValueError) as error:
            raise UserError(f"load: {path} is not an intact Selector file; pass one that `save` wrote") from error
        other = [name for name in own if saved.get(name) != own[name]]
        raise UserError(
            f"load: {path} belongs to another Selector ({', '.join(other)}); make this one with the same arguments"
        )

    def _due(self, now: Standing) -> tuple[Ask, ...]:
        return standing.due(self._terms, now)

    def _from(self, earlier: Standing) -> Standing:
        """Return an earlier state, with the queries for perturbed answers since then, which were sent."""
        perturbed = np.maximum(earlier.account.perturbed, self._now.perturbed())
        return earlier._replace(account=earlier.account._replace(perturbed=perturbed))

    def _started(self, now: Standing) -> Standing:
        return now._replace(phase="all", answered=(), state=self._hooks.initial(now.info))

    def _observed(self, now: Standing) -> Standing:
        """Return the state after the answers of all clients."""
        state, named = self._hooks.observe(now.state, now.info, now.round, now.available())
        if named is not None:
            self._check_names("candidates", named, np.ones(named.shape, bool))
            reachable = now.available()
            named = named if reachable is None else named[reachable[named]]
        return now._replace(phase="candidates", answered=(), state=state, candidates=named)

    def _check_names(self, what: str, ids: np.ndarray, mask: np.ndarray) -> None:
        n, chosen = self._terms.size.num_clients, ids[mask]
        if ((ids < 0) | (ids >= n)).any() or len(np.unique(chosen)) != len(chosen):
            raise UserError(
                f"strategy {self._strategy.name!r} returns {what} {ids.tolist()}, with duplicates or IDs outside 0 to "
                f"{n - 1}; fix the strategy"
            )

    def _check_enough(self, what: str, reachable: np.ndarray | None, advice: str) -> None:
        clients, wanted = self._terms.size[:2]
        count = clients if reachable is None else int(reachable.sum())
        if count < wanted:
            raise UserError(
                f"{what}: {count} of {clients} clients are available, fewer than num_selected={wanted}; {advice}, or "
                "make a Selector with smaller cohorts"
            )

    def _not_over(self, what: str, now: Standing) -> None:
        if now.round == self._terms.size.num_rounds:
            raise UserError(
                f"{what}: all {now.round} rounds are over; start again with a Selector of a larger num_rounds"
            )
