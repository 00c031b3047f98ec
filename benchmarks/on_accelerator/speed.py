"""Rounds per second of the papers' networks, and their share of the ceiling, by precision and number of seeds."""

from collections.abc import Iterator
from typing import Any

from on_accelerator.child import each
from on_accelerator.children import Child
from on_accelerator.day import Case, Part, alone

PRESETS = ("fedcor/fmnist-2spc", "fedcor/cifar10-2spc", "fl_dp3s/mnist-xi1")  # MLP, CIFAR-10's CNN, FL-DP3S's CNN
CHUNKS, SECONDS = 7, 5.0  # maximum number of timed chunks per case, and their maximum time
TINY = {
    "dataset": "synthetic:train_size=2000,test_size=100,num_classes=10,image_size=8", "num_clients": 20, "chunk": 2,
    "batch_size": 20, "local_epochs": 1, "model_dropout": 0.0,
}  # fmt: skip


def part(small: bool, on_cpu: bool) -> Part:
    """Return the part; TF32 is skipped on CPUs, which lack it."""
    less = ("bfloat16",) if on_cpu else ("bfloat16", "tf32")
    if small:
        cases = [_case(PRESETS[0], "float32", [1], 1, small), _case(PRESETS[0], "bfloat16", [1, 2], 2, small)]
    else:
        cases = [_case(preset, "float32", [1, 64], 1, small) for preset in PRESETS]
        cases += [_case(preset, precision, [1, 64], 2, small) for preset in PRESETS for precision in less]
        cases += [_case(preset, "float32", [8, 16, 4, 32, 2], 3, small) for preset in PRESETS]
        cases += [_case(preset, name, [8, 16, 4, 32, 2], 4, small) for preset in PRESETS for name in less]
    return Part("rounds", "Rounds per second, and their share of the ceiling", cases, describe)


def _case(preset: str, precision: str, seeds: list[int], tier: int, small: bool) -> Case:
    guess = 3 if small else 20
    settings = {"preset": preset, "precision": precision, "seeds": seeds, "small": small, "guess": guess}
    name = f"{preset} {precision}, {' and '.join(map(str, seeds))} seeds"
    return Case(name, guess * len(seeds), alone(Child("on_accelerator.speed:time_all", settings)), tier)


def describe(record: dict[str, Any]) -> str:
    """Format a record in one line."""
    rounds, unrolled = record["seed_rounds_per_second"], record.get("unroll")
    return (
        f"seeds {record['seeds']}{f', unroll {unrolled}' if unrolled else ''}: {rounds['median']:,.1f} seed-rounds/s "
        f"({rounds['p10']:,.1f} to {rounds['p90']:,.1f}), {record['share_of_ceiling']:.0%} of the ceiling, compiled in "
        f"{record['compile_seconds']:.1f} s"
    )


def time_all(
    seconds: float, preset: str, precision: str, seeds: list[int], small: bool, guess: float, unroll: tuple = (None,)
) -> Iterator[dict[str, Any]]:
    """Time several numbers of seeds, one after another (in a child process).

    Args:
        seconds: see `child.each`.
        preset: the preset's name.
        precision: precision of the matrix products.
        seeds: numbers of replicates; peak memory covers all cases so far.
        small: whether the data are tiny.
        guess: estimated seconds per case.
        unroll: values of `client.Trainer.unroll`, all timed for each number of seeds.

    Yields:
        A record per case.
    """
    from fedjax_sel import devices

    if not small:
        devices.use_every_core()
    cases = [
        {"preset": preset, "precision": precision, "seeds": count} | ({} if turn is None else {"unroll": turn})
        for count in seeds
        for turn in unroll
    ]

    def one(**case: Any) -> dict[str, Any]:
        return _time(small=small, **case)

    yield from each(cases, seconds, guess, one)


def _time(preset: str, precision: str, seeds: int, small: bool, unroll: int | None = None) -> dict[str, Any]:
    import rounds
    from timing import spread

    config = rounds.setting(preset, seeds, precision=precision, **(TINY if small else {}))
    timed = rounds.time_rounds(config, False, 3 if small else CHUNKS, SECONDS, unroll)
    peak = rounds.peak_bytes()
    return {
        "clients": config.selection.num_selected,
        "local_steps": timed.work.equal_steps,
        "batch_size": config.training.batch_size,
        "compile_seconds": round(timed.compile_seconds, 2),
        "seed_rounds_per_second": spread(timed.seed_rounds_per_second),
        "ceiling_seed_rounds_per_second": round(timed.ceiling_seed_rounds_per_second, 3),
        "share_of_ceiling": round(timed.share_of_ceiling, 3),
        "gigaflop_a_seed_round": round(timed.flops / 1e9, 3),
        "ceiling_teraflops": round(timed.flops * timed.ceiling_seed_rounds_per_second / 1e12, 3),
        "program_megabytes": round(timed.program_bytes / 1e6, 1),
        "peak_megabytes": None if peak is None else round(peak / 1e6, 1),
    }
