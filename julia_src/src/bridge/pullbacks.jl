# Pullbacks that forward passes leave for the backward passes of the same compiled programs.
#
# To XLA a call is a function of arrays: it may run either pass twice, late or never, and cannot tell
# us which. So nothing depends on a pullback that was left. It is named by a number among the
# results of the forward pass, the ticket, and the backward pass, which has all arguments as well,
# starts again where there is none by that number.

"""
A pullback `back`, from a cotangent of the value to those of the leaves `wrt` of the arguments.
`origin` says of which function and sizes.
"""
struct Pullback{B,O,W,L}
    back::B
    origin::O
    wrt::W
    leaves::L
end

"Tell whether a pullback, or `nothing`, gives the cotangents `wrt` of a function."
fits(::Nothing, origin, wrt) = false
fits(pullback::Pullback, origin, wrt) = pullback.origin === origin && issubset(wrt, pullback.wrt)

"""
    PullbackStore(limit)

Pullbacks by their tickets, which count up; those that were left first are dropped when all of
them take more than `limit` bytes.
"""
mutable struct PullbackStore
    const lock::ReentrantLock
    const entries::Dict{UInt64,Tuple{Any,Int}}
    oldest::UInt64
    next::UInt64
    bytes::Int
    limit::Int
end
PullbackStore(limit, first) =
    PullbackStore(ReentrantLock(), Dict{UInt64,Tuple{Any,Int}}(), first, first, 0, limit)

# What belongs to nobody: from code, such as the rules that Mooncake derives, there is a way to all
# that Julia knows.
const CODE = Union{
    Type,
    Core.TypeName,
    Core.MethodTable,
    Method,
    Core.MethodInstance,
    Core.CodeInstance,
    Core.CodeInfo,
    Core.Compiler.IRCode,
    Core.Binding,
    GlobalRef,
    Module,
    Symbol,
    Task,
}
const MEMORY = isdefined(Core, :GenericMemory) ? Core.GenericMemory : Array

"""
    bytes_kept(x)

The bytes of `x` and of all that it refers to but code. `Base.summarysize` goes through code too
where a struct holds it in line, as Mooncake's rules do, which takes it far longer than the pass.
It also looks at each field of each entry of an array as a value, and Mooncake's stacks have
an entry for each step of a loop: here references are read from where they lie.
"""
function bytes_kept(x)
    bytes = 0
    pending, met = Any[x], Set{Ptr{Cvoid}}()
    layouts = IdDict{Any,Vector{Int}}()
    push!(met, address(pending[1]))
    while !isempty(pending)
        y = pop!(pending)
        (y isa CODE || Base.issingletontype(typeof(y))) && continue
        bytes += Core.sizeof(y)
        GC.@preserve y push_references!(pending, met, places(y, layouts)...)
    end
    return bytes
end

function push_references!(pending, met, start, count, step, offsets)
    for i in 0:(count - 1), offset in offsets
        reference = unsafe_load(Ptr{Ptr{Cvoid}}(start + i * step + offset))
        (reference == C_NULL || reference in met) && continue  # null: not assigned
        push!(met, reference)
        push!(pending, unsafe_pointer_to_objref(reference))
    end
end

"Where an object refers to others: in `count` entries from `start` on, `step` apart, at `offsets`."
function places(@nospecialize(x), layouts)
    x isa MEMORY && return memory_places(x, layouts)::Tuple{Ptr{Cvoid},Int,Int,Vector{Int}}
    x isa Core.SimpleVector && return address(x) + sizeof(Int), length(x), sizeof(Int), [0]
    return address(x), 1, 0, layout!(layouts, typeof(x))
end
function memory_places(x, layouts)
    T = eltype(x)
    offsets = Base.allocatedinline(T) ? layout!(layouts, T) : [0]
    return Ptr{Cvoid}(pointer(x)), isempty(offsets) ? 0 : length(x), Base.elsize(x), offsets
end

address(@nospecialize(x)) = ccall(:jl_value_ptr, Ptr{Cvoid}, (Any,), x)

layout!(layouts, T) = get!(() -> reference_offsets(T), layouts, T)

