"""Simulated devices: how fast each client computes and communicates, by a law or from a file (`--timing`).

A client's speed does not change during a run, except for jitter: a lognormal factor of median 1 on all of a client's
seconds in a round. `simulation/clock.py` adds up the seconds of a round. Shapes: N clients, C classes.
"""

import csv
import functools
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fedjax_sel.core import files
from fedjax_sel.core.plugins import NonNegative, Share
from fedjax_sel.errors import UserError

FORWARD = 1.0 / 3.0
"""Cost of a forward pass, in training steps on the same example; a backward pass costs two forward passes."""


class Timing(NamedTuple):
    """The speed of each client's device, float32 [N], or [S, N] for S replicates."""

    seconds_per_example: Any  # seconds to train on one example: a forward and a backward pass
    down: Any  # download bandwidth, bytes per second
    up: Any  # upload bandwidth, bytes per second
    latency: Any  # seconds per exchange of query and answer, or of model and update


class Clock(NamedTuple):
    """Static configuration of the simulated time."""

    jitter: float  # standard deviation of the logarithm of a client's factor in a round; 0: none
    num_reports: int  # the first K reports count; all reports of a cohort of random size
    server_seconds: float  # duration of the server's own work per round


class Clients(NamedTuple):
    """The clients' data on which a law can depend."""

    sizes: np.ndarray  # training examples per client, int [N]
    label_counts: np.ndarray  # examples per client and class, int [N, C]


class Law(NamedTuple):
    """A rule that gives each client a device."""

    name: str
    draw: Callable[[np.random.Generator, Clients], Timing]
    jitter: float = 0.0  # standard deviation of the logarithm of a client's factor in a round


By = Literal["none", "label", "size"]


def lognormal(
    *,
    seconds_per_example: float = 0.0136,
    sigma: NonNegative = 0.6,
    down: float = 4.3e6,
    up: float = 3.3e6,
    bandwidth_sigma: NonNegative = 0.5,
    latency: float = 0.1,
    jitter: NonNegative = 0.0,
    by: By = "none",
    correlation: Share = 0.9,
) -> Law:
    """Make the law of lognormal speeds and bandwidths.

    The default speeds are FedScale's: 5 ms times a lognormal factor with parameters 1 and 0.6 (`client_metadata.py`).
    The default bandwidths are the medians of FLASH's 19 links, with the deviation of their downloads (see `tiers`). The
    latency is an assumption.

    Args:
        seconds_per_example: median seconds per training example.
        sigma: standard deviation of the logarithm of the seconds per example.
        down: median download bandwidth, bytes per second.
        up: median upload bandwidth, bytes per second; a client's factors of `down` and `up` are equal.
        bandwidth_sigma: standard deviation of the logarithm of the bandwidth.
        latency: seconds per exchange.
        jitter: standard deviation of the logarithm of a client's factor in a round.
        by: quantity that slow clients have in common: the `label` of most of their examples, or a large `size`.
        correlation: correlation of the logarithm of the seconds per example with the rank by that quantity, in [0, 1].
    """

    def draw(rng: np.random.Generator, clients: Clients) -> Timing:
        slowness = _scores(rng, clients, by, correlation)
        bandwidth = np.exp(bandwidth_sigma * rng.standard_normal(len(clients.sizes)))
        return _timing(seconds_per_example * np.exp(sigma * slowness), down * bandwidth, up * bandwidth, latency)

    return Law("lognormal", draw, jitter)


correlated = functools.partial(lognormal, by="label")
"""`lognormal` with slow clients that share their labels, so that a deadline loses these labels."""


def tiers(
    *,
    shares: str = "0.06:0.44:0.5",
    seconds_per_example: str = "0.0179:0.0588:0.164",
    down: str = "7.2e6:4.3e6:3.7e6",
    up: str = "5e6:3.3e6:2.7e6",
    latency: float = 0.1,
    spread: NonNegative = 0.24,
    jitter: NonNegative = 0.0,
    by: By = "none",
    correlation: Share = 1.0,
) -> Law:
    """Make the law of device classes. Lists have one value per class, separated by colons.

    The defaults come from FLASH (Yang et al. 2021, "Characterizing Impacts of Heterogeneity in Federated Learning
    upon Large-Scale Smartphone Data"; github.com/PKU-Chengxu/FLASH). Three phones train a CNN on FEMNIST in 179, 588
    and 1642 ms per batch (`models/utils/device_util/device_util.py`) of 10 examples (README). FLASH maps 160 phone
    models to these three, in the shares here. Weighted by the number of phones of each model, the shares are
    0.0045:0.464:0.5315 (`unknown` in that file). Bandwidths are quartiles of 19 measured links
    (`models/speed_distri.json`). FLASH draws links independently of phones; here faster phones have faster links. The
    latency is an assumption.

    The default of `spread` comes from FLASH's benchmark scores of the 160 models: their logarithm has a standard
    deviation of 0.50 within a class, and the times of the three phones fall with the score's power of 0.48.

    Args:
        shares: fractions of the clients in each class.
        seconds_per_example: median seconds per training example.
        down: download bandwidth, bytes per second.
        up: upload bandwidth, bytes per second.
        latency: seconds per exchange.
        spread: standard deviation of the logarithm of the seconds per example within a class.
        jitter: standard deviation of the logarithm of a client's factor in a round.
        by: quantity that clients of the later classes have in common: the `label` of most of their examples, or a large
            `size`.
        correlation: correlation of the class with the rank by that quantity, in [0, 1].
    """
    given = {"shares": shares, "seconds_per_example": seconds_per_example, "down": down, "up": up}
    columns = {name: _list(name, text) for name, text in given.items()}
    if len({len(values) for values in columns.values()}) > 1:
        counts = ", ".join(f"{name} {len(values)}" for name, values in columns.items())
        raise UserError(f"--timing-args of tiers: the numbers of classes differ ({counts}); give one value per class")
    if min(columns["shares"]) < 0 or abs(sum(columns["shares"]) - 1) > 1e-6:
        raise UserError(f"--timing-args of tiers: shares={shares} are not fractions that add up to 1")
    ends = np.cumsum(columns["shares"])

    def draw(rng: np.random.Generator, clients: Clients) -> Timing:
        scores = _scores(rng, clients, by, correlation)
        number = len(scores)
        tier = np.empty(number, int)
        in_order = np.searchsorted(np.round(ends * number), np.arange(number), side="right")
        tier[np.argsort(scores, kind="stable")] = np.minimum(in_order, len(ends) - 1)
        seconds, of_down, of_up = (np.asarray(columns[name])[tier] for name in ("seconds_per_example", "down", "up"))
        return _timing(seconds * np.exp(spread * rng.standard_normal(number)), of_down, of_up, latency)

    return Law("tiers", draw, jitter)


