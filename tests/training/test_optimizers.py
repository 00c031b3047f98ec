"""Federated optimizers: closed forms and identities of each rule, without a simulator around it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_sel
from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import checking
from fedjax_sel.models.core import Weights
from fedjax_sel.training import client, optimizers, server
from fedjax_sel.training.optimizers import Finished, Memory

RATE = 0.1
NONE = Memory()


def trainer_of(optimizer, momentum=0.0, weight_decay=0.0, client_optimizer=None):
    own = client.sgd(momentum, weight_decay) if client_optimizer is None else client_optimizer
    return client.Trainer(None, None, None, optimizer, own, None, 1, 1)


def coefficient(optimizer, *steps, rate=RATE, **of_clients):
    """Of the last of some rounds in which a client takes so many steps; its own optimizer goes on in each."""
    trainer = trainer_of(optimizer, **of_clients)
    one_round = jax.jit(lambda n, unit: client.coefficient(trainer, n, jnp.float32(rate), unit))
    gone, unit = 0.0, trainer.client_optimizer.init(jnp.zeros(()))
    for number in steps:
        gone, unit = one_round(number, unit)
    return float(gone)


def factors(steps, momentum=0.0, shrink=0.0):
    """|a|_1 from the definition: the update is linear in the gradients, so feed one gradient at a time.

    `shrink` is what a step subtracts from the gradient for a weight of one: mu, or the weight decay.
    """
    total = 0.0
    for place in range(steps):
        gone = buffer = 0.0
        for step in range(steps):
            buffer = momentum * buffer + (step == place) - shrink * RATE * gone
            gone += buffer
        total += abs(gone)
    return total


@pytest.mark.parametrize("steps", [0, 1, 7, 40])
def test_a_coefficient_of_sgd_is_its_steps_to_the_bit(steps):
    assert coefficient(optimizers.make("fednova"), steps) == steps


@pytest.mark.parametrize("steps", [1, 3, 24])
@pytest.mark.parametrize("momentum,mu,decay", [(0.9, 0, 0), (0, 0.5, 0), (0, 0, 0.2), (0.6, 0.3, 0), (0.5, 0.2, 0.1)])
def test_coefficients_are_those_of_the_definition(steps, momentum, mu, decay):
    """FedNova Sec. 4: momentum, proximal terms, and what the paper does not write out: both, and weight decay."""
    found = coefficient(optimizers.make("fednova", mu=mu), steps, momentum=momentum, weight_decay=decay)
    np.testing.assert_allclose(found, factors(steps, momentum, mu + decay), rtol=1e-5)


@pytest.mark.parametrize("tau", [1, 5, 24])
def test_coefficients_are_those_of_the_paper(tau):
    rho, mu = 0.9, 0.5
    momentum = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
    proximal = (1 - (1 - RATE * mu) ** tau) / (RATE * mu)
    np.testing.assert_allclose(coefficient(optimizers.make("fednova"), tau, momentum=rho), momentum, rtol=1e-5)
    np.testing.assert_allclose(coefficient(optimizers.make("fednova", mu=mu), tau), proximal, rtol=1e-5)
    np.testing.assert_allclose(coefficient(optimizers.make("fedprox", mu=mu), tau), proximal, rtol=1e-5)


@pytest.mark.parametrize("momentum,mu,decay", [(0.9, 0, 0), (0.9, 0.5, 0.1)])
def test_the_coefficient_of_an_optimizer_that_goes_on_counts_the_gradients_of_earlier_rounds(momentum, mu, decay):
    """Again one gradient at a time, over three rounds: what moves the client in the last of them."""
    rounds, total = (5, 2, 4), 0.0
    for place in range(sum(rounds)):
        buffer, step = 0.0, 0
        for tau in rounds:
            gone = 0.0  # in this round
            for _ in range(tau):
                buffer = momentum * buffer + (step == place) - (mu + decay) * RATE * gone
                gone, step = gone + buffer, step + 1
        total += gone
    found = coefficient(optimizers.make("fednova", mu=mu), *rounds, momentum=momentum, weight_decay=decay)
    np.testing.assert_allclose(found, total, rtol=1e-5)


def test_a_momentum_buffer_that_goes_on_fills_up():
    """At momentum 0.9 every gradient moves a client ten times in the end: five steps go 50 learning rates."""
    first, later = (coefficient(optimizers.make("fednova"), *[5] * rounds, momentum=0.9) for rounds in (1, 40))
    np.testing.assert_allclose([first, later], [13.1441, 50.0], rtol=1e-4)


@pytest.mark.parametrize("everyone", [True, False])
@pytest.mark.parametrize("name", ["scaffold", "fednova"])
def test_clients_whose_momentum_goes_on_report_their_gradients(name, everyone):
    """Constant gradients: SCAFFOLD's variates are those in the end, and FedNova's directions are from the start."""
    optimizer, taus, rng = optimizers.make(name), (5, 2, 7, 4), np.random.default_rng(0)
    trainer, gradients = trainer_of(optimizer, momentum=0.9), 3 * rng.normal(size=(CLIENTS, SIZE))

    def train(own, shared, state, gradient, tau):
        memory = Memory(own, shared)

        def step(_, carry):
            y, momentum = carry
            direction, momentum = trainer.client_optimizer.update(
                optimizer.gradient(gradient, y, jnp.zeros(SIZE), memory), momentum, y
            )
            return y - RATE * direction, momentum

        y, momentum = jax.lax.fori_loop(0, tau, step, (jnp.zeros(SIZE), state.model))
        gone, unit = client.coefficient(trainer, tau, jnp.asarray(RATE), state.unit)
        return optimizer.report(Finished(y, gone, jnp.asarray(RATE)), memory), client.OptimizerState(momentum, unit)

    train = jax.jit(train)
    own = [optimizer.init_own(jnp.zeros(SIZE)) for _ in gradients]
    states = [client.fresh(trainer, jnp.zeros(SIZE)) for _ in gradients]
    shared = optimizer.init_shared(jnp.zeros(SIZE))
    for _ in range(150):
        cohort = range(CLIENTS) if everyone else rng.permutation(CLIENTS)[:2]
        reports = {}
        for i in cohort:
            reports[i], states[i] = train(own[i], shared, states[i], jnp.float32(gradients[i]), taus[i])
            own[i] = reports[i].own
            if name == "fednova":
                np.testing.assert_allclose(reports[i].averaged.direction, -RATE * gradients[i], rtol=1e-4)
        shared = jax.tree.map(
            lambda c, *each: c + sum(each) / CLIENTS, shared, *(r.contributed for r in reports.values())
        )
    if name == "scaffold":
        np.testing.assert_allclose(own, gradients, atol=1e-2)
        np.testing.assert_allclose(shared, gradients.mean(0), atol=1e-2)


def test_variates_of_zero_do_not_change_a_coefficient():
    assert coefficient(optimizers.make("scaffold"), 9) == 9


@pytest.mark.slow
def test_fedprox_steps_on_the_gradient_of_its_objective():
    """Against finite differences in float64 of l(w) + mu/2 ||w - w^t||^2."""
    mu, rng = 0.7, np.random.default_rng(0)
    features, labels = rng.normal(size=(20, 4)), rng.integers(0, 3, 20)
    with enable_x64(True):
        w_t, w = (jnp.asarray(rng.normal(size=(4, 3))) for _ in range(2))

        def loss(weights):
            return -jax.nn.log_softmax(features @ weights)[jnp.arange(20), labels].mean()

        def objective(weights):
            return loss(weights) + mu / 2 * jnp.sum((weights - w_t) ** 2)

        found = optimizers.make("fedprox", mu=mu).gradient(jax.grad(loss)(w), w, w_t, NONE)
        for i, j in itertools.product(range(4), range(3)):
            nudge = jnp.zeros((4, 3)).at[i, j].set(1e-5)
            difference = (objective(w + nudge) - objective(w - nudge)) / 2e-5
            np.testing.assert_allclose(found[i, j], difference, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["fedprox", "fednova"])
def test_without_a_proximal_term_clients_step_on_their_own_gradient(name):
    gradient = {"w": jnp.array([1.0, -2.0])}
    found = optimizers.make(name, mu=0).gradient(gradient, {"w": jnp.array([5.0, 7.0])}, {"w": jnp.zeros(2)}, NONE)
    np.testing.assert_array_equal(found["w"], gradient["w"])


# ---- strongly convex quadratics, F_i(w) = 1/2 (w - b_i)' A_i (w - b_i), heterogeneous clients, exact gradients ----

CLIENTS, SIZE = 4, 3
TAUS = np.array([2, 5, 9, 16])
_RNG = np.random.default_rng(3)
_ROOTS = _RNG.normal(size=(CLIENTS, SIZE, SIZE))
A = np.einsum("ijk,ilk->ijl", _ROOTS, _ROOTS) / SIZE + np.eye(SIZE)
B = 3 * _RNG.normal(size=(CLIENTS, SIZE))
OMEGA = np.array([0.1, 0.2, 0.3, 0.4])
OPTIMUM = np.linalg.solve(np.einsum("i,ijk->jk", OMEGA, A), np.einsum("i,ijk,ik->j", OMEGA, A, B))


def fixed_point(weights, rate, taus=TAUS):
    """Where sum_i weights_i (I - (I - rate A_i)^tau_i) (w - b_i) = 0: where the mean of the updates is zero."""
    pulls = [
        f * (np.eye(SIZE) - np.linalg.matrix_power(np.eye(SIZE) - rate * a, t)) for f, a, t in zip(weights, A, taus)
    ]
    return np.linalg.solve(sum(pulls), sum(pull @ b for pull, b in zip(pulls, B)))


def run_on_quadratics(optimizer, rate, rounds, taus=TAUS, weights=OMEGA, server_rate=None):
    """Rounds in float64 with everyone: the hooks as the simulator calls them."""
    with enable_x64(True):
        transformation = optimizer.server(optimizer.server_learning_rate if server_rate is None else server_rate)
        a, b, taus, omega = jnp.asarray(A), jnp.asarray(B), jnp.asarray(taus), jnp.asarray(weights, jnp.float64)
        trainer = trainer_of(optimizer)

        def local(received, memory, a, b, tau):
            def step(s, y):
                moved = y - rate * optimizer.gradient(a @ (y - b), y, received, memory)
                return jnp.where(s < tau, moved, y)

            y = jax.lax.fori_loop(0, int(TAUS.max()), step, received)
            gone, _ = client.coefficient(trainer, tau, jnp.asarray(rate), trainer.client_optimizer.init(jnp.zeros(())))
            gone = gone.astype(jnp.float64)
            return optimizer.report(Finished(y - received, gone, jnp.asarray(rate)), memory)

        def one_round(carry, _):
            w, state, memory = carry
            report = jax.vmap(lambda own, *rest: local(w, Memory(own, memory.shared), *rest))(memory.own, a, b, taus)
            mean = optimizer.combine(jax.tree.map(lambda leaf: jnp.tensordot(omega, leaf, 1), report.averaged))
            w, state = server.step(transformation, state, w, mean)
            shared = jax.tree.map(lambda c, each: c + each.sum(0) / CLIENTS, memory.shared, report.contributed)
            return (w, state, Memory(report.own, shared)), w

        w = jnp.zeros(SIZE)
        own = jax.tree.map(lambda leaf: jnp.zeros((CLIENTS, *leaf.shape)), optimizer.init_own(w))
        carry = (w, transformation.init(w), Memory(own, optimizer.init_shared(w)))
        (w, _, memory), path = jax.jit(lambda c: jax.lax.scan(one_round, c, length=rounds))(carry)
        return np.asarray(w), np.asarray(path), jax.device_get(memory)


def distance(w):
    return np.linalg.norm(w - OPTIMUM)


def test_fedavg_stalls_at_the_bias_that_the_closed_form_gives():
    for rate in (0.02, 0.005):
        w, _, _ = run_on_quadratics(optimizers.make("fedavg"), rate, 3000)
        np.testing.assert_allclose(w, fixed_point(OMEGA, rate), atol=1e-9)
        assert distance(w) > 0.3
    # as the steps get smaller, the bias stays: clients count as much as they work
    worked = OMEGA * TAUS
    limit = np.linalg.solve(np.einsum("i,ijk->jk", worked, A), np.einsum("i,ijk,ik->j", worked, A, B))
    np.testing.assert_allclose(fixed_point(OMEGA, 1e-6), limit, atol=1e-4)
    assert distance(limit) > 0.3


def test_fednova_ends_where_the_closed_form_says_and_at_the_optimum_as_steps_get_small():
    """What is left is client drift, which goes with the learning rate; FedAvg's bias does not."""
    left = []
    for rate in (0.02, 0.01, 0.005):
        w, _, _ = run_on_quadratics(optimizers.make("fednova"), rate, 6000)
        np.testing.assert_allclose(w, fixed_point(OMEGA / TAUS, rate), atol=1e-6)
        left.append(distance(w))
    assert left[1] < 0.6 * left[0] and left[2] < 0.6 * left[1]
    assert distance(fixed_point(OMEGA / TAUS, 1e-5)) < 1e-3


