# Pullbacks that forward passes leave for the backward passes of the same compiled programs.
#
# To XLA a call is a function of arrays: it may run either pass twice, late or never, and cannot tell
# us which. So nothing depends on a pullback that was left. It is named by a number among the
# results of the forward pass, the ticket, and the backward pass, which has all arguments as well,
# starts again where there is none by that number.

"""
A pullback `back`, from a cotangent of the value to those of the leaves `wrt` of the arguments.
`origin` is that of the program that left it. The `leaves` that were read where XLA has them are given
back, so nothing of XLA's is kept, and lent again for the backward pass; where that cannot be
done, `copies` tells the program that left this to copy them from then on.
"""
struct Pullback{B,W,L}
    back::B
    origin::Any
    wrt::W
    leaves::L
    copies::Base.RefValue{Bool}
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
    bytes_kept(x, lent) -> (bytes, holds_lent)

The bytes of `x` and of all that it refers to but code, and whether memory at one of the addresses
`lent` is among them, met otherwise than through a `CopyOnWrite`, from which it can be taken back.

`Base.summarysize` goes through code too where a struct holds it in line, as Mooncake's rules do,
which takes it far longer than the pass. It also looks at each field of each entry of an array
as a value, and Mooncake's stacks have an entry for each step of a loop: here references are
read from where they lie.
"""
function bytes_kept(x, lent)
    bytes, holds_lent = 0, false
    pending, met = Any[x], Set{Ptr{Cvoid}}()
    # What is known of types is worth keeping: to find it out takes longer than all the rest.
    layouts = get!(Layouts, task_local_storage(), :PyBridgeLayouts)::Layouts
    sizehint!(push!(met, address(pending[1])), 1000)
    while !isempty(pending)
        y = pop!(pending)
        offsets = layout!(layouts, typeof(y))
        # What a task will read cannot be seen.
        holds_lent |= y isa Task && !isempty(lent)
        (offsets === nothing || y isa CopyOnWrite && is_lent(y)) && continue
        bytes += Core.sizeof(y)
        start, count, step = address(y), 1, 0
        if y isa MEMORY
            start, count, step = memory_places(y)::Tuple{Ptr{Cvoid},Int,Int}
            holds_lent |= start in lent
        elseif y isa Core.SimpleVector
            start, count, step = start + sizeof(Int), length(y), sizeof(Int)
        end
        GC.@preserve y push_references!(pending, met, start, count, step, offsets)
    end
    return bytes, holds_lent
end

function push_references!(pending, met, start, count, step, offsets)
    isempty(offsets) && return nothing
    for i in 0:(count - 1), offset in offsets
        reference = unsafe_load(Ptr{Ptr{Cvoid}}(start + i * step + offset))
        (reference == C_NULL || reference in met) && continue  # null: not assigned
        push!(met, reference)
        push!(pending, unsafe_pointer_to_objref(reference))
    end
end

address(@nospecialize(x)) = ccall(:jl_value_ptr, Ptr{Cvoid}, (Any,), x)
memory_places(x) = Ptr{Cvoid}(pointer(x)), length(x), Base.elsize(x)

"""
At which offsets objects of a type, or entries of memory, have references; `nothing` for code, and
for what takes no memory.
"""
const Layouts = IdDict{Any,Union{Vector{Int},Nothing}}
function layout!(layouts, @nospecialize(T))
    haskey(layouts, T) || (layouts[T] = layout(T))
    return layouts[T]
end

function layout(T)
    (T <: CODE || Base.issingletontype(T)) && return nothing
    T <: Core.SimpleVector && return [0]
    T <: MEMORY || return reference_offsets(T)
    return Base.allocatedinline(eltype(T)) ? reference_offsets(eltype(T)) : [0]
end

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
    lent = Ptr{Cvoid}[pointer(x.data) for x in pullback.leaves if is_lent(x)]
    bytes, holds_lent = bytes_kept(pullback, lent)
    if holds_lent
        pullback.copies[] = true
        return NO_TICKET
    end
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

function compute(
    p::Program{:call,Wrt,Seeds,Dirs,Kept,true}, device::Host, inputs
) where {Wrt,Seeds,Dirs,Kept}
    y, back = reverse_pass(p.rules, p.spec, inputs, Val(Wrt))
    y = checked(p, device, y)
    return (flatten(y)..., leave!(KEPT, Pullback(back, p.origin, Wrt, inputs, p.copies)))
end
function compute(
    p::Program{:call,Wrt,Seeds,Dirs,Kept,true}, device, inputs
) where {Wrt,Seeds,Dirs,Kept}
    y = checked(p, device, primal_value(p.rules, p.spec, inputs, Val(Wrt)))
    return (flatten(y)..., NO_TICKET)
end

function run_kept(
    p::Program{Kind,Wrt,Seeds,Dirs,Kept,true}, device::Host, inputs, outputs
) where {Kind,Wrt,Seeds,Dirs,Kept}
    Kind === :call && return false
    pullback = take!(KEPT, decode(device, last(p.operands), last(inputs), true))
    Kind === :cotangents && fits(pullback, p.origin, Wrt) || return false
    n = length(leaf_types(p.spec))
    given = ntuple(length(Seeds)) do i
        decode(device, p.operands[n + i], inputs[n + i], p.copies[])
    end
    for (leaf, b, address) in zip(pullback.leaves, p.operands, inputs)
        is_lent(leaf) && lend!(leaf, lendable(device, b, address))
    end
    arrays = (pullback.leaves..., given...)
    results = try
        pull_back(p, pullback, given)
    catch
        # As in `run_lane`: what fails with these arrays may run with others.
        any(x -> x isa CopyOnWrite, arrays) || rethrow()
        pullback.copies[] = true
        nothing
    end
    results === nothing || store_all!(p, device, outputs, results)
    foreach(give_back!, p.operands, arrays)
    return results !== nothing
end

function pull_back(p::Program{Kind,Wrt,Seeds}, pullback, given) where {Kind,Wrt,Seeds}
    x̄s = pullback.back(maptree(conj_cotangent, seed(p, given)))
    return finish(pullback.leaves, Val(Wrt), map(i -> x̄s[findfirst(==(i), pullback.wrt)], Wrt))
end
