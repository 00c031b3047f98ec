"""The programs of a run, lowered for TPUs and for GPUs by a machine that has neither."""

import itertools
import re
from functools import partial

import jax
import numpy as np
import pytest
from jax import export

import fedjax_sel
from fedjax_sel import data, devices, strategies
from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.experiment import problem
from fedjax_sel.simulation import layout, run
from fedjax_sel.strategies import protocol
from fedjax_sel.training import optimizers

PLATFORMS = {  # custom calls that XLA has there; mhlo.* is in what JAX 0.7 makes
    "tpu": r"mhlo.erf|mhlo.topk|Sharding|SPMD\w+|TopK|ApproxTopK|Eigh|Qr|ProductOfElementaryHouseholderReflectors",
    "cuda": r"mhlo.erf|mhlo.topk|Sharding|SPMD\w+|TopK|cusolver_\w+|cublas_\w+|cu_threefry2x32\w*",
}
# XLA makes a TPU's float64 of two float32: what that reaches.
ARITHMETIC = {
    "abs", "add", "broadcast_in_dim", "case", "compare", "concatenate", "constant", "convert", "divide",
    "dynamic_slice", "dynamic_update_slice", "gather", "maximum", "minimum", "multiply", "negate", "pad", "reduce",
    "reshape", "return", "select", "slice", "sqrt", "subtract", "transpose", "while",
}  # fmt: skip
TINY = {
    "dataset": "synthetic:train_size=100,test_size=20,num_classes=4,image_size=8", "num_clients": 10,
    "num_selected": 3, "rounds": 4, "chunk": 2, "seeds": 2, "local_epochs": 1, "batch_size": 5,
}  # fmt: skip
ABSENT, LOST = {"available": 0.7}, {"report_failure_rate": 0.2}
TIMED = {"timing": "tiers", "timing_args": {"jitter": 0.2}, "deadline": "q0.8", "over_select": 1.3}
ALTERNATIVES = {  # of strategies, where they compute otherwise
    "fl_dp3s of a pool": {"algo": "fl_dp3s", "algo_args": {"pool": 6}},
    "fl_dp3s, unbiased": {"algo": "fl_dp3s", "aggregation": "unbiased"},
    "fedcor, closed form": {"algo": "fedcor", "algo_args": {"preset": "closed-form"}},
    "divfl, ideal": {"algo": "divfl", "algo_args": {"variant": "ideal"}},
    "gpfl of all clients": {"algo": "gpfl", "algo_args": {"start": "all-clients"}},
    "tests of clients": {"algo": "random", "client_test": 0.2, "unseen_clients": 0.2, "eval_clients_every": 2},
    "characters": {
        "dataset": "shakespeare",
        "partition": "natural",
        "task": "next_token",
        "model": "char_gru",
        "algo": "random",
    },
    "asynchronous": {"algo": "divfl", **TIMED, "over_select": 1.0, "concurrency": 6, "max_staleness": 3, **LOST},
    "late reports": {"algo": "divfl", **TIMED, "late_reports": "use", "staleness": "refl", "max_staleness": 3, **LOST},
    "private histograms": {"algo": "fed_cbs", "privacy": "epsilon=1,delta=1e-5"},
    "private updates": {"algo": "clustered", "privacy": "epsilon=1,delta=1e-5", "privacy_unit": "client"},
    "private training": {"algo": "pow_d", "private_training": "epsilon=8,rounds=3", "privacy": "epsilon=1"},
    "oort, clock": {"algo": "oort", "algo_args": {"system": "clock"}, "timing": "tiers", "over_select": 1.3},
}


@pytest.fixture(autouse=True)
def _as_on_an_accelerator(monkeypatch):
    """A CPU's own ways are chosen where a program is traced."""
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")


