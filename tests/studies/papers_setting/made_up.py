"""Series that nobody has computed."""

import numpy as np

from studies.boards.series import Series


def series(accuracy, down=1_000_000, up=1_000_000, worst=None, seeds=None, seconds=None):
    """A row of these accuracies, [seeds, rounds], that sends so much, and lasts so long, in each round."""
    accuracy = np.asarray(accuracy, np.float32)
    worst = np.full(accuracy.shape, np.nan, np.float32) if worst is None else np.asarray(worst, np.float32)
    counts = [np.broadcast_to(np.asarray(given, np.int64), accuracy.shape).copy() for given in (down, up)]
    time = None if seconds is None else np.full(accuracy.shape, seconds, np.float32)
    return Series(tuple(range(len(accuracy))) if seeds is None else seeds, accuracy, worst, *counts, time)


def level(value, seeds=10, rounds=20, spread=0.001, first_seed=0, **sent):
    """A row that keeps one accuracy, with a little noise that differs between seeds."""
    noise = spread * np.random.default_rng(first_seed).normal(size=(seeds, rounds))
    return series(value + noise, **sent)


def about(rows, **others):
    """What is said of rows that a folder holds."""
    row = {"configuration": "made up", "algo_args": {}, "seconds": 60.0, "commit": "abcdef0", "devices": "2 x cpu",
           "selection_seconds": 0.001}  # fmt: skip
    return {
        "title": "Made up", "other_than_usual": "", "commands": ["python -m studies papers-setting made-up"],
        "num_classes": 10, "planned": list(rows), "failed": {}, "failed_for_good": [], "data_source": "nobody",
        "rows": {name: dict(row) for name in rows}, **others,
    }  # fmt: skip
