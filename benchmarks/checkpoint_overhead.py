"""The cost of fault tolerance: metric rows, checkpoints, and resuming.

    python benchmarks/checkpoint_overhead.py                   writes results/checkpoint_overhead.json

Runs a preset with fl_dp3s on synthetic images, with the default settings and with a checkpoint after every chunk. Time
in the writer is an upper bound of the overhead, because the devices compute the next chunk meanwhile. Then the run
resumes from its last checkpoint. Reported are the seconds until its state is verified and read, and until its first
rounds are done, compared to a fresh start.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import reports
import synthetic

from fedjax_sel.config import Config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["fedcor/fmnist-2spc", "fl_dp3s/mnist-xi1"], metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 5], metavar="N")
    parser.add_argument("--seconds", type=float, default=75.0, help="approximate run time per case (default: 75)")
    parser.add_argument("--out", type=Path, default=Path("results/checkpoint_overhead.json"), help="JSON file to write")
    arguments = parser.parse_args()
    between = Config().run.checkpoint_seconds
    if arguments.seconds <= between:
        parser.error(f"--seconds: {arguments.seconds:g} is before the first checkpoint; give more than {between:g}")
    report: dict[str, Any] = reports.head() | {"cases": []}
    for preset in arguments.presets:
        for seeds in arguments.seeds:
            for settings in ({}, {"checkpoint_every": 1}):
                case = run_case(preset, seeds, settings, arguments.seconds if not settings else arguments.seconds / 5)
                report["cases"].append({"preset": preset, "seeds": seeds, "settings": settings or "default"} | case)
                print(
                    f"{preset}, {seeds} seeds, {settings or 'default'}: {case['checkpoints']} checkpoints of "
                    f"{case['megabytes']:.1f} MB, {1000 * case['seconds_a_checkpoint']:.0f} ms each; writing took "
                    f"{100 * case['share_of_wall_time']:.1f} % of the time; state read in "
                    f"{case['seconds_to_read']:.2f} s; first rounds after "
                    f"{case['seconds_to_first_rounds_resumed']:.1f} s, of a fresh start "
                    f"{case['seconds_to_first_rounds_fresh']:.1f} s",
                    flush=True,
                )
    reports.write(arguments.out, report)


def run_case(preset: str, seeds: int, settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Time the host's work in a run: rows, checkpoints, and resuming."""
    from fedjax_sel import devices

    devices.use_every_core()
    import fedjax_sel
    from fedjax_sel.runs import checkpoint

    config = fedjax_sel.preset(preset)
    chunk = 1 if config.model.model == "cnn_small" else 10
    config = config.replace(
        dataset=synthetic.like(config.data.dataset), algo="fl_dp3s", seeds=seeds, chunk=chunk, train_metrics_every=0
    ).replace(**settings)
    with tempfile.TemporaryDirectory() as folder:
        config = config.replace(rounds=100_000, out=f"{folder}/run")
        fresh = watch(config, seconds)
        newest = checkpoint.list_all(Path(folder) / "run" / "checkpoints")[0]
        size = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
        again = watch(config, 0.0)
    wall = fresh.ends[-1] - fresh.ends[0]
    return {
        "wall_seconds": round(wall, 2),
        "checkpoints": len(fresh.checkpoints),
        "seconds_a_checkpoint": round(mean(fresh.checkpoints), 4),
        "megabytes": round(size / 1e6, 2),
        "seconds_of_rows": round(sum(fresh.rows), 3),
        "share_of_wall_time": round((sum(fresh.checkpoints) + sum(fresh.rows)) / wall, 4),
        "seconds_to_read": round(again.opening, 3),
        "seconds_to_first_rounds_fresh": round(fresh.ends[0] - fresh.started, 2),
        "seconds_to_first_rounds_resumed": round(again.ends[0] - again.started, 2),
    }


class Watched(NamedTuple):
    """The timing of a run, in seconds."""

    started: float
    opening: float  # time to open the folder, including reading a checkpoint
    rows: list[float]
    checkpoints: list[float]
    ends: list[float]  # clock at the end of each chunk


def watch(config: Any, seconds: float) -> Watched:
    """Run for a number of seconds after the first chunk, then stop as in a crash."""
    import fedjax_sel
    from fedjax_sel.runs import experiment, resume

    opening, rows, checkpoints, ends = [0.0], [], [], []

    class TimedWriter(experiment.Writer):
        def chunk(self, *arguments: Any) -> None:
            rows.append(timed(super().chunk, *arguments)[0])
            ends.append(time.monotonic())

        def checkpoint(self, *arguments: Any) -> None:
            checkpoints.append(timed(super().checkpoint, *arguments)[0])

    class WatchedReporter(experiment.Reporter):
        def chunk(self, *arguments: Any) -> None:
            super().chunk(*arguments)
            if ends[-1] - ends[0] >= seconds:
                raise EnoughError

    def open_run(*arguments: Any) -> Any:
        opening[0], answer = timed(real_open, *arguments)
        return answer

    real_open, real_writer, real_reporter = resume.open_run, experiment.Writer, experiment.Reporter
    resume.open_run, experiment.Writer, experiment.Reporter = open_run, TimedWriter, WatchedReporter
    started = time.monotonic()
    try:
        fedjax_sel.run(config)
    except EnoughError:
        pass
    finally:
        resume.open_run, experiment.Writer, experiment.Reporter = real_open, real_writer, real_reporter
    return Watched(started, opening[0], rows, checkpoints, ends)


class EnoughError(Exception):
    """An exception that stops a run like a crash."""


def timed(action: Any, *arguments: Any) -> tuple[float, Any]:
    """Return the seconds that a call takes, and its result."""
    started = time.monotonic()
    answer = action(*arguments)
    return time.monotonic() - started, answer


if __name__ == "__main__":
    main()
