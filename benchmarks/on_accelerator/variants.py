"""The effect of XLA flags and unrolled loops on the speed and compile time of rounds."""

from typing import Any

from on_accelerator import speed
from on_accelerator.children import Child
from on_accelerator.day import Case, Part, alone

SMALLEST_GRAPH = "--xla_gpu_graph_min_graph_size={}"  # minimum number of operations per CUDA graph; XLA's default is 5
NO_GRAPHS = "--xla_gpu_enable_command_buffer="
NO_AUTOTUNER = "--xla_gpu_experimental_enable_fusion_autotuner=false"
NO_AUTOTUNING = "--xla_gpu_autotune_level=0"


def graphs(small: bool) -> Part:
    """Return the part on launch overhead of short steps: CUDA graphs, and unrolled loops."""
    mlp = speed.PRESETS[0]
    few, many = ([1], []) if small else ([1], [64])
    cases = [
        _case("unroll", mlp, few, small, unroll=(2,) if small else (None, 2, 4)),
        _case("graphs of 1 operation", mlp, few, small, SMALLEST_GRAPH.format(1), tier=2 if small else 1),
    ]
    if not small:
        cases += [
            _case("no graphs", mlp, few, small, NO_GRAPHS, tier=2),
            _case("unroll", mlp, many, small, unroll=(None, 2, 4), tier=2),
            _case("graphs of 1 operation", mlp, many, small, SMALLEST_GRAPH.format(1), tier=2),
            _case("unroll, graphs of 1 operation", mlp, few, small, SMALLEST_GRAPH.format(1), unroll=(2, 4), tier=3),
            _case("unroll", speed.PRESETS[2], few, small, unroll=(None, 2, 4), tier=3),
        ]
    return Part("graphs", "CUDA graphs and unrolled loops", cases, speed.describe)


def compilation(small: bool) -> Part:
    """Return the part on compile time, with and without the fusion autotuner."""
    cases = []
    for tier, preset in enumerate(speed.PRESETS[: 1 if small else 3], start=1):
        cases.append(_case("no fusion autotuner", preset, [1], small, NO_AUTOTUNER, tier=tier))
        if not small:
            cases.append(_case("as it is", preset, [1], small, tier=tier + 1))
            cases.append(_case("no autotuning at all", preset, [1], small, NO_AUTOTUNING, tier=tier + 2))
    return Part("compilation", "Compilation with and without the fusion autotuner", cases, speed.describe)


def _case(
    name: str, preset: str, seeds: list[int], small: bool, *flags: str, unroll: tuple = (None,), tier: int = 1
) -> Case:
    guess = 3 if small else 15
    settings: dict[str, Any] = {
        "preset": preset,
        "precision": "float32",
        "seeds": seeds,
        "small": small,
        "guess": guess,
    }
    settings["unroll"] = unroll
    label = f"{name}, {preset}, {' and '.join(map(str, seeds))} seeds"
    work = alone(Child("on_accelerator.speed:time_all", settings))
    return Case(label, guess * len(seeds) * len(unroll), work, tier, flags=flags)
