# Programs: bridged functions and their derivatives in the form that XLA calls, from pointers
# to pointers. Everything about types is fixed when a program is made.

"""
    OutputChangedError(expected, got)

Thrown when a function returns something else than what its program was made for.
"""
struct OutputChangedError <: Exception
    expected::String
    got::String
end
function Base.showerror(io::IO, e::OutputChangedError)
    print(io, "from_julia: expected a result of ", e.expected, ", as declared by out= or found ",
        "when the function was traced, got ", e.got, ". A function called from a compiled ",
        "program returns the same shapes and dtypes for all values of its arguments; if it ",
        "does, declare them with out=.")
end

"""
The memory in which the last call had an operand, if no collection has taken it since. Fresh memory
comes from the system page by page, which can take longer than to fill it.
"""
mutable struct Spare{T,N}
    @atomic last::WeakRef
end
Spare{T,N}() where {T,N} = Spare{T,N}(WeakRef())

function take!(spare::Spare{T,N}, dims) where {T,N}
    memory = (@atomicswap spare.last = WeakRef()).value
    return memory === nothing ? Array{T,N}(undef, dims) : memory::Array{T,N}
end
keep!(spare::Spare, memory) = @atomic spare.last = WeakRef(memory)

"""
Memory of one operand or result: the extents of one lane, the step in bytes for each level of
lanes, the bytes of all lanes, and whether all lanes of some level share it (a result that they
share is the sum over them). On the host, the memory of an array that is not `Reversed` is in JAX's
order, and there may be a spare in Julia's. For a GPU it is XLA that transposes.
"""
struct Buffer{T,N,Reversed}
    dims::NTuple{N,Int}
    steps::Vector{Int}
    bytes::Int
    shared::Bool
    spare::Spare{T,N}
end
Base.eltype(::Buffer{T}) where {T} = T
is_in_julias_order(::Buffer{T,N,Reversed}) where {T,N,Reversed} = Reversed || N == 1

"""
What XLA calls. `Kind` is `:call`, `:value_and_grad`, `:tangents` or `:cotangents`; `Wrt`,
`Seeds` and `Kept` number leaves of the arguments, of the cotangent and of the value;
`Directions` lists the leaves of each direction. With a `Ticket`, a call leaves its pullback and
returns the ticket for it as its last result, and tangents and cotangents take one as their last
operand.
"""
struct Program{Kind,Wrt,Seeds,Directions,Kept,Ticket,D,S,V,O,R}
    rules::D
    spec::S
    value_spec::V
    operands::O
    results::R
    lanes::Vector{Int}
    converts::Bool      # the caller has declared the dtypes, so results are converted
    copies::Ref{Bool}   # the function needs arrays of its own
    origin::Any         # the function with its rules and AD system, and the sizes of its arguments
end

"""
The programs by their keys, with the number of their holders. The table is replaced and never
changed, so reading needs no lock.
"""
mutable struct ProgramTable
    @atomic entries::Dict{UInt64,Tuple{Any,Int}}
end
const PROGRAMS = ProgramTable(Dict{UInt64,Tuple{Any,Int}}())

program(key) = first((@atomic PROGRAMS.entries)[key])

function change_programs!(change!)
    @lock LOCK begin
        entries = copy(@atomic PROGRAMS.entries)
        change!(entries)
        @atomic PROGRAMS.entries = entries
    end
    return ""
end

# The same program may have been made more than once.
function release_program(text)
    key = parse(UInt64, text)
    return change_programs!() do entries
        program, uses = entries[key]
        uses == 1 ? delete!(entries, key) : (entries[key] = (program, uses - 1))
    end
end

numbers(text) = Tuple(parse.(Int, Base.split(text, ','; keepempty=false)) .+ 1)