@pytest.mark.parametrize("taus", [TAUS, np.full(CLIENTS, 9)])
def test_scaffold_reaches_the_optimum_with_any_steps(taus):
    """The plain mean of the clients' objectives, for c is the plain mean of the variates."""
    even = np.full(CLIENTS, 1 / CLIENTS)
    optimum = np.linalg.solve(A.mean(0), np.einsum("ijk,ik->j", A, B) / CLIENTS)
    w, _, memory = run_on_quadratics(optimizers.make("scaffold"), 0.02, 3000, taus, even)
    np.testing.assert_allclose(w, optimum, atol=1e-5)
    gradients = np.einsum("ijk,ik->ij", A, w - B)
    np.testing.assert_allclose(memory.own, gradients, atol=1e-4)  # every client knows its own gradient there
    np.testing.assert_allclose(memory.shared, memory.own.mean(0), atol=1e-5)
    averaged, _, _ = run_on_quadratics(optimizers.make("fedavg"), 0.02, 3000, taus, even)
    assert np.linalg.norm(averaged - optimum) > 0.1


def test_scaffold_against_its_formulas_written_out():
    rate, w, c, own = 0.03, np.zeros(SIZE), np.zeros(SIZE), np.zeros((CLIENTS, SIZE))
    for _ in range(5):
        updates, new = [], own.copy()
        for i in range(CLIENTS):
            y = w
            for _ in range(TAUS[i]):
                y = y - rate * (A[i] @ (y - B[i]) - own[i] + c)
            new[i] = own[i] - c + (w - y) / (TAUS[i] * rate)
            updates.append(y - w)
        w = w + OMEGA @ np.array(updates)
        c, own = c + (new - own).mean(0), new
    found, _, memory = run_on_quadratics(optimizers.make("scaffold"), rate, 5)
    np.testing.assert_allclose(found, w, atol=1e-6)
    np.testing.assert_allclose(memory.own, own, atol=1e-5)
    np.testing.assert_allclose(memory.shared, c, atol=1e-5)


