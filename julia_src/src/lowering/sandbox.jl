# Lowered programs are Julia source; their arrays come as data.

const CONSTANTS = PyBridge.Table{Any}()

"""
    keep_constant(x) -> number

Keep an array of a lowered program until its source is evaluated.
"""
keep_constant(x) = PyBridge.put!(CONSTANTS, dense(x))

"""
    define_lowered(source, numbers) -> number of a function

Evaluate the source of a lowered program in a module of its own. `lax` in it are the
primitives and `constants` the arrays that were kept under `numbers`.
"""
function define_lowered(source, numbers)
    ids = parse.(Int, Base.split(numbers, ','; keepempty=false))
    constants = Tuple(PyBridge.take!(CONSTANTS, id) for id in ids)
    made = PyBridge.sandbox(())
    named(ex) = resolved(ex, constants)
    return PyBridge.register(Base.include_string(named, made, source, PyBridge.SOURCE_NAME))
end

# Zygote differentiates the look-up of a global, and that of a module's field, each with a
# pullback of its own; the primitive or the array itself needs none.
resolved(x, constants) = x
function resolved(ex::Expr, constants)
    ex.head === :. && ex.args[1] === :lax && return GlobalRef(Lax, ex.args[2].value)
    ex.head === :ref && ex.args[1] === :constants && return QuoteNode(constants[ex.args[2]])
    return Expr(ex.head, map(arg -> resolved(arg, constants), ex.args)...)
end
