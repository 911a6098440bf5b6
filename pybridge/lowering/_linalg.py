"""Linear algebra: decompositions and solutions of linear systems."""

from __future__ import annotations

from typing import Any

from ._registry import emits, emits_alike
from ._text import tuple_text, val

emits_alike(
    "cholesky",
    "cholesky_update",
    "geqp3",
    "geqrf",
    "hessenberg",
    "householder_product",
    "lu",
)


def flags(**given: Any) -> str:
    """Write parameters that JAX takes as Booleans and keeps as they came, also as 0 and 1."""
    return val({name: bool(flag) for name, flag in given.items()})


@emits("triangular_solve")
def _triangular_solve(eqn: Any) -> str:
    p = eqn.params
    how = flags(
        left=p["left_side"],
        lower=p["lower"],
        transpose=p["transpose_a"],
        conjugate=p["conjugate_a"],
        unit=p["unit_diagonal"],
    )
    return eqn.call("triangular_solve", *eqn.args, how)


@emits("lu_pivots_to_permutation")
def _lu_pivots_to_permutation(eqn: Any) -> str:
    return eqn.call(eqn.name, *eqn.args, val(eqn.params["permutation_size"]))


@emits("qr")
def _qr(eqn: Any) -> str:
    how = flags(full=eqn.params["full_matrices"], pivoting=eqn.params["pivoting"])
    return eqn.call("qr", *eqn.args, how)


@emits("ormqr")
def _ormqr(eqn: Any) -> str:
    how = flags(left=eqn.params["left"], transpose=eqn.params["transpose"])
    return eqn.call("ormqr", *eqn.args, how)


@emits("eigh")
def _eigh(eqn: Any) -> str:
    _check_whole(eqn, eqn.aval().shape[-1])
    return eqn.call("eigh", *eqn.args, val(bool(eqn.params["lower"])))


@emits("svd")
def _svd(eqn: Any) -> str:
    p = eqn.params
    _check_whole(eqn, min(eqn.aval().shape[-2:]))
    how = flags(
        full=p["full_matrices"],
        vectors=p["compute_uv"],
        qr=str(p.get("algorithm")).endswith("QR"),
    )
    return eqn.call("svd", *eqn.args, how)


def _check_whole(eqn: Any, count: int) -> None:
    if eqn.params.get("subset_by_index") not in (None, (0, count)):
        raise eqn.refuse(
            f"{eqn.name!r} with subset_by_index",
            "JAX has it on TPUs alone: take all values, and then a slice of them.",
        )


@emits("eig")
def _eig(eqn: Any) -> str:
    p = eqn.params
    how = flags(
        left=p["compute_left_eigenvectors"],
        right=p["compute_right_eigenvectors"],
        derivatives=p.get("enable_eigvec_derivs", False),
    )
    return eqn.call("eig", *eqn.args, how)


@emits("schur")
def _schur(eqn: Any) -> str:
    if eqn.params["sort_eig_vals"]:
        raise eqn.refuse("'schur' with sort_eig_vals", "JAX has it on no device either.")
    return eqn.call("schur", *eqn.args, val(bool(eqn.params["compute_schur_vectors"])))


@emits("tridiagonal")
def _tridiagonal(eqn: Any) -> str:
    return eqn.call("tridiagonal", *eqn.args, val(bool(eqn.params["lower"])))


@emits("tridiagonal_solve")
def _tridiagonal_solve(eqn: Any) -> str:
    if eqn.params.get("perturb_singular"):
        raise eqn.refuse(
            "'tridiagonal_solve' with perturb_singular",
            "Its small pivots are JAX's own and in no library: leave it False.",
        )
    return eqn.call("tridiagonal_solve")


@emits("symmetric_product")
def _symmetric_product(eqn: Any) -> str:
    weights = {name: float(eqn.params[name]) for name in ("alpha", "beta")}
    return eqn.call("symmetric_product", *eqn.args, val(weights))


@emits("custom_linear_solve")
def _custom_linear_solve(eqn: Any) -> str:
    """Write a system with its four programs, each with the constants that it takes first."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    names = ("matvec", "vecmat", "solve", "transpose_solve")
    programs, groups, start = [], [], 0
    unknowns = len(eqn.args) - sum(lengths)
    for name in names:
        stop = start + getattr(lengths, name)
        groups.append(tuple_text(eqn.args[start:stop]))
        # Only the matrix has a derivative, as JAX has it; the programs that solve have none.
        moves = name in ("matvec", "vecmat")
        moving = (*eqn.moving[start:stop], *(False,) * unknowns) if moves else None
        closed = getattr(jaxprs, name)
        program = "nothing"
        if closed is not None:
            program = eqn.source.function(closed, name, moving=moving)
        programs.append(program)
        start = stop
    b = tuple_text(eqn.args[start:])
    return eqn.call("linear_solve", tuple_text(programs), *groups, b)
