# What a mask from a key costs, beside Julia's own generator:
#
#     julia --project=. --threads=1 benchmarks/masks.jl
#     julia --project=. --threads=2 benchmarks/masks.jl
#
# A mask of dropout is Bool. Other generators make one by drawing floating-point numbers and
# comparing them, so the table has rand! for Bool, Float32 and Float64, which have 1, 4 and 8
# bytes for each element, and both ways to make a mask from nothing. Below is dropout as a whole,
# beside NNlib's, which is Flux's. Least times of one run.

insert!(LOAD_PATH, 2, joinpath(dirname(@__DIR__), "julia_src"))

using NNlib: NNlib
using Printf: @printf
using PyBridge: PyBridge
using Random: rand!
using Zygote: Zygote

const KEY = (0x00000000, 0x0000002a)
const P = 0.3

"Nanoseconds that an element takes: the least of some runs of at least a millisecond."
function per_element(f, n)
    f()
    repeats = max(1, 2^20 ÷ n)
    return minimum(_ -> @elapsed(foreach(_ -> f(), 1:repeats)), 1:15) / repeats / n * 1e9
end

function row(name, nanoseconds, bytes, keyed)
    @printf("  %-34s %8.3f ns/element %8.2f GB/s   keyed mask / this: %6.2f\n",
        name, nanoseconds, bytes / nanoseconds, keyed / nanoseconds)
end

println("Julia ", VERSION, ", ", Sys.CPU_NAME, ", ", Threads.nthreads(), " thread(s)")
for n in (2^12, 2^16, 2^20, 2^24)
    mask = Array{Bool}(undef, n)
    println(n, " elements")
    in_place = per_element(() -> PyBridge.keep_mask!(mask, KEY, P), n)
    row("keep_mask! (Bool)", in_place, 1, in_place)
    for T in (Bool, Float32, Float64)
        x = Array{T}(undef, n)
        row("rand! ($T)", per_element(() -> rand!(x), n), sizeof(T), in_place)
    end
    made = per_element(() -> PyBridge.keep_mask(KEY, P, (n,)), n)
    row("keep_mask, a new array", made, 1, made)
    row("rand(Float32, n) .> p, a new array", per_element(() -> rand(Float32, n) .> 0.3f0, n),
        1, made)
end
for T in (Float32, Float64)
    n = 2^20
    println("uniform, a new array of $n $T")
    drawn = per_element(() -> PyBridge.uniform(KEY, T, (n,)), n)
    row("PyBridge.uniform", drawn, sizeof(T), drawn)
    row("rand", per_element(() -> rand(T, n), n), sizeof(T), drawn)
end

keyed(x) = sum(PyBridge.dropout(KEY, x, P; training=PyBridge.Settled(true)))
unkeyed(x) = sum(NNlib.dropout(x, P))
for T in (Float32, Float64), dims in ((64, 128), (28, 28, 16, 32), (1024, 2048))
    x = randn(T, dims)
    for (what, ours, theirs) in (
        ("value", () -> keyed(x), () -> unkeyed(x)),
        ("gradient", () -> Zygote.gradient(keyed, x), () -> Zygote.gradient(unkeyed, x)),
    )
        times = per_element(ours, length(x)), per_element(theirs, length(x))
        bytes = (@allocated ours()), (@allocated theirs())
        @printf("dropout, %-8s %s %-17s %8.3f, NNlib %8.3f ns/element", what, T, dims, times...)
        @printf(", ratio %5.2f, of the bytes %5.2f\n", times[1] / times[2], bytes[1] / bytes[2])
    end
end
