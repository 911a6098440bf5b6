# The derivatives of a bridged function, of every order, in two families:
#
#   tangents    F(x; ẋ₁, …, ẋₖ) = Dᵏf(x)[ẋ₁, …, ẋₖ]
#   cotangents  R(x; ȳ; ẋ₁, …, ẋₖ) = Dᵏ(x ↦ Df(x)ᵀ ȳ)[ẋ₁, …, ẋₖ]
#
# Reverse over forward never happens: Dᵏ⁺¹⟨ȳ, f⟩ is symmetric in its directions, so the
# transpose of a member of either family is a member of the other. (Zygote over ForwardDiff of
# a closure would drop the gradient.) The pairing is JAX's, the real part of the product.

"""
    Differentiable(backend, f, jvp, vjp)

A function, the AD system for its reverse mode, and the user's own rules or `nothing`:
`jvp(args, tangents) -> (y, ẏ)` and `vjp(args...) -> (y, ȳ -> cotangents of args)`.
"""
struct Differentiable{B,F,J,V}
    backend::B
    f::F
    jvp::J
    vjp::V
end

"A function with keyword arguments bound, those that Python gives by name."
struct WithKeywords{F,K<:NamedTuple}
    f::F
    keywords::K
end
(bound::WithKeywords)(args...) = Core.kwcall(bound.keywords, bound.f, args...)

function with_keywords(f, keywords)
    known = mapreduce(Base.kwarg_decl, union, methods(f); init=Symbol[])
    takes_all = any(name -> endswith(string(name), "..."), known)
    unknown = setdiff(keys(keywords), known)
    takes_all || isempty(unknown) || throw(ArgumentError(
        "expected keyword arguments that a method of the function has ($(join(known, ", "))), " *
        "got $(join(unknown, ", "))"))
    return WithKeywords(f, keywords)
end

# A rule that somebody wrote for the function itself; nothing where there is none.
own_rrule(f, args...) = ChainRulesCore.rrule(f, args...)
own_rrule(bound::WithKeywords, args...) =
    ChainRulesCore.rrule(bound.f, args...; bound.keywords...)
own_frule(ẋs, f, args...) = ChainRulesCore.frule(ẋs, f, args...)
own_frule(ẋs, bound::WithKeywords, args...) =
    ChainRulesCore.frule(ẋs, bound.f, args...; bound.keywords...)

"A direction: tangents of the argument leaves with the numbers `leaves`."
struct Direction{leaves,T<:Tuple}
    tangents::T
end
Direction{leaves}(tangents) where {leaves} = Direction{leaves,typeof(tangents)}(tangents)

"""
    directional(g, leaves, direction)

Differentiate `g(leaves)`, a tree, along a direction. ForwardDiff does it.
"""
function directional end

"Tell whether an AD system reads ChainRules' rules by itself."
reads_rules(::AbstractBackend) = false

"The AD system that takes the place of one that cannot run on ForwardDiff's dual numbers."
for_duals(b::AbstractBackend) = b

call_with(f, spec, leaves) = f(assemble(spec, leaves)...)

"""
    primal_value(d, spec, leaves, ::Val{wrt})

Value of the function; within a gradient of the leaves `wrt`, unless there are none.
"""
primal_value(d, spec, leaves, ::Val{()}) = call_with(d.f, spec, leaves)
primal_value(d, spec, leaves, wrt) = first(reverse_pass(d, spec, leaves, wrt))

"""
    reverse_pass(d, spec, leaves, ::Val{wrt}) -> (y, back)

Run the function in reverse mode. `back(ȳ)` returns one cotangent for each leaf in `wrt`, in
ChainRules' convention, or `nothing`.
"""
function reverse_pass(d::Differentiable, spec, leaves, wrt)
    args = assemble(spec, leaves)
    if d.vjp !== nothing
        y, back = two("vjp=", "(y, back)", d.vjp(args...))
        return y, function (ȳ)
            x̄s = checked_cotangents(spec, back(project(y, ȳ)))
            return pick(leaf_cotangents(spec, x̄s), wrt)
        end
    end
    d.jvp === nothing || return reverse_by_forward(d, spec, leaves, wrt)
    rule = reads_rules(d.backend) ? nothing : own_rrule(d.f, args...)
    if rule !== nothing
        y, back = rule
        return y, function (ȳ)
            x̄s = Base.tail(back(chain(y, project(y, ȳ))))
            return pick(leaf_cotangents(spec, x̄s), wrt)
        end
    end
    return reverse_by_system(d.backend, d.f, spec, leaves, wrt)
