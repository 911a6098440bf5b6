# What a function does on the way to its value: the questions that it asks, the derivatives and
# digits that it drops, the arrays that it writes into. It is run on numbers, or under
# rules, of PyBridge's own, whose methods tell. Nothing else is of their types: nobody
# else's result depends on this.

"""
    Sighting(kind, name, file, line, caller)

Something that a function did.

- `kind`: `:asks` (`within_gradient`), `:flat` (a step function), `:narrow` (a cast to fewer
  digits), `:writes` (into an array), `:tie` (a comparison of equal numbers), `:singular`
  (an operation without a finite derivative there), `:rule`, `:wrong_rule` or `:other_value`
  (an `rrule` of the caller's own, by itself), `:stopped` (an exception ended the run).
- `name`: the operation.
- `file`, `line`, `caller`: where in the caller's own code; of a rule, where it is defined.
"""
struct Sighting
    kind::Symbol
    name::String
    file::String
    line::Int
    caller::String
end

"""
What was seen in a run, and the stacks that were looked up. A loop does the same in each
step: its stack is looked up once, which takes a tenth of a millisecond, and a long one is
not followed to its end.
"""
mutable struct Observation
    sightings::Vector{Sighting}
    stacks::Set{UInt}
    calls::Int
end
const MOST_CALLS = 20_000

# One run at a time. What it starts on other threads is seen as well, which values local to
# a task would not.
const OBSERVING = ReentrantLock()
const OBSERVED = Ref{Union{Nothing,Observation}}(nothing)
const OBSERVED_LOCK = ReentrantLock()

"""
    observation(backend, f, args) -> String

Run `f(args...)` on numbers (ForwardDiff's) or under rules (Zygote's) that tell what it
does. One line for each [`Sighting`](@ref), in the order in which they came.
"""
function observation(backend, f, args)
    seen = Observation(Sighting[], Set{UInt}(), 0)
    @lock OBSERVING begin
        OBSERVED[] = seen
        try
            observe(backend, f, args)
        catch exception
            exception isa InterruptException && rethrow()
            sight!(:stopped, string(nameof(typeof(exception))), "", 0, "")
        finally
            OBSERVED[] = nothing
        end
    end
    fields(s) = (s.kind, s.name, s.file, s.line, s.caller)
    return as_text(join((join(fields(s), '\t') for s in unique(seen.sightings)), '\n'))
end

"Run `f(args...)` so that it tells what it does. ForwardDiff and Zygote do it."
observe(b::AbstractBackend, f, args) = refuse(b, "observing", "Use ForwardDiff or Zygote.")

function sight!(kind, name, file, line, caller)
    @lock OBSERVED_LOCK begin
        seen = OBSERVED[]
        seen === nothing || push!(seen.sightings, Sighting(kind, name, file, line, caller))
    end
    return nothing
end

"""
    sight!(kind, name; writing=nothing)

Note what an operation does, with the innermost line of the caller's own code, where the
stack shows one. With `writing`, that kind is noted in its place if the function that is
called there has a name with `!`, and nothing where `kind` is `nothing`.
"""
function sight!(kind, name; writing=nothing)
    stack = backtrace()
    is_new(stack, kind) || return nothing
    inner, frame = calling_frames(stack)
    if writing !== nothing && frame !== nothing && endswith(inner, '!')
        kind, name = writing, inner
    end
    kind === nothing && return nothing
    frame === nothing && return sight!(kind, name, "", 0, "")
    return sight!(kind, name, source_file(frame), Int(frame.line), String(frame.func))
end

function is_new(stack, kind)
    key = hash(kind, hash(stack))
    return @lock OBSERVED_LOCK begin
        seen = OBSERVED[]
        is_over = seen === nothing || (seen.calls += 1) > MOST_CALLS
        new = !is_over && !(key in seen.stacks)
        new && push!(seen.stacks, key)
        new
    end
end

# The innermost frame of the caller's own code, and the name of what it calls there.
function calling_frames(backtrace)
    inner = ""
    for frame in inner_frames(backtrace)
        is_users(frame) && return inner, frame
        frame.from_c || (inner = String(frame.func))
    end
    return inner, nothing
end

"""
    sight_rule!(f, args, y, back, method)

Compare a rule, which gave `y` and `back` for `f(args...)`, with the function itself: along
one direction, with one weight for each number of the value.
"""
function sight_rule!(f, args, y, back, method)
    kinds = [:rule]
    numbers = filter(i -> is_moving(args[i]), eachindex(args))
    if is_moving(y) && !isempty(numbers)
        random = Random.Xoshiro(0)
        direction(x) = randn(random, real(eltype(x)), size(x)...) .* max.(1, abs.(x))
        vs = Dict(i => direction(args[i]) for i in numbers)
        w = y isa Number ? one(y) : convert.(eltype(y), 0.5 .+ rand(random, size(y)...))
        moved(t) = ntuple(length(args)) do i
            haskey(vs, i) ? args[i] .+ t .* vs[i] : args[i]
        end
        value(t) = pairing(w, f(moved(t)...))
        is_same = isapprox(pairing(w, y), value(0); rtol=1e-8, atol=1e-300)
        is_same || push!(kinds, :other_value)
        x̄s = Base.tail(Tuple(back(w)))
        derivative = sum(i -> float(pairing(unthunk(x̄s[i]), vs[i])), numbers)
        is_derivative(value, derivative) || push!(kinds, :wrong_rule)
    end
    name = f isa Function || f isa Type ? nameof(f) : nameof(typeof(f))
    for kind in kinds
        sight!(kind, string(name), chopprefix(string(method.file), "./"), Int(method.line),
            string(name))
    end
    return nothing
end

is_moving(x) = x isa Leaf && real(eltype(x)) <: AbstractFloat

# Tell whether `derivative` can be that of `value` at 0: by central differences, extrapolated, of
# which the two that agree best count. Between the one-sided ones of a kink any is.
function is_derivative(value, derivative)
    left, right = (value(0) - value(-1e-6)) / 1e-6, (value(1e-6) - value(0)) / 1e-6
    abs(right - left) > 1e-3 * (abs(left) + abs(right)) + 1e-6 && return true
    central(h) = (value(h) - value(-h)) / 2h
    steps = 2.0 .^ (-4:-2:-18)
    found = map(h -> (4 * central(h / 2) - central(h)) / 3, steps)
    error, best = findmin(abs.(diff(found)))
    isfinite(error) || return true
    scale = abs(derivative) + abs(found[best])
    return abs(derivative - found[best]) <= 10 * error + 1e-6 * scale + 1e-9
end

"Tell whether a rule is the caller's own, and not a package's."
is_users(method::Method) =
    parentmodule(method) in SANDBOXES || is_users(string(method.file))
