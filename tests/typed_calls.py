# pyright: reportUnnecessaryTypeIgnoreComment=true
"""Calls that a type checker accepts and rejects: pyright reads this file, and nothing runs it."""

from typing import Any, assert_type

import numpy as np

import fedjax_sel
from fedjax_sel import Experiment, Result
from fedjax_sel.strategies import make

config = fedjax_sel.Config().replace(algo="pow_d", algo_args={"num_candidates": 20}, seeds=5, rounds=20, available=0.5)
config = config.replace(seeds=[1, 2], local_epochs="1:5", model="mypackage.module:factory", partition="iid")
fedjax_sel.Config(rounds=20)  # pyright: ignore[reportCallIssue]
config.replace(algorithm="pow_d")  # pyright: ignore[reportCallIssue]
config.replace(rounds="many")  # pyright: ignore[reportArgumentType]
config.replace(aggregation="mean")  # pyright: ignore[reportArgumentType]
config.replace(algo=make("pow_d"))  # pyright: ignore[reportArgumentType]

experiment = Experiment.of(config, algo=make("pow_d"), rounds=50, names={"model": "resnet-1"})
experiment = experiment.replace(dataset="digits", available=np.ones((50, 10)))
Experiment.of(round=50)  # pyright: ignore[reportCallIssue]
experiment.replace(roundz=50)  # pyright: ignore[reportCallIssue]
experiment.replace(algo=3.5)  # pyright: ignore[reportArgumentType]

assert_type(config.algo, str)
assert_type(config.num_clients, int)
assert_type(config.partition.partition == config.model.model, bool)
config.algorithm  # noqa: B018 # pyright: ignore[reportAttributeAccessIssue]


def of_result(result: Result) -> Any:
    """Read a result."""
    assert_type(result.config.rounds, int)
    result.to_pandas().groupby("seed")
    return result.params["Dense_0"]["kernel"]
