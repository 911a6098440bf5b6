"""Programs of linear algebra, with arguments to try them at.

What a decomposition leaves open (signs, the order of equal values) is LAPACK's choice on both
sides; the matrices here are small, and no two of their eigenvalues are near each other.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import lax
from jax.lax import linalg

NUMBERS = np.random.default_rng(11)


def f32(*shape):
    return NUMBERS.normal(size=shape).astype(np.float32)


def c64(*shape):
    return (f32(*shape) + 1j * f32(*shape)).astype(np.complex64)


def positive(x):
    """Make a positive definite matrix of one, or of each of a stack."""
    n = x.shape[-1]
    return (x @ np.conj(np.swapaxes(x, -1, -2)) + n * np.eye(n)).astype(x.dtype)


def solving(**how):
    return lambda a, b: linalg.triangular_solve(a, b, **how)


def parts(f):
    """Split complex results, so that the weights of a gradient's test see both parts."""

    def real(*args):
        return [(z.real, z.imag) if jnp.iscomplexobj(z) else z for z in jax.tree.leaves(f(*args))]

    return real


def of_real(f):
    """Make a function of complex numbers one of real ones, which all systems take."""

    def g(*args):
        half = len(args) // 2
        return parts(f)(*map(lax.complex, args[:half], args[half:]))

    return g


def scanned(x):
    def step(total, s):
        factor = jnp.linalg.cholesky(s)
        return total + factor.sum(), factor

    return lax.scan(step, jnp.float32(0), x)


S3, S4 = positive(f32(3, 3)), positive(f32(4, 4))
STACK = positive(f32(2, 3, 3))

# The gradient of each is JAX's, under every system.
SMOOTH = {
    "cholesky": (jnp.linalg.cholesky, S3),
    "cholesky of a stack": (jnp.linalg.cholesky, positive(f32(2, 1, 3, 3))),
    "cholesky of one number": (jnp.linalg.cholesky, np.array([[4.0]], np.float32)),
    "cholesky as it is": (lambda a: linalg.cholesky(a, symmetrize_input=False), S3),
    "cholesky under vmap": (jax.vmap(jnp.linalg.cholesky), STACK),
    "cholesky in a scan": (scanned, STACK),
    "complex cholesky": (of_real(jnp.linalg.cholesky), S3, np.triu(f32(3, 3), 1) / 10),
    "triangular_solve": (solving(left_side=True, lower=True), S3, f32(3, 2)),
    "triangular_solve from the right": (
        solving(left_side=False, lower=True, unit_diagonal=True),
        f32(3, 3),
        f32(2, 3),
    ),
    "triangular_solve of a stack": (
        solving(left_side=True, lower=False, transpose_a=True),
        STACK,
        f32(2, 3, 2),
    ),
    "complex triangular_solve": (
        of_real(solving(left_side=False, lower=False, transpose_a=True, conjugate_a=True)),
        S3,
        f32(2, 3),
        f32(3, 3),
        f32(2, 3),
    ),
    "solve": (jnp.linalg.solve, S3, f32(3, 2)),
    "solve for a vector": (jnp.linalg.solve, f32(3, 3), f32(3)),
    "solve of a stack": (jnp.linalg.solve, STACK, f32(2, 3, 2)),
    "solve of one matrix under vmap": (jax.vmap(jnp.linalg.solve, (None, 0)), S3, f32(4, 3)),
    "complex solve": (of_real(jnp.linalg.solve), S3, f32(3), f32(3, 3), f32(3)),
    "inv": (jnp.linalg.inv, S3),
    "det": (jnp.linalg.det, f32(5, 5)),
    "slogdet": (lambda a: jnp.linalg.slogdet(a)[1], f32(2, 4, 4)),
    "lu": (lambda a: linalg.lu(a)[0], f32(3, 3)),
    "lu of a wide matrix": (lambda a: linalg.lu(a)[0], f32(2, 3, 5)),
    "lu of a tall matrix": (lambda a: linalg.lu(a)[0], f32(5, 3)),
    "lu_solve": (lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b, trans=1), S3, f32(3)),
    "cho_solve": (lambda a, b: jsl.cho_solve(jsl.cho_factor(a + a.T), b), S3, f32(3)),
    "solve_triangular": (lambda a, b: jsl.solve_triangular(a, b, trans=1), S3, f32(3)),
    "expm": (jsl.expm, f32(3, 3)),
    "cg": (lambda a, b: jax.scipy.sparse.linalg.cg(lambda x: a @ x, b)[0], S3, f32(3)),
    "qr": (jnp.linalg.qr, f32(4, 3)),
    "qr of a stack": (jnp.linalg.qr, f32(2, 3, 3)),
    "complex qr": (of_real(jnp.linalg.qr), f32(4, 3), f32(4, 3)),
    "eigh": (jnp.linalg.eigh, S4),
    "eigh of a stack": (jnp.linalg.eigh, STACK),
    "eigvalsh of equal values": (jnp.linalg.eigvalsh, np.eye(2, dtype=np.float32)),
    "svd": (lambda a: jnp.linalg.svd(a, full_matrices=False), f32(4, 3)),
    "svd of a wide matrix": (lambda a: jnp.linalg.svd(a, full_matrices=False), f32(2, 2, 4)),
    "svd without vectors": (lambda a: jnp.linalg.svd(a, compute_uv=False), f32(4, 3)),
    "norms": (lambda a: (jnp.linalg.norm(a, 2), jnp.linalg.norm(a, "nuc")), f32(3, 4)),
    "lstsq": (lambda a, b: jnp.linalg.lstsq(a, b)[0], f32(4, 2), f32(4)),
    "pinv": (jnp.linalg.pinv, f32(4, 3)),
    "eigvals": (parts(jnp.linalg.eigvals), f32(3, 3)),
    "tridiagonal_solve": (
        linalg.tridiagonal_solve,
        f32(2, 4),
        5 + f32(2, 4),
        f32(2, 4),
        f32(2, 4, 2),
    ),
}
if jax.__version_info__ < (0, 11):  # its derivative is that of a function of both triangles
    del SMOOTH["cholesky as it is"]