end

function reverse_by_system(b::AbstractBackend, f, spec, leaves, ::Val{wrt}) where {wrt}
    numbers = whole_arguments(spec, Val(wrt))
    if numbers === nothing
        g(xs...) = call_with(f, spec, replace_leaves(leaves, Val(wrt), xs))
        selected = map(i -> leaves[i], wrt)
        y, back = pullback(b, g, selected, Val(ntuple(identity, length(wrt))))
        return y, ȳ -> Tuple(back(ȳ))
    end
    specs = map(i -> spec[i], numbers)
    y, back = pullback(b, f, assemble(spec, leaves), Val(numbers))
    return y, ȳ -> differentiable_leaves(specs, leaf_cotangents(specs, back(ȳ)))
end

# A jvp alone: x̄ is the gradient of ⟨ȳ, jvp(ẋ)⟩, which is linear in ẋ.
function reverse_by_forward(d, spec, leaves, ::Val{wrt}) where {wrt}
    zeros = map(zero, leaves)
    y, _ = ruled_tangent(d, assemble(spec, leaves), assemble(spec, zeros))
    function back(ȳ)
        return linear_gradient(map(i -> zeros[i], wrt)) do ẋs
            ẋ = replace_leaves(zeros, Val(wrt), ẋs)
            pairing(ȳ, last(ruled_tangent(d, assemble(spec, leaves), assemble(spec, ẋ))))
        end
    end
    return y, back
end

"Gradient of a linear real function of a tuple of leaves. ForwardDiff does it."
function linear_gradient end

pairing(x̄::Branch, x::Branch) = sum(map(pairing, Tuple(x̄), Tuple(x)); init=0)
pairing(x̄::NoGradient, x) = 0
pairing(x̄::Number, x::Number) = real(conj(x̄) * x)
pairing(x̄::AbstractArray, x::AbstractArray) = sum(real.(conj.(x̄) .* x); init=0)

"""
    tangents(d, spec, leaves, directions)

The family F: the derivative of the function along all of the directions, a tree like its value.
"""
function tangents(d, spec, leaves, directions::Tuple{Direction})
    return first_tangent(d, spec, leaves, only(directions))
end
function tangents(d, spec, leaves, directions::Tuple)
    return directional(leaves, last(directions)) do leaves
        tangents(d, spec, leaves, Base.front(directions))
    end
end

function first_tangent(d, spec, leaves, direction::Direction{wrt}) where {wrt}
    args = assemble(spec, leaves)
    if d.jvp !== nothing
        ẋs = replace_leaves(map(zero, leaves), Val(wrt), direction.tangents)
        return last(ruled_tangent(d, args, assemble(spec, ẋs)))
    end
    d.vjp === nothing || return forward_by_reverse(d, spec, leaves, direction)
    missing_leaves = map(_ -> ZeroTangent(), leaves)
    ẋs = assemble(spec, replace_leaves(missing_leaves, Val(wrt), direction.tangents))
    rule = own_frule((NoTangent(), map(chain, args, ẋs)...), d.f, args...)
    rule === nothing || return plain_tangent(first(rule), last(rule))
    # A function with a rule for reverse mode alone must not be seen through.
    own_rrule(d.f, args...) === nothing ||
        return forward_by_reverse(d, spec, leaves, direction)
    return directional(leaves -> plain(call_with(d.f, spec, leaves)), leaves, direction)
end

# A vjp alone: ẏ is the gradient of ⟨vjp(ȳ), ẋ⟩, which is linear in ȳ.
function forward_by_reverse(d, spec, leaves, direction::Direction{wrt}) where {wrt}
    y, back = reverse_pass(d, spec, leaves, Val(wrt))
    y = plain(y)
    ȳs = linear_gradient(Tuple(zero.(PyBridge.leaves(y)))) do ȳs
        x̄s = map((i, x̄) -> like(leaves[i], unthunk(x̄)), wrt, back(assemble(y, ȳs)))
        sum(map(pairing, x̄s, direction.tangents))
    end
    return assemble(y, ȳs)
