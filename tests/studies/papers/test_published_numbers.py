"""The papers' and the public releases' numbers, typed a second time with their sources, against every preset.

A preset's numbers are data: no mathematics goes wrong if one of them is changed, and no other test need notice.
Releases: Yoruko-Tang/FedCor (a89bd66 of July 2022, and d941083, its head since 2023), joapolarbear/PBFL (8498b08),
SymbioticLab/Oort (05a3aa1), yasar-rehman/FedSAE, melodi-lab/divfl, iQua/flsim.
"""

import ast
import importlib
import inspect
import re
import typing

import jax
import jax.numpy as jnp
import pytest

from fedjax_sel import Config, preset, strategies
from fedjax_sel.papers import PRESETS
from tests.strategies.hooks import env_of, now_of

divfl, fedcor, fedcor_presets, fl_dp3s, gpfl, oort = (  # the modules, and not the functions of these names
    importlib.import_module(f"fedjax_sel.strategies.{name}")
    for name in ("divfl", "fedcor", "fedcor_presets", "fl_dp3s", "gpfl", "oort")
)


def read(table: str) -> dict[str, dict]:
    """Columns of a table whose first column names a row and whose last one its source: column -> row -> value."""
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    columns: dict[str, dict] = {name: {} for name in head[1:-1]}
    for name, *cells, source in rows:
        assert len(cells) == len(columns) and source, name
        for column, cell in zip(columns.values(), cells):
            column[name] = ast.literal_eval(cell) if re.match(r"[\d(]|None|True|False|'", cell) else cell
    return columns


# ---- FedGP and FedCor ----

# f: Fashion-MNIST, c: CIFAR-10. Rounds count from 0, so epochs 0 .. W of the code, which are random, are W + 1 rounds.
FEDCOR = """
number           | paper f | paper c | 2022 f  | 2022 c  | 2023 f     | 2023 c     | gpfl       | fedgp f | fedgp c | source
warmup           | 15      | 20      | 16      | 21      | 16         | 21         | 21         | 15      | 15      | FedCor 5.1; FedGP 4.1; code: --warmup 15, 20 and `epoch > args.warmup`; PBFL script/test_fedcor.sh: W = 20
begin            | 0       | 0       | 10      | 10      | 0          | 0          | 0          | 0       | 0       | options.py, --gpr_begin: 10 in a89bd66, 0 in d941083
interval         | 10      | 50      | 10      | 50      | 10         | 50         | 50         | 10      | 50      | FedCor 5.2; FedGP 4.2; README, --GPR_interval; PBFL script/test_fedcor.sh
update_offset    | 0       | 0       | 1       | 1       | 1          | 1          | 1          | 0       | 0       | Alg. 2 measures before it selects, federated_main.py after it trained
every_warmup_fit | True    | True    | True    | True    | False      | False      | False      | True    | True    | FedCor 5.1; federated_main.py: with --update_mean one fit, at epoch == args.warmup
warmup_steps     | 150     | 150     | 150     | 150     | 1000       | 1000       | 1000       | 150     | 150     | federated_main.py, max_epoches of gpr.Train; not in the papers
steps            | 100     | 100     | 100     | 100     | 100        | 100        | 100        | 100     | 100     | options.py, --GPR_Epoch 100; not in the papers
warmup_reuse     | 10      | 10      | 10      | 10      | 100        | 500        | 500        | 1       | 1       | FedCor C.1, M; FedGP, appendix; README, --group_size: 11 and 51, then 100 and 500; PBFL: 500
reuse            | 1       | 1       | 1       | 1       | 100        | 500        | 500        | 1       | 1       | FedCor C.1, M; ceil(11 / 10) = ceil(51 / 50) = 2 collections; --group_size 100 and 500 rounds
ages             | spaced  | spaced  | positions | positions | rounds | rounds     | rounds     | spaced  | spaced  | Eq. 17: t - m Dt; GPR.py: places in the history (a89bd66), epochs (d941083)
discount         | 0.9     | 0.99    | 0.8     | 0.97    | 0.95       | 0.99       | 0.99       | 0.9     | 0.99    | FedCor C.1, theta; FedGP, appendix; options.py and README, --GPR_gamma; PBFL: theta = 0.99
anneal           | 0.95    | 0.9     | 0.95    | 0.9     | 0.95       | 0.9        | 0.9        | 0.95    | 0.97    | FedCor 5.2, beta; FedGP 4.2; README, --discount; PBFL: beta = 0.9
mean             | zero    | zero    | zero    | zero    | discounted | discounted | discounted | zero    | zero    | FedCor 4.5, footnote; README of d941083, --update_mean
fit              | adam    | adam    | adam    | adam    | adam       | adam       | adam       | adam    | adam    | FedCor C.1; GPR.py
select           | greedy  | greedy  | greedy  | greedy  | greedy     | greedy     | greedy     | greedy  | greedy  | Alg. 1
importance       | shares  | shares  | shares  | shares  | shares     | shares     | uniform    | shares  | shares  | FedCor Eq. 1, p_i; PBFL: 1 / N
dimension        | None    | None    | None    | None    | None       | None       | None       | None    | None    | 15 (FedCor C.1; FedGP, appendix; --dimension), see below
restored_probes  | False   | False   | False   | False   | False      | False      | True       | False   | False   | PBFL, try_federated_learning restores the model before a probe's losses
noise            | 0.01    | 0.01    | 0.01    | 0.01    | 0.01       | 0.01       | 0.01       | 0.01    | 0.01    | GPR.py, sigma_n; not in the papers
probes           | 1       | 1       | 1       | 1       | 1          | 1          | 1          | 1       | 1       | FedCor C.1, S; FedGP Alg. 2
learning_rate    | 0.01    | 0.01    | 0.01    | 0.01    | 0.01       | 0.01       | 0.01       | 0.01    | 0.01    | FedCor C.1; FedGP, appendix; federated_main.py, lr = 1e-2
"""  # noqa: E501
NUMBERS = read(FEDCOR)
# Of our own, from the paper's: (FedCor supplement, C.1, on the closed form; B, Eq. 59-63, on the proxy.)
NUMBERS["closed-form f"], NUMBERS["closed-form c"] = (
    {**NUMBERS[f"paper {task}"], "fit": "closed-form", "every_warmup_fit": False} for task in "fc"
)
NUMBERS["proxy f"], NUMBERS["proxy c"] = ({**NUMBERS[f"paper {task}"], "select": "proxy"} for task in "fc")
COLUMNS = {
    (name, task): f"{column} {task[0]}"
    for name, column in (
        ("paper", "paper"), ("code-2022", "2022"), ("code-2023", "2023"), ("closed-form", "closed-form"),
        ("proxy", "proxy"), ("fedgp", "fedgp"),
    )
    for task in ("fmnist", "cifar10")
} | {("gpfl-port", task): "gpfl" for task in ("fmnist", "cifar10")}  # fmt: skip


