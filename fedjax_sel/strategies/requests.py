"""Requests: the facts that a strategy buys, the clients that answer, and the schedule.

    Request("loss", SELECTED, always())
    Request("gradient", ALL, at_start())

Shapes: N clients, Q profile floats, P parameters, C classes, S probes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

ALL = "all"  # every available client
CANDIDATES = "candidates"  # the clients that the strategy's `candidates` returns
SELECTED = "selected"  # the cohort, on the round's model; `update` can read the answers of clients that report
SERVER = "server"  # no client: the server's own data

NEVER = jnp.iinfo(jnp.int32).max // 2
"""The age of a fact that was never measured. Half the int32 range, so that adding rounds cannot overflow."""


class Rule(NamedTuple):
    """The rounds first, first + period, first + 2 period, ..., up to last (None: no end)."""

    first: int
    last: int | None
    period: int


class Schedule(NamedTuple):
    """The rounds in which a fact is bought. Static; depends only on the round number."""

    before_first_round: bool
    rules: tuple[Rule, ...] = ()

    def __or__(self, other: "Schedule") -> "Schedule":
        return Schedule(self.before_first_round or other.before_first_round, self.rules + other.rules)

    def due(self, round: jax.Array) -> jax.Array:
        """Return whether the fact is due in a round: bool scalar."""
        due = jnp.zeros((), bool)
        for first, last, period in self.rules:
            inside = (round >= first) & ((round - first) % period == 0)
            due |= inside if last is None else inside & (round <= last)
        return due

    @property
    def in_every_round(self) -> bool:
        """Whether the fact is due in every round."""
        return any(rule.first == 0 and rule.last is None and rule.period == 1 for rule in self.rules)


def at_start() -> Schedule:
    """Schedule a fact once, on the initial model, before the first round. The first round pays for it."""
    return Schedule(before_first_round=True)


def every(period: int, offset: int = 0) -> Schedule:
    """Schedule a fact for rounds offset, offset + period, ... (rounds count from 0)."""
    return Schedule(False, (Rule(offset, None, period),))


def rounds(first: int, last: int) -> Schedule:
    """Schedule a fact for every round from first to last, inclusive."""
    return Schedule(False, (Rule(first, last, 1),))


def always() -> Schedule:
    """Schedule a fact for every round."""
    return every(1)


class Request(NamedTuple):
    """A fact that a strategy buys. Static. `kinds.py` holds the same catalog as data.

    Each kind, the entries of its table, and its options (pairs of name and value):
      `loss`             mean loss of the round's model on the client's own data, [N]; 1 float up.
                         on: train, holdout or all (default: --loss-on); batch_size=b: on b random examples of it;
                         statistic="rms": root of the mean squared loss of single examples;
                         nonfinite: replacement for a NaN: the "largest" finite loss (default), or "missing", age NEVER
      `training_loss`    mean loss over the mini-batches of the client's local training in this round, [N]; 1 float up;
                         from CANDIDATES or SELECTED. statistic="last-pass": over the last pass only;
                         "rms-first-pass": root mean square over single examples of the first pass; nonfinite as for
                         `loss`
      `loss_change`      probes: S random cohorts of K train from the round's model. Each resulting global model is sent
                         to all clients and discarded. Its loss minus the loss of the round's model, [N, S];
                         1 + S floats up. probes=S (default 1); on, nonfinite as for `loss`; restored=True: restores
                         the round's model before the measurement, so that every change is zero, as in the FedCor runs
                         of GPFL's authors
      `profile`          mean output of the model's first fully-connected layer over the client's data, [N, Q];
                         Q floats up; relu=True: after the activation
      `gradient`         gradient of the client's mean loss over all its data, flat, [N, P]; P floats up
      `update`           result of one local training, w_k - w, flat, [N, P]; P floats up. The cohort's own are free
      `label_histogram`  number of examples of each label, [N, C]; C floats up, no model down
      `server_metrics`   no table: `outcome.metrics`. From SERVER, in every round, and once before the first round,
                         which pays for it. on: validation (--server-validation) or test
      `subset_loss`      no table: `outcome.subset_loss(mask)`, the loss of averages of subsets of the cohort's models
                         on the server's data, for Shapley values; free for clients. From SERVER, in every round.
                         subsets=M (default 1), the rows of the mask [M, K]; on: validation or test
      `update_norm`      Euclidean norm of the update of one local training, [N]; 1 float up

    Every client that answers receives the model once per round, except where noted. Requests of one kind share a table
    and must have the same options. `age` counts the rounds since a client's answer. SELECTED clients send their answers
    with their updates. If a report is lost, the table keeps its old entry and no float is billed.
    """

    kind: str
    who: str
    when: Schedule
    options: tuple[tuple[str, Any], ...] = ()

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option's value."""
        return dict(self.options).get(name, default)
