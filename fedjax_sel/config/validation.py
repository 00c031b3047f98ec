"""Validation of a configuration's values, as far as possible without data and devices."""

from fedjax_sel.config import Config, flat_types
from fedjax_sel.core import parsing
from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError

_LARGEST_SHARE = 1 - 2.0**-24  # float32's largest number below 1


def validate(config: Config) -> None:
    """Reject invalid values before any data are read.

    Raises:
        UserError: If a value is invalid; the message names the flag, the value and a remedy.
    """
    config = config.replace(**config.flat())  # rejects values of the wrong type
    values = config.flat()

    def need(name: str, allowed: bool, advice: str) -> None:
        if not allowed:
            raise UserError(f"--{name.replace('_', '-')}: {shown(values[name])} {advice}")

    counts = ("num_clients", "num_selected", "rounds", "batch_size", "shards_per_client", "min_client_size")
    for name in (*counts, "eval_every", "chunk"):
        need(name, values[name] >= 1, "is below 1; give a positive integer")
    steps, epochs = values["local_steps"], config.training.epochs
    need("local_steps", steps is None or 1 <= steps <= 100_000, "is not a whole number from 1 to 100000")
    fine = epochs is None or (epochs[0] >= 1 and epochs[1] <= 10_000)
    need("local_epochs", fine, "is not a whole number from 1 to 10000, or a range of them such as 1:5")
    for name in ("alpha", "learning_rate", "learning_rate_decay"):
        need(name, 0 < values[name] < float("inf"), "is not a positive number")
    rate = values["server_learning_rate"]
    need("server_learning_rate", rate is None or 0 < rate < float("inf"), "is not a positive number")
    for name in ("holdout", "model_dropout", "momentum", "report_failure_rate"):
        need(name, 0 <= values[name] < 1, "is outside 0 (included) to 1 (excluded)")
        need(name, values[name] <= _LARGEST_SHARE, "is 1 in float32, which runs use; give a smaller value")
    part = config.selection.available_share
    need("available", part is None or 0 < part <= 1, "is outside 0 (excluded) to 1 (included)")
    named = values["available"].endswith((".csv", ".npy", ".txt")) or values["available"].startswith("value:")
    need("available", part is not None or named, "is neither a fraction such as 0.5 nor a .csv, .txt or .npy file")
    every = values["checkpoint_every"]
    need("checkpoint_every", every is None or every >= 1, "is below 1; remove it to save by time only")
    need("checkpoint_seconds", values["checkpoint_seconds"] > 0, "is not a positive number")
    need("keep", values["keep"] >= 0, "is negative; give 0 to save no checkpoints")
    share = values["server_validation"]
    need("server_validation", share is None or 0 <= share < 1, "is outside 0 (included) to 1 (excluded)")
    need("weight_decay", 0 <= values["weight_decay"] < float("inf"), "is negative or infinite; give 0 or more")
    need("train_metrics_every", values["train_metrics_every"] >= 0, "is negative; give 0 for never")
    need("cohort_batch", (values["cohort_batch"] or 0) >= 0, "is negative; give 0 for all clients at once")
    target = values["target_accuracy"]
    need("target_accuracy", target is None or target > 0, "is not positive")
    if values["task"] == "classification":
        need("target_accuracy", target is None or target <= 1, "is not a fraction between 0 and 1, such as 0.62")
    for name in flat_types():
        need(name, (reason := parsing.misfit(values[name])) is None, reason or "")
    need(
        "seeds",
        len(values["seeds"]) <= parsing.MOST_SEEDS,
        f"exceed the maximum of {parsing.MOST_SEEDS} seeds; give fewer",
    )
    need("seeds", len(values["seeds"]) > 0, "is empty; give a count such as 5")
    for name in ("data_seed", "model_seed", "selection_seed", "training_seed"):
        need(name, values[name] is None or 0 <= values[name] < 2**31, "is outside 0 to 2147483647")
    need("seeds", all(0 <= seed < 2**31 for seed in values["seeds"]), "has a seed outside 0 to 2147483647")
    milestones = values["learning_rate_milestones"]
    need(
        "learning_rate_milestones",
        all(1 <= m < 2**31 for m in milestones) and list(milestones) == sorted(set(milestones)),
        "is not a list of rounds from 1 to 2147483647 in increasing order, such as 150 300",
    )
    need(
        "num_selected",
        values["num_selected"] <= values["num_clients"],
        f"exceeds the {values['num_clients']} clients of --num-clients; choose at most {values['num_clients']}",
    )
    if (values["local_steps"] is None) == (values["local_epochs"] is None):
        raise UserError(
            f"--local-steps {values['local_steps']} and --local-epochs {values['local_epochs']}: "
            "give exactly one of them"
        )
    reached = 1.0 if part is None else part * values["num_clients"] * values["rounds"]
    need(
        "available",
        reached >= 1,
        f"of {values['num_clients']} clients leaves none available in {values['rounds']} rounds; give more",
    )
    for name in ("out", "data_dir"):
        need(name, values[name] != "", "is empty; name a folder, or remove the flag")
    need(
        "out",
        not (values["out"] or "").startswith("~"),
        "starts with ~, which the shell did not expand; write the full path",
    )
    if values["mesh"] is not None:
        parsing.mesh_shape(values["mesh"])
    together, count = values["seeds_at_once"], len(values["seeds"])
    if together is not None and (together < 1 or count % together):
        near = max(size for size in range(1, count + 1) if count % size == 0 and size <= max(together, 1))
        raise UserError(
            f"--seeds-at-once: {together} does not divide the {count} seeds into equal groups; "
            f"give {near}, or remove the flag"
        )
    if values["loss_on"] == "holdout" and values["holdout"] == 0:
        raise UserError("--loss-on: 'holdout' needs held-out data; add --holdout 0.2, or choose --loss-on train")
