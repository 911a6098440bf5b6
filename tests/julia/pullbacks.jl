@testset "pullbacks that are left" begin
    P = PyBridge
    pullback(n) = P.Pullback(ȳ -> (ȳ,), (:f, n), (1,), (zeros(n),), Ref(false))
    bytes_kept(x) = first(P.bytes_kept(x, ()))
    size_of(n) = bytes_kept(pullback(n))

    @testset "what is kept is counted, each object once, and no code" begin
        x = zeros(1000)
        overhead = 200  # headers, sizes and references
        @test 8000 <= bytes_kept(x) <= 8000 + overhead
        @test 8000 <= bytes_kept((x, Any[x, (; x)], Ref{Any}(x))) <= 8000 + overhead
        @test bytes_kept("four") == 4
        @test bytes_kept(() -> x) == bytes_kept(Ref(x))
        chained = foldl((x, _) -> Any[x, x], 1:50; init=x)  # 2^50 ways to the same array
        @test 8000 <= bytes_kept(chained) <= 8000 + 50 * overhead
        deep = foldl((x, _) -> Any[x], 1:10^5; init=x)  # deeper than calls can nest
        @test bytes_kept(deep) >= 8000 + 8 * 10^5
        @test bytes_kept((ReentrantLock(), x)) > 8000  # has fields that are atomic
        for code in (Base, Int, sin, first(methods(sin)), current_task(), :name, GlobalRef(Base, :sin))
            @test bytes_kept(Any[code, x]) == bytes_kept(Any[nothing, x])
        end
    end

    @testset "systems keep what grows with the arguments: $system" for system in SYSTEMS
        system === :forwarddiff && continue  # it has no pullback to keep
        f(x) = x .* x
        kept = map((10, 1000)) do n
            _, back = P.pullback(P.BACKENDS[system], f, (ones(n),), Val((1,)))
            bytes_kept(back)
        end
        @test kept[1] < 2 * 10^4
        @test 8 * 990 <= kept[2] - kept[1] < 1000 * 990
    end

    @testset "each is taken once, by its ticket" begin
        store = P.PullbackStore(10^6, UInt64(2)^32 - 1)  # the second ticket is wider than 32 bits
        tickets = [P.leave!(store, pullback(n)) for n in 1:3]
        @test tickets[2] == UInt32[1, 0]
        @test P.take!(store, tickets[2]).origin === (:f, 2)
        @test P.take!(store, tickets[2]) === nothing
        @test P.take!(store, P.NO_TICKET) === nothing
        @test store.bytes == size_of(1) + size_of(3)
        foreach(ticket -> P.take!(store, ticket), tickets)
        @test store.bytes == 0 && isempty(store.entries)
    end

    @testset "the oldest make room" begin
        store = P.PullbackStore(10 * size_of(100), UInt64(1))
        tickets = [P.leave!(store, pullback(100)) for _ in 1:(LONG ? 10^5 : 10^3)]
        @test store.bytes <= store.limit && length(store.entries) == 10
        @test P.take!(store, tickets[end-10]) === nothing
        @test all(ticket -> P.take!(store, ticket) !== nothing, tickets[end-9:end])
        @test P.leave!(store, pullback(10^4)) isa Vector{UInt32}
        @test isempty(store.entries) && store.bytes == 0  # larger than all the room
        store.limit = 0
        @test P.leave!(store, pullback(1)) == P.NO_TICKET
    end

    @testset "what is lent is seen, unless a CopyOnWrite has it" begin
        memory = zeros(1000)
        x = P.CopyOnWrite(memory)
        y = reshape(view(x, 1:500), 5, :)
        lent = [Ptr{Cvoid}(pointer(memory))]
        seen(kept) = P.bytes_kept(kept, lent)[2]
        @test !seen((x, y, Any[x], () -> x)) && bytes_kept((x, y)) < 1000
        @test all(seen, (memory, (x, memory), Any[reshape(memory, 10, :)], () -> view(memory, 1:2)))
        @test seen(Any[Task(() -> x)])
        store, copies = P.PullbackStore(10^6, UInt64(1)), Ref(false)
        left(back) = P.leave!(store, P.Pullback(back, :f, (1,), (x,), copies))
        @test left(() -> y) != P.NO_TICKET && !copies[]
        @test left(() -> memory) == P.NO_TICKET && copies[]
        P.own!(x)
        @test !seen(x) && bytes_kept(x) > 8000
    end

    @testset "it is used for its own function, sizes and arguments alone" begin
        @test P.fits(pullback(2), (:f, 2), (1,))
        @test !P.fits(pullback(2), (:f, 3), (1,))
        @test !P.fits(pullback(2), (:g, 2), (1,))
        @test !P.fits(pullback(2), (:f, 2), (1, 2))
        @test !P.fits(nothing, (:f, 2), (1,))
    end
end
