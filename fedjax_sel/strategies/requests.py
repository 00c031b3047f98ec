"""What a strategy may buy, from whom, and when.

    Request("loss", SELECTED, always())
    Request("gradient", ALL, at_start())

Shapes: N clients, Q profile floats, P parameters, C classes, S probes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

ALL = "all"  # every available client
CANDIDATES = "candidates"  # those that the strategy's `candidates` names
SELECTED = "selected"  # the cohort, on the model that it trains from; readable in `update`, of those who report
SERVER = "server"  # nobody: the server's own data

NEVER = jnp.iinfo(jnp.int32).max // 2
"""The age of a fact that was never measured; half the range, so that adding a round cannot overflow."""


class Rule(NamedTuple):
    """The rounds first, first + period, first + 2 period, .. up to last (None: to the end)."""

    first: int
    last: int | None
    period: int


class Schedule(NamedTuple):
    """When a fact is bought. Static; depends on the round number alone."""

    before_first_round: bool
    rules: tuple[Rule, ...] = ()

    def __or__(self, other: "Schedule") -> "Schedule":
        return Schedule(self.before_first_round or other.before_first_round, self.rules + other.rules)

    def due(self, round: jax.Array) -> jax.Array:
        """Return whether the fact is bought at the opening of a round: bool scalar."""
        due = jnp.zeros((), bool)
        for first, last, period in self.rules:
            inside = (round >= first) & ((round - first) % period == 0)
            due |= inside if last is None else inside & (round <= last)
        return due

    @property
    def in_every_round(self) -> bool:
        """Whether the fact is due in all rounds."""
        return any(rule.first == 0 and rule.last is None and rule.period == 1 for rule in self.rules)


def at_start() -> Schedule:
    """Schedule a fact once, on the initial model, before the first round; it is billed to the first round."""
    return Schedule(before_first_round=True)


def every(period: int, offset: int = 0) -> Schedule:
    """Schedule a fact for rounds offset, offset + period, .. (rounds count from 0)."""
    return Schedule(False, (Rule(offset, None, period),))


def rounds(first: int, last: int) -> Schedule:
    """Schedule a fact for every round from first to last, both included."""
    return Schedule(False, (Rule(first, last, 1),))


def always() -> Schedule:
    """Schedule a fact for every round."""
    return every(1)


class Request(NamedTuple):
    """A fact that a strategy buys. Static. What is written here in words stands in `kinds.py` as data.

    kind, what its table then holds for each client, and its options (pairs of name and value):
      `loss`             mean loss of the round's model on the client's own data, [N]; 1 float up.
                         on: train, holdout or all (default: --loss-on); batch_size=b: on b random examples of it;
                         statistic="rms": root of the mean squared loss of single examples;
                         nonfinite: what stands for a NaN: the "largest" finite loss (default), or "missing", age NEVER
      `training_loss`    mean loss over the mini-batches of the client's local training in this round, [N]; 1 float up,
                         of CANDIDATES or SELECTED. statistic="last-pass": over its last pass alone; "rms-first-pass":
                         root mean square over single examples of its first pass; nonfinite as for `loss`
      `loss_change`      probes: S random cohorts of K train from the round's model; the model that a round with each
                         would end with is sent to all clients and discarded; loss on it less loss on the round's
                         model, [N, S]; 1 + S floats up. probes=S (default 1); on, nonfinite as for `loss`;
                         restored=True: the round's model is put back before the loss is taken, so that every change is
                         zero, as GPFL's authors ran FedCor
      `profile`          mean output of the model's first fully-connected layer over the client's data, [N, Q];
                         Q floats up; relu=True: after the activation
      `gradient`         gradient of the client's mean loss over all its data, flat, [N, P]; P floats up
      `update`           result of one local training, w_k - w, flat, [N, P]; P floats up. The cohort's own are free
      `label_histogram`  examples of each label, [N, C]; C floats up, no model down
      `server_metrics`   no table: `outcome.metrics`. Of SERVER, in every round, and once before the first, which pays
                         for it. on: validation (--server-validation) or test
      `subset_loss`      no table: `outcome.subset_loss(mask)`, the server's loss of averages of subsets of the cohort's
                         models, on its own data, for Shapley values; costs clients nothing. Of SERVER, in every round.
                         subsets=M (default 1), rows of the mask [M, K]; on: validation or test
      `update_norm`      Euclidean length of the update of one local training, [N]; 1 float up

    Every client that answers receives the model once a round, except where noted. Requests of one kind fill one table
    and have the same options. In a table `age` counts the rounds since a client answered. SELECTED clients send their
    answers with their updates: where a report is lost, the table stays as it was and no float is billed.
    """

    kind: str
    who: str
    when: Schedule
    options: tuple[tuple[str, Any], ...] = ()

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option's value."""
        return dict(self.options).get(name, default)
