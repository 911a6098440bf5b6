# Time of `PyBridge.reverse_axes!`, by which arrays of the logical layout cross, over that of a plain
# copy and over that of `permutedims!`:
#
#     julia --project=ENV --threads=1 benchmarks/axes.jl
#
# where ENV is an environment with what Project.toml lists. Each figure is the least of many in one run.
# The last rows are what `SMALLEST_PLANE` was chosen by: planes of few elements, with
# `transpose_tiles!` for all of them.

insert!(LOAD_PATH, 2, joinpath(dirname(@__DIR__), "julia_src"))

using Printf: @printf
using PyBridge: PyBridge

function least(f, elements)
    f()
    return minimum(_ -> @elapsed(f()), 1:(elements > 10^6 ? 10 : 200))
end

function compare(dims)
    x = rand(Float32, dims)
    y, z, backwards = PyBridge.reverse_axes(x), copy(x), length(dims):-1:1
    ours, plain, theirs = least.(
        (() -> PyBridge.reverse_axes!(y, x), () -> copyto!(z, x), () -> permutedims!(y, x, backwards)),
        length(x))
    @printf("| %s | %.2f | %.2f |\n", join(dims, " × "), ours / plain, ours / theirs)
end

"The same for a plane of `m` by `m` elements a hundred times, whatever its size."
function compare_planes(m)
    x, count = rand(Float32, m, 100, m), 100
    y, from = PyBridge.reverse_axes(x), vec(x)
    to = vec(y)
    planes() = for k in 0:count-1
        PyBridge.transpose_tiles!(to, 1 + k * m, count * m, from, 1 + k * m, count * m, m, m)
    end
    ours, theirs = least.((planes, () -> permutedims!(y, x, 3:-1:1)), length(x))
    @printf("| planes of %d elements | | %.2f |\n", m^2, ours / theirs)
end

println("Julia $VERSION\n")
println("| size | over a copy | over `permutedims!` |\n| --- | --- | --- |")
foreach(compare, ((784, 256), (256, 256), (1024, 1024), (4000, 4000), (4096, 4096), (28, 28, 16, 32),
    (3, 3, 64, 128), (64, 1000, 2)))
foreach(compare_planes, (2, 4, 6, 8, 10, 12, 16))
