# What the extensions run while they are precompiled: the first call would wait for it.

"""
    exercise(backend, points)

Differentiate a small function at each of the points in the ways in which Python asks for it.
"""
function exercise(backend, points=(1.0, [1.0, 2.0], Float32[1, 2]))
    f(x) = sum(abs2, x)
    d = Differentiable(backend, f, nothing, nothing)
    for x in points
        result = value_and_gradient(backend, f, (x,), Val((1,)))
        precompile(hand_over, (typeof(sendable(result)), Ptr{Int64}, Bool))
        spec = (LeafSpec{eltype(x),ndims(x),false}(),)
        value_and_cotangents(d, spec, (x,), Val((1,)))
    end
end

"""
    exercise_control_flow(backend)

The same for a function with loops, branches, broadcasts and a comprehension: systems write pullbacks of
these by code that no other package has compiled.
"""
function exercise_control_flow(backend)
    function f(x)
        s = zero(eltype(x))
        for i in eachindex(x)
            s += x[i] > 0 ? sin(x[i]) : x[i]^2
        end
        while s < 3
            s *= 2
        end
        s > 100 && return s
        return sum(2 .* x .+ s) + sum([y^2 for y in x])
    end
    return value_and_gradient(backend, f, ([1.0, 2.0],), Val((1,)))
end

"""
    exercise_derived_rules(backend)

Have a system whose rules are derived by code of Julia's compiler derive some of each order.
"""
function exercise_derived_rules(backend)
    exercise(backend, (1.0, [1.0, 2.0]))
    exercise_control_flow(backend)
    hessian(backend, sum, ([1.0, 2.0],), Val((1,)))
end

"""
    exercise_closures(backend)

The same for a closure with keyword arguments.
"""
function exercise_closures(backend)
    function f(x)
        s = sum(x)
        scaled(y; by=2) = y * by .+ s
        return sum(scaled(x; by=3))
    end
    return value_and_gradient(backend, f, ([1.0, 2.0],), Val((1,)))
end

"""
    exercise_lowered(backend)

The same for the operations that lowered programs use most, on arrays of Float32.
"""
function exercise_lowered(backend)
    lax, two = Lowering.Lax, Val((2, 2))
    function f(w, b, x)
        h = lax.dot_general(x, w, Val(((1,), (2,))), Val(((), ())), Val(Float32))
        h = lax.add(h, lax.reshape(b, Val((2, 1))))
        h = lax.max(lax.tanh(h), 0.0f0)
        h = lax.add(lax.mul(h, 2.0f0), lax.logistic(h))
        h = lax.select(lax.gt(h, 0.0f0), h, 0.0f0)
        top = lax.max(-Inf32, lax.reduce_max(h, Val((1,))))
        top = lax.stop_gradient(lax.reshape(top, Val((1, 2))))
        e = lax.exp(lax.sub(h, top))
        sums = lax.reshape(lax.reduce_sum(e, Val((1,))), Val((1, 2)))
        e = lax.sub(lax.div(e, sums), lax.log(sums))
        e = lax.mul(lax.integer_pow(e, Val(2)), lax.broadcast_in_dim(1.0f0, two, Val(())))
        return lax.neg(lax.div(lax.reduce_sum(lax.mul(e, h), Val((1, 2))), 4.0f0))
    end
    args = (ones(Float32, 2, 2), ones(Float32, 2), ones(Float32, 2, 2))
    return value_and_gradient(backend, f, args, Val((1, 2, 3)))
end

"""
    exercise_requests()

Do what Python asks for by messages: prepare a call, run it, read what came out.
"""
function exercise_requests()
    output = zeros(Int64, 64)
    function ask(fields...)
        text = join(fields, '\x1f')
        GC.@preserve text output begin
            status = c_request(sizeof(text), pointer(text), pointer(output))
            status == OK || error(join(pop!(FAILURES, pointer(output)), ": "))
            return unsafe_string(Ptr{UInt8}(output[1]), output[2])
        end
    end
    # Not `define`: a module made here would end up in the package's image.
    id = register(identity)
    for (spec, T) in (("(f8:1)", Float64), ("(f4:1)", Float32), ("(f8:2)", Float64))
        prepared = parse(Int, ask("prepare", "call", id, "", "1", "logical", spec))
        x, y = ones(T, 4), zeros(T, 4)
        input, pointers = Int64[pointer(x), 2, 2], Int64[pointer(y)]
        GC.@preserve x y input pointers output begin
            c_run(prepared, pointer(input), pointer(output))
            ask("structure", output[1])
            c_run(prepared, pointer(input), pointer(output))
            c_fetch(1, pointer(pointers), pointer(output))
        end
        ask("release_prepared", prepared)
    end
    find_outputs(string(id), "(f4:1)", "4", "logical")
    mailbox = zeros(Int64, 16)
    GC.@preserve mailbox c_serve(pointer(mailbox), 1)
end

"""
    exercise_program(kind, backend, results)

Run a program of `x -> sum(abs2, x)` as XLA does, a `:call` or a `:value_and_grad`. `results` are
its results as Python describes them: "f4:4" is a vector of four numbers.
"""
function exercise_program(kind, backend, results)
    id = register(x -> sum(abs2, x))
    wrt = kind == :call ? "" : "0"
    compile("1", string(kind), "$id,,", string(backend), "(f4:1)", "f4:0", "$wrt||||", "f4:4",
        results, "", "false", "logical")
    x, y, gradient = ones(Float32, 4), zeros(Float32, 1), zeros(Float32, 4)
    addresses = Ptr{Cvoid}[pointer(x), pointer(y), pointer(gradient)]
    GC.@preserve x y gradient addresses run_at(program(0x1), pointer(addresses))
    release_program("1")
end

"""
    load_extension(name)

Load an extension of PyBridge, for another one that is being precompiled. Julia does so by itself, except
where PyBridge is in a system image: the process that precompiles does not look for its extensions then.
"""
function load_extension(name)
    Base.get_extension(@__MODULE__, name) === nothing || return nothing
    parent = Base.PkgId(@__MODULE__)
    Base.require(Base.PkgId(Base.uuid5(parent.uuid, string(name)), string(name)))
    return nothing
end

# Every array with two axes or more crosses by this.
for T in values(DTYPES)
    precompile(transpose_tiles!, (Vector{T}, Int, Int, Vector{T}, Int, Int, Int, Int))
end
