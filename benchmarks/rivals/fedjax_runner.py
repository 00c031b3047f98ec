"""Rival: FedJAX's federated averaging, with its `jit` backend (default) or `pmap` with one CPU device per core."""

# pyright: reportMissingImports=false
import os

import numpy as np
import work as work_

work = work_.read()
if work.backend == "pmap":
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={work_.num_cores()}"

import jax  # noqa: E402

if not hasattr(jax, "tree_map"):  # FedJAX 0.0.17 uses this name, which newer JAX removed
    jax.tree_map = jax.tree.map  # pyright: ignore[reportAttributeAccessIssue]

import fedjax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402


def dropout(x, rate: float, key):
    """Apply dropout; the identity without a key."""
    if key is None or rate == 0.0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)


def conv(x, kernel, bias):
    """Convolve without padding, [B, H, W, in] -> [B, H', W', out]."""
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")) + bias


def pool(x):
    """Max-pool, [B, H, W, channels] -> [B, H // 2, W // 2, channels]."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def forward(params, x, key):
    """Return the logits of images; `key` is None in evaluation."""
    keys = [None, None] if key is None or work.dropout == 0.0 else jax.random.split(key)
    if work.model == "mlp":
        x = x.reshape(x.shape[0], -1)
        for (kernel, bias), own in zip(params[:-1], keys):
            x = jax.nn.relu(dropout(x @ kernel + bias, work.dropout, own))
    elif work.model == "cnn":
        x = jax.nn.relu(pool(conv(x, *params[0])))
        x = jax.nn.relu(pool(conv(x, *params[1])))
        x = jax.nn.relu(conv(x, *params[2]))
        x = jax.nn.relu(x.reshape(x.shape[0], -1) @ params[3][0] + params[3][1])
    else:
        x = pool(jax.nn.relu(conv(jax.nn.relu(conv(x, *params[0])), *params[1])))
        x = dropout(x, 0.25, keys[0]).reshape(x.shape[0], -1)
        x = dropout(jax.nn.relu(x @ params[2][0] + params[2][1]), 0.5, keys[1])
    return x @ params[-1][0] + params[-1][1]


def mean_loss(params, batch, key):
    logits = forward(params, batch["x"], key)
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()


def main() -> None:
    fedjax.set_for_each_client_backend(work.backend or "jit")
    sgd = optax.chain(optax.add_decayed_weights(work.weight_decay), optax.sgd(work.learning_rate))
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(mean_loss),
        fedjax.optimizers.create_optimizer_from_optax(sgd),
        fedjax.optimizers.sgd(learning_rate=1.0),
        fedjax.ShuffleRepeatBatchHParams(work.batch_size, num_epochs=None, num_steps=work.local_steps),
    )
    np.random.seed(work.seed)
    clients = {
        number: fedjax.ClientDataset({"x": images, "y": labels.astype(np.int32)})
        for number, (images, labels) in work.selected_clients().items()
    }
    state = algorithm.init([(jnp.asarray(kernel), jnp.asarray(bias)) for kernel, bias in work.layers])
    clock = work_.Clock(work)
    for round, cohort in enumerate(work.cohorts):
        keys = jax.random.split(jax.random.fold_in(jax.random.PRNGKey(work.seed), round), len(cohort))
        state, _ = algorithm.apply(state, [(int(k), clients[int(k)], key) for k, key in zip(cohort, keys)])
        if work.backend == "pmap":  # FedJAX 0.0.17 on newer JAX leaves a device axis of size 1
            params = [
                (kernel.reshape(k.shape), bias.reshape(b.shape))
                for (kernel, bias), (k, b) in zip(state.params, work.layers)
            ]
            state = state.replace(params=params)
        if round + 1 in (work.warm_rounds, work.total_rounds):
            jax.block_until_ready(state.params)
        clock()
    work_.report(clock, *test(state.params), packages=["fedjax", "jax", "jaxlib"])


def test(params) -> tuple[float, float]:
    """Return the accuracy and mean loss on the test set."""

    @jax.jit
    def block(images, labels):
        logits = forward(params, images, None)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return logits.argmax(1) == labels, losses

    blocks = [block(images, labels) for images, labels in work.test_blocks()]
    correct, losses = (np.concatenate(parts) for parts in zip(*blocks))
    return float(correct.mean()), float(losses.mean())


if __name__ == "__main__":
    main()