@pytest.mark.parametrize("name,task", COLUMNS)
def test_the_numbers_of_fedcor_and_fedgp(name, task):
    strategy, preset = ("fedgp", "paper") if name == "fedgp" else ("fedcor", name)
    numbers = fedcor_presets.look_up(strategy, preset, task)
    typed = NUMBERS[COLUMNS[name, task]]
    assert numbers._asdict() == {field: typed[field] for field in numbers._fields}


def test_every_preset_of_fedcor_is_in_the_table():
    assert {name for name, _ in COLUMNS} == set(fedcor_presets.PRESETS)
    assert fedcor._DIMENSION == 15


# ---- the other strategies: the defaults of their parameters ----

DEFAULTS = """
strategy.parameter               | default     | source
random.variant                   | uniform-wor | FedCor C.1 (baselines), FL-DP3S 4.1
fedcor.preset                    | paper       | FedCor
fedcor.task                      | fmnist      | FedCor 5.1
fedgp.preset                     | paper       | FedGP
fedgp.task                       | fmnist      | FedGP 4.1
gpfl.preset                      | gpfl-c      | a coherent reading of GPFL
fl_dp3s.profile                  | fc1         | FL-DP3S Eq. 11
fl_dp3s.pool                     | None        | FL-DP3S Alg. 1: the k-DPP is over all clients
afl.alpha1                       | 0.75        | FedCor C.1 (baselines), as in AFL; options.py
afl.alpha2                       | 0.01        | the same
afl.alpha3                       | 0.1         | the same
pow_d.variant                    | pow-d       | Cho et al.
pow_d.num_candidates             | None        | 2 K: FedCor C.1 (baselines), see below
pow_d.batch_size                 | 64          | FedCor C.1, the batch of Cho et al. on Fashion-MNIST
fedsae.variant                   | softmax     | fedbase.py
fedsae.temperature               | 0.01        | fedbase.py: softmax(0.01 sqrt(n_k) l_k)
fedsae.active_rounds             | None        | active in all rounds; the code's own condition never holds
clustered.variant                | similarity  | Fraboni et al., Alg. 2, as FL-DP3S compares with
clustered.distance               | arccos      | Fraboni et al., main choice
clustered.unseen                 | group       | see clustered.py
clustered.linkage                | condensed   | see clustered.py
divfl.variant                    | lazy        | Balakrishnan et al., no overhead; melodi-lab/divfl
divfl.greedy                     | exact       | melodi-lab/divfl: lazy greedy, the same set
divfl.weights                    | samples     | melodi-lab/divfl
divfl.mixing                     | 0.0         | Balakrishnan et al.: no chance in it
oort.preset                      | code        | SymbioticLab/Oort
oort.exploration                 | 0.9         | training/argParser.py, --exploration_factor
oort.exploration_decay           | None        | of the preset, see below
oort.exploration_min             | 0.2         | training/argParser.py, --exploration_min
oort.cap                         | None        | of the preset
oort.cut                         | None        | of the preset
oort.explore_pool                | 5.0         | training/argParser.py, --sample_window
oort.max_participations          | None        | of the preset
oort.system                      | none        | statistical utility only; the full strategy is `clock`
oort.alpha                       | 2.0         | training/argParser.py, --round_penalty
oort.round_threshold             | 30.0        | FedScale, config_parser.py, --round_threshold; Oort: 10
oort.pacer_step                  | 20          | training/argParser.py, --pacer_step
oort.pacer_delta                 | 5.0         | training/argParser.py, --pacer_delta
oort.staleness_discount          | 0.0         | of our own; Pisces: 0.5, staleness_penalty_factor of its configurations
tifl.num_tiers                   | 5           | as in the experiments of Chai et al.
tifl.interval                    | 10          | flgo/algorithm/TiFL.py of easyFL
tifl.credits                     | None        | the number of rounds over m: bacox/fltk, client_selection/tifl.py
fedcs.round_seconds              | 180.0       | Nishio, Yonetani: 3 minutes
fedcs.fraction                   | None        | Nishio, Yonetani: 0.1; at least 2 K candidates, as in `pow_d`
ocs.num_candidates               | None        | all clients; 32 of the pool in SamuelHorvath/FL-optimal-client-sampling
ocs.rescalings                   | 4           | FL-optimal-client-sampling, --j_max_iter_greedy_alg
kvib.theta                       | None        | (N / (T K))^(1/3): dunzeng/K-Vib, sampler.py
kvib.bound                       | None        | measured; dunzeng/K-Vib, README.md: -reg 0.1, which is G^2
kvib.law                         | root        | minimizes the regularized variance; dunzeng/K-Vib: linear
e3cs.quota                       | 0.5         | Huang et al.: 0, 0.5 and 0.8 are compared
e3cs.quota_start                 | 0.0         | Huang et al.: a constant quota
e3cs.learning_rate               | 0.5         | aviramlachmani/flsim-E3CS-impl, server/server.py
e3cs.draw                        | sequential  | Huang et al., Algorithm 1; torch.multinomial in that port
cyclic.num_groups                | 5           | of our own
hics_fl.temperature              | 0.0025      | Chen, Vikalo A.1.2, Fashion-MNIST (others: 0.0015)
hics_fl.entropy_weight           | 10.0        | Chen, Vikalo, below Eq. 9
hics_fl.gamma                    | 4.0         | Chen, Vikalo A.1.2, Fashion-MNIST and CIFAR-10 (2 on Mini-ImageNet)
hics_fl.num_clusters             | None        | Chen, Vikalo A.1.2: K
hics_fl.linkage                  | condensed   | Chen, Vikalo, Eq. 9 as the distance; as in `clustered`
hics_fl.reading                  | paper       | Chen, Vikalo, Eqs. 7 to 10; `code` is their code
fedlecc.num_clusters             | None        | ours: one cluster per label
fedlecc.clusters_per_round       | None        | ours: half of the clusters
fed_cbs.exploration              | 10.0        | FedXplore, client_selector/fedcbs.yaml, lambda_
greedyfed.memory                 | None        | Singhal et al., cumulative Shapley value
greedyfed.evaluations            | 100         | ours: 10 orders of 10 clients; GreedyFed, server.py: up to 50 K orders
greedyfed.truncation             | 0.0001      | GreedyFed, server.py, threshold
osmd.alpha                       | 0.4         | boxinz17/FL-Client-Sampling, Real_Data/run_Logistic.py, alpha_star
delta.score                      | diversity   | Wang et al., Eq. 11 without local variance
"""


