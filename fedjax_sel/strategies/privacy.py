"""Privacy of single clients: what a strategy's server sees of them, and the noise that protects it within a budget.

The number of examples of each client, n, is public. Two neighboring inputs of a client differ in one example (unit
"example") or in all n of them (unit "client"). Every answer of a run has the same multiplier, so that a client's
epsilon depends on the number of its answers alone.
"""

import importlib.util
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.core import parsing
from fedjax_sel.core.parsing import Privacy
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import privacy
from fedjax_sel.strategies import checks, facts, protocol
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.strategies.facts import KINDS, SELECTED, Counts, Request, always

NOTHING, NUMBERS, STATISTICS, MODELS = range(4)
CLASSES = ("nothing", "individual numbers", "individual statistics of data", "individual models or gradients")
"""Display names of the classes of disclosure, from the least to the most."""

SIZE: checks.Size = (200, 10, 1000)
"""N, K and T of a run for which all default parameters are valid."""

_OF_SYMBOL = {"": NUMBERS, "C": STATISTICS, "Q": STATISTICS, "P": MODELS}
_OF_OUTCOME = {"updates": "updates of the cohort", "losses_before": "losses", "losses_after": "losses", "seconds": ""}


def individual_answers(strategy: Strategy, size: checks.Size) -> dict[int, Request]:
    """Return the requests whose answers the server sees client by client, by position.

    Fields of the outcome that `update` reads follow the strategy's own requests, as requests to the cohort. Losses of
    subsets of the cohort need the updates, because the server averages models of its choice. `size` is the run's.
    """
    hook, shapes = checks.traced(strategy, size, everyone_available=True, has_clock=True)["update"]
    reads = protocol.fields_read(hook, *shapes)[-1]
    fields = [name for name in _OF_OUTCOME if any(jax.tree.leaves(getattr(reads, name)))]
    if "updates" not in fields and protocol.requested_subset_loss(strategy) is not None:
        fields.insert(0, "updates")
    answers = [*strategy.requests, *(Request(name, SELECTED, always()) for name in fields)]
    return {place: one for place, one in enumerate(answers) if one.kind in _OF_OUTCOME or KINDS[one.kind].has_table}


def disclosed(strategy: Strategy, size: checks.Size = SIZE) -> dict[str, int]:
    """Return display name -> class, an index into `CLASSES`, of what the server sees of single clients."""
    values = {}
    for request in individual_answers(strategy, size).values():
        if request.kind in KINDS:
            values[KINDS[request.kind].words] = _OF_SYMBOL[KINDS[request.kind].symbol]
        else:
            values[_OF_OUTCOME[request.kind]] = MODELS if request.kind == "updates" else NUMBERS
    return values


def level(values: Mapping[str, int]) -> int:
    """Return the largest class of a disclosure; below `MODELS`, the strategy works with secure aggregation."""
    return max(values.values(), default=NOTHING)


def in_words(values: Mapping[str, int]) -> str:
    """Return a disclosure by class, e.g. "individual numbers (loss)"; "nothing" without any."""
    parts = []
    for each in sorted(set(values.values())):
        parts.append(f"{CLASSES[each]} ({', '.join(words for words, its in values.items() if its == each)})")
    return "; ".join(parts) or CLASSES[NOTHING]


Unit = Literal["example", "client"]
LOSSES = ("loss", "training_loss", "loss_change", "losses_before", "losses_after")
UPDATES = ("update", "updates", "update_norm")
NO_NOISE = ("seconds",)  # a duration depends on the device; listed as seen
MOST_LAPLACE = 20  # answers; beyond, Gaussian noise is always smaller, and Laplace noise is slow to calibrate