# Values, where JAX has no derivative, or none for these arguments, or a case is special.
VALUES = {
    "a matrix that is not positive": (
        jnp.linalg.cholesky,
        np.array([[[1, 2], [2, 1]], [[2, 1], [1, 2]]], np.float32),
    ),
    "no matrices": (jnp.linalg.cholesky, np.zeros((0, 3, 3), np.float32)),
    "one matrix of a stack": (jnp.linalg.cholesky, STACK[:1]),
    "a matrix without elements": (jnp.linalg.cholesky, np.zeros((0, 0), np.float32)),
    "complex cholesky": (jnp.linalg.cholesky, positive(c64(3, 3))),
    "complex solve": (jnp.linalg.solve, c64(3, 3), c64(3, 2)),
    "singular solve": (jnp.linalg.solve, np.ones((2, 2), np.float32), f32(2)),
    "a zero on the diagonal": (
        solving(left_side=True, lower=True),
        np.array([[1, 0], [1, 0]], np.float32),
        f32(2, 2),
    ),
    "singular slogdet": (jnp.linalg.slogdet, np.ones((2, 2), np.float32)),
    "lu with pivots": (linalg.lu, f32(2, 5, 3)),
    "permutation of pivots": (
        lambda p: linalg.lu_pivots_to_permutation(p, 5),
        np.array([[2, 1, 2], [4, 3, 2]], np.int32),
    ),
    "complete qr": (lambda a: jnp.linalg.qr(a, mode="complete"), f32(4, 2)),
    "complete qr of no columns": (
        lambda a: jnp.linalg.qr(a, mode="complete"),
        np.zeros((3, 0), np.float32),
    ),
    "raw qr": (lambda a: jnp.linalg.qr(a, mode="raw"), f32(4, 3)),
    "pivoted qr": (lambda a: jsl.qr(a, pivoting=True), f32(4, 3)),
    "wide qr": (jnp.linalg.qr, f32(2, 4)),
    "complex eigh": (jnp.linalg.eigh, positive(c64(3, 3))),
    "eigh of an upper triangle": (
        lambda a: jnp.linalg.eigh(a, UPLO="U", symmetrize_input=False),
        f32(3, 3),
    ),
    "eigh of NaN": (jnp.linalg.eigh, np.full((2, 2), np.nan, np.float32)),
    "eigh of nothing": (jnp.linalg.eigh, np.zeros((0, 0), np.float32)),
    "full svd": (jnp.linalg.svd, f32(4, 3)),
    "complex svd": (lambda a: jnp.linalg.svd(a, full_matrices=False), c64(4, 3)),
    "svd of NaN": (jnp.linalg.svd, np.full((2, 2), np.nan, np.float32)),
    "svd of nothing": (jnp.linalg.svd, np.zeros((3, 0), np.float32)),
    "matrix_rank": (jnp.linalg.matrix_rank, f32(4, 3)),
    "eig": (lambda a: linalg.eig(a, compute_left_eigenvectors=True), f32(4, 4)),
    "hessenberg": (linalg.hessenberg, f32(4, 4)),
    "schur": (jsl.schur, f32(4, 4)),
    "complex schur": (lambda a: jsl.schur(a, output="complex"), f32(4, 4)),
    "tridiagonal": (linalg.tridiagonal, S4),
    "complex tridiagonal": (linalg.tridiagonal, positive(c64(4, 4))),
    "singular tridiagonal_solve": (
        linalg.tridiagonal_solve,
        *np.zeros((3, 2), np.float32),
        f32(2, 2),
    ),
    "symmetric_product": (
        lambda a, c: linalg.symmetric_product(a, c, alpha=2.0, beta=0.5, symmetrize_output=True),
        f32(3, 2),
        S3,
    ),
    "cholesky_update": (linalg.cholesky_update, np.linalg.cholesky(S3).T.copy(), f32(3)),
    "householder_product": (linalg.householder_product, f32(3, 2), f32(2)),
}
if hasattr(linalg, "ormqr"):  # not in older versions of JAX
    VALUES["ormqr"] = (
        lambda a, t, c: linalg.ormqr(a, t, c, transpose=True),
        c64(4, 2),
        c64(2),
        c64(4, 3),
    )
