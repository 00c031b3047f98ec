"""Every strategy in the table keeps the contract: the public kit, on all of them and on some of their variants."""

import pytest

from fedjax_sel import strategies, testing
from tests.strategies import requested_bill

# So short that a game of eight rounds reaches every phase. Adam's first steps are as long as its rate however small a
# gradient is, so that a gradient's rounding moves a fit: by too little here to decide between two clients.
SHORT = {"warmup": 2, "interval": 2, "warmup_steps": 3, "steps": 2, "learning_rate": 1e-3}
DEFAULT = {
    "fedcor": SHORT,
    "fedgp": SHORT,
    "tifl": {"interval": 2},
}
VARIANTS = [
    ("random", {"variant": "md"}),
    ("random", {"variant": "weighted-wor"}),
    ("random", {"variant": "pps-wor"}),
    ("fl_dp3s", {"profile": "representative-gradient"}),
    ("fl_dp3s", {"profile": "gradient"}),
    ("fl_dp3s", {"pool": 6}),
    ("fedcor", {"preset": "code-2022", "warmup": 12, "interval": 2, "warmup_steps": 3, "steps": 2}),
    ("fedcor", {"preset": "code-2023", **SHORT, "probes": 2}),
    ("fedcor", {"preset": "gpfl-port", **SHORT}),
    ("fedcor", {"preset": "closed-form", "warmup": 2, "interval": 2}),
    ("fedcor", {"preset": "proxy", **SHORT}),
    ("gpfl", {"start": "all-clients", "softmax": "all-with-stale", "direction": "smoothed"}),
    ("pow_d", {"variant": "cpow-d"}),
    ("pow_d", {"variant": "rpow-d"}),
    ("pow_d", {"variant": "train-first"}),
    ("fedsae", {"variant": "greedy"}),
    ("fedsae", {"active_rounds": 3}),
    ("clustered", {"variant": "size"}),
    ("clustered", {"distance": "l2", "linkage": "square"}),
    ("divfl", {"variant": "ideal"}),
    ("divfl", {"greedy": "stochastic", "weights": "cluster-size", "mixing": 0.3}),
    ("oort", {"preset": "paper", "max_participations": 1}),
    ("oort", {"system": "clock", "pacer_step": 2}),
    ("tifl", {"num_tiers": 3}),
    ("tifl", {"interval": 2, "credits": 1}),
    ("fedcs", {"fraction": 1.0}),
    ("ocs", {"num_candidates": 6, "rescalings": None}),
    ("kvib", {"theta": 0.1, "bound": 0.3, "law": "linear"}),
    ("e3cs", {"draw": "systematic", "quota": 0.0, "learning_rate": 5.0}),
    ("e3cs", {"quota": 1.0, "quota_start": 0.5}),
    ("cyclic", {"num_groups": 1}),
    ("hics_fl", {"linkage": "square", "num_clusters": 2}),
    ("fedlecc", {"num_clusters": 3, "clusters_per_round": 3}),
    ("greedyfed", {"memory": 0.5, "evaluations": 13}),
    ("delta", {"score": "share-diversity"}),
]


@pytest.mark.parametrize("name", ["random", *(pytest.param(name, marks=pytest.mark.slow) for name in DEFAULT)])
def test_conforms(name):
    """All but the real run."""
    testing.check_strategy(lambda: strategies.make(name, **DEFAULT.get(name, {})), run=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", strategies.names())
def test_conforms_as_it_is_made(name):
    testing.check_strategy(lambda: strategies.make(name), run=False)
    requested_bill.check(strategies.make(name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,parameters",
    VARIANTS,
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_variants_conform(name, parameters):
    testing.check_strategy(lambda: strategies.make(name, **parameters), run=False)
    requested_bill.check(strategies.make(name, **parameters))


@pytest.mark.slow
def test_gpfl_ref_conforms_but_for_what_its_code_does():
    """The reference code knows no availability, leaves places empty, and refuses cohorts of most clients (gpfl.py)."""
    skip = ("availability", "cohort", "K = 1, N - 1, N")
    testing.check_strategy(lambda: strategies.make("gpfl", preset="gpfl-ref"), skip=skip)
