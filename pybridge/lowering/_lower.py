"""`pb.lower`: a Python function as a Julia function."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import (
    ArgumentTypeError,
    ArgumentValueError,
    BridgeError,
    LoweringError,
    explain,
    value_and_aux,
)
from ..interop import JuliaFunction
from ..jaxprs import equations
from ..julia import jax_array
from . import (  # noqa: F401  (emitters are registered where they are defined)
    _calls,
    _control,
    _dots,
    _elementwise,
    _fft,
    _folds,
    _indexing,
    _linalg,
    _random,
    _reductions,
    _refused,
    _selections,
    _shapes,
    _special,
)
from ._arguments import argument_names, aval_of, canonical_leaves, key_impl
from ._emit import Form
from ._moving import asks
from ._source import Source

CUSTOM_RULES = ("jax", "inline")


class Lowered:
    """A Python function that has been lowered to Julia, for arguments of fixed types.

    It is called with arguments like those it was lowered for, and returns what the Python
    function returns, computed by Julia.

    Attributes:
        source: the Julia source. `lax` in it is `PyBridge.Lowering.Lax`, and `constants` are the
            arrays that the function closes over.
        jaxpr: the JAX program that it was made from.
        primitives: the names of the JAX primitives in it, in order of the alphabet.
    """

    def __init__(
        self,
        source: str,
        jaxpr: Any,
        primitives: tuple[str, ...],
        constants: list[np.ndarray],
        in_tree: Any,
        out_tree: Any,
        name: str,
    ):
        """Keep the parts; Julia is started when the function is first needed."""
        self.source = source
        self.jaxpr = jaxpr
        self.primitives = primitives
        self.constants = constants
        self.in_tree = in_tree
        self.out_tree = out_tree
        self.name = name

    @functools.cached_property
    def function(self) -> JuliaFunction:
        """The Julia function of the flat list of leaves.

        Raises:
            JuliaUnavailableError: Julia cannot be started.
            JuliaError: the source does not evaluate, which would be a fault of pybridge.
        """
        from ..julia import JuliaHandle, lowered_handle

        handle: JuliaHandle = lowered_handle(self.source, self.constants)
        return JuliaFunction(handle, source=self.source, ad="zygote", layout="reversed")

    def __call__(self, *args: Any) -> Any:
        """Call the Julia function; see `lower`."""
        leaves, in_tree = jax.tree.flatten(args)
        if in_tree != self.in_tree:
            raise ArgumentTypeError(
                explain(
                    f"the lowered {self.name}",
                    expected=f"arguments of the structure {self.in_tree}",
                    got=f"{in_tree}",
                    fix="Lower the function again for these arguments.",
                )
            )
        out = self.function.leaves(canonical_leaves(leaves))
        return jax.tree.unflatten(self.out_tree, map(as_jax, out))

    def __repr__(self) -> str:
        """Name the function and the types of its arguments."""
        types = ", ".join(aval.str_short() for aval in self.jaxpr.in_avals)
        return f"lower({self.name}: {types})"


def as_jax(leaf: Any) -> Any:
    """Make a JAX array of a result; an integer's gradient stays NumPy's."""
    if isinstance(leaf, jax.Array) or leaf.dtype == jax.dtypes.float0:
        return leaf
    return jax_array(leaf)


def lower(f: Callable[..., Any], *args: Any, custom_rules: str = "jax") -> Lowered:
    """Lower a Python function to Julia, for arguments like the given ones.

    The function is traced by JAX; each operation becomes one line of Julia, a call of a function
    of the name of JAX's primitive (`lax.add`, `lax.dot_general`). Axes are reversed: an array of
    shape (N, C, H, W) is a Julia array of size (W, H, C, N), so nothing is copied. `pb.grad(f,
    backend="zygote")` and its relatives lower by themselves; this function shows the program.

    Args:
        f: a function of arrays, numbers and trees of them that JAX can trace.
        *args: arguments as it will be called with; only their structure, shapes and dtypes matter.
        custom_rules: what becomes of functions with `jax.custom_jvp` and `jax.custom_vjp`.
            `"jax"`: their own rule becomes the Julia rule. `"inline"`: the AD system
            differentiates through them.

    Returns:
        A `Lowered`: `.source` is the Julia program; called, it computes the value in Julia.

    Raises:
        LoweringError: the program has an operation that Julia cannot do (the message has its name
            and line), or cannot be traced.
        ArgumentTypeError: an argument is no array or number, or a float64 array while x64 is off.
        ArgumentValueError: `custom_rules` is neither of the two, or an integer is too large for
            JAX's integers.

    Example:
        >>> import jax.numpy as jnp
        >>> import pybridge as pb
        >>> lowered = pb.lower(lambda x: jnp.sum(jnp.sin(x)), jnp.ones(3))
        >>> lowered.primitives
        ('reduce_sum', 'sin')

    The twin in Julia is the module `PyBridge.Lowering`.
    """
    if custom_rules not in CUSTOM_RULES:
        raise ArgumentValueError(
            explain(
                "pb.lower",
                expected='custom_rules="jax" or "inline"',
                got=repr(custom_rules),
                fix='"jax" keeps the rules of custom_jvp and custom_vjp functions.',
            )
        )
    return lowered(f, args, custom_rules=custom_rules)


# Programs by function, types and settings. The function is held weakly.
_CACHE: weakref.WeakKeyDictionary[Any, dict[Any, _Traced]] = weakref.WeakKeyDictionary()
# Programs by their text: another function object with the same program is the same.
_BY_TEXT: weakref.WeakValueDictionary[Any, Lowered] = weakref.WeakValueDictionary()


def lowered(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    kwargs: dict[str, Any] | None = None,
    has_aux: bool = False,
    custom_rules: str = "jax",
    wrt: Sequence[int] | None = None,
    flattened: tuple[Sequence[Any], Sequence[Any], Any] | None = None,
) -> Lowered:
    """Lower a function, or find it lowered.

    Args:
        f: the function.
        args: its arguments.
        kwargs: keyword arguments, which are constants of the program.
        has_aux: whether it returns `(value, aux)`; the Julia function then returns the value
            and a tuple of the leaves of aux.
        custom_rules: see `lower`.
        wrt: the numbers of the leaves that will be differentiated; None: all may be.
        flattened: the arguments' leaves, as given and as canonical, and their tree, where the
            caller has them.
    """
    if flattened is None:
        leaves, in_tree = jax.tree.flatten(args)
        flattened = leaves, canonical_leaves(leaves), in_tree
    leaves, flat, in_tree = flattened
    avals = tuple(map(aval_of, flat))
    # A typed key is the one JAX array that is not canonical as it is.
    impls = tuple(
        None if one is leaf else key_impl(leaf) for leaf, one in zip(leaves, flat, strict=True)
    )
    settings = jax.config.read("jax_enable_x64")
    key = (in_tree, avals, impls, settings, has_aux, custom_rules)
    try:
        programs = _CACHE.setdefault(f, {}) if not kwargs else {}
    except TypeError:  # it cannot be hashed, or not be referred to weakly
        programs = {}
    if key not in programs:
        programs[key] = _trace(f, args, in_tree, avals, impls, kwargs or {}, has_aux, custom_rules)
    return programs[key].lowered(wrt)


class _Traced:
    """A traced function, and what has been made of it."""

    def __init__(self, closed: Any, name: str, names: Any, form: Form, trees: Any, rules: str):
        self.closed = closed
        self._name = name
        self._names = names
        self._form = form
        self._trees = trees
        self._rules = rules
        self._asks = asks(closed.jaxpr)
        self._inexact = [bool(jnp.issubdtype(v.dtype, np.inexact)) for v in closed.in_avals]
        self._made: dict[Any, Lowered] = {}

    def lowered(self, wrt: Sequence[int] | None) -> Lowered:
        """Write the program; for other arguments to differentiate only if it asks for them."""
        moving = tuple(i and (wrt is None or n in wrt) for n, i in enumerate(self._inexact))
        key = moving if self._asks else None
        if key not in self._made:
            self._made[key] = self._write(moving)
        return self._made[key]

    def _write(self, moving: tuple[bool, ...]) -> Lowered:
        source = Source(self._rules, self._asks)
        hint = self._name if self._name.isidentifier() else "f"
        source.function(
            self.closed, hint, names=self._names, form=self._form, moving=moving, main=True
        )
        text, constants = source.text(), source.constants
        data = tuple((c.shape, str(c.dtype), c.tobytes()) for c in constants)
        key = (text, data, self._trees, self._name)
        found = _BY_TEXT.get(key)
        if found is None:
            primitives = _primitives(self.closed)
            in_tree, out_tree = self._trees
            found = Lowered(text, self.closed, primitives, constants, in_tree, out_tree, self._name)
            _BY_TEXT[key] = found
        return found


def _trace(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    in_tree: Any,
    avals: tuple[tuple[Any, Any], ...],
    impls: tuple[Any, ...],
    kwargs: dict[str, Any],
    has_aux: bool,
    custom_rules: str,
) -> _Traced:
    name = getattr(f, "__name__", type(f).__name__)
    structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in avals]
    trees: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        given = [
            x if impl is None else jax.random.wrap_key_data(x, impl=impl)
            for x, impl in zip(leaves, impls, strict=True)
        ]
        out = f(*jax.tree.unflatten(in_tree, given), **kwargs)
        if has_aux:
            out = value_and_aux(out, name)
        outs, tree = jax.tree.flatten(out)
        for leaf in outs:
            _check_result(leaf, name)
        trees.append(tree)
        return outs

    try:
        closed = jax.make_jaxpr(flat)(*structs)
    except BridgeError:  # it says itself what is wrong
        raise
    except (
        jax.errors.JAXTypeError,
        jax.errors.JAXIndexError,
        jax.errors.ConcretizationTypeError,
        TypeError,
    ) as error:
        raise LoweringError(
            explain(
                "pb.lower",
                expected="a function that JAX can trace, as under jax.jit",
                got=f"{name!r}, for which tracing raised {type(error).__name__}",
                fix='Choose with pb.cond or jnp.where instead of a Python "if" on values, and '
                f"give shapes that do not depend on values. JAX says: {error}",
            )
        ) from error
    if closed.effects:
        raise LoweringError(
            explain(
                "pb.lower",
                expected="a pure function",
                got=f"{name!r}, whose program has the effects {sorted(map(str, closed.effects))}",
                fix="Take debug prints, callbacks and I/O out of the function, or use "
                'backend="jax".',
            )
        )
    outs = len(closed.out_avals)
    form = Form(results=((1, True), (outs - 1, False))) if has_aux else Form()
    names = argument_names(f, args)
    return _Traced(closed, name, names, form, (in_tree, trees[-1]), custom_rules)


def _check_result(leaf: Any, name: str) -> None:
    """Refuse what is no array or number before JAX does: its advice is on branches."""
    # The dtypes of keys have no kind.
    kind = getattr(getattr(leaf, "dtype", None), "kind", "key")
    arrays = hasattr(leaf, "dtype") and kind not in "OSU"
    if arrays or isinstance(leaf, bool | int | float | complex) or hasattr(leaf, "__jax_array__"):
        return
    raise LoweringError(
        explain(
            "pb.lower",
            expected=f"{name!r} to return arrays and numbers, in tuples, lists and dicts",
            got=f"a {type(leaf).__module__}.{type(leaf).__qualname__} among its results",
            fix="Return it from another function, or not at all.",
        )
    )


def _primitives(closed: Any) -> tuple[str, ...]:
    return tuple(sorted({eqn.primitive.name for eqn in equations(closed)}))