def from_file(*, path: str, jitter: NonNegative = 0.0) -> Law:
    """Make the law that reads a device per client from a .csv file.

    Args:
        path: file with the columns `client` (IDs from 0), `seconds_per_example`, `down`, `up` (bytes per second) and
            `latency`.
        jitter: standard deviation of the logarithm of a client's factor in a round.
    """
    names = ("client", *Timing._fields)
    try:
        rows = list(csv.DictReader(io.StringIO(files.read_text(Path(path)))))
        if not rows:
            raise ValueError("it has no rows")
        if missing := [name for name in names if name not in rows[0]]:
            raise ValueError(f"its first line does not name the column {missing[0]}")
        for number, row in enumerate(rows, 1):
            if None in row or None in row.values():  # DictReader's marks for more or fewer values
                raise ValueError(f"row {number} does not have one value per column")
        ids, *columns = np.array([[row[name] for name in names] for row in rows], float).T
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(
            f"--timing: cannot read {path} ({getattr(error, 'strerror', None) or error}); give a law "
            f"(lognormal, tiers, correlated), or a .csv file with the columns {', '.join(names)}"
        ) from error
    order = np.argsort(ids)
    if (ids[order] != np.arange(len(ids))).any():
        raise UserError(f"--timing: the column client of {path} must list 0 to {len(ids) - 1} once each; correct it")
    timing = _timing(*(values[order] for values in columns), source=f"--timing: {path}")
    return Law("file", lambda rng, clients: _of_all_clients(timing, len(clients.sizes), path), jitter)


TABLE: Mapping[str, Callable[..., Law]] = {
    "lognormal": lognormal, "tiers": tiers, "correlated": correlated, "file": from_file,
}  # fmt: skip
"""Name -> function that makes the law."""


def from_values(timing: Timing) -> Law:
    """Make the law of given speeds, [N], such as `Experiment.of(timing=...)` takes."""
    own = _timing(*timing, source="timing")
    return Law("values", lambda rng, clients: _of_all_clients(own, len(clients.sizes), "the value"))


def _of_all_clients(timing: Timing, num_clients: int, source: str) -> Timing:
    count = len(timing.seconds_per_example)
    if count != num_clients:
        raise UserError(
            f"--timing: {source} has {count} clients, but the run has {num_clients}; change --num-clients or the file"
        )
    return timing


def _scores(rng: np.random.Generator, clients: Clients, by: str, correlation: float) -> np.ndarray:
    """Return standard normal scores [N], large for slow clients, correlated with the rank by `by`."""
    number = len(clients.sizes)
    noise = rng.standard_normal(number)
    if by == "none":
        return noise
    if by == "label" and not clients.label_counts.shape[1]:
        raise UserError("--timing: its devices depend on labels, but the data have no classes; choose by=size or none")
    # Ties are broken at random, so that equal clients differ only by the noise of their rank.
    key = clients.sizes if by == "size" else clients.label_counts.argmax(axis=1)
    ranks = np.empty(number, int)
    ranks[np.lexsort((rng.random(number), key))] = np.arange(number)
    normal = np.sort(rng.standard_normal(number))[ranks]
    return correlation * normal + np.sqrt(1 - correlation**2) * noise


def _list(name: str, text: Any) -> list[float]:
    try:
        return [float(part) for part in str(text).split(":")]
    except ValueError as error:
        raise UserError(f"--timing-args of tiers: {name}={text} is not a list such as 0.5:0.5") from error


def _timing(*parts: Any, source: str = "--timing") -> Timing:
    """Return float32 speeds [N]; reject values that are not finite and positive."""
    try:
        arrays = [np.asarray(part, np.float32) for part in parts]
        for name, array in zip(Timing._fields, arrays):
            if array.ndim > 1 or (array.ndim == 0 and name == Timing._fields[0]):
                raise ValueError(f"{name} has the shape {list(array.shape)}, and not [clients]")
            if array.ndim == 1 and len(array) != len(arrays[0]):
                raise ValueError(f"its arrays have different lengths: {len(array)} {name}, {len(arrays[0])} clients")
        timing = Timing(*(np.broadcast_to(array, arrays[0].shape) for array in arrays))
    except ValueError as error:
        raise UserError(f"{source}: {error}; give one number per client") from error
    for name, values in timing._asdict().items():
        wrong = ~np.isfinite(values) | (values < 0 if name == "latency" else values <= 0)
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            least = "at least 0" if name == "latency" else "above 0"
            raise UserError(
                f"{source}: {name} of client {place} is {values[place]:g} in float32; give finite numbers {least}"
            )
    return timing