"At which offsets a value of type `T` has references to objects."
function reference_offsets(T)
    # A union that lies in line has none.
    T isa DataType && !(T <: CODE) || return Int[]
    return mapreduce(vcat, 1:fieldcount(T); init=Int[]) do i
        field, offset = fieldtype(T, i), Int(fieldoffset(T, i))
        Base.allocatedinline(field) ? offset .+ reference_offsets(field) : [offset]
    end
end

const NO_TICKET = UInt32[0, 0]

"Keep a pullback; return the ticket for it."
function leave!(store::PullbackStore, pullback)
    store.limit == 0 && return NO_TICKET
    bytes = bytes_kept(pullback)
    return @lock store.lock begin
        ticket = store.next
        store.next += 1
        store.entries[ticket] = (pullback, bytes)
        store.bytes += bytes
        shrink!(store)
        UInt32[ticket >> 32, ticket % UInt32]
    end
end

"Take the pullback of a ticket out of the store; `nothing` where there is none."
function take!(store::PullbackStore, ticket)
    high, low = ticket
    return @lock store.lock take_out!(store, UInt64(high) << 32 | low)
end

function take_out!(store, ticket)
    pullback, bytes = pop!(store.entries, ticket, (nothing, 0))
    store.bytes -= bytes
    return pullback
end

function shrink!(store)
    while store.bytes > store.limit
        take_out!(store, store.oldest)
        store.oldest += 1
    end
end

"The pullbacks of all functions; `__init__` makes it ready for a process."
const KEPT = PullbackStore(0, UInt64(1))

function open_store()
    KEPT.limit = Sys.total_memory() ÷ 8
    # So that a ticket of another process, in residuals that were saved, names nothing here.
    KEPT.oldest = KEPT.next = rand(Random.RandomDevice(), UInt64)
end

function limit_pullbacks(bytes)
    @lock KEPT.lock begin
        KEPT.limit = parse(Int, bytes)
        shrink!(KEPT)
    end
    return ""
end

# --- programs that leave and use them ------------------------------------------------------

# What a pullback needs must be its own, and not XLA's: all arrays are copied.
function compute(
    p::Program{:call,Wrt,Seeds,Dirs,Kept,true}, device::Host, inputs
) where {Wrt,Seeds,Dirs,Kept}
    y, back = reverse_pass(p.rules, p.spec, inputs, Val(Wrt))
    y = checked(p, device, y)
    return (flatten(y)..., leave!(KEPT, Pullback(back, origin(p), Wrt, inputs)))
end
function compute(
    p::Program{:call,Wrt,Seeds,Dirs,Kept,true}, device, inputs
) where {Wrt,Seeds,Dirs,Kept}
    y = checked(p, device, primal_value(p.rules, p.spec, inputs, Val(Wrt)))
    return (flatten(y)..., NO_TICKET)
end

needs_copies(::Program{:call,Wrt,Seeds,Dirs,Kept,true}, ::Host) where {Wrt,Seeds,Dirs,Kept} = true

# The function with its rules and AD system, and the sizes of its arguments.
origin(p) = (p.rules, map(b -> b.dims, p.operands[1:length(leaf_types(p.spec))]))

function from_kept(
    p::Program{Kind,Wrt,Seeds,Dirs,Kept,true}, device::Host, inputs
) where {Kind,Wrt,Seeds,Dirs,Kept}
    Kind === :call && return nothing
    pullback = take!(KEPT, decode(device, last(p.operands), last(inputs), true))
    Kind === :cotangents && fits(pullback, origin(p), Wrt) || return nothing
    n = length(leaf_types(p.spec))
    given = ntuple(length(Seeds)) do i
        decode(device, p.operands[n + i], inputs[n + i], needs_copies(p, device))
    end
    x̄s = pull_back(p, pullback, given)
    foreach(give_back!, given)
    return x̄s
end

function pull_back(p::Program{Kind,Wrt,Seeds}, pullback, given) where {Kind,Wrt,Seeds}
    x̄s = pullback.back(maptree(conj_cotangent, seed(p, given)))
    return finish(pullback.leaves, Val(Wrt), map(i -> x̄s[findfirst(==(i), pullback.wrt)], Wrt))
end