function compile(key, kind, ids, backend, spec, value_spec, selections, operands, results,
    lanes, converts, reversed)
    functions = map(Base.split(ids, ','; keepempty=true)) do id
        isempty(id) ? nothing : FUNCTIONS[parse(Int, id)]
    end
    rules = Differentiable(find_backend(backend), functions...)
    layout = reversed == "reversed"
    parsed, parsed_value = parse_spec(spec, layout), parse_spec(value_spec, layout)
    wrt, seeds, directions, kept, ticket = Base.split(selections, '|')
    directions = Tuple(numbers.(Base.split(directions, ';'; keepempty=false)))
    levels = [Base.split(level, ':') for level in Base.split(lanes, ';'; keepempty=false)]
    sizes = [parse(Int, level[1]) for level in levels]
    ins = buffers(operands, sizes, [level[2] for level in levels], layout)
    outs = buffers(results, sizes, [level[3] for level in levels], layout)
    origin = (rules, map(b -> b.dims, ins[1:length(leaf_types(parsed))]))
    program = Program{
        Symbol(kind),numbers(wrt),numbers(seeds),directions,numbers(kept),!isempty(ticket),
        typeof(rules),typeof(parsed),typeof(parsed_value),typeof(ins),typeof(outs)
    }(rules, parsed, parsed_value, ins, outs, sizes, converts == "true", Ref(false), origin)
    id = parse(UInt64, key)
    return change_programs!() do entries
        _, uses = get(entries, id, (nothing, 0))
        entries[id] = (program, uses + 1)
    end
end

# "f4:2,3;i8:" and, for each level, one '0' or '1' for each buffer.
function buffers(text, sizes, flags, reversed)
    return Tuple(map(enumerate(Base.split(text, ';'; keepempty=false))) do (i, one)
        dtype, dims = Base.split(one, ':')
        T = DTYPES[Symbol(dtype)]
        extents = Tuple(parse.(Int, Base.split(dims, ','; keepempty=false)))
        steps, bytes = zeros(Int, length(sizes)), sizeof(T) * prod(extents)
        for level in reverse(eachindex(sizes))
            flags[level][i] == '1' || continue
            steps[level] = bytes
            bytes *= sizes[level]
        end
        shared = any(level -> flags[level][i] == '0', eachindex(sizes))
        N = length(extents)
        Buffer{T,N,reversed}(extents, steps, bytes, shared, Spare{T,N}())
    end)
end

# --- one lane ------------------------------------------------------------------------------

function store!(device, b::Buffer{T}, address, y, program) where {T}
    size(y) == b.dims && (eltype(y) === T || converts(program)) ||
        throw(OutputChangedError(describe(T, b.dims), describe(eltype(y), size(y))))
    return write!(device, b, address, y)
end

# Derivatives take the dtype of what they belong to.
converts(p::Program{Kind}) where {Kind} = Kind !== :call || p.converts

describe(T, dims) = isempty(dims) ? "a $T" : string("size ", dims, " of ", T)

function compute(p::Program{:call,Wrt}, device, inputs) where {Wrt}
    return flatten(checked(p, device, primal_value(p.rules, p.spec, inputs, Val(Wrt))))
end

function checked(p, device, y)
    y = sendable(y, x -> settle(device, x))
    same_structure(p.value_spec, y) || throw(other_structure(y, p.value_spec))
    return y
end

same_structure(::LeafSpec, y) = y isa Union{Number,AbstractArray}
same_structure(::NothingSpec, y) = y === nothing
same_structure(spec::Tuple, y) =
    y isa Tuple && length(spec) == length(y) && all(map(same_structure, spec, y))
same_structure(spec::NamedTuple{names}, y) where {names} =
    y isa NamedTuple{names} && all(map(same_structure, values(spec), values(y)))

structure_text(x) = x isa Union{Nothing,NothingSpec} ? "nothing" : "_"
structure_text(x::Tuple) = string("(", join(map(structure_text, x), ", "), ")")
structure_text(x::NamedTuple) =
    string("(; ", join(["$k = $(structure_text(v))" for (k, v) in pairs(x)], ", "), ")")

function compute(p::Program{:value_and_grad,Wrt}, device, inputs) where {Wrt}
    y, x̄s = value_and_cotangents(p.rules, p.spec, inputs, Val(Wrt))
    return (y, x̄s...)
end

function compute(
    p::Program{:tangents,Wrt,Seeds,Dirs,Kept}, device, inputs
) where {Wrt,Seeds,Dirs,Kept}
    leaves, rest = first_leaves(p.spec, inputs)
    ẏ = tangents(p.rules, p.spec, leaves, directions(Val(Dirs), rest))
    same_structure(p.value_spec, ẏ) || throw(other_structure(ẏ, p.value_spec))
    flat = flatten(ẏ)
    return map(i -> flat[i], Kept)
