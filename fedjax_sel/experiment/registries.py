"""Parts of an experiment that a plug-in may make, beside strategies and optimizers."""

from fedjax_sel import tasks
from fedjax_sel.core.registry import Registry
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.tasks import Task

TASKS: Registry[Task] = Registry("--task", Task, tasks.TABLE)
DATASETS: Registry[Dataset] = Registry("--dataset", Dataset)  # those with a name are read by `data.load`
MODELS: Registry[object] = Registry("--model", object)  # those with a name see the shape of the inputs: `models.make`
PARTITIONS: Registry[object] = Registry("--partition", object)  # those with a name are schemes: `data.partition.make`