end

"""
    cotangents(d, spec, leaves, ȳ, ::Val{wrt}, directions)

The family R: the cotangents of the leaves `wrt`, differentiated along all of the directions. In
JAX's convention for complex numbers.
"""
function cotangents(d, spec, leaves, ȳ, wrt, ::Tuple{})
    y, back = reverse_pass(d, spec, leaves, wrt)
    # The value itself may be nobody's, and then its size is not looked at elsewhere.
    check_seed(plain(y), ȳ)
    return finish(leaves, wrt, back(maptree(conj_cotangent, ȳ)))
end
function cotangents(d, spec, leaves, ȳ, wrt, directions::Tuple)
    d = Differentiable(for_duals(d.backend), d.f, d.jvp, d.vjp)
    return directional(leaves, last(directions)) do leaves
        cotangents(d, spec, leaves, ȳ, wrt, Base.front(directions))
    end
end

"""
    value_and_cotangents(d, spec, leaves, wrt)

Value of a real scalar function and its gradient, from one run. Of a function that takes a batch,
the values and the gradients of all lanes.
"""
function value_and_cotangents(d, spec, leaves, wrt)
    y, back = reverse_pass(d, spec, leaves, wrt)
    return y, finish(leaves, wrt, back(map(one, y)))
end

conj_cotangent(x) = conj(x)
conj_cotangent(x::AbstractZero) = x

function finish(leaves, ::Val{wrt}, x̄s) where {wrt}
    return map((i, x̄) -> conj_cotangent(like(leaves[i], unthunk(x̄))), wrt, x̄s)
end

# Like `dense`, but the element type may be wider than the leaf's: a dual number where another
# leaf is being differentiated.
like(x, x̄::NoGradient) = x isa Number ? zero(float(x)) : zeros(float(eltype(x)), size(x))
like(x::Real, x̄::Number) = real(x̄)
like(x::Number, x̄::Number) = x̄
like(x::AbstractArray, x̄::AbstractArray{<:Real}) = reshaped(x, x̄)
function like(x::AbstractArray{T}, x̄::AbstractArray) where {T}
    element(v) = v isa NoGradient ? zero(T) : T <: Real ? real(unthunk(v)) : unthunk(v)
    return reshaped(x, map(element, x̄))
end
# Some rules return a number for an array of one element, or of none.
like(x::AbstractArray, x̄::Number) =
    length(x) <= 1 ? fill(x̄, size(x)) : throw(misfit(x, x̄))
like(x, x̄) = throw(misfit(x, x̄))

# Axes of one element may have come or gone. A transpose has as many elements, too.
function reshaped(x, x̄)
    size(x̄) == size(x) && return x̄
    long(dims) = filter(!=(1), dims)
    return long(size(x̄)) == long(size(x)) ? reshape(x̄, size(x)) : throw(misfit(x, x̄))
end

misfit(x, x̄) = RuleError("vjp= or an rrule", "a cotangent like its argument, $(form(x))",
    form(x̄), "The cotangent of an array has its size, that of a number is a number.")

# What ChainRules' own rules expect for containers.
chain(x::Branch, x̄::Branch) = Tangent{typeof(x)}(map(chain, x, x̄)...)
chain(x::NamedTuple, x̄::NamedTuple) = Tangent{typeof(x)}(; map(chain, x, x̄)...)
chain(x, x̄) = x̄

# A cotangent comes dense. Rules for wrapped arrays, as those of `UpperTriangular`, want the
# part that the wrapper can hold, and those for vectors of arrays a vector.
project(y, ȳ) = ȳ
project(y::Branch, ȳ::Branch) = map(project, y, ȳ)
project(y::AbstractVector, ȳ::Tuple) = map(project, y, collect(ȳ))
project(y::AbstractArray, ȳ::AbstractArray) =
    y isa DenseArray ? ȳ : ChainRulesCore.ProjectTo(y)(ȳ)