end

function compute(
    p::Program{:cotangents,Wrt,Seeds,Dirs}, device, inputs
) where {Wrt,Seeds,Dirs}
    leaves, rest = first_leaves(p.spec, inputs)
    given = ntuple(i -> rest[i], length(Seeds))
    rest = rest[length(Seeds)+1:end]
    return cotangents(
        p.rules, p.spec, leaves, seed(p, given), Val(Wrt), directions(Val(Dirs), rest))
end

function first_leaves(spec, inputs)
    n = length(leaf_types(spec))
    return inputs[1:n], inputs[n+1:end]
end

directions(::Val{()}, rest) = ()
function directions(::Val{Dirs}, rest) where {Dirs}
    n = length(first(Dirs))
    return (Direction{first(Dirs)}(rest[1:n]),
        directions(Val(Base.tail(Dirs)), rest[n+1:end])...)
end

"Run the pullback that a call has left, and tell whether there was one that could be run."
run_kept(p, device, inputs, outputs) = false

function seed(p::Program{Kind,Wrt,Seeds}, given) where {Kind,Wrt,Seeds}
    zeros = ntuple(_ -> ZeroTangent(), length(leaf_types(p.value_spec)))
    return assemble(p.value_spec, replace_leaves(zeros, Val(Seeds), given))
end

function run_lane(p::Program, device, inputs, outputs)
    run_kept(p, device, inputs, outputs) && return nothing
    leaves = map((b, address) -> decode(device, b, address, p.copies[]), p.operands, inputs)
    results = try
        compute(p, device, leaves)
    catch
        any(x -> x isa CopyOnWrite, leaves) || rethrow()
        # Perhaps a method for `Array` alone is missing: with arrays of its own we shall see.
        again = map((b, address) -> decode(device, b, address, true), p.operands, inputs)
        results = compute(p, device, again)
        p.copies[] = true
        results
    end
    store_all!(p, device, outputs, results)
    map(give_back!, p.operands, leaves)  # `foreach` allocates for tuples of several types
    return nothing
end

function store_all!(p, device, outputs, results)
    length(results) == length(p.results) || throw(OutputChangedError(
        "$(length(p.results)) arrays", "$(length(results))"))
    map((b, address, y) -> store!(device, b, address, y, p), p.results, outputs, results)
    return nothing
end

# --- all lanes -----------------------------------------------------------------------------

"""
    run(program, device, inputs, outputs)

Run a program on all lanes, from tuples of addresses to tuples of addresses.
"""
function run(p::Program, device, inputs, outputs)
    isempty(p.lanes) && return run_lane(p, device, inputs, outputs)
    foreach((b, address) -> clear!(device, b, address), p.results, outputs)
    count = prod(p.lanes)
    tasks = any(b -> b.shared, p.results) ? 1 : min(count, workers(device))
    tasks <= 1 && return run_lanes(p, device, inputs, outputs, 0:count-1)
    chunks = collect(Iterators.partition(0:count-1, cld(count, tasks)))
    # The calling thread is XLA's. It does its own part, and Julia's threads the others.
    others = map(chunks[2:end]) do chunk
        Threads.@spawn run_lanes(p, device, inputs, outputs, chunk)
    end
    try
        run_lanes(p, device, inputs, outputs, first(chunks))
    finally
        # Whatever happened, nobody may write once XLA has its memory back.
        foreach(other -> try wait(other) catch end, others)
    end
    foreach(wait, others)
    return nothing
end

function run_lanes(p, device, inputs, outputs, lanes)
    for lane in lanes
        at(b, address) = address + offset(b, p.lanes, lane)
        run_lane(p, device, map(at, p.operands, inputs), map(at, p.results, outputs))
    end
end

# Where a lane begins; the last level runs fastest.
function offset(b::Buffer, sizes, lane)
    bytes = 0
    for level in reverse(eachindex(sizes))
        lane, i = divrem(lane, sizes[level])
        bytes += i * b.steps[level]
    end
    return bytes
end
