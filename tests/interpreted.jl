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

# Zygote and Mooncake write a function's derivative by code of theirs that no image has whole, and of
# Mooncake's ReverseDiff invalidates most. Interpreted, it took most of a test's time: one run of its
# parts compiles it. A process that ends after a few derivatives does without.
function write_derivatives()
    for (name, extension) in pairs((zygote=:PyBridgeZygoteExt, mooncake=:PyBridgeMooncakeExt))
        Base.get_extension(Main.PyBridge, extension) === nothing && continue
        Main.PyBridge.exercise_control_flow(Main.PyBridge.BACKENDS[name])
    end
end

# A package that came later might invalidate a generated function that the interpreter has run, and
# Julia 1.12 would end there: `_invalidate_backedges` in src/gf.c reads the edges of its code, which
# has none.
function interpret(but=())
    # The methods that PyBridge defines while it runs do the same.
    observing = Base.get_extension(Main.PyBridge, :PyBridgeForwardDiffExt)
    observing === nothing || observing.watch_arrays()
    for m in Base.loaded_modules_array()
        nameof(m) in but && continue
        # Mooncake makes an array without its memory: compiled code may, the interpreter may not.
        nameof(m) === :Mooncake &&
            @eval m _new_(::Type{Array{T,N}}) where {T,N} = Array{T,N}(undef, ntuple(_ -> 0, N))
        interpret_module(m)
    end
end

function interpret_module(m)
    ccall(:jl_set_module_compile, Cvoid, (Any, Cint), m, 3)  # compile=min
    # Modules within a module have a setting of their own. This one's functions are called once.
    nameof(m) === :PyBridge && interpret_module(m.Lowering)
end