class Noise(NamedTuple):
    """The noise of all answers of a run. Static.

    Attributes:
        settings: the budget, and the bounds of the facts.
        unit: what may differ between neighboring inputs.
        law: law of the noise; the one with the smaller standard deviation.
        multiplier: see `numerics.privacy`.
        answers: largest number of a client's answers, M.
        stops: whether a client may reach M answers before the run ends; it then stops answering.
        requests: requests whose answers get noise, by position; see `individual_answers`.
    """

    settings: Privacy
    unit: Unit
    law: privacy.Law
    multiplier: float
    answers: int
    stops: bool
    requests: Mapping[int, Request]

    def private(self, key: jax.Array, request: Request, answer: jax.Array, examples: jax.Array) -> jax.Array:
        """Return one client's answer on `examples` examples, within its bound and with noise."""
        answer = within_bound(request.kind, self.unit, bound(self.settings, request.kind), answer)
        return answer + privacy.draw(key, self.law, self.scale(request, examples, answer.size), answer.shape)

    def scale(self, request: Request, examples: Any, length: int) -> Any:
        """Return the parameter of the law for a client's answer, from its number of examples and of numbers."""
        l1, l2 = sensitivities(self.settings, self.unit, request, examples, length)
        return self.multiplier * (l1 if self.law == "laplace" else l2)

    def deviations(self, counts: Counts, examples_of: Callable[[Request], jax.Array]) -> dict[str, jax.Array]:
        """Return the noise's standard deviation in each number of a fact, float32, in the shape of `examples_of`."""
        found = {}
        for request in self.requests.values():
            examples = examples_of(request)
            changes = sensitivities(self.settings, self.unit, request, examples, answer_length(request, counts))
            deviation = privacy.standard_deviation(self.law, self.multiplier, *changes)
            found[request.kind] = jnp.broadcast_to(jnp.float32(deviation), examples.shape)
        return found


class ClientNoise(NamedTuple):
    """What a real client must do to one answer before it sends it.

    Attributes:
        unit: what may differ between neighboring inputs.
        bound: bound of the fact, as in `docs/privacy.md`.
        law: law of the noise.
        scale: parameter of the Laplace law, or standard deviation of the Gaussian.
    """

    unit: Unit
    bound: float
    law: privacy.Law
    scale: float


def within_bound(kind: str, unit: Unit, limit: float, answer: Any) -> Any:
    """Return an answer within the bound of its kind."""
    if kind in ("loss", "training_loss", "losses_before", "losses_after", "update_norm"):
        return privacy.bounded(answer, limit)
    if kind == "label_histogram":
        return answer if unit == "example" else privacy.clipped(answer, limit, order=1)
    return answer if kind == "loss_change" else privacy.clipped(answer, limit)  # a difference of bounded losses


def bound(settings: Privacy, kind: str) -> float:
    """Return the bound of a kind of fact, or of a field of the outcome."""
    return getattr(settings, "loss" if kind in LOSSES else "update" if kind in UPDATES else kind)


def sensitivities(settings: Privacy, unit: Unit, request: Request, examples: Any, length: int) -> tuple[Any, Any]:
    """Return the L1 and L2 sensitivities of a client's answer, from its number of examples and of numbers.

    A client reports its loss changes, each in [-B, B]. A loss during or after local training can change with each
    example, because the training depends on all of them.
    """
    kind, limit = request.kind, bound(settings, request.kind)
    share = 1 / examples if unit == "example" else 1.0
    if kind == "label_histogram":  # one example leaves a label and enters another
        moved = 1.0 if unit == "example" else jnp.minimum(examples, limit)
        return 2 * moved, math.sqrt(2) * moved
    if kind in ("update_norm", "training_loss", "losses_after"):
        return limit, limit
    if kind in LOSSES:
        if request.option("statistic") == "rms":  # changes most if all other losses are zero
            share = share**0.5
        each = (2 if kind == "loss_change" else 1) * limit * share
        return length * each, math.sqrt(length) * each
    return math.sqrt(length) * 2 * limit * share, 2 * limit * share


def perturbed(strategy: Strategy, size: checks.Size) -> dict[int, Request]:
    """Return the requests whose answers need noise, by position; see `individual_answers`."""
    return {place: one for place, one in individual_answers(strategy, size).items() if one.kind not in NO_NOISE}


def check_package(flag: str) -> None:
    """Raise UserError if dp-accounting is missing."""
    if importlib.util.find_spec("dp_accounting") is None:
        raise UserError(f"{flag}: the package dp-accounting is missing; run pip install 'fedjax-sel[privacy]'")


def check(strategy: Strategy, unit: Unit, size: checks.Size) -> None:
    """Reject facts whose sensitivity to one example is unknown."""
    check_package("--privacy")
    for request in perturbed(strategy, size).values():
        if unit == "example" and request.kind in UPDATES:
            raise UserError(
                f"--privacy-unit: 'example' cannot protect the {request.kind} that {strategy.name} reads, because one "
                "example changes all of a local training; choose --privacy-unit client"
            )