def defaults(name):
    """The default of every parameter of a strategy."""
    return {key: one.default for key, one in inspect.signature(strategies.TABLE[name].factory).parameters.items()}


def test_the_defaults_of_every_strategy():
    typed = read(DEFAULTS)["default"]
    found = {f"{name}.{key}": value for name in strategies.names() for key, value in defaults(name).items()}
    taken_from_presets = {key for key in found if key.split(".")[0] in ("fedcor", "fedgp", "gpfl") and key not in typed}
    assert all(found[key] is None for key in taken_from_presets)
    assert {key: value for key, value in found.items() if key not in taken_from_presets} == typed


@pytest.mark.parametrize("k,d", [(5, 10), (10, 20)])
def test_the_candidates_of_power_of_choice(k, d):
    """d = 2NC with the share C, FedCor C.1; d = 10 that train, PBFL's script/test.sh."""
    now = now_of(env_of([1] * 100, k))
    named = strategies.make("pow_d").candidates(jax.random.key(0), (), now)
    assert named.shape == (d,)
    named = strategies.make("pow_d", variant="train-first").candidates(jax.random.key(0), (), now)
    assert named.shape == (10,)


# of the code and of the paper, Lai et al. 2021: Sec. 4.3 and 4.4, Alg. 1
OORT = """
number             | code | paper | source
exploration_decay  | 0.95 | 0.98  | training/argParser.py, --exploration_decay; paper: 0.98
cap                | 0.98 | 0.95  | training/argParser.py, --clip_bound 0.98; paper: clipped at the 95th percentile
cut                | 0.7  | 0.95  | training/argParser.py, --cut_off_util 0.7; paper: c = 95 %
max_participations | 0    | 10    | training/argParser.py, --blacklist_rounds -1; paper: left out after 10 rounds
"""


