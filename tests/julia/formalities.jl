@testset "formalities" begin
    @test isempty(detect_ambiguities(PyBridge; recursive=true))
    @test isempty(detect_unbound_args(PyBridge; recursive=true))

    @testset "public names have docstrings" begin
        public = (names(PyBridge)..., :cond, :switch, :value_and_gradient, :pullback, :pushforward,
            :jacobian, :hessian, :JaxFunction, :JaxLayer, :JaxError, :fold_in, :split, :bits,
            :uniform, :normal, :keep_mask, :init, :apply, :Layer, :dropout, :Dropout, :alphadropout,
            :AlphaDropout)
        for name in public
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
