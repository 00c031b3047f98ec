"""Speed of convolutions with per-client kernels: patches, XLA's operation, and cuDNN's grouped convolutions."""

from collections.abc import Iterator
from typing import Any

from on_accelerator.child import each
from on_accelerator.children import Child
from on_accelerator.day import Case, Part, alone

FORMS = ("patches", "xla")  # the more promising first; `xla` stays in force for the rest of a process
TINY = {"cnn": ((18, 18, 3), 2, 2), "cnn_small": ((16, 16, 1), 2, 2)}  # same form as `convolutions.SETTINGS`
LAYERS = {  # the most expensive layers: image side, channels, features, kernel side, batch size
    "cnn": (15, 32, 64, 3, 50),
    "cnn_small": (12, 20, 50, 5, 10),
}
CLIENTS = {"cnn": (5, 320), "cnn_small": (10, 640)}  # for one seed, and for 64
SECONDS = 1.0  # of timed calls per case


def part(small: bool) -> Part:
    """Return the part."""

    def forms(model: str, precision: str, at_once: str, tier: int) -> Case:
        guess = 2 if small else 8
        settings = {"model": model, "precision": precision, "clients_at_once": at_once, "small": small, "guess": guess}
        work = alone(Child("on_accelerator.convolving:time_forms", settings))
        return Case(f"{model} {precision}, clients: {at_once}", guess * len(FORMS), work, tier)

    def grouped(model: str, precision: str, tier: int) -> Case:
        guess = 1 if small else 5
        settings = {"model": model, "precision": precision, "small": small, "guess": guess}
        work = alone(Child("on_accelerator.convolving:time_grouped", settings))
        return Case(f"one layer of {model} {precision}", guess * (3 if small else 6), work, tier)

    if small:
        cases = [forms("cnn_small", "float32", "all", 1), grouped("cnn_small", "float32", 2)]
    else:
        cases = [forms("cnn", "float32", "all", 1), grouped("cnn", "float32", 2)]
        cases += [forms("cnn_small", "float32", "all", 2), grouped("cnn_small", "float32", 2)]
        cases += [forms(model, "bfloat16", "all", 3) for model in LAYERS]
        cases += [grouped(model, precision, 3) for model in LAYERS for precision in ("bfloat16", "tf32")]
        cases += [forms(model, "float32", "one", 4) for model in LAYERS]
    return Part("convolutions", "The forms of a convolution, and grouped ones", cases, describe)


def describe(record: dict[str, Any]) -> str:
    """Format a record in one line."""
    what = record["form"] + (f", {record['clients']} clients" if "clients" in record else "")
    times = record["milliseconds"]
    return (
        f"{what}: {times['median']:.2f} ms ({times['p10']:.2f} to {times['p90']:.2f}), {record['program_megabytes']} MB"
    )


def time_forms(
    seconds: float, model: str, precision: str, clients_at_once: str, small: bool, guess: float
) -> Iterator[dict[str, Any]]:
    """Time local training in every form (in a child process); `milliseconds` are for `steps_a_call` steps.

    Args:
        seconds: see `child.each`.
        model: cnn or cnn_small.
        precision: precision of the matrix products.
        clients_at_once: `all` for one `vmap`, or `one` for one client after another.
        small: whether images, cohort and batch are tiny.
        guess: estimated seconds per form.

    Yields:
        A record per form.
    """
    import convolutions
    import jax.numpy as jnp
    from timing import steady

    from fedjax_sel import devices

    if not small:
        devices.use_every_core()
    setting = (TINY if small else convolutions.SETTINGS)[model]
    steps = 1 if small else 20

    def one(form: str) -> dict[str, Any]:
        run, _ = convolutions.training_steps(model, form, clients_at_once, setting, precision)
        return {"steps_a_call": steps} | steady(run, jnp.int32(steps), seconds=0.1 if small else SECONDS)

    yield from each([{"form": form} for form in FORMS], seconds, guess, one)


def time_grouped(seconds: float, model: str, precision: str, small: bool, guess: float) -> Iterator[dict[str, Any]]:
    """Time one layer and its gradients, for all clients (in a child process).

    The forms are a grouped convolution with one group per client, channels last or first, and one batched product of
    patches. On a GPU, XLA passes grouped convolutions to cuDNN; `cudnn_calls` counts these calls.

    Args:
        seconds: see `child.each`.
        model: the model whose layer in LAYERS is timed.
        precision: one of `models.core.PRECISIONS`.
        small: whether images, cohort and batch are tiny.
        guess: estimated seconds per case.

    Yields:
        A record per form and number of clients.
    """
    import jax
    import jax.numpy as jnp
    from jax import lax
    from timing import steady

    from fedjax_sel.models import core, layers

    side, channels, features, size, batch = (8, 2, 4, 3, 2) if small else LAYERS[model]

    def grouped(layout: str) -> Any:
        numbers = (layout, "HWIO" if layout == "NHWC" else "OIHW", layout)

        def convolve(x: jax.Array, kernel: jax.Array, clients: int) -> jax.Array:
            x, kernel = core.narrowed(x, precision), core.narrowed(kernel, precision)
            return lax.conv_general_dilated(
                x, kernel, (1, 1), "VALID", dimension_numbers=numbers, feature_group_count=clients,
                precision=core.LEVELS[precision],
            ).astype(jnp.float32)  # fmt: skip

        return convolve

    def of_patches(x: jax.Array, kernel: jax.Array, clients: int) -> jax.Array:
        del clients
        return jax.vmap(lambda images, weights: layers.by_patches(images, weights, size, precision))(x, kernel)

    def shapes(form: str, clients: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if form == "patches":
            return (clients, batch, side, side, channels), (clients, features, size**2 * channels)
        if form == "grouped NHWC":
            return (batch, side, side, clients * channels), (size, size, channels, clients * features)
        return (batch, clients * channels, side, side), (clients * features, channels, size, size)

    forms = {"grouped NHWC": grouped("NHWC"), "grouped NCHW": grouped("NCHW"), "patches": of_patches}

    def one(form: str, clients: int) -> dict[str, Any]:
        keys = jax.random.split(jax.random.key(0), 2)
        given = [jax.random.normal(key, shape) for key, shape in zip(keys, shapes(form, clients))]

        def gradients(x: jax.Array, kernel: jax.Array) -> Any:
            return jax.grad(lambda *both: jnp.sum(forms[form](*both, clients) ** 2), argnums=(0, 1))(x, kernel)

        calls: list[int] = []
        found = steady(
            gradients, *given, seconds=0.1 if small else SECONDS,
            look=lambda compiled: calls.append(compiled.as_text().count("__cudnn$conv")),
        )  # fmt: skip
        multiplied = batch * (side - size + 1) ** 2 * features * size**2 * channels * clients
        teraflops = 3 * 2 * multiplied / found["milliseconds"]["median"] / 1e9
        return found | {"cudnn_calls": calls[0], "teraflops": round(teraflops, 3)}

    counts = (2,) if small else CLIENTS[model]
    yield from each([{"form": form, "clients": count} for count in counts for form in forms], seconds, guess, one)
