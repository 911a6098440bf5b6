# How a layer is shown: as the call that makes it, without what is left at its default. The twin in
# Python is `Layer.__repr__` in `pybridge/nn/_layer.py`.

Base.show(io::IO, layer::Layer) = show_call(io, layer, leading(layer)...)
Base.show(io::IO, layer::CrossCor) = show_call(io, layer.conv, leading(layer.conv)...; name=:CrossCor)
Base.show(io::IO, layer::Upsample) = print_call(io, :Upsample, (layer.mode,),
    [name => getfield(layer, name) for name in (:scale, :size) if getfield(layer, name) !== nothing])
function Base.show(io::IO, layer::MultiHeadAttention)
    (; q_proj, k_proj, v_proj, out_proj) = layer.layers
    given, sizes = first.((q_proj.channels, k_proj.channels, v_proj.channels)),
        (last(q_proj.channels), last(v_proj.channels)) => last(out_proj.channels)
    dims = allequal((given..., sizes.first..., sizes.second)) ? sizes.second : given => sizes
    options = (; layer.nheads, q_proj.bias, q_proj.init, dropout_prob=layer.dropout.p)
    defaults = (; nheads=8, bias=false, init=glorot_uniform, dropout_prob=0.0)
    print_call(io, :MultiHeadAttention, (dims,),
        [name => value for (name, value) in pairs(options) if value !== defaults[name]])
end

"The arguments with which the call starts, and how many fields they are from."
leading(layer::Layer) = fieldcount(typeof(layer)) == 0 ? ((), 0) : ((getfield(layer, 1),), 1)
leading(layer::Union{Conv,ConvTranspose}) = (layer.kernel, layer.channels), 2
leading(layer::SkipConnection) = (layer.layer, layer.connection), 2
leading(layer::GroupNorm) = (layer.channels, layer.groups), 2
leading(layer::Union{Scale,LayerNorm}) = layer.size, 1
leading(layer::Union{Chain,Maxout}) = layer.layers, 1
leading(layer::Union{Parallel,PairwiseFusion}) = (layer.connection, layer.layers...), 2

function show_call(io, layer, arguments, count; name=title(layer))
    type = typeof(layer)
    others = [field => getfield(layer, field) for field in fieldnames(type)[count+1:end]]
    # What the constructors of a layer of one's own do is not known: the call has all of its fields.
    parentmodule(type) === PyBridge ||
        return print_call(io, name, (arguments..., last.(others)...), [])
    plain = Base.typename(type).wrapper(arguments...)
    filter!(((field, value),) -> value !== getfield(plain, field), others)
    # These follow the others without a name.
    if !isempty(others) && first(first(others)) in (:activation, :reduction, :which)
        arguments = (arguments..., last(popfirst!(others)))
    end
    return print_call(io, name, arguments, others)
end

function print_call(io, name, arguments, options)
    print(io, name, "(")
    texts = [map(repr, arguments)...; ["$key=$(repr(value))" for (key, value) in options]]
    join(io, texts, ", ")
    print(io, ")")
end
