# Convolutions: JAX's order (N, C, H, W) is (W, H, C, N) here, which is NNlib's. NNlib takes
# those of floats over one to three axes; the others are products of matrices.

"""
    conv_general_dilated(x, w, Val(g), Val(T))

Convolve without flipping the kernel. `g` holds `stride`, `low` and `high` padding, `base`
(the dilation of `x`), `dilation` (of `w`), `groups`, `batches`, and the orders of axes that
bring `x` and `w` to (space..., channels, batch) and (space..., in, out) and the result
back: `x_order`, `w_order`, `y_order`.
"""
@primitive conv_general_dilated(x, w, ::Val{g}, ::Val{T}) where {g,T} =
    convolved(modes((x, w)), wide(x, Val(T)), wide(w, Val(T)), Val(g))

function convolved(::Mode, x, w, ::Val{g}) where {g}
    X, W = permuted(x, Val(g.x_order)), permuted(w, Val(g.w_order))
    return permuted(canonical_conv(X, W, g), Val(g.y_order))
end

# --- in NNlib's order -------------------------------------------------------------------

function canonical_conv(X, W, g)
    g.batches == 1 || return batch_groups(X, W, g)
    prepared, dims = prepare(X, W, g)
    return conv_arrays(prepared, W, dims)
end

# What NNlib cannot do with the input `pad` does: dilation and negative padding.
function prepare(X, W, g)
    undilated = all(==(1), g.base)
    if !nnlib_takes(X, W, g)
        prepared = undilated && all(==(0), (g.low..., g.high...)) ? X : spread(X, g)
        return prepared, direct_dims(size(prepared), size(W), g)
    end
    simple = undilated && all(>=(0), (g.low..., g.high...))
    prepared = simple ? X : spread(X, g)
    padding = simple ? Tuple(Iterators.flatten(zip(g.low, g.high))) : 0
    return prepared, NNlib.DenseConvDims(size(prepared), size(W); padding, g.stride,
        g.dilation, g.groups, flipkernel=true)
end
spread(X, g) = padded(
    X, zero(eltype(X)), (g.low..., 0, 0), (g.high..., 0, 0), (g.base .- 1..., 0, 0))

# It knows no integers, which wrap around, and no arrays without elements.
function nnlib_takes(X, W, g)
    1 <= length(g.stride) <= 3 && !(eltype(X) <: Integer) || return false
    counts = map(window_count, space_of(X, g), space_of(W, g), g.stride, g.low, g.high,
        g.base, g.dilation)
    return !isempty(X) && !isempty(W) && all(>(0), counts)
end
space_of(x, g) = ntuple(d -> size(x, d), length(g.stride))

# One group of the batch for each group of the kernels; the results are channels.
function batch_groups(X, W, g)
    one = merge(g, (; batches=1))
    n, outs = Base.div(size(X, ndims(X)), g.batches), Base.div(size(W, ndims(W)), g.batches)
    parts = map(1:g.batches) do b
        canonical_conv(last_axis(X, (b-1)*n+1:b*n), last_axis(W, (b-1)*outs+1:b*outs), one)
    end
    return cat(parts...; dims=ndims(X) - 1)
end
last_axis(x, range) = collect(selectdim(x, ndims(x), range))

# The extension for dual numbers has methods of these three.
conv_arrays(X, W, dims) = in_single((X, W) -> convolve(dims, X, W), X, W)
conv_filter(X, Ȳ, dims) = in_single((X, Ȳ) -> pull_filter(dims, X, Ȳ), X, Ȳ)
conv_data(Ȳ, W, dims) = in_single((Ȳ, W) -> pull_data(dims, Ȳ, W), Ȳ, W)

convolve(dims::NNlib.DenseConvDims, X, W) = NNlib.conv(X, W, dims)
pull_filter(dims::NNlib.DenseConvDims, X, Ȳ) = NNlib.∇conv_filter(X, Ȳ, dims)
pull_data(dims::NNlib.DenseConvDims, Ȳ, W) = NNlib.∇conv_data(Ȳ, W, dims)

function pull(
    ::Primitive{:conv_general_dilated}, ::Val{i}, ȳ, y, x, w, ::Val{g}, T
) where {i,g}
    X, W = permuted(x, Val(g.x_order)), permuted(w, Val(g.w_order))
    Ȳ = permuted(ȳ, Val(invperm(g.y_order)))
    X̄W̄ = pull_conv(Val(i), Ȳ, X, W, g)
    return permuted(X̄W̄, Val(invperm(i == 1 ? g.x_order : g.w_order)))
end