def test_the_numbers_of_oort():
    for name, column in read(OORT).items():
        assert oort._TABLE[name]._asdict() == column
    assert set(oort._TABLE) == {"code", "paper"}
    assert oort._MAX_EXCLUDED == 0.3  # training/argParser.py, --blacklist_max_len
    assert oort._SMALLEST_RANGE == 1e-4  # oort.py, get_norm: max(_range, 1e-4)
    assert (oort._FLAT, oort._SHARP) == (0.1, 5.0)  # oort.py, pacer


def test_the_number_of_divfl():
    assert divfl._SUBSET_SHARE == 0.1  # melodi-lab/divfl, stochastic greedy: max(K, 0.1 N)


# the paper with its ambiguities settled, and joapolarbear/PBFL, pbfl/FL_core/client_selection/gpfl.py and server.py
GPFL = """
option         | gpfl-c     | gpfl-ref            | source
direction      | previous   | current             | Eq. 3: of w^(t-1); gpfl.py: of the round itself
scale          | gradient   | update              | Eq. 3: of gradients; gpfl.py: of updates
projection     | flat       | per-tensor-mean     | Eq. 3; gpfl.py: tensor by tensor, then their mean
softmax        | cohort     | cohort              | Eq. 5 over clients with fresh values; gpfl.py
mean           | selections | selections-and-zero | Eq. 6 over selections; gpfl.py: reward lists begin with a 0
alpha          | linear     | tent                | Eq. 7; gpfl.py: t / 100, then 200 / (t + 100)
outcome        | corrected  | sign                | Eq. 8 with the loss's sign corrected; server.py: by sign
start          | sweep      | warm-up-sweep       | Fig. 4: all seen within 50 rounds; script/test.sh: warm-up of 20
accuracy_on    | validation | test                | the server's own data; server.py: clients' test slices
n              | rounds     | rounds              | Eq. 6, t; gpfl.py
rho            | 1.0        | 1.0                 | after Eq. 7
first_round    | 1          | 0                   | Eq. 6, t: of the next round; gpfl.py: the rounds that are over
smoothing      | 0.1        | 0.1                 | Sec. VI-B: momentum 0.1
warm_up_rounds | 20         | 20                  | script/test.sh
"""