@pytest.mark.parametrize("weights", [OMEGA, 0.3 * OMEGA])
def test_fednova_with_equal_steps_is_fedavg_whatever_the_weights_add_up_to(weights):
    taus = np.full(CLIENTS, 7)
    a, b = (run_on_quadratics(optimizers.make(name), 0.02, 20, taus, weights)[1] for name in ("fednova", "fedavg"))
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def test_fednova_of_nobody_leaves_the_model():
    nova = optimizers.make("fednova")
    report = nova.report(Finished(jnp.ones(2), jnp.float32(3), jnp.float32(0.1)), NONE)
    nothing = jax.tree.map(jnp.zeros_like, report.averaged)
    np.testing.assert_array_equal(nova.combine(nothing), 0)


# ---- the server's side ----


def adaptive_twin(rule, deltas, rate, beta1, beta2, tau):
    """Reddi et al., Alg. 2, in NumPy float64: the path of w."""
    w, m, v, path = np.zeros(2), np.zeros(2), np.full(2, tau**2), []
    for delta in deltas:
        m = beta1 * m + (1 - beta1) * delta
        square = delta**2
        v = {
            "fedadagrad": v + square,
            "fedadam": beta2 * v + (1 - beta2) * square,
            "fedyogi": v - (1 - beta2) * square * np.sign(v - square),
        }[rule]
        w = w + rate * m / (np.sqrt(v) + tau)
        path.append(w)
    return np.array(path)