def planned(text: str | None, unit: Unit, strategy: Strategy, size: checks.Size, counts: Counts) -> Noise | None:
    """Return the noise that keeps each client within its budget over the whole run; None if no answer needs any.

    `text` is the value of --privacy. A client answers at most as often as scheduled; candidates and cohorts are random,
    and count in every round.
    """
    if text is None:
        return None
    settings, requests, rounds = parsing.privacy(text), perturbed(strategy, size), jnp.arange(size[2])
    whens = [one.when for one in requests.values()]
    scheduled = sum(when.before_first_round + int(jnp.sum(when.due(rounds))) for when in whens)
    if not scheduled:
        return None
    answers = scheduled if settings.answers is None else min(settings.answers, scheduled)
    given = [sensitivities(settings, unit, one, 1, answer_length(one, counts)) for one in requests.values()]
    budget = (settings.epsilon, settings.delta, answers)
    law: privacy.Law = "gaussian"
    multiplier = privacy.multiplier(law, *budget)
    if answers <= MOST_LAPLACE or not settings.delta:
        laplace = privacy.multiplier("laplace", *budget)
        deviation = privacy.standard_deviation
        if all(deviation("laplace", laplace, *one) <= deviation("gaussian", multiplier, *one) for one in given):
            law, multiplier = "laplace", laplace
    return Noise(settings, unit, law, multiplier, answers, answers < scheduled, requests)


class TrainingNoise(NamedTuple):
    """The clipping and the noise of private training (DP-FedAvg, McMahan et al. 2018). Static.

    The server adds up clipped updates, adds Gaussian noise, and divides by K. If one client's data are replaced, its
    clipped update moves by at most 2 C, and so does the sum.

    Attributes:
        clip: largest L2 norm of an update, C.
        multiplier: standard deviation of the noise in the sum, divided by 2 C.
        num_reports: K, whatever the number of reports.
        delta: delta of the guarantee.
        trainings: largest number of rounds in which a client trains, R.
        stops: whether a client may reach R trainings before the run ends; it then counts as unavailable.
    """

    clip: float
    multiplier: float
    num_reports: int
    delta: float
    trainings: int
    stops: bool

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the noise in each number of the mean update."""
        return self.multiplier * 2 * self.clip / self.num_reports


def planned_training(text: str | None, num_rounds: int, num_reports: int) -> TrainingNoise | None:
    """Return the noise for which R trainings of a client spend its budget; None without --private-training."""
    if text is None:
        return None
    settings = parsing.private_training(text)
    trainings = num_rounds if settings.rounds is None else min(settings.rounds, num_rounds)
    multiplier = privacy.multiplier("gaussian", settings.epsilon, settings.delta, trainings)
    return TrainingNoise(settings.clip, multiplier, num_reports, settings.delta, trainings, trainings < num_rounds)


def epsilons(noise: Noise | None, training: TrainingNoise | None) -> tuple[float, ...]:
    """Return the epsilon of all answers and trainings of a client, in the order of `numerics.privacy.epsilons`."""
    if noise is not None:
        answers = (noise.law, noise.multiplier, noise.settings.delta, noise.answers)
    elif training is not None:
        answers = ("gaussian", training.multiplier, training.delta, 0)
    else:
        return ()
    return privacy.epsilons(*answers, *(() if training is None else (training.trainings, training.multiplier)))


def answer_length(request: Request, counts: Counts) -> int:
    """Return the number of numbers in one client's answer that need noise."""
    if request.kind in KINDS:
        return math.prod(facts.shape(request, counts))
    return counts.num_params if request.kind == "updates" else 1


def check_real_clients(strategy: Strategy, size: checks.Size) -> None:
    """Reject facts that real clients do not perturb."""
    for request in perturbed(strategy, size).values():
        if request.kind not in KINDS or request.kind == "loss_change":
            source = "the reports of training" if request.kind not in KINDS else "models of several clients"
            raise UserError(
                f"privacy: strategy {strategy.name!r} reads {request.kind!r}, which a server learns from {source}, "
                "without noise; choose another strategy"
            )