def test_the_numbers_of_gpfl():
    assert read(GPFL) == {name: numbers._asdict() for name, numbers in gpfl._TABLE.items()}
    tent = [float(gpfl.exploration("tent", 1.0, jnp.float32(t), 500)) for t in (1, 50, 99, 100, 150, 300)]
    assert tent == pytest.approx([0.01, 0.5, 0.99, 1.0, 0.8, 0.5])  # gpfl.py
    linear = [float(gpfl.exploration("linear", 1.0, jnp.float32(t), 500)) for t in (1, 250, 500)]
    assert linear == pytest.approx([0.002, 0.5, 1.0])  # Eq. 7
    decay = [float(gpfl.exploration("decay", 1.0, jnp.float32(t), 500)) for t in (0, 125, 500)]
    assert decay == pytest.approx([1.0, 0.75, 0.0])  # of our own: rho (1 - t / T)


@pytest.mark.parametrize("module,factory", [(fedcor, "fedcor"), (fedcor, "fedgp"), (gpfl, "gpfl"), (oort, "oort")])
def test_presets_are_typed_in_one_way(module, factory):
    """A NamedTuple called Numbers, whose types are those of the parameters that None leaves to the preset."""
    types = typing.get_type_hints(module.Numbers)
    fedcors = [numbers for pair in fedcor_presets.PRESETS.values() for numbers in pair]
    for numbers in fedcors if module is fedcor else module._TABLE.values():
        assert isinstance(numbers, module.Numbers)
        for name, value in numbers._asdict().items():
            allowed = typing.get_args(types[name]) if typing.get_origin(types[name]) is typing.Literal else None
            assert allowed is None or value in allowed, name
    parameters = typing.get_type_hints(strategies.TABLE[factory].factory)
    left_to_the_preset = [name for name, default in defaults(factory).items() if default is None]
    assert left_to_the_preset
    for name in left_to_the_preset:
        assert parameters[name] == types[name] | None, name


# ---- experiments ----

SHARDS = {"partition": "shards"}
FEDCOR_PARTITIONS = {  # FedCor 5.1, C.1; GPFL Sec. VI-B
    "1spc": {**SHARDS, "shards_per_client": 1, "num_selected": 10},
    "2spc": {**SHARDS, "shards_per_client": 2, "num_selected": 5},
    "dir": {"partition": "dirichlet_qp", "alpha": 0.2, "num_selected": 5},
}
FEDCOR_TARGETS = {  # Table 1
    "fmnist": {"2spc": 0.69, "1spc": 0.62, "dir": 0.64},
    "cifar10": {"2spc": 0.62, "1spc": 0.36, "dir": 0.54},
}
EXPERIMENTS = """
setting                  | fedcor/fmnist | fedcor/cifar10 | fl_dp3s   | gpfl/fmnist   | gpfl/cifar10 | source
dataset                  | fashion_mnist | cifar10        | None      | fashion_mnist | cifar10      | FedCor 5.1; FL-DP3S 4; PBFL, save/overall/fmnist_*.csv
num_clients              | 100           | 100            | 100       | 100           | 100          | FedCor 5.1; FL-DP3S 4.1; GPFL VI-B
num_selected             | None          | None           | 10        | None          | None         | FL-DP3S 4.1
model                    | mlp           | cnn            | cnn_small | mlp           | cnn          | FedCor C.1; flsim, models/mnist; GPFL VI-B
model_dropout            | 0.5           | 0.0            | 0.0       | 0.5           | 0.0          | models.py of FedCor, which PBFL uses, too
local_epochs             | 3             | 5              | 5         | None          | None         | FedGP, appendix (20, 40 steps in FedCor C.1); flsim
local_steps              | None          | None           | None      | 20            | 40           | GPFL VI-B
batch_size               | 64            | 50             | 10        | 64            | 50           | FedCor C.1; flsim; GPFL VI-B
learning_rate            | 0.005         | 0.01           | 0.01      | 0.005         | 0.01         | FedCor C.1; flsim; GPFL VI-B
learning_rate_milestones | (150, 300)    | ()             | ()        | ()            | ()           | FedCor C.1
learning_rate_decay      | 0.5           | 0.5            | 0.5       | 0.5           | 0.5          | FedCor C.1: halved; of no effect without milestones
momentum                 | 0.0           | 0.0            | 0.5       | 0.1           | 0.0          | FedCor C.1; flsim; GPFL VI-B
weight_decay             | 1e-4          | 3e-4           | 0.0       | 1e-4          | 3e-4         | FedCor C.1; flsim; GPFL VI-B
aggregation              | uniform       | uniform        | samples   | uniform       | uniform      | FedCor Eq. 4; FL-DP3S Eq. 6; GPFL II
holdout                  | 0.2           | 0.2            | 0.0       | 0.0           | 0.0          | update.py of FedCor: 80 / 20
loss_on                  | holdout       | holdout        | train     | train         | train        | update.py of FedCor
rounds                   | 500           | 2000           | 150       | 500           | 2000         | FedCor, Table 1; FL-DP3S, Fig. 1 (shown there); GPFL VI-C
seeds                    | (0, 1, 2, 3, 4) | (0, 1, 2, 3, 4) | (0,)   | (0,)          | (0,)         | FedCor 5.1: five; FL-DP3S 4.1 has 50, a preset one; PBFL: one
train_metrics_every      | 0             | 0              | 1         | 0             | 0            | FL-DP3S 4.1: accuracy on the training set
eval_every               | 1             | 1              | 1         | 1             | 1            | FedCor, Table 1 counts rounds
"""  # noqa: E501
OUR_OWN = {"chunk"}  # how often the host looks


