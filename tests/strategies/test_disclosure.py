"""What the server sees of single clients: derived from requests and from what `update` reads."""

import pytest

from fedjax_sel import strategies
from fedjax_sel.experiment.checking import server_sees
from fedjax_sel.strategies import Request, Selection, Strategy, always, privacy
from fedjax_sel.strategies.privacy import MODELS, NOTHING, NUMBERS, STATISTICS, disclosed, level

EXCLUDE_SECURE_AGGREGATION = {"clustered", "delta", "divfl", "gpfl", "greedyfed", "hics_fl", "kvib", "osmd"}
SEE_NOTHING = {"random", "cyclic", "e3cs", "full"}


@pytest.mark.parametrize("name", strategies.names())
def test_each_strategy(name):
    seen = disclosed(strategies.make(name))
    assert (level(seen) < MODELS) == (name not in EXCLUDE_SECURE_AGGREGATION)
    assert (level(seen) == NOTHING) == (name in SEE_NOTHING)


@pytest.mark.parametrize(
    "algo,parameters,size",
    [
        ("fl_dp3s", {"pool": 300}, (1000, 10, 50)),
        ("fl_dp3s", {"pool": 8}, (100, 5, 50)),
        ("greedyfed", {"evaluations": 8}, (100, 5, 50)),
        ("cyclic", {"num_groups": 250}, (1000, 10, 50)),
        ("fedlecc", {"clusters_per_round": 5}, (100, 10, 50)),
    ],
)
def test_parameters_need_be_valid_only_in_the_run_itself(algo, parameters, size):
    expected = privacy.CLASSES[level(disclosed(strategies.make(algo)))]
    assert server_sees(algo, tuple(parameters.items()), size) == expected


def test_that_of_a_plug_in_is_unknown():
    assert server_sees("somebodys:strategy", (), (100, 10, 50)) == "unknown"


def made(update=None, requests=()):
    strategy = Strategy("mine", lambda key, state, now: Selection.of(now.env.sizes[: now.env.num_selected], None))
    return strategy._replace(requests=requests, **({} if update is None else {"update": update}))


def test_a_field_that_update_does_not_read_is_not_seen():
    def init(key, now):
        return now.env.importance[0]

    step = made(lambda state, now, selection, outcome: state + outcome.step["Dense_0"]["bias"].sum())
    losses = made(lambda state, now, selection, outcome: state + outcome.losses_after.sum())
    updates = made(lambda state, now, selection, outcome: state + outcome.updates["Dense_0"]["bias"].sum())
    durations = made(lambda state, now, selection, outcome: state + outcome.seconds.sum())
    seen = [disclosed(one._replace(init=init)) for one in (step, losses, durations, updates)]
    assert [level(one) for one in seen] == [NOTHING, NUMBERS, NUMBERS, MODELS]


def test_requests_count_although_nothing_reads_them():
    requests = (Request("label_histogram", "all", always()), Request("loss", "all", always()))
    seen = disclosed(made(requests=requests))
    assert seen == {"label histogram": STATISTICS, "loss": NUMBERS} and level(seen) == STATISTICS
    assert privacy.in_words(seen) == "individual numbers (loss); individual statistics of data (label histogram)"
    assert privacy.in_words(disclosed(made())) == privacy.CLASSES[NOTHING]