function pull_conv(::Val{i}, Ȳ, X, W, g) where {i}
    g.batches == 1 || return pull_groups(Val(i), Ȳ, X, W, g)
    prepared, dims = prepare(X, W, g)
    i == 2 && return conv_filter(prepared, Ȳ, dims)
    X̄ = conv_data(Ȳ, W, dims)
    prepared === X && return X̄
    low, interior = (g.low..., 0, 0), (g.base .- 1..., 0, 0)
    from, to = padded_places(size(X), size(prepared), low, interior)
    out = zeros_for(X, X̄)
    out[from...] = X̄[to...]
    return out
end

function pull_groups(::Val{i}, Ȳ, X, W, g) where {i}
    one = merge(g, (; batches=1))
    n, outs = Base.div(size(X, ndims(X)), g.batches), Base.div(size(W, ndims(W)), g.batches)
    parts = map(1:g.batches) do b
        ȳ = collect(selectdim(Ȳ, ndims(Ȳ) - 1, (b-1)*outs+1:b*outs))
        x, w = last_axis(X, (b-1)*n+1:b*n), last_axis(W, (b-1)*outs+1:b*outs)
        pull_conv(Val(i), ȳ, x, w, one)
    end
    return cat(parts...; dims=ndims(X))
end

# --- as products of matrices ------------------------------------------------------------

"A convolution without padding: which element each place of the kernel meets."
struct DirectDims{X,W,Y}
    x_size::X
    w_size::W
    counts::Y
    places::Matrix{Int}
    groups::Int
end

function direct_dims(x_size, w_size, g)
    n = length(g.stride)
    space, kernel = x_size[1:n], w_size[1:n]
    counts = map(space, kernel, g.stride, g.dilation) do size, width, stride, dilation
        window_count(size, width, stride, 0, 0, 1, dilation)
    end
    numbers = LinearIndices(space)
    places = Matrix{Int}(undef, prod(kernel), prod(counts))
    for (o, result) in enumerate(CartesianIndices(counts))
        for (k, place) in enumerate(CartesianIndices(kernel))
            at = (Tuple(result) .- 1) .* g.stride .+ (Tuple(place) .- 1) .* g.dilation .+ 1
            places[k, o] = numbers[at...]
        end
    end
    return DirectDims(x_size, w_size, counts, places, g.groups)
end

# The lengths of the product: results and batch, kernel and channels in, channels out; the
# last two in each group.
function lengths(d::DirectDims)
    channels_in, channels_out = d.w_size[end-1:end]
    kernel, results = size(d.places)
    return results * d.x_size[end], kernel * channels_in, Base.div(channels_out, d.groups)
end

# A matrix of each group: the elements that results meet, the kernels, the results.
function met(d::DirectDims, X)
    elements = Base.reshape(X, prod(d.x_size[1:end-2]), d.x_size[end-1:end]...)
    rows, columns, _ = lengths(d)
    return Base.reshape(
        permutedims(elements[d.places, :, :], (2, 4, 1, 3)), rows, columns, d.groups)
end
function kernels(d::DirectDims, W)
    _, columns, outs = lengths(d)
    return Base.reshape(W, columns, outs, d.groups)
end
function results(d::DirectDims, Y)
    rows, _, outs = lengths(d)
    merged = Base.reshape(Y, size(d.places, 2), d.w_size[end], d.x_size[end])
    return Base.reshape(permutedims(merged, (1, 3, 2)), rows, outs, d.groups)
end

function convolve(d::DirectDims, X, W)
    Y = batched(met(d, X), kernels(d, W))
    split = Base.reshape(Y, size(d.places, 2), d.x_size[end], d.w_size[end])
    return Base.reshape(
        permutedims(split, (1, 3, 2)), d.counts..., d.w_size[end], d.x_size[end])
end
pull_filter(d::DirectDims, X, Ȳ) =
    Base.reshape(batched(adjoint_of(met(d, X)), results(d, Ȳ)), d.w_size)
function pull_data(d::DirectDims, Ȳ, W)
    x̄s = batched(results(d, Ȳ), adjoint_of(kernels(d, W)))
    kernel, count = size(d.places)
    channels, batch = d.x_size[end-1:end]
    x̄s = permutedims(Base.reshape(x̄s, count, batch, kernel, channels), (3, 1, 4, 2))
    X̄ = zeros(eltype(x̄s), prod(d.x_size[1:end-2]), channels, batch)
    for n in 1:batch, c in 1:channels, (i, place) in pairs(IndexCartesian(), d.places)
        X̄[place, c, n] += x̄s[i, c, n]
    end
    return Base.reshape(X̄, d.x_size)
end