def server_path(optimizer, deltas, rate):
    transformation = optimizer.server(rate)
    w = jnp.zeros(2)
    state, path = transformation.init(w), []
    for delta in deltas:
        w, state = server.step(transformation, state, w, jnp.asarray(delta, jnp.float32))
        path.append(np.asarray(w))
    return np.array(path)


DELTAS = np.random.default_rng(1).normal(size=(12, 2)) * [0.01, 3.0]


@pytest.mark.parametrize("name", ["fedadagrad", "fedadam", "fedyogi"])
def test_adaptive_servers_equal_their_twin(name):
    options = {"beta1": 0.8, "tau": 0.02} | ({} if name == "fedadagrad" else {"beta2": 0.9})
    expected = adaptive_twin(name, DELTAS, 0.3, **{"beta2": 0.0, **options})
    np.testing.assert_allclose(server_path(optimizers.make(name, **options), DELTAS, 0.3), expected, rtol=2e-5)


def test_their_defaults_are_the_papers():
    for name in ("fedadam", "fedyogi"):
        assert {key: value.default for key, value in optimizers.parameters(name).items()} == {
            "beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "learning_rate": 0.01,
        }  # fmt: skip
        np.testing.assert_allclose(
            server_path(optimizers.make(name), DELTAS, 0.1),
            adaptive_twin(name, DELTAS, 0.1, 0.9, 0.99, 1e-3),
            rtol=2e-5,
        )