def programs(experiment):
    """(name, jitted function, shapes of its arguments) of a run's programs."""
    posed = problem.pose(experiment)
    laid_out = layout.lay_out(posed, len(posed.config.run.seeds))
    host, plan, _ = laid_out
    given = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), (host, run._roots(posed)))
    per_seed = devices.PER_SEED
    start = jax.jit(devices.over_seeds(plan.mesh, partial(run.initial_state, plan), (run.SPECS, per_seed), per_seed))
    carry, streams = start.eval_shape(*given)
    yield "start", start, given
    if protocol.requests_at_start(plan.strategy):
        yield "measure", run._measure_at_start(plan), (carry, given[0], streams)
    carry = run.shapes_of_group(posed, laid_out)  # with the strategy's state, which the CPU makes
    chunk = jax.jit(run.rounds(plan, posed.config.run.chunk))
    yield "chunk", chunk, (carry, jax.ShapeDtypeStruct((), np.int32), given[0], streams)


def lacking(text, platform):
    """What a platform lacks of a program in StableHLO: names of custom calls, and of operations on float64."""
    calls = re.findall(r'custom_call @"?([\w$.]+)', text) + re.findall(r'call_target_name = "([^"]+)"', text)
    missing = {f"custom call {name}" for name in calls if not re.fullmatch(PLATFORMS[platform], name)}
    if platform == "tpu":
        wide = [line for line in text.splitlines() if "f64>" in line]
        names = {name for line in wide for name in re.findall(r"\b(?:stablehlo|chlo)\.(\w+)", line)}
        missing |= {f"{name} of float64" for name in names - ARITHMETIC}
    return missing


def assert_exports(*experiment, **settings):
    for name, program, given in programs(experiment[0] if experiment else fedjax_sel.Config().replace(**settings)):
        for platform in PLATFORMS:
            text = export.export(program, platforms=[platform])(*given).mlir_module()
            assert not lacking(text, platform), (name, platform)


def timing_of(algo):
    return "tiers" if strategies.make(algo).needs_clock else "none"


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "algo,optimizer",
    [
        pytest.param(algo, optimizer, marks=[pytest.mark.slow] * (algo == "fedgp"))  # FedCor's code
        for algo, optimizer in zip(strategies.names(), itertools.chain(["fedavg"], itertools.cycle(optimizers.names())))
    ],
)
def test_every_strategy_with_a_clock_and_every_optimizer(algo, optimizer):
    timed = TIMED if strategies.make(algo).max_selected is None else TIMED | {"over_select": 1.0}
    assert_exports(**TINY, **ABSENT, **LOST, **timed, algo=algo, optimizer=optimizer)


@pytest.mark.slow
@pytest.mark.parametrize("available", ["markov", "label", "size", "speed"])
def test_every_mode_of_availability(available):
    assert_exports(**TINY, **TIMED, available=available, algo="random")


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, ABSENT, LOST, ABSENT | LOST], ids=["neither", "absence", "lost reports", "both"])
@pytest.mark.parametrize("algo", strategies.names())
def test_every_strategy_without_a_clock(algo, more):
    assert_exports(**TINY, **more, algo=algo, timing=timing_of(algo))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALTERNATIVES)
def test_what_computes_otherwise(name):
    assert_exports(**(TINY | ABSENT | ALTERNATIVES[name]))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["cnn", "resnet8"])
def test_convolutions(model):
    shape = TINY | {"dataset": "synthetic:train_size=100,test_size=20,num_classes=4,image_size=18"}
    assert_exports(**shape, algo="random", model=model)


@pytest.mark.slow
def test_recurrence():
    letters = np.arange(700, dtype=np.int32).reshape(100, 7) % 11
    text = data.Dataset.from_arrays(train=(letters[:80, :6], letters[:80, 6]), test=(letters[80:, :6], letters[80:, 6]))
    assert_exports(
        fedjax_sel.Experiment.of(
            **TINY | {"dataset": text}, algo="random", model="char_lstm", partition="iid", names={"dataset": "letters"}
        )
    )


def test_what_a_platform_lacks_is_named():
    with enable_x64(True):
        square = jax.ShapeDtypeStruct((3, 3), np.float64)
        text = export.export(jax.jit(jax.numpy.linalg.cholesky), platforms=["tpu"])(square).mlir_module()
        assert lacking(text, "tpu") == {"cholesky of float64"}
        text = export.export(jax.jit(jax.numpy.linalg.cholesky), platforms=["cpu"])(square).mlir_module()
        assert lacking(text, "cuda") == {"custom call lapack_dpotrf_ffi"}
