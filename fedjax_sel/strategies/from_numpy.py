"""A strategy from functions that use NumPy, called on the host in every round.

The functions get NumPy arrays and return NumPy arrays or lists. They run in `compare`, `train`, the `Selector` and the
conformance kit like any strategy, but each call leaves the compiled program, once per seed.
"""

import contextlib
import dataclasses
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import parsing
from fedjax_sel.core.parsing import one_of, shown
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.contract import Now, Outcome, Selection, Strategy, keep_state, no_state
from fedjax_sel.strategies.facts import Request

_READABLE = tuple(name for name in Outcome._fields if name != "subset_loss")
_FREE = ("reported", "finite")
_failures: list[BaseException] = []  # of users' functions; raised after the callback, which JAX would wrap


def from_numpy(
    name: str,
    select: Callable[[np.random.Generator, Any, Now], Any],
    *,
    requests: Sequence[Request] = (),
    init: Callable[[np.random.Generator, Now], Any] | None = None,
    update: Callable[[Any, Now, Selection, Outcome], Any] | None = None,
    reads: Sequence[str] = (),
) -> Strategy:
    """Make a strategy from NumPy functions.

    A resumed run is exact if the functions keep all that they remember in the state. A run cannot be extended by more
    rounds, because the functions may read `now.env.num_rounds`. `now` is as in `Strategy`, with
    NumPy arrays: `now.env.num_clients`, `now.env.num_selected`, `now.env.sizes`, `now.info.loss.value`, `now.round`
    (an integer from 0) and `now.available` (None if all clients are available).

    Args:
        name: the name in tables and messages.
        select: (rng, state, now) -> at most K distinct client IDs. Unavailable clients among them do not train.
        requests: the facts in `now.info`; each is billed.
        init: (rng, now) -> state: a dict, tuple, list or array of numbers whose shapes stay constant. It is called once
            more, or a few times, with ones instead of all numbers, to find the shapes. None: no state.
        update: (state, now, selection, outcome) -> state, after each round. None: the state stays as it is.
        reads: fields of `Outcome` that `update` reads beside `reported` and `finite`. Reading `losses_before` or
            `losses_after` costs one number per client.

    Raises:
        UserError: `reads` names no field of `Outcome`, or `update` has no `init`.
    """
    reads = (reads,) if isinstance(reads, str) else tuple(reads)
    for field in reads:
        one_of(f"reads of {name}", field, _READABLE)
    if update is not None and init is None:
        raise UserError(f"{name}: `update` needs a state; give init=..., a function (rng, now) -> state")

    def called(function: str, call: Callable[..., Any], shapes: Any, *arguments: Any) -> Any:
        """Call a function on the host, in every round and once per seed, with NumPy arrays."""
        leaves, structure = jax.tree.flatten(arguments)
        num_rounds = next(part.env.num_rounds for part in arguments if isinstance(part, Now))

        def on_host(pieces: Any, _: Any) -> Any:
            # JAX cannot pass on an exception of a callback. Invalid IDs end the run, and the error is raised then.
            answer = jax.tree.map(lambda shape: np.full(shape.shape, -1).astype(shape.dtype), shapes)
            whole = [np.concatenate([*map(np.asarray, own)]).reshape(leaf.shape) for own, leaf in zip(pieces, leaves)]
            arguments = tuple(_of_host(part) for part in jax.tree.unflatten(structure, whole))
            now = next(part for part in arguments if isinstance(part, Now))
            if not _failures:
                with _recorded(name, function, int(now.round)):
                    found = call(*arguments)
                    _check_same_arrays(found, shapes)
                    answer = found
            return answer

        pieces = [_pieces(leaf) for leaf in leaves]
        # The number of rounds is in the program, because the function may read it: `resume.depends_on_num_rounds`.
        return jax.pure_callback(on_host, shapes, pieces, num_rounds, vmap_method="sequential")

    def initialize(key: jax.Array, now: Now) -> Any:
        def first(words: Any, now: Now) -> Any:
            assert init is not None
            return jax.tree.map(_plain, init(np.random.default_rng(words), now))

        ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), now)
        try:
            shapes = jax.tree.map(_shape, first(0, ones._replace(round=0)))
            if any(0 in leaf.shape for leaf in jax.tree.leaves(shapes)):
                raise UserError(
                    "the state has an empty array, and shapes stay constant; keep a bool or number per client"
                )
        except Exception as error:
            made_up = " with ones instead of all numbers, which find the shapes of the state"
            raise _error(name, "init", 0, error, made_up) from error
        return called("init", first, shapes, jax.random.key_data(key), now)

    def choose(key: jax.Array, state: Any, now: Now) -> Selection:
        k, n = now.env.num_selected, now.env.num_clients

        def cohort(words: Any, state: Any, now: Now) -> tuple[np.ndarray, np.ndarray]:
            ids = np.asarray(select(np.random.default_rng(words), state, now))
            if ids.dtype == bool:
                raise UserError("it returns a mask; return client IDs, such as np.flatnonzero(mask)")
            if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
                raise UserError(f"it returns {shown(ids.tolist())}; return a list of client IDs, integers")
            if len(ids) > k:
                raise UserError(f"it returns {len(ids)} client IDs; return at most now.env.num_selected = {k}")
            if len({*ids.tolist()}) < len(ids) or ((ids < 0) | (ids >= n)).any():
                raise UserError(
                    f"{shown(ids.tolist())} are not distinct client IDs from 0 to {n - 1}; name each client once"
                )
            places = np.zeros((k,), np.int32)
            places[: len(ids)] = ids
            return places, np.arange(k) < len(ids)

        shapes = (jax.ShapeDtypeStruct((k,), jnp.int32), jax.ShapeDtypeStruct((k,), bool))
        ids, mask = called("select", cohort, shapes, jax.random.key_data(key), state, now)
        return Selection(ids, None, mask if now.available is None else mask & (now.available[ids] | (ids < 0)))

    def learn(state: Any, now: Now, selection: Selection, outcome: Outcome) -> Any:
        def learned(state: Any, now: Now, selection: Selection, outcome: Outcome) -> Any:
            assert update is not None
            return jax.tree.map(_plain, update(state, now, selection, outcome))

        shapes, kept = jax.tree.map(_shape, state), {*reads, *_FREE}
        hidden: dict[str, Any] = {field: _Unread(field) for field in Outcome._fields if field not in kept}
        known = outcome._replace(**hidden)
        return called("update", learned, shapes, state, now, selection, known)

    return Strategy(
        name, choose, tuple(requests), no_state if init is None else initialize, keep_state if update is None else learn
    )