@pytest.mark.parametrize("name", ["fedadagrad", "fedadam", "fedyogi"])
def test_with_a_large_tau_adaptive_servers_average(name):
    """sqrt(v) stays at tau while updates are small beside it (and beta2 near 1): the step is eta Delta / (2 tau)."""
    options = {"beta1": 0.0, "tau": 1e4} | ({} if name == "fedadagrad" else {"beta2": 1 - 1e-6})
    path = server_path(optimizers.make(name, **options), DELTAS, 2e4)
    np.testing.assert_allclose(path, DELTAS.cumsum(0), rtol=1e-4, atol=1e-6)


def test_fedadam_without_memory_and_tau_takes_the_sign():
    path = server_path(optimizers.make("fedadam", beta1=0, beta2=0, tau=1e-9), DELTAS, 0.1)
    np.testing.assert_allclose(path, 0.1 * np.sign(DELTAS).cumsum(0), rtol=1e-5)


def test_fedavgm_is_momentum_and_without_it_fedavg():
    expected, buffer, w = [], 0.0, 0.0
    for delta in DELTAS:
        buffer = 0.7 * buffer + delta
        w = w + 0.5 * buffer
        expected.append(w)
    np.testing.assert_allclose(server_path(optimizers.make("fedavgm", momentum=0.7), DELTAS, 0.5), expected, rtol=1e-4)
    plain = server_path(optimizers.make("fedavgm", momentum=0.0), DELTAS, 1.0)
    np.testing.assert_allclose(plain, DELTAS.cumsum(0), rtol=1e-4, atol=1e-6)


# ---- names ----


def test_every_optimizer_is_listed_and_made():
    assert optimizers.names()[:4] == ("fedavg", "fedprox", "fednova", "scaffold")
    for name in optimizers.names():
        assert optimizers.make(name).name == name


@pytest.mark.parametrize(
    "name,arguments,message",
    [
        ("fedporx", {}, "--optimizer: unknown 'fedporx'; did you mean 'fedprox'"),
        ("fedprox", {"mue": 1}, "--optimizer-args of fedprox: unknown 'mue'; did you mean 'mu'"),
        ("fedprox", {"mu": "much"}, "--optimizer-args mu=much of fedprox: 'much' is not a number"),
        ("scaffold", {"mu": 1}, "--optimizer-args of scaffold: unknown 'mu'"),
        ("nobodys:theirs", {}, "--optimizer nobodys:theirs: there is no module 'nobodys'"),
        ("fedjax_sel.metrics:running", {}, "--optimizer fedjax_sel.metrics:running: 'fedjax_sel.metrics' has no"),
        ("builtins:dict", {}, "it must return a fedjax_sel.training.optimizers.FederatedOptimizer"),
    ],
)
def test_bad_optimizers_are_answered_in_one_sentence(name, arguments, message):
    with pytest.raises(UserError, match=message) as error:
        optimizers.make(name, **arguments)
    assert len(str(error.value).splitlines()) == 1


