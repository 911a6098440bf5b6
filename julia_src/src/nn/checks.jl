# What layers ask of their options and of their input. Nothing here carries a derivative, and on
# Julia 1.12 Zygote differentiates none of it twice, where the function makes the layer.

title(layer) = nameof(typeof(layer))

# --- options --------------------------------------------------------------------------------

"A function, or anything else that can be called, between the layers of a container."
function check_connection(name, f)
    (f isa Union{Function,Type} || !isempty(methods(f))) && return nothing
    throw(ArgumentError("$name: expected a function as connection, got $(repr(f))."))
end
ChainRulesCore.@non_differentiable check_connection(::Any, ::Any)

"One size or several, as `Int`."
function positive(name, sizes)
    !isempty(sizes) && all(n -> n isa Integer && n > 0, sizes) && return as_ints(sizes)
    throw(ArgumentError("$name: expected positive integers as sizes, got $sizes."))
end
ChainRulesCore.@non_differentiable positive(::Any, ::Any)

as_ints(n::Integer) = Int(n)
as_ints(sizes::Tuple) = map(Int, sizes)
as_ints((in, out)::Pair) = Int(in) => Int(out)

function checked_groups(name, sizes, groups)
    groups > 0 && all(n -> n % groups == 0, sizes) && return Int(groups)
    throw(ArgumentError("$name: expected groups to divide $sizes channels, got $groups."))
end
ChainRulesCore.@non_differentiable checked_groups(::Any, ::Any, ::Any)

function check_outpad(outpad, stride)
    all(outpad .< stride) && return nothing
    throw(ArgumentError(
        "ConvTranspose: expected outpad below the stride $stride, got $outpad. Elements further out " *
        "belong to another number of steps."))
end
ChainRulesCore.@non_differentiable check_outpad(::Any, ::Any)

function check_less_padding(window, pads)
    all(i -> pads[i] < window[cld(i, 2)], eachindex(pads)) && return nothing
    throw(ArgumentError(
        "MaxPool: expected less padding than the window $window, got $pads. A window that holds " *
        "nothing but padding has no largest value."))
end
ChainRulesCore.@non_differentiable check_less_padding(::Any, ::Any)

function checked_eps(name, eps)
    eps >= 0 && return Float64(eps)
    throw(ArgumentError("$name: expected a number eps >= 0, got $eps."))
end
ChainRulesCore.@non_differentiable checked_eps(::Any, ::Any)

function checked_momentum(name, momentum)
    0 <= momentum <= 1 && return Float64(momentum)
    throw(ArgumentError(
        "$name: expected a momentum from 0 to 1, the weight of the new batch, got $momentum."))
end
ChainRulesCore.@non_differentiable checked_momentum(::Any, ::Any)

# --- inputs ---------------------------------------------------------------------------------

function check_axis(layer, x, axis, expected)
    0 < axis <= ndims(x) && size(x, axis) == expected && return nothing
    throw(DimensionMismatch(
        "$(title(layer)): expected an input with size $expected along axis $axis, got size " *
        "$(size(x)). Channels are the last axis but one, and features of a Dense layer the " *
        "first."))
end
ChainRulesCore.@non_differentiable check_axis(::Any...)

# The others are called where no derivatives are asked for.

function check_rank(layer, x_size, axes)
    length(x_size) == axes + 2 && return nothing
    throw(DimensionMismatch(
        "$(title(layer)): expected an input with $(axes + 2) axes, (space..., channels, batch), " *
        "got size $x_size."))
end

"Check that windows fit into an input with its padding."
function check_window(layer, x_size, window, stride, pad, dilation)
    space = ntuple(length(window)) do i
        room = x_size[i] + pad[2i-1] + pad[2i] - (window[i] - 1) * dilation[i] - 1
        fld(room, stride[i]) + 1
    end
    return check_space(layer, x_size, space)
end

function check_space(layer, x_size, space)
    given = x_size[1:end-2]
    all(>(0), (given..., space...)) && return nothing
    throw(DimensionMismatch(
        "$(title(layer)): expected one element of output or more along each axis, got $space " *
        "for an input of $given."))
end
