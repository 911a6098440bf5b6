# A model in words, for Python: JSON.

function PyBridge.model_text(model::PyBridge.Model)
    _, test_needs_key, has_mode = PyBridge.plan_model(model.model, false)
    _, train_needs_key, _ = PyBridge.plan_model(model.model, true)
    numbers = IdDict{Any,Any}()
    for (kind, found) in (("params", model.params), ("state", model.state))
        foreach(((i, pair),) -> numbers[last(pair)] = (kind, i - 1), enumerate(found))
    end
    return json((
        params=(arrays=map(array_text, model.params), tree=skeleton(model.model, model.params)),
        state=(arrays=map(array_text, model.state), tree=skeleton(model.model, model.state)),
        needs_key=(test_needs_key, train_needs_key),
        has_mode=has_mode,
        length=applicable(length, model.model) ? length(model.model) : nothing,
        shown=sprint(show, MIME("text/plain"), model.model),
        structure=outline(model.model, numbers),
    ))
end

function array_text((path, array))
    T = eltype(array)
    T <: PyBridge.Wired || throw(ArgumentError("flux: expected arrays of Float16, Float32 or " *
        "Float64, or of complex numbers of them, got $T at $(join(path, '.')). Convert the " *
        "model first, for example with f32."))
    return (dtype=keys(PyBridge.DTYPES)[PyBridge.dtype_index(T)], shape=reverse(size(array)))
end

# The tree of the arrays, by their numbers. In tuples and vectors every child has its place; a
# struct has those fields that hold arrays. An array that stands in several places is in the
# first of them.
function skeleton(model, found)
    numbers = Dict(path => i - 1 for (i, (path, _)) in enumerate(found))
    return something(skeleton(model, (), numbers), (;))
end
function skeleton(x, path, numbers)
    haskey(numbers, path) && return numbers[path]
    Functors.isleaf(x) && return nothing
    children = Functors.children(x)
    below = map(name -> skeleton(children[name], (path..., name), numbers), Tuple(keys(children)))
    if !(x isa Union{Tuple,NamedTuple,AbstractVector})
        held = [i for i in eachindex(below) if below[i] !== nothing]
        isempty(held) && return nothing
        return NamedTuple{Tuple(keys(children)[i] for i in held)}(Tuple(below[i] for i in held))
    end
    all(isnothing, below) && return nothing
    places = map(child -> something(child, (;)), below)
    return x isa NamedTuple ? NamedTuple{keys(x)}(places) : places
end

"""
    outline(x, numbers)

Describe a model field by field: layers by their type, arrays by their number, functions by name.
"""
function outline(x, numbers)
    haskey(numbers, x) && return (array=numbers[x], shape=reverse(size(x)))
    x isa Union{Nothing,Bool,Integer} && return x
    x isa AbstractFloat && return Float64(x)
    x isa Symbol && return (symbol=string(x),)
    x isa Colon && return (symbol=":",)
    x isa Union{Tuple,AbstractVector} &&
        return (list=map(child -> outline(child, numbers), collect(Any, x)),)
    x isa NamedTuple && return (names=collect(keys(x)),
        list=map(child -> outline(child, numbers), collect(Any, values(x))))
    x isa Function && return outline_function(x)
    T = typeof(x)
    # Some layers have an option as a parameter of their type.
    parameters = [outline(p, numbers) for p in T.parameters if p isa Union{Bool,Symbol}]
    return (type=string(nameof(T)), from=string(parentmodule(T)),
        layer=!Functors.isleaf(x), parameters=(list=parameters,), fields=NamedTuple{fieldnames(T)}(
        map(name -> outline_field(x, name, numbers), fieldnames(T))))
end

function outline_function(f)
    passed = passed_on(f)
    f, broadcast = passed === nothing ? (f, false) : passed
    return (call=string(nameof(f)), from=string(parentmodule(f)), broadcast=broadcast)
end

"""
    passed_on(f) -> (g, broadcast) or nothing

The function that does all the work of an anonymous one, as in `x -> relu.(x)` and `(a, b) -> a + b`,
and whether it is broadcast. Such a function has no name; its code tells.
"""
function passed_on(f)
    is_anonymous = startswith(string(nameof(f)), '#') && Base.issingletontype(typeof(f))
    is_anonymous && length(methods(f)) == 1 || return nothing
    method = only(methods(f))
    statements = Base.uncompressed_ir(method).code
    final = last(statements)
    final isa Core.ReturnNode || return nothing
    arguments = Any[Core.SlotNumber(i) for i in 2:method.nargs]
    value = resolved(final.val, statements)
    [value] == arguments && return identity, false
    calls(value, rest) = value isa Vector && length(value) > 1 && value[2:end] == rest
    calls(value, arguments) && value[1] isa Function && return value[1], false
    value isa Vector && length(value) == 2 && value[1] === Base.materialize || return nothing
    inner = value[2]
    inner isa Vector && inner[1] === Base.broadcasted && inner[2] isa Function || return nothing
    return calls(inner, [inner[2]; arguments]) ? (inner[2], true) : nothing
end

"A value of lowered code with what it is made of: calls as vectors, the function first."
resolved(x, statements) = x
resolved(x::Core.SSAValue, statements) = resolved(statements[x.id], statements)
resolved(x::GlobalRef, statements) = isdefined(x.mod, x.name) ? getglobal(x.mod, x.name) : x
resolved(x::Expr, statements) =
    Meta.isexpr(x, :call) ? Any[resolved(part, statements) for part in x.args] : x

# A generator's own state is of no use to anybody.
outline_field(x, name, numbers) =
    name === :rng ? nothing : outline(getfield(x, name), numbers)

json(::Nothing) = "null"
json(x::Union{Bool,Integer}) = string(x)
json(x::Float64) = isfinite(x) ? repr(x) : json(repr(x))
json(x::Union{Symbol,AbstractString}) = string('"', escape_json(string(x)), '"')
json(x::Union{Tuple,AbstractVector}) = string('[', join(map(json, x), ','), ']')
json(x::NamedTuple) =
    string('{', join(["$(json(k)):$(json(v))" for (k, v) in pairs(x)], ','), '}')

escape_json(text) = replace(text, '\\' => "\\\\", '"' => "\\\"", '\n' => "\\n",
    r"[\x00-\x1f]" => c -> "\\u" * string(UInt16(only(c)); base=16, pad=4))
