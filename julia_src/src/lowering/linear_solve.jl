# Linear systems that are solved by a program: JAX's custom_linear_solve.

"""
    linear_solve((matvec, vecmat, solve, transpose_solve), ofs..., b)

Solve `matvec(x...) = b` by the program `solve`. `ofs` are four tuples: the constants that
each of the four programs takes before its other arguments. The derivative is that of the
system's solution (the implicit function's), and does not go through the program that solves
it.
"""
linear_solve(programs, matvec, vecmat, solve, transposed, b) = linear_solve_as(
    modes((matvec..., b...)), programs, matvec, vecmat, solve, transposed, b)
register(:linear_solve, linear_solve)

linear_solve_as(::Mode, args...) = run_solver(args...)
run_solver(programs, matvec, vecmat, solve, transposed, b) =
    programs[3](map(primal ∘ settled, solve)..., b...)

as_tuple(y::Tuple) = y
as_tuple(y) = (y,)

# The transposed system. A transpose has no conjugate, an adjoint has.
function adjoint_solved(programs, matvec, vecmat, solve, transposed, x̄)
    a, b, c, d = programs
    d === nothing && throw(ArgumentError(
        "custom_linear_solve without transpose_solve has no derivative in reverse mode. " *
        "Pass transpose_solve= or symmetric=True to it, or use backend=\"forwarddiff\"."))
    given = map(x̄ -> conj(x̄), x̄)
    found = linear_solve((b, a, d, c), vecmat, matvec, transposed, solve, given)
    return map(b̄ -> conj(b̄), as_tuple(found)[1:length(x̄)])
end

function ChainRulesCore.rrule(
    config::RuleConfig{>:HasReverseMode}, ::typeof(linear_solve), programs, matvec::Tuple,
    vecmat::Tuple, solve::Tuple, transposed::Tuple, b::Tuple
)
    y = linear_solve(programs, matvec, vecmat, solve, transposed, b)
    x = as_tuple(y)[1:length(b)]
    _, back = inner_rrule(config, programs[1], matvec..., x...)
    function linear_solve_pullback(ȳ)
        given = y isa Tuple ? parts_of(unthunk(ȳ), length(y)) : (tidy(ȳ),)
        x̄ = map(filled, x, given[1:length(x)])
        b̄ = adjoint_solved(programs, matvec, vecmat, solve, transposed, x̄)
        minus = map(b̄ -> -b̄, b̄)
        _, parts... = back(length(minus) == 1 ? minus[1] : minus)
        of_matvec = map(tidy, Tuple(parts)[1:length(matvec)])
        return (NoTangent(), NoTangent(), as_tangent(matvec, of_matvec), NoTangent(),
            NoTangent(), NoTangent(), as_tangent(b, b̄))
    end
    return y, linear_solve_pullback
end

"A solution that is known, as a function of what is left of the right-hand side."
struct Solution{X,F} <: AbstractPrimitive
    x::X
    adjoint::F
end
forward(s::Solution, residuals...) = only_or_all(s.x)
function pull(s::Solution, ::Val{i}, ȳ, y, residuals...) where {i}
    given = y isa Tuple ? parts_of(ȳ, length(y)) : (ȳ,)
    return s.adjoint(map(filled, s.x, given))[i]
end

"""
    solve_by_residual(solved, programs, matvec, vecmat, solve, transposed, b)

Do what `linear_solve` does where a system records, or derives, what it meets. The value is
that of `solved` on plain numbers; the derivative goes through the right-hand side less its
product.
"""
function solve_by_residual(solved, programs, matvec, vecmat, solve, transposed, b)
    plain = map(xs -> map(primal, xs), (matvec, vecmat, solve, transposed))
    y = as_tuple(solved(programs, plain..., map(primal, b)))
    x = y[1:length(b)]
    product = as_tuple(programs[1](matvec..., x...))
    adjoint(x̄) = adjoint_solved(programs, plain..., x̄)
    found = as_tuple(Solution(x, adjoint)(map(Lax.sub, b, product)...))
    return only_or_all((found..., y[length(b)+1:end]...))
end
