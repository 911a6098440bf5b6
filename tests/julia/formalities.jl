@testset "formalities" begin
    @test isempty(detect_ambiguities(PyBridge; recursive=true))
    @test isempty(detect_unbound_args(PyBridge; recursive=true))

    @testset "public names have docstrings" begin
        public = (names(PyBridge)..., :cond, :switch, :value_and_gradient, :pullback, :pushforward,
            :jacobian, :hessian, :JaxFunction, :JaxLayer, :JaxError,
            :Dense, :Conv, :ConvTranspose, :SamePad, :MaxPool, :MeanPool, :GlobalMeanPool,
            :Embedding, :BatchNorm, :InstanceNorm, :LayerNorm, :GroupNorm, :WeightNorm, :Chain,
            :SkipConnection, :Parallel, :batchnorm, :instancenorm, :layernorm, :groupnorm,
            :glorot_uniform, :glorot_normal, :kaiming_uniform, :kaiming_normal,
            :truncated_normal, :lecun_normal, :orthogonal, :identity_init, :normal_init,
            :zeros_init, :ones_init)
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
