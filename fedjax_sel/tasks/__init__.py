"""Tasks: losses that clients train on, and measures of the resulting model."""

from collections.abc import Callable

from fedjax_sel.tasks.base import Measure, Task
from fedjax_sel.tasks.classification import classification, multilabel
from fedjax_sel.tasks.next_token import next_token
from fedjax_sel.tasks.regression import regression

__all__ = ["TABLE", "Measure", "Task", "classification", "multilabel", "next_token", "regression"]

TABLE: dict[str, Callable[[], Task]] = {
    "classification": classification,
    "multilabel": multilabel,
    "next_token": next_token,
    "regression": regression,
}
