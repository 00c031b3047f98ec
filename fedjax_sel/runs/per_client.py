"""How well a run's final models do on each client's own data."""

import jax
import numpy as np

from fedjax_sel import devices
from fedjax_sel.config import Config
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment
from fedjax_sel.experiment.problem import pose
from fedjax_sel.runs import weights as weights_file
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation import evaluation, layout
from fedjax_sel.simulation.run import SPECS
from fedjax_sel.simulation.server_evaluation import evaluator


def per_client(result: Result, experiment_or_config: Experiment | Config | None = None) -> dict[str, np.ndarray]:
    """Return the task's measures and `loss` of the final models on each client's training data, [seeds, N] each.

    Args:
        result: of the run, with its weights.
        experiment_or_config: the experiment that it is the result of; None where its configuration says all.

    Raises:
        UserError: it has no weights, or its data cannot be read.
    """
    if result.weights is None:
        raise UserError(
            "per_client: this result has no weights; those of a finished run are in its folder (fedjax_sel.load)"
        )
    problem = pose(result.config if experiment_or_config is None else experiment_or_config)
    host, plan, _ = layout.lay_out(problem, len(result.seeds))
    shared = {name: getattr(host, name) for name in Federation._fields if name not in fed.PER_REPLICATE}
    own = {name: getattr(host, name) for name in fed.PER_REPLICATE}
    federation = Federation(
        **devices.place(plan.mesh, shared, devices.WHOLE), **devices.place(plan.mesh, own, devices.PER_SEED)
    )

    def measure(federation: Federation, weights):
        return evaluation.of_clients(evaluator(plan, federation.labels), federation, weights)

    program = jax.jit(devices.over_seeds(plan.mesh, measure, (SPECS, devices.PER_SEED), devices.PER_SEED))
    shapes = jax.eval_shape(problem.model.init, jax.random.key(0))
    weights = weights_file.like(shapes, result.weights)
    found = devices.fetch(program(federation, devices.place(plan.mesh, weights, devices.PER_SEED)))
    return {**found.measures, "loss": found.loss}
