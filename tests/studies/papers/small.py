"""Entries made small: the same strategies on the embedded digits, with few clients, rounds and steps."""

import dataclasses

import fedjax_sel

SMALL = fedjax_sel.preset("quickstart").replace(
    num_clients=10, num_selected=2, local_steps=1, batch_size=8, train_metrics_every=1
)


def made_small(entry, cells=None):
    """An entry whose runs keep their strategy and what is asked of it, and nothing else."""
    runs = {cell: _made_small(config) for cell, config in list(entry.runs.items())[:cells]}
    return dataclasses.replace(entry, runs=runs, on_request=())


def _made_small(config):
    small = SMALL.replace(algo=config.selection.algo, algo_args=config.selection.algo_args, seeds=2, rounds=4)
    if config.run.checkpoint_every is None:
        return small
    return small.replace(chunk=1, checkpoint_every=1, keep=config.run.keep)
