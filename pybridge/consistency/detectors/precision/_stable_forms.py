"""The stable form of a formula that overflows, underflows or cancels, where there is a known one.

Sources: N. J. Higham, Accuracy and Stability of Numerical Algorithms, SIAM 2002, sections 1.7 to
1.14 and 27.8; P. Blanchard, D. J. Higham and N. J. Higham, Accurately computing the log-sum-exp and
softmax functions, IMA Journal of Numerical Analysis 41, 2021.
"""

from __future__ import annotations

from ._lost_digits import LOGARITHMS, Loss

_EXPONENTIALS = frozenset({"exp", "exp2"})
_ROOTS = frozenset({"sqrt", "rsqrt"})
_PRODUCTS = frozenset({"reduce_prod", "mul", "cumprod"})
_SUMS = frozenset({"reduce_sum", "dot_general", "cumsum"})
_POWERS = frozenset({"integer_pow", "pow", "square"})

# With the gradient stopped: the derivative of x / s is x / s**2 otherwise, which overflows as well.
_SCALED_NORM = (
    "Divide by the largest before squaring and multiply the root with it (a scaled norm, as in "
    "hypot): s = jax.lax.stop_gradient(jnp.max(jnp.abs(x))); s * jnp.sqrt(jnp.sum((x / s) ** 2))."
)


_LOGARITHMS = "Add logarithms instead of multiplying, or scale the factors."
_SCALED = "Scale the numbers, or compute with their logarithms."
_LOGSUMEXP = "Write the logarithm of a sum of exponentials as jax.nn.logsumexp."
_LOG_SOFTMAX = "Write the logarithm of a softmax as jax.nn.log_softmax."
_LOG_SIGMOID = (
    "Write log(sigmoid(x)) as jax.nn.log_sigmoid(x), and log(1 - sigmoid(x)) as "
    "jax.nn.log_sigmoid(-x)."
)


def stable_form(loss: Loss) -> str:
    """Say how to compute the same without the loss, in one or two sentences."""
    advice = {
        "overflow": _of_large_numbers,
        "underflow": _of_small_numbers,
        "cancellation": _of_differences,
        "conditioning": _of_differences,
    }
    if loss.kind in advice:
        return advice[loss.kind](loss)
    if loss.kind == "conversion":
        return "Keep these numbers in the dtype of the result, in the backward pass of a rule too."
    return (
        "Rounding carries the operand out of the domain: clip it to the domain, or compute the "
        "argument in a form that cannot leave it."
    )


def _of_large_numbers(loss: Loss) -> str:
    name, after = loss.name, loss.after
    if name in (*_EXPONENTIALS, "expm1", "cosh", "sinh"):
        if after & LOGARITHMS:
            return _of_logarithm(loss)
        if _EXPONENTIALS & loss.divisors:
            if not (_SUMS | {"add"}) & loss.divisors:
                return "Write exp(a) / exp(b) as exp(a - b)."
            return (
                "Write exp(x) / sum(exp(x)) as jax.nn.softmax(x), and 1 / (1 + exp(-x)) as "
                "jax.nn.sigmoid(x); elsewhere subtract the largest before the exponential."
            )
        return "Compute with the logarithm of this number, or subtract the largest before exp."
    squared = loss.before if name in ("reduce_sum", "add") else {name}
    if after & _ROOTS and "square" in squared:
        return _SCALED_NORM
    return _LOGARITHMS if name in _PRODUCTS else _SCALED


def _of_small_numbers(loss: Loss) -> str:
    if "log" in loss.after:
        return _of_logarithm(loss)
    if loss.name in _PRODUCTS:
        return _LOGARITHMS
    return _SCALED_NORM if loss.after & _ROOTS and loss.name == "square" else _SCALED


def _of_logarithm(loss: Loss) -> str:
    """Name the logarithm of what an exponential or a product makes, up to the logarithm alone."""
    name = loss.name
    before, until = loss.before | {name}, loss.until_log
    if name == "logistic":
        return _LOG_SIGMOID
    # A mean of exponentials is a division as well, by a number.
    if _EXPONENTIALS & before & loss.divisors and "div" in until | {name}:
        if _SUMS & (before | until):
            return _LOG_SOFTMAX
        if "add" in before | until:
            return _LOG_SIGMOID
    if name in _PRODUCTS:
        return (
            "Add the logarithms of the factors instead of taking that of the product: "
            "logpdf in the place of log(pdf)."
        )
    if name in _EXPONENTIALS and _SUMS & until:
        return _LOGSUMEXP
    if name in _EXPONENTIALS and ("add" in until or "log1p" in loss.after):
        return (
            "Write log(1 + exp(x)) as jax.nn.softplus(x), and log(exp(a) + exp(b)) as "
            "jnp.logaddexp(a, b)."
        )
    if name == "cosh":
        return "Write log(cosh(x)) as jnp.logaddexp(x, -x) - jnp.log(2)."
    if name == "sinh":
        return "Write log(sinh(x)) as x + jnp.log(-jnp.expm1(-2 * x)) - jnp.log(2)."
    return "Compute the logarithm itself: logpdf, log_softmax, log_sigmoid, logsf."


# What a difference with one of these is called.
_DIFFERENCES = {
    "exp": "Write exp(x) - 1 as jnp.expm1(x); 1 - exp(-x) is -jnp.expm1(-x).",
    "cos": "Write 1 - cos(x) as 2 * jnp.sin(x / 2) ** 2.",
    "logistic": "Write 1 - sigmoid(x) as jax.nn.sigmoid(-x).",
    "tanh": "Write 1 - tanh(x) as 2 * jax.nn.sigmoid(-2 * x).",
    "erf": "Write 1 - erf(x) as jax.scipy.special.erfc(x).",
    "sqrt": "Write sqrt(a) - sqrt(b) as (a - b) / (sqrt(a) + sqrt(b)).",
}


def _of_differences(loss: Loss) -> str:
    name = loss.name
    if name == "log":
        return (
            "Its operand is 1 but for digits that are lost: write log(1 + x) as jnp.log1p(x), and "
            "log(1 + exp(x)) as jax.nn.softplus(x)."
        )
    if name in _POWERS and loss.operands & {"add", "sub"}:
        return (
            "Its base is 1 but for digits that are lost: write (1 + x)**n as "
            "jnp.exp(n * jnp.log1p(x))."
        )
    if name in ("sub", "add", "add_any"):
        if "div" in loss.operands and "add" in loss.before and _EXPONENTIALS & loss.before:
            return _LOG_SIGMOID if "log" in loss.after else _DIFFERENCES["logistic"]
        if "logistic" in loss.operands and "log" in loss.after:
            return _LOG_SIGMOID
        for operand, advice in _DIFFERENCES.items():
            if operand in loss.operands:
                return advice
        if "square" in loss.before and loss.before & {"reduce_sum", "dot_general"}:
            if "div" not in loss.before:
                return "Subtract before squaring: jnp.sum((x - y) ** 2)."
            return (
                "Subtract the mean before squaring (a variance in two passes): jnp.var(x), or "
                "jnp.mean((x - jnp.mean(x)) ** 2)."
            )
        if _POWERS & loss.operands:
            return (
                "Write a**2 - b**2 as (a - b) * (a + b), and (1 + x)**n - 1 as "
                "jnp.expm1(n * jnp.log1p(x))."
            )
    return (
        "Rearrange the formula so that nearly equal numbers are not subtracted, or compute this "
        "part in a higher precision."
    )
