"""Registries of the parts of an experiment that a plug-in can provide, beside strategies and optimizers."""

from fedjax_sel import tasks
from fedjax_sel.core.registry import Registry
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.tasks import Task

TASKS: Registry[Task] = Registry("--task", Task, tasks.TABLE)
DATASETS: Registry[Dataset] = Registry("--dataset", Dataset)  # plug-ins only; `data.load` reads named data sets
MODELS: Registry[object] = Registry(
    "--model", object
)  # plug-ins only; `models.make` builds named models, which need the shape of the inputs
PARTITIONS: Registry[object] = Registry(
    "--partition", object
)  # plug-ins only; `data.partition.make` makes named schemes
