"""
    MultiHeadAttention(dims; nheads=8, bias=false, init=glorot_uniform, dropout_prob=0)

Scaled dot-product attention of several heads, between linear maps (Vaswani et al., 2017).

The input is an array of size `(features, length, batch)`, or a tuple `(q, kv)` or `(q, k, v)` of
them. The output is `(y, scores)`, of sizes `(out, length, batch)` and `(keys, queries, nheads,
batch)`. [`apply`](@ref) takes two more options, which broadcast to the scores' size: `bias`, added
before the softmax, and `mask`, of `Bool`, true where a query sees a key. A query that sees none has
scores of 0; Flux's are NaN.

Parameters are `q_proj`, `k_proj`, `v_proj` and `out_proj`, each those of a [`Dense`](@ref) layer.
Dropout draws from `fold_in(key, 4)`. The twin in Python is `pybridge.nn.MultiHeadAttention`, the
source `Flux.MultiHeadAttention`.

# Arguments
- `dims`: `(q_in, k_in, v_in) => (qk, v) => out`; one number stands for several, and an integer for
  all.
- `nheads`: how many heads there are; it divides `qk` and `v`.
- `bias`: whether the linear maps have one.
- `init`: makes their weights, as in `init(key, T, dims)`.
- `dropout_prob`: of the scores, in training.

# Examples
```jldoctest
julia> using PyBridge

julia> layer = PyBridge.MultiHeadAttention(8; nheads=2);

julia> params, state = PyBridge.init((0x00000000, 0x0000002a), layer);

julia> (y, scores), _ = PyBridge.apply(layer, params, state, ones(Float32, 8, 5, 3));

julia> size(y), size(scores)
((8, 5, 3), (5, 5, 2, 3))
```
"""
struct MultiHeadAttention{L<:NamedTuple} <: Layer
    nheads::Int
    layers::L
    dropout::Dropout{Colon}
end
function MultiHeadAttention(
    dims; nheads=8, bias=false, init=glorot_uniform, dropout_prob=0
)
    q, k, v, qk, inner, out = attention_sizes(dims)
    nheads = positive(:MultiHeadAttention, nheads)
    all(n -> n % nheads == 0, (qk, inner)) || throw(ArgumentError(
        "MultiHeadAttention: expected sizes that $nheads heads divide, got $((qk, inner))."))
    layers = (q_proj=Dense(q => qk; bias, init), k_proj=Dense(k => qk; bias, init),
        v_proj=Dense(v => inner; bias, init), out_proj=Dense(inner => out; bias, init))
    return MultiHeadAttention(nheads, layers, Dropout(dropout_prob))
end

attention_sizes(n::Integer) = (n, n, n, n, n, n)
function attention_sizes((given, (inner, out))::Pair{<:Any,<:Pair})
    many(x, n) = x isa Integer ? ntuple(Returns(x), n) : x
    return (many(given, 3)..., many(inner, 2)..., out)
end
attention_sizes(dims) = throw(ArgumentError(
    "MultiHeadAttention: expected an integer or (q, k, v) => (qk, v) => out, got $dims."))

# The places of Flux's fields, by which children are numbered.
const PROJECTIONS = (q_proj=1, k_proj=2, v_proj=3, out_proj=5)

function init(key, layer::MultiHeadAttention; T=Float32)
    params = map((child, i) -> first(init(fold_in(key, i), child; T)), layer.layers, PROJECTIONS)
    return params, (;)
end

function apply(
    layer::MultiHeadAttention, params, state, x; key=nothing, training=:auto, bias=nothing,
    mask=nothing
)
    inputs = queries_keys_values(x)
    check_attention(layer, map(size, inputs))
    mode = settle_training(training, params, x)
    (; nheads) = layer
    q, k, v = projected(params.q_proj, inputs[1]), projected(params.k_proj, inputs[2]),
    projected(params.v_proj, inputs[3])
    size_of_scores = (size(k, 2), size(q, 2), nheads, size(q, 3))
    check_fits(:bias, bias, size_of_scores)
    check_fits(:mask, mask, size_of_scores)
    scores = ruled(attention_scores, q, k, bias, mask, nheads)
    scores, _ = apply(layer.dropout, (;), (;), scores; key=child_key(key, 4), training=mode)
    y = projected(params.out_proj, ruled(mix_values, scores, v))
    return (y, scores), state
end

projected(params, x) = dense(identity, params.weight, optional_bias(params), x)

queries_keys_values(x) = (x, x, x)
queries_keys_values((q, k)::Tuple{Any,Any}) = (q, k, k)
queries_keys_values(x::Tuple{Any,Any,Any}) = x

function check_attention(layer, sizes)
    expected = map(child -> first(child.channels), Tuple(layer.layers)[1:3])
    all(length.(sizes) .== 3) && map(first, sizes) == expected &&
        allequal(map(last, sizes)) && sizes[2][2] == sizes[3][2] > 0 && return nothing
    throw(DimensionMismatch(
        "MultiHeadAttention: expected queries, keys and values of sizes (features, length, batch) " *
        "with $expected features, one batch size, and as many keys as values, one or more, got " *
        "$sizes."))