def test_an_optimizer_of_somebodys_own_is_found_by_its_name():
    made = optimizers.make("fedjax_sel.training.optimizers:fedprox", mu="0.5")
    assert made.name == "fedprox"


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize("name", checking.optax_names())
def test_every_optimizer_of_optax_works_by_its_name(name):
    made = checking.make_optax("--server-optimizer", name, {}, 0.1)
    params = {"w": jnp.ones((2, 3))}
    updates, _ = made.update({"w": jnp.ones((2, 3))}, made.init(params), params)
    assert np.isfinite(np.asarray(updates["w"])).all()


def test_optax_by_name_takes_its_parameters():
    made = checking.make_optax("--server-optimizer", "sgd", {"momentum": "0.5"}, 0.1)
    expected = optax.sgd(0.1, momentum=0.5)
    w = jnp.ones(3)
    for one, two in zip(
        jax.tree.leaves(made.update(w, made.init(w))), jax.tree.leaves(expected.update(w, expected.init(w)))
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "name,arguments,message",
    [
        ("adamm", {}, "--client-optimizer: unknown 'adamm'; did you mean 'adam'"),
        ("lbfgs", {}, "--client-optimizer: unknown 'lbfgs'"),
        ("adam", {"b3": 1}, "--client-optimizer-args of adam: unknown 'b3'; choose from b1, b2"),
        ("adam", {"learning_rate": 1}, "learning_rate has its own flag"),
        ("adam", {"mu_dtype": "no_such_type"}, "cannot be used here"),
        ("adam", {"b1": 2}, r"b1=2(\.0)? of adam: must be from 0 to 1 .excluded."),
        ("adam", {"eps": -1}, r"eps=-1(\.0)? of adam: must be at least 0"),
        ("sgd", {"momentum": 1}, "momentum=1.* of sgd: must be from 0 to 1"),
        ("rmsprop", {"decay": -0.1}, "decay=-0.1 of rmsprop: must be from 0 to 1"),
        ("sgd", {"momentum": "lots"}, "cannot be used here|'lots' is not a number"),  # as Optax declares it
    ],
)
def test_bad_names_of_optax_are_answered_in_one_sentence(name, arguments, message):
    with pytest.raises(UserError, match=message) as error:
        checking.make_optax("--client-optimizer", name, arguments, 1.0)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    "name,arguments",
    [("fromage", {}), ("rprop", {}), ("adafactor", {"weight_decay_rate": 0.1}), ("optimistic_adam", {"optimism": 0.5})],
)
def test_clients_have_no_optimizer_whose_step_is_not_proportional_to_its_rate(name, arguments):
    """Theirs is built at a rate of one, and what it gives is multiplied by the round's."""
    settings = fedjax_sel.Config().replace(
        client_optimizer=name, client_optimizer_args=arguments, momentum=0.0, weight_decay=0.0
    )
    with pytest.raises(UserError, match=f"--client-optimizer {name}: its step is not proportional"):
        checking.build_optimizers(settings.training)


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize("name", sorted(set(checking.optax_names()) - set(checking.NOT_PROPORTIONAL)))
def test_the_others_are_proportional(name):
    params, gradient = {"w": jnp.float32([[0.5, -2.0], [1.0, 3.0]])}, {"w": jnp.float32([[1.0, -0.3], [0.2, 2.0]])}
    steps = []
    for rate in (1.0, 0.5):
        made = checking.make_optax("--client-optimizer", name, {}, rate)
        state = made.init(params)
        for _ in range(2):
            update, state = made.update(gradient, state, params)
        steps.append(np.asarray(update["w"]) / rate)
    np.testing.assert_allclose(*steps, rtol=1e-5, atol=1e-7)


def test_a_server_that_decays_stands_still_where_nobody_reported():
    decaying = checking.make_optax("--server-optimizer", "fromage", {}, 0.5)
    params, nothing = {"w": jnp.ones(3)}, Weights({"w": jnp.zeros(3)}, ())
    assert not jax.tree.leaves(decaying.init(params))  # it remembers nothing, and would shrink the model
    for arrived in (True, False):
        weights = Weights(params, ())
        moved, _ = server.new_model(decaying, decaying.init(params), weights, nothing, jnp.bool_(arrived))
        assert (np.asarray(moved.trained["w"]) != 1.0).any() == arrived
