"""What is measured of a run, declared once: the columns of its table, the fields of its result, words for people."""

from typing import Any, NamedTuple

from fedjax_sel.tasks import Task

GEMD = "gemd"
TEST_LOSS, TRAIN_LOSS = "test_loss", "train_loss"


class Names(NamedTuple):
    """The names of a task's columns."""

    test: str  # its first measure on the test set, which targets and curves speak of
    train: str  # the same on all clients' training examples
    worst_decile: str  # its mean over the tenth of clients with the worst
    others: tuple[str, ...]  # its other measures on the test set

    @property
    def all(self) -> tuple[str, ...]:
        """All columns in their order."""
        return (self.test, TEST_LOSS, self.train, TRAIN_LOSS, self.worst_decile, GEMD, *self.others)


def names(task: Task) -> Names:
    """Return what a task's columns are called."""
    first, *others = (measure.name for measure in task.measures)
    return Names(f"test_{first}", f"train_{first}", f"worst_decile_{first}", tuple(f"test_{name}" for name in others))


def columns_of(
    task: Task, test: tuple[dict[str, Any], Any], train: tuple[dict[str, Any], Any], worst_decile: Any, gemd: Any
) -> dict[str, Any]:
    """Return measured values by column.

    Args:
        task: whose measures.
        test: its measures by name, and the loss, on the test set.
        train: the same on all clients' training examples.
        worst_decile: of its first measure.
        gemd: group earth mover's distance of the cohorts.
    """
    own, first = names(task), task.measure.name
    values = {own.test: test[0][first], TEST_LOSS: test[1], own.train: train[0][first], TRAIN_LOSS: train[1]}
    others = {f"test_{measure.name}": test[0][measure.name] for measure in task.measures[1:]}
    return {**values, own.worst_decile: worst_decile, GEMD: gemd, **others}
