"""One-sentence descriptions of presets, derived from their configurations."""

from fedjax_sel.config import Config
from fedjax_sel.papers import PRESETS, preset

SOURCES = {
    "quickstart": "The default configuration",
    "fedcor": "FedCor's Table 1 (Tang et al., CVPR 2022)",
    "fl_dp3s": "FL-DP3S's experiments (Zhang et al.)",
    "gpfl": "GPFL's Table II (Na, Liang, Yiu)",
}
"""The source of a preset, by the part of its name before the first slash."""
NOT_FROM_THE_PAPER = {
    "fedcor/fmnist": "dropout, hold-out and epochs come from the released code; the paper states 20 steps",
    "fedcor/cifar10": "hold-out and epochs come from the released code; the paper states 40 steps",
    "fl_dp3s/": "widths, optimizer, batches and epochs come from flsim's code; the paper states none",
    "gpfl/fmnist": "dropout comes from the released code",
}
"""Settings that come from code instead of the paper, by the prefix of the preset's name."""
_DATA = {
    "digits": "the embedded digits", "mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10",
}  # fmt: skip


def sentence(name: str) -> str:
    """Describe a preset in one sentence.

    Args:
        name: one of PRESETS.

    Raises:
        UserError: the name is unknown.
    """
    config = preset(name)
    run, seeds = config.run, len(config.run.seeds)
    parts = [
        f"{_DATA.get(config.data.dataset, config.data.dataset)} {_dealt(config)}",
        f"{config.selection.num_selected} of {config.partition.num_clients} clients per round",
        f"model {config.model.model}"
        + (f" with dropout {dropout:g}" if (dropout := config.model.model_dropout) else ""),
        _local_work(config),
        *([f"{100 * held:.4g} % of each client's data held out"] if (held := config.data.holdout) else []),
        f"{run.rounds} rounds, {seeds} seed{'s' if seeds > 1 else ''}",
    ]
    if run.target_accuracy is not None:
        parts.append(f"target {100 * run.target_accuracy:.4g} %")
    parts += [words for begins, words in NOT_FROM_THE_PAPER.items() if name.startswith(begins)]
    return f"{SOURCES[name.partition('/')[0]]}: {'; '.join(parts)}."


def _dealt(config: Config) -> str:
    settings = config.partition
    if settings.partition == "shards":
        count = settings.shards_per_client
        return f"with {count} label-sorted shard{'s' if count > 1 else ''} per client"
    if settings.partition == "dirichlet_qp":
        return f"with Dirichlet label shares, alpha {settings.alpha:g}"
    assert settings.partition == "skewness", "a preset with another partition needs words for it"
    share = settings.skewness
    return (
        "with two labels per client"
        if share == "H"
        else f"with {100 * float(share):.0f} % of each client's data from one label"
    )


def _local_work(config: Config) -> str:
    training = config.training
    amount = f"{training.local_steps} steps" if training.local_epochs is None else f"{training.local_epochs} epochs"
    return f"{amount} in batches of {training.batch_size}, learning rate {training.learning_rate:g}"


def all_sentences() -> dict[str, str]:
    """Return the description of every preset."""
    return {name: sentence(name) for name in PRESETS}
