@testset "formalities" begin
    @test isempty(detect_ambiguities(PyBridge; recursive=true))
    @test isempty(detect_unbound_args(PyBridge; recursive=true))

    @testset "public names have docstrings" begin
        for name in (names(PyBridge)..., PyBridge.PUBLIC...)
            @test haskey(Base.Docs.meta(PyBridge), Base.Docs.Binding(PyBridge, name))
        end
    end

    # Aqua where it can be had; it is no dependency. Ambiguities are above; the check for tasks
    # that outlive precompilation wants a registry of its own.
    if Base.find_package("Aqua") === nothing
        @info "Aqua could not be installed: its checks did not run"
    else
        Aqua = Base.require(Main, :Aqua)
        Base.invokelatest(Aqua.test_all, PyBridge; ambiguities=false, persistent_tasks=false)
    end
end