plain_tangent(y, ẏ) = ẏ isa AbstractZero ? zero(y) : unthunk(ẏ)
plain_tangent(y::Tuple, ẏ) = ntuple(i -> plain_tangent(y[i], part(ẏ, i)), length(y))
plain_tangent(y::NamedTuple{names}, ẏ) where {names} =
    NamedTuple{names}(map(n -> plain_tangent(y[n], part(ẏ, n)), names))

plain_tangent(y::AbstractVector, ẏ) =
    is_container(y) ? plain_tangent(Tuple(y), ẏ) : ẏ isa AbstractZero ? zero(y) : unthunk(ẏ)

part(ẏ, i) = ẏ isa AbstractZero ? ẏ : i isa Int ? ẏ[i] : getproperty(ẏ, i)

# --- leaves of the arguments ---------------------------------------------------------------

"""
    assemble(tree, leaves::Tuple)

Put leaves into a tree like this one: a spec, or a tree of values.
"""
assemble(tree, leaves) = first(build(tree, leaves))
build(::Union{LeafSpec,Number,AbstractArray}, leaves) = first(leaves), Base.tail(leaves)
build(::Union{NothingSpec,Nothing}, leaves) = nothing, leaves
build(::Tuple{}, leaves) = (), leaves
function build(tree::Tuple, leaves)
    head, rest = build(first(tree), leaves)
    children, rest = build(Base.tail(tree), rest)
    return (head, children...), rest
end
function build(tree::NamedTuple{names}, leaves) where {names}
    children, rest = build(values(tree), leaves)
    return NamedTuple{names}(children), rest
end

flatten(x) = (x,)
flatten(::Nothing) = ()
flatten(x::Branch) = flatten_children(Tuple(x))
flatten_children(::Tuple{}) = ()
flatten_children(xs::Tuple) = (flatten(first(xs))..., flatten_children(Base.tail(xs))...)

leaf_cotangents(::LeafSpec, x̄) = (x̄,)
leaf_cotangents(::NothingSpec, x̄) = ()
leaf_cotangents(::Tuple{}, x̄) = ()
function leaf_cotangents(spec::Tuple, x̄)
    x̄ = unthunk(x̄)
    children = ntuple(length(spec)) do i
        leaf_cotangents(spec[i], x̄ isa NoGradient ? nothing : x̄[i])
    end
    return reduce((a, b) -> (a..., b...), children; init=())
end
function leaf_cotangents(spec::NamedTuple{names}, x̄) where {names}
    x̄ = unthunk(x̄)
    fields = x̄ isa NoGradient ? (;) : x̄ isa Tangent ? ChainRulesCore.backing(x̄) : x̄
    children = map(n -> leaf_cotangents(spec[n], get(fields, n, nothing)), names)
    return reduce((a, b) -> (a..., b...), children; init=())
end

pick(leaves, ::Val{wrt}) where {wrt} = map(i -> leaves[i], wrt)

function replace_leaves(leaves::NTuple{N,Any}, ::Val{wrt}, xs) where {N,wrt}
    places = ntuple(i -> something(findfirst(==(i), wrt), 0), Val(N))
    return ntuple(i -> places[i] == 0 ? leaves[i] : xs[places[i]], Val(N))
end

leaf_types(::LeafSpec{T}) where {T} = (T,)
leaf_types(::NothingSpec) = ()
leaf_types(spec::Branch) = reduce((a, b) -> (a..., b...), map(leaf_types, Tuple(spec)); init=())
is_differentiable(T) = T <: AbstractFloat || T <: Complex

# The arguments that the leaves `wrt` make up, if they make up whole ones. An AD system is
# then asked for arguments and has no container to see through. All of it is known to the
# compiler: specs have no fields.
@generated function whole_arguments(spec, ::Val{wrt}) where {wrt}
    numbers, covered, start = Int[], Int[], 0
    for (i, child) in enumerate(spec.instance)
        types = leaf_types(child)
        own = [start + j for (j, T) in enumerate(types) if is_differentiable(T)]
        start += length(types)
        isdisjoint(own, wrt) && continue
        push!(numbers, i)
        append!(covered, own)
    end
    return covered == collect(wrt) ? Tuple(numbers) : nothing
end

@generated function differentiable_leaves(specs, x̄s)
    types = leaf_types(specs.instance)
    return Expr(:tuple, [:(x̄s[$i]) for (i, T) in enumerate(types) if is_differentiable(T)]...)
end