def experiments():
    """Every preset of a paper: name -> the settings that it must have."""
    columns = read(EXPERIMENTS)
    typed = {}
    for family, parts in (("fedcor/fmnist", FEDCOR_PARTITIONS), ("fedcor/cifar10", FEDCOR_PARTITIONS),
                          ("gpfl/fmnist", FEDCOR_PARTITIONS), ("gpfl/cifar10", FEDCOR_PARTITIONS)):  # fmt: skip
        for name, part in parts.items():
            paper, data = family.split("/")
            target = {"target_accuracy": FEDCOR_TARGETS[data][name]} if paper == "fedcor" else {}
            typed[f"{family}-{name}"] = {**columns[family], **part, **target}
    for data, dataset in (("mnist", "mnist"), ("fmnist", "fashion_mnist")):  # FL-DP3S 4
        for xi in ("1", "0.8", "0.5", "H"):
            part = {"partition": "skewness", "skewness": xi, "dataset": dataset}
            typed[f"fl_dp3s/{data}-xi{xi.lower()}"] = {**columns["fl_dp3s"], **part}
    return typed


@pytest.mark.parametrize("name", experiments())
def test_the_settings_of_an_experiment(name):
    typed, found, usual = experiments()[name], preset(name).flat(), Config().flat()
    assert {key: found[key] for key in typed} == typed
    unexplained = {key for key in found if found[key] != usual[key]} - set(typed) - OUR_OWN
    assert not unexplained, "a preset sets what the table does not know"


def test_every_experiment_is_in_the_table():
    assert set(experiments()) == set(PRESETS) - {"quickstart", "shakespeare"}


# ---- equations ----

EQUATIONS = {
    # in the table of symbols of a strategy's docstring: symbol -> number in the paper
    fl_dp3s: {"f_c": 11, "s0_mn": 14, "S": 14, "L": 13},
    fedcor: {"X": 14, "alpha_k": 9, "theta": 17, "M": 17},
    gpfl: {"c_i": 3, "c~_i": 5, "f_t": 8, "mu~_i": 6, "alpha_t": 7, "u_i": 6},
}


@pytest.mark.parametrize("module", EQUATIONS, ids=lambda module: module.__name__.split(".")[-1])
def test_symbols_name_the_papers_equations(module):
    doc = re.sub(r"\n {20,}(?=\()", " ", module.__doc__)
    found = {}
    for line in doc.splitlines():
        row = re.match(r" {4}(\S+?),? .*\(Eq\. (\d+)\)$", line)
        if row:
            found[row[1]] = int(row[2])
    assert EQUATIONS[module].items() <= found.items()
