"""An optimizer of anybody's own is looked at before any data are read; every one of this package passes."""

import jax
import jax.numpy as jnp
import pytest

from fedjax_sel.errors import UserError
from fedjax_sel.experiment import checking
from fedjax_sel.training import optimizers
from fedjax_sel.training.optimizers import FederatedOptimizer, Report


def raises(*arguments):
    raise RuntimeError("two\nlines")


def remembers(own=((), ()), shared=((), ())):
    """An optimizer's fields; own and shared: (at first, as it is reported)."""
    return {
        "init_own": lambda params: own[0],
        "init_shared": lambda params: shared[0],
        "report": lambda finished, memory: Report(finished.update, contributed=shared[1], own=own[1]),
    }


BROKEN = {
    "no function": ({"gradient": None}, "`gradient` cannot be traced: TypeError: Expected a callable"),
    "a hook that raises": ({"gradient": raises}, "`gradient` cannot be traced: RuntimeError: two$"),
    "no gradient": (
        {"gradient": lambda *_: 5},
        "`gradient` must return a pytree of the model's shapes",
    ),
    "half a gradient": ({"gradient": lambda g, *_: {"Dense_0": g["Dense_0"]}}, "`gradient` must return a pytree"),
    "no report": ({"report": lambda *_: 5}, "`report` returned a .*; return Report"),
    "another memory": (
        {"report": lambda finished, memory: Report(finished.update, own=finished.update)},
        r"`report` returned own as .*, but `init_own` returned \(\); keep the structure",
    ),
    "a memory of another shape": (
        remembers(own=(jnp.float32(0), jnp.zeros(3))),
        r"`report` returned own as 'float32 \[3\]', but `init_own` returned 'float32 \[\]'; keep the structure",
    ),
    "a memory of another dtype": (
        remembers(own=({"steps": jnp.int32(0)}, {"steps": jnp.float32(0)})),
        r"`report` returned own as {'steps': 'float32 \[\]'}, but `init_own` returned {'steps': 'int32 \[\]'}",
    ),
    "nothing for the server to remember": (
        remembers(shared=(jnp.zeros(3), ())),
        r"`report` returned contributed as \(\), but `init_shared` returned 'float32 \[3\]'; keep the structure",
    ),
    "what the server does not remember": (
        remembers(shared=((), jnp.zeros(3))),
        r"`report` returned contributed as 'float32 \[3\]', but `init_shared` returned \(\); keep the structure",
    ),
    "a memory of the server of another shape": (
        remembers(shared=(jnp.zeros(3), jnp.zeros(2))),
        r"`report` returned contributed as 'float32 \[2\]', but `init_shared` returned 'float32 \[3\]'",
    ),
    "no mean": ({"combine": lambda averaged: averaged["Dense_0"]}, "`combine` must return a pytree"),
    "no server": ({"server": lambda rate: rate}, "`server` returned a float; return an optax.GradientTransformation"),
    "a memory of texts": ({"init_own": lambda params: "text"}, "`init_own` cannot be traced"),
    "a memory of models alone": (
        {"init_own": lambda params: {name: jax.tree.map(jnp.zeros_like, leaf) for name, leaf in params.items()}},
        "`init_own of a scalar` cannot be traced: AttributeError",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_optimizer_is_refused_in_one_sentence(what):
    fields, words = BROKEN[what]
    with pytest.raises(UserError, match=words) as caught:
        checking.check_optimizer(FederatedOptimizer(**{"name": "mine", **fields}))
    assert "\n" not in str(caught.value)


def test_what_is_remembered_as_it_was_passes():
    whole = remembers(own=({"steps": jnp.int32(0)}, {"steps": jnp.int32(1)}), shared=(jnp.zeros(3), jnp.ones(3)))
    checking.check_optimizer(FederatedOptimizer("mine", **whole))


@pytest.mark.parametrize("name", optimizers.names())
def test_every_optimizer_of_the_package_passes(name):
    checking.check_optimizer(optimizers.make(name))
