"""Synonyms of the configuration fields in other programs and papers, for suggestions in error messages."""

from collections.abc import Collection

_SAME = {
    "aggregation": "agg aggregator averaging",
    "algo": "strategy method algorithm selector selection sampler client_selection sampling",
    "algo_args": "strategy_args method_args strategy_params algo_params kwargs",
    "algos": "strategies methods algorithms",
    "alpha": "dirichlet_alpha dir_alpha concentration beta",
    "available": "availability online",
    "batch_size": "bs batch local_bs lbs b local_batch_size train_batch_size minibatch",
    "checkpoint_every": "save_every checkpoint_freq checkpoint_interval ckpt_every",
    "client_optimizer": "local_optimizer client_opt local_opt",
    "cohort_batch": "vmap clients_at_once parallel_clients",
    "data_dir": "data_path data_root root datadir dataset_dir dataroot",
    "dataset": "data ds data_set dataset_name",
    "deterministic": "cudnn_deterministic reproducible",
    "distributed": "multihost multi_host hosts",
    "dry_run": "dry dryrun plan estimate",
    "eval_every": "eval_freq eval_interval eval_gap test_every test_freq eval_frequency evaluate_every",
    "full_batch": "gd full_gradient",
    "holdout": "val_split validation_split local_val",
    "initializer": "init init_type weight_init",
    "learning_rate": "lr eta local_lr client_lr step_size stepsize client_learning_rate local_learning_rate",
    "learning_rate_decay": "lr_decay gamma lr_gamma decay_rate",
    "learning_rate_milestones": "milestones lr_milestones schedule lr_schedule",
    "local_epochs": "epochs e le local_ep num_epochs n_epochs epochs_per_round client_epochs local_epoch",
    "local_steps": "steps local_iterations local_updates iterations local_iters tau local_step",
    "log": "logger logging report_to track",
    "mesh": "sharding device_mesh",
    "model": "arch net network architecture model_name",
    "model_dropout": "dropout dropout_rate p_drop",
    "momentum": "mom sgd_momentum",
    "num_clients": "clients n n_clients num_users users total_clients nclients num_devices n_parties parties",
    "num_selected": "k selected clients_per_round cohort cohort_size num_selected_clients m n_selected per_round",
    "on_nonfinite": "on_nan nan",
    "optimizer": "opt fl_algorithm federated_optimizer fl_method",
    "optimizers": "opts",
    "out": "output outdir out_dir output_dir save_dir save_path logdir log_dir results_dir run_dir workdir o",
    "partition": "split partitioning partition_method distribution heterogeneity",
    "precision": "dtype amp fp16 bf16 mixed_precision half",
    "preset": "setting settings experiment exp paper benchmark",
    "presets": "experiments benchmarks",
    "report_failure_rate": "dropout_clients drop_rate drop_percent failure_rate stragglers straggler_rate",
    "resume": "restart continue load_checkpoint",
    "rounds": "num_rounds n_rounds t comm_rounds communication_rounds global_rounds global_epochs comm_round r"
    " total_rounds global_epoch max_rounds",
    "seeds": "seed random_seed rng replicates repeats trials num_seeds runs",
    "server_learning_rate": "server_lr global_lr eta_g global_learning_rate",
    "server_optimizer": "server_opt global_optimizer",
    "server_validation": "server_val validation val_size",
    "shards_per_client": "shards classes_per_client labels_per_client class_per_client",
    "target_accuracy": "target target_acc goal",
    "train_metrics_every": "train_eval_every",
    "weight_decay": "wd l2 decay reg lam l2_reg",
}

_DEVICES = (
    "JAX uses all accelerators it finds; set JAX_PLATFORMS=cpu to use none, or CUDA_VISIBLE_DEVICES=0 to choose one"
)
_COUNT = "use --num-selected 10, the number of clients per round instead of a fraction"
_LOGS = "use --log tensorboard, wandb, mlflow or trackio"
_ADVICE = {
    name: advice
    for names, advice in {
        "gpu gpus device devices cuda cpu tpu accelerator platform backend gpu_id use_gpu no_cuda": _DEVICES,
        "fraction frac c participation participation_rate join_ratio sample_rate fraction_fit client_fraction": _COUNT,
        "wandb use_wandb mlflow tensorboard trackio tb": _LOGS,
        "workers num_workers threads num_threads n_jobs": "every run uses all cores and devices; remove the flag",
        "mu prox proximal proximal_mu": "use --optimizer fedprox --optimizer-args mu=0.1",
        "candidates num_candidates d": "use --algo pow_d --algo-args num_candidates=20",
        "iid": "use --partition iid",
        "noniid non_iid niid": "use --partition shards, or --partition dirichlet_qp with --alpha",
    }.items()
    for name in names.split()
}
_OURS = {other: name for name, others in _SAME.items() for other in others.split()}


def ours(name: str, known: Collection[str]) -> str | None:
    """Return the field name for a synonym from another program; None without a match.

    Args:
        name: the synonym, with dashes or underscores.
        known: the flat names allowed here.
    """
    plain = name.replace("-", "_").lower()
    for found in (plain, _OURS.get(plain), f"{_OURS.get(plain)}s"):
        if found in known:
            return found
    return None


def advice(name: str) -> str | None:
    """Return advice for another program's setting that is no field here; None without a match."""
    return _ADVICE.get(name.replace("-", "_").lower())