end
ChainRulesCore.@non_differentiable check_attention(::Any, ::Any)

check_fits(name, ::Nothing, expected) = nothing
function check_fits(name, x, expected)
    name === :mask && eltype(x) !== Bool && throw(ArgumentError(
        "MultiHeadAttention: expected an array of Bool as mask, got $(typeof(x))."))
    ndims(x) <= 4 && all(d -> size(x, d) in (1, expected[d]), 1:4) && return nothing
    throw(DimensionMismatch("MultiHeadAttention: expected a $name that broadcasts to (keys, " *
                            "queries, nheads, batch) = $expected, got size $(size(x))."))
end
ChainRulesCore.@non_differentiable check_fits(::Any...)

"""
    make_causal_mask(x; dims=2)

The mask by which a query sees no key that is behind it: a square of `Bool` as large as `x` along
`dims`. The twin in Python is `pybridge.nn.make_causal_mask`, the source `NNlib.make_causal_mask`.

# Examples
```jldoctest
julia> using PyBridge

julia> PyBridge.make_causal_mask(ones(4, 2, 1))
2×2 Matrix{Bool}:
 1  1
 0  1
```
"""
make_causal_mask(x; dims=2) = [key <= query for key in axes(x, dims), query in axes(x, dims)]
ChainRulesCore.@non_differentiable make_causal_mask(::Any)

# --- the two products -------------------------------------------------------------------------

"(features, length, batch) as one matrix (features of a head, length) for each head and batch."
function by_head(x, nheads)
    heads = reshape(x, size(x, 1) ÷ nheads, nheads, size(x, 2), size(x, 3))
    return reshape(permutedims(heads, (1, 3, 2, 4)), size(heads, 1), size(x, 2), :)
end

function side_by_head(x, nheads)
    heads = reshape(x, size(x, 1), size(x, 2), nheads, :)
    return reshape(permutedims(heads, (1, 3, 2, 4)), :, size(x, 2), size(heads, 4))
end

flat_heads(scores) = reshape(scores, size(scores, 1), size(scores, 2), :)

function attention_scores(q, k, bias, mask, nheads)
    scale = 1 / sqrt(size(q, 1) ÷ nheads)
    logits = NNlib.batched_mul(
        NNlib.batched_transpose(by_head(k, nheads)), by_head(q, nheads) .* oftype_of(q, scale))
    logits = reshape(logits, size(k, 2), size(q, 2), nheads, :)
    bias === nothing || (logits = logits .+ bias)
    mask === nothing && return NNlib.softmax(logits; dims=1)
    # A column of -Inf alone has no softmax.
    seen = any(mask .& trues(size(logits)); dims=1)
    hidden = ifelse.(seen, eltype(logits)(-Inf), zero(eltype(logits)))
    return blanked(NNlib.softmax(ifelse.(mask, logits, hidden); dims=1), mask)
end
oftype_of(x, number) = primal_type(real(eltype(x)))(number)

function ChainRulesCore.rrule(::typeof(attention_scores), q, k, bias, mask, nheads)
    scores = attention_scores(q, k, bias, mask, nheads)
    function attention_scores_pullback(scores̄)
        scores̄ = unthunk(scores̄)
        logits̄ = scores .* (scores̄ .- sum(scores .* scores̄; dims=1))
        flat = flat_heads(logits̄) .* oftype_of(q, 1 / sqrt(size(q, 1) ÷ nheads))
        q̄ = side_by_head(NNlib.batched_mul(by_head(k, nheads), flat), nheads)
        k̄ = side_by_head(
            NNlib.batched_mul(by_head(q, nheads), NNlib.batched_transpose(flat)), nheads)
        bias̄ = bias === nothing ? NoTangent() : ProjectTo(bias)(summed_to(bias, logits̄))
        return NoTangent(), ProjectTo(q)(q̄), ProjectTo(k)(k̄), bias̄, NoTangent(), NoTangent()
    end
    return scores, attention_scores_pullback
end

function summed_to(x, x̄)
    dims = Tuple(filter(d -> size(x, d) == 1, 1:ndims(x̄)))
    return reshape(sum(x̄; dims), size(x))
end

"Weigh the values by the scores: (features, queries, batch)."
function mix_values(scores, v)
    nheads = size(scores, 3)
    return side_by_head(NNlib.batched_mul(by_head(v, nheads), flat_heads(scores)), nheads)
end

function ChainRulesCore.rrule(::typeof(mix_values), scores, v)
    function mix_values_pullback(ȳ)
        nheads = size(scores, 3)
        ȳ = by_head(unthunk(ȳ), nheads)
        scores̄ = NNlib.batched_mul(NNlib.batched_transpose(by_head(v, nheads)), ȳ)
        v̄ = side_by_head(
            NNlib.batched_mul(ȳ, NNlib.batched_transpose(flat_heads(scores))), nheads)
        return NoTangent(), ProjectTo(scores)(reshape(scores̄, size(scores))), ProjectTo(v)(v̄)
    end
    return mix_values(scores, v), mix_values_pullback
end