def _pieces(leaf: jax.Array) -> list[jax.Array]:
    """Split an array: XLA's CPU threads copy those above 100 KiB, and callbacks that occupy all threads wait for it."""
    flat = jnp.ravel(leaf)
    size = 65536 // flat.dtype.itemsize
    return [flat[first : first + size] for first in range(0, max(flat.size, 1), size)]


def _of_host(tree: Any) -> Any:
    """Return NumPy arrays, and the round as an integer."""
    tree = jax.tree.map(np.asarray, tree)
    return tree._replace(round=int(tree.round)) if isinstance(tree, Now) else tree


def _plain(leaf: Any) -> np.ndarray:
    """Return a leaf of a state as float32, int32 or bool; raise UserError if an integer does not fit."""
    array = np.asarray(leaf)
    if array.dtype.kind not in "fiub":
        raise UserError(f"the state holds {shown(leaf)}, not an array of numbers; keep numbers")
    plain = array.astype({"f": np.float32, "i": np.int32, "u": np.int32, "b": bool}[array.dtype.kind])
    if array.dtype.kind in "iu" and (plain != array).any():
        raise UserError(f"the state holds {shown(leaf)}, beyond 32-bit integers; keep a float, or smaller numbers")
    return plain


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _check_same_arrays(found: Any, shapes: Any) -> None:
    """Check that a state has the arrays of the state before."""
    if jax.tree.structure(found) != jax.tree.structure(shapes):
        raise UserError("it returns a state of another structure; return all arrays of `init`, and no other")
    for (path, old), new in zip(jax.tree.leaves_with_path(shapes), jax.tree.leaves(found)):
        if _shape(new) != old:
            raise UserError(
                f"it returns state{jax.tree_util.keystr(path)} as {new.dtype} {list(new.shape)}, at first "
                f"{old.dtype} {list(old.shape)}; keep shapes and kinds"
            )


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Unread:
    """Field of an outcome that `update` has not declared to read."""

    field: str

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise UserError(f"outcome.{self.field} is not provided; add it to from_numpy(..., reads=[{self.field!r}])")

    __array__ = __len__ = __iter__ = __getitem__ = __float__ = __bool__ = _fail
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _fail
    __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _fail

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._fail()


def _error(name: str, function: str, round: int, error: BaseException, given: str = "") -> UserError:
    why = str(error) if isinstance(error, UserError) else f"{parsing.reason(error)}{_place(error)}{given}"
    return UserError(f"strategy {name!r}: `{function}` failed in round {round + 1}: {why}")


def _place(error: BaseException) -> str:
    """Return the file and line of a user's function where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = Path(__file__).parents[1]
    others = [frame for frame in frames if not Path(frame.filename).is_relative_to(ours)]
    if not others or re.search(r"(site|dist)-packages", others[0].filename):  # of a library that we called
        return ""
    own = [frame for frame in others if frame.filename == others[0].filename]  # without libraries that it called
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})"


@contextlib.contextmanager
def _recorded(name: str, function: str, round: int) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        _failures.append(error)
    except BaseException as error:  # `sys.exit()` too: nothing may pass through JAX
        failure = _error(name, function, round, error)
        failure.__cause__ = error
        _failures.append(failure)


def raise_own_error() -> None:
    """Raise the error of a user's function, if one failed since the last call."""
    if _failures:
        failure = _failures[0]
        _failures.clear()
        raise failure


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Raise the error of a user's function at the end, instead of another one."""
    _failures.clear()
    try:
        yield
    finally:
        if _failures:  # the device may be a chunk ahead; its calls return at once, and must not outlast this run
            jax.block_until_ready(jax.live_arrays())
        raise_own_error()
