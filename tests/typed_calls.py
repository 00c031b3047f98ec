# pyright: reportUnnecessaryTypeIgnoreComment=true
"""Calls that a type checker accepts and rejects: pyright reads this file, and nothing runs it."""

from typing import Any, assert_type

import fedjax_sel
from fedjax_sel import Result

config = fedjax_sel.Config().replace(algo="pow_d", algo_args={"num_candidates": 20}, seeds=5, rounds=20, available=0.5)
fedjax_sel.Config(rounds=20)  # pyright: ignore[reportCallIssue]

assert_type(config.run.rounds, int)
assert_type(config.partition.partition == config.model.model, bool)


def of_result(result: Result) -> Any:
    """Read a result."""
    assert_type(result.config.run.rounds, int)
    result.to_pandas().groupby("seed")
    return result.params["Dense_0"]["kernel"]
