# For the quick run: Julia interprets what its packages have not compiled. Nearly all of a test's time
# is compiling a small program that runs once. The long run compiles, as users do.
#
# Include this before packages are loaded, and call `interpret` when all of them are.

# Julia 1.12 hands the code that its interpreter runs to whoever asks for a method's code, and IRTools,
# by which Zygote sees a program, writes into what it gets. Others hand out a copy.
# Generated functions see what there was when they were loaded, so this comes first.
if hasmethod(Base._uncompressed_ir, Tuple{Method})
    @eval Base function _uncompressed_ir(m::Method)
        s = m.source
        s isa String || return copy(s::CodeInfo)
        return ccall(:jl_uncompress_ir, Ref{CodeInfo}, (Any, Ptr{Cvoid}, Any), m, C_NULL, s)
    end
end

"""
Have Julia interpret all modules from now on, except those named in `but`. With `derivatives`, compile
what writes derivatives before: a process that ends after a few of them does without.

A package that came later might invalidate a generated function that the interpreter has run, and
Julia 1.12 would end there: `_invalidate_backedges` in src/gf.c reads the edges of its code, which
has none. The methods that are defined while tests run would do the same; here they come before.
"""
function interpret(but=(); derivatives=false)
    # By this name what calls it is Base's, where PyBridge looks for the user's lines.
    broadcasts = read(joinpath(@__DIR__, "interpreted_broadcast.jl"), String)
    Base.include_string(Base.Broadcast, broadcasts, "broadcast.jl")
    for m in Base.loaded_modules_array()
        nameof(m) === :Mooncake && prepare_mooncake(m)
        nameof(m) === :PyBridge && prepare_pybridge(m)
    end
    derivatives && write_derivatives()
    foreach(interpret_module, (m for m in Base.loaded_modules_array() if !(nameof(m) in but)))
end

function interpret_module(m)
    ccall(:jl_set_module_compile, Cvoid, (Any, Cint), m, 3)  # compile=min
    # Modules within a module have a setting of their own. This one's functions are called once.
    nameof(m) === :PyBridge && interpret_module(m.Lowering)
    return m
end

function prepare_pybridge(PyBridge)
    observing = Base.get_extension(PyBridge, :PyBridgeForwardDiffExt)
    observing === nothing || observing.watch_arrays()
    # The modules of lowered programs. Those of users' sources, for which it names packages in a vector,
    # stay compiled: their loops over large arrays would take seconds.
    @eval PyBridge sandbox(packages::Tuple) =
        $interpret_module(invoke(sandbox, Tuple{Any}, packages))
end

function prepare_mooncake(Mooncake)
    @eval Mooncake begin
        # It makes an array without its memory: compiled code may, the interpreter may not.
        _new_(::Type{Array{T,N}}) where {T,N} = Array{T,N}(undef, ntuple(_ -> 0, N))
        # It differentiates what Julia's compiler knows of a broadcast, which is nothing of ours.
        @mooncake_overlay Base.materialize(bc::Base.Broadcast.Broadcasted) =
            copy(Base.Broadcast.instantiate(bc))
        @mooncake_overlay Base.materialize!(to, bc::Base.Broadcast.Broadcasted) =
            Base.materialize!(Base.Broadcast.combine_styles(to, bc), to, bc)
        @mooncake_overlay Base.broadcast(f, args...) = Base.materialize(Base.broadcasted(f, args...))
    end
end

# Zygote and Mooncake write a function's derivative by code of theirs that no image has whole, and of
# Mooncake's ReverseDiff invalidates most. Interpreted, it took most of a test's time: one run of its
# parts compiles it.
function write_derivatives()
    for (name, extension) in pairs((zygote=:PyBridgeZygoteExt, mooncake=:PyBridgeMooncakeExt))
        Base.get_extension(Main.PyBridge, extension) === nothing && continue
        Main.PyBridge.exercise_control_flow(Main.PyBridge.BACKENDS[name])
    end
end
