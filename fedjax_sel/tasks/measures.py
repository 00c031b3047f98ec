"""The measured quantities of a run: the columns of its table and the fields of its result."""

from typing import Any, NamedTuple

from fedjax_sel.tasks import Task

GEMD = "gemd"
TEST_LOSS, TRAIN_LOSS = "test_loss", "train_loss"


class Names(NamedTuple):
    """The names of a task's columns."""

    test: str  # first measure on the test set, which targets and curves use
    train: str  # first measure on all clients' training examples
    worst_decile: str  # mean of the first measure over the worst tenth of clients
    others: tuple[str, ...]  # other measures on the test set

    @property
    def all(self) -> tuple[str, ...]:
        """All columns, in order."""
        return (self.test, TEST_LOSS, self.train, TRAIN_LOSS, self.worst_decile, GEMD, *self.others)


def names(task: Task) -> Names:
    """Return the names of a task's columns."""
    first, *others = (measure.name for measure in task.measures)
    return Names(f"test_{first}", f"train_{first}", f"worst_decile_{first}", tuple(f"test_{name}" for name in others))


def columns_of(
    task: Task, test: tuple[dict[str, Any], Any], train: tuple[dict[str, Any], Any], worst_decile: Any, gemd: Any
) -> dict[str, Any]:
    """Return measured values by column.

    Args:
        task: the task.
        test: measures by name, and the loss, on the test set.
        train: measures by name, and the loss, on all clients' training examples.
        worst_decile: mean of the first measure over the worst tenth of clients.
        gemd: group earth mover's distance of the cohorts.
    """
    own, first = names(task), task.measure.name
    values = {own.test: test[0][first], TEST_LOSS: test[1], own.train: train[0][first], TRAIN_LOSS: train[1]}
    others = {f"test_{measure.name}": test[0][measure.name] for measure in task.measures[1:]}
    return {**values, own.worst_decile: worst_decile, GEMD: gemd, **others}
