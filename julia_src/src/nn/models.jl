# Flux models that Python holds, by number. What needs Flux is in ext/PyBridgeFluxExt.jl.

"""
A Flux model, the source that made it (or `nothing`) with the packages that this names, and its
arrays, as pairs of a path and an array; one that stands in several places is there once.
"""
struct Model{M}
    model::M
    source::Union{Nothing,String}
    packages::Vector{String}
    params::Vector{Pair{Tuple,AbstractArray}}
    state::Vector{Pair{Tuple,AbstractArray}}
end

const MODELS = Table{Any}()

"""
    find_arrays(model) -> (params, state)

List the arrays of a model by their paths: those that are trained, and the other ones.
"""
function find_arrays end

"""
    plan_model(model, training) -> (plan, needs_key, is_modal)

Make the plan of a model in one of the modes; tell whether it draws masks and whether the other
mode has another plan.
"""
function plan_model end

"Describe a model for Python, as JSON."
function model_text end

"The names that a model's source may use: all that Flux exports, and Flux itself."
function import_flux! end

function hold_model(value, source=nothing, packages=String[])
    is_callable(value) || return "a $(typeof(value)), which cannot be called"
    params, state = find_arrays(value)
    return put!(MODELS, Model(value, source, packages, params, state))
end

"""
    admit_model(value) -> number or message

Hold a model that Python has as a juliacall value, or say what is wrong with it.
"""
function admit_model(value)
    held = python_value(value)
    held === nothing || return "a model that holds a Python object (a $held)"
    return hold_model(value)
end

function define_model(source, packages)
    names = String.(Base.split(packages, ','; keepempty=false))
    value = evaluate_model(source, names)
    # The source may have defined layers, with methods newer than this call.
    number = Base.invokelatest(hold_model, value, String(source), names)
    number isa String && throw(NotCallableError(number))
    return number
end

evaluate_model(source, packages) =
    Base.include_string(import_flux!(sandbox(packages)), source, SOURCE_NAME)

"""
    fresh_model(id, words...) -> number

Evaluate the source of a model anew, with Julia's default generator seeded by a JAX key; the
generator goes on as if nothing had happened.
"""
function fresh_model(id, words...)
    model = MODELS[parse(Int, id)]
    rng = Random.default_rng()
    before = copy(rng)
    Random.seed!(rng, [parse(UInt32, word) for word in words])
    try
        value = evaluate_model(model.source, model.packages)
        return Base.invokelatest(hold_model, value, model.source, model.packages)
    finally
        copy!(rng, before)
    end
end

model_value(id) = MODELS[id].model

"Register one of the functions of a model, for Python to call; return its number."
model_function(id, name) =
    Base.invokelatest(model_function, MODELS[parse(Int, id)], Val(Symbol(name)))
model_function(model::Model, ::Val{:train}) =
    register(ModelCall{true}(first(plan_model(model.model, true))))
model_function(model::Model, ::Val{:test}) =
    register(ModelCall{false}(first(plan_model(model.model, false))))
model_function(model::Model, ::Val{:read}) =
    register(() -> map(arrays -> Tuple(Array(array) for (_, array) in arrays),
        (model.params, model.state)))
model_function(model::Model, ::Val{:write}) = register() do params, state
    arrays = [array for (_, array) in [model.params; model.state]]
    # Arrays that cannot be written to complain here, before anything has changed.
    foreach(array -> copyto!(array, copy(array)), arrays)
    foreach((array, new) -> array .= new, arrays, [params..., state...])
end
