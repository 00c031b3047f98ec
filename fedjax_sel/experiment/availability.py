"""Modes of availability: the probability that a client is available, from its labels, size, speed or time zone.

`simulation/availability.py` draws the clients. Shapes: N clients, C classes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.core.plugins import AtLeastOne, NonNegative, PositiveShare, Share
from fedjax_sel.errors import UserError
from fedjax_sel.timing import Clients, Timing

Chance = Callable[[jax.Array, jax.Array], Any]
"""Function (round, availability in the previous round, bool [N]) -> probabilities, float32 [N] or a scalar."""


class Mode(NamedTuple):
    """A rule of availability. Given the previous round, the clients are independent."""

    name: str
    of_clients: Callable[[Clients, Timing | None, jax.Array], Chance]  # one replicate's clients, speeds and key
    needs_classes: bool = False


def markov(*, share: PositiveShare = 0.7, rounds_off: AtLeastOne = 5.0) -> Mode:
    """Make the mode in which each client alternates between presence and absence: a Markov chain of two states.

    Args:
        share: fraction of rounds in which a client is available; the chain starts in its stationary law.
        rounds_off: mean length of an absence, in rounds.
    """
    least = (1 - share) / share
    if rounds_off < least:
        raise UserError(
            f"--available-args of markov: rounds_off={rounds_off:g} is below (1 - share) / share = {least:.4g}, the "
            "shortest mean absence with this share; raise one of the two"
        )

    def of_clients(clients: Clients, timing: Timing | None, key: jax.Array) -> Chance:
        stays, returns = 1 - least / rounds_off, 1 / rounds_off
        return lambda round, before: jnp.where(round == 0, share, jnp.where(before, stays, returns))

    return Mode("markov", of_clients)


def daily(
    *,
    share: PositiveShare = 0.5,
    amplitude: NonNegative = 0.9,
    period: AtLeastOne = 24.0,
    zones: Literal["random", "label"] = "random",
) -> Mode:
    """Make the mode of a daily rhythm: share * (1 + amplitude * cos(2 pi (round / period - zone))), clipped to [0, 1].

    Args:
        share: mean probability, before clipping.
        amplitude: amplitude of the rhythm, relative to `share`.
        period: rounds per day.
        zones: time zones, as fractions of a day: `random`, uniform per client; or `label`, the position of the client's
            main label among the classes.
    """

    def of_clients(clients: Clients, timing: Timing | None, key: jax.Array) -> Chance:
        number, num_classes = clients.label_counts.shape
        zone = jax.random.uniform(key, (number,)) if zones == "random" else _main_labels(clients) / num_classes

        def chance(round: jax.Array, before: jax.Array) -> jax.Array:
            return jnp.clip(share * (1 + amplitude * jnp.cos(2 * jnp.pi * (round / period - zone))), 0, 1)

        return chance

    return Mode("daily", of_clients, needs_classes=zones == "label")


def label(*, rare: Share = 0.3, rare_share: Share = 0.2, share: PositiveShare = 0.9) -> Mode:
    """Make the mode in which clients with some main labels are rarely available.

    Args:
        rare: fraction of the classes, the last ones, rounded up to whole classes.
        rare_share: probability that a client with one of these main labels is available.
        share: probability that another client is available.
    """

    def of_clients(clients: Clients, timing: Timing | None, key: jax.Array) -> Chance:
        num_classes = clients.label_counts.shape[1]
        is_rare = _main_labels(clients) >= num_classes - jnp.ceil(round(rare * num_classes, 6))
        chances = jnp.where(is_rare, rare_share, share)
        return lambda round, before: chances

    return Mode("label", of_clients, needs_classes=True)


def size(*, low: Share = 0.2, high: Share = 1.0) -> Mode:
    """Make the mode in which clients with few examples are rarely available: linear in the rank of the size.

    Args:
        low: probability that the smallest client is available.
        high: probability that the largest client is available. Clients of equal size have equal probabilities.
    """
    return _by_rank("size", low, high, lambda clients, timing: clients.sizes)


def speed(*, low: Share = 0.2, high: Share = 1.0) -> Mode:
    """Make the mode in which slow clients are rarely available: linear in the rank of the speed of training.

    Args:
        low: probability that the slowest client is available.
        high: probability that the fastest client is available. Clients of equal speed have equal probabilities.
    """
    # A run without speeds is rejected before it starts.
    return _by_rank("speed", low, high, lambda clients, timing: -timing.seconds_per_example)


def _by_rank(name: str, low: float, high: float, value_of: Callable[[Clients, Any], Any]) -> Mode:
    def of_clients(clients: Clients, timing: Timing | None, key: jax.Array) -> Chance:
        values = value_of(clients, timing)
        ordered = jnp.sort(values)
        below, up_to = (jnp.searchsorted(ordered, values, side=side) for side in ("left", "right"))
        ranks = (below + up_to - 1) / (2 * max(len(values) - 1, 1))  # from 0 to 1; equal values have their mean rank
        chances = low + (high - low) * ranks
        return lambda round, before: chances

    return Mode(name, of_clients)


TABLE: Mapping[str, Callable[..., Mode]] = {
    "markov": markov, "daily": daily, "label": label, "size": size, "speed": speed,
}  # fmt: skip
"""Name -> function that makes the mode; `config.MODES` lists the names."""


def _main_labels(clients: Clients) -> Any:
    """Return the most frequent label of each client, the first of several, int [N]."""
    return clients.label_counts.argmax(axis=1)
