# The twins against Flux with the same weights: values, running statistics, gradients.

const FLUX_NAMES = (scale=(:γ, :scale), bias=(:β, :bias, :b), mean=(:μ,), var=(:σ²,),
    weight=(:weight,), layer=(:layer,), g=(:g,), weight_in=(:Wi,), weight_hidden=(:Wh,),
    weight_candidate=(:Wh_h̃,), q_proj=(:q_proj,), k_proj=(:k_proj,), v_proj=(:v_proj,),
    out_proj=(:out_proj,))

"What a Flux model, or its gradient, holds, in the shape of a twin's parameters or state."
in_shape_of(tree::Tuple, model) = map(in_shape_of, tree, Tuple(model.layers))
function in_shape_of(tree::NamedTuple{names}, model) where {names}
    for wrapper in (:layers, :diag, :cell)
        isempty(tree) || !hasproperty(model, wrapper) || return in_shape_of(tree,
            getproperty(model, wrapper))
    end
    return NamedTuple{names}(map(names, values(tree)) do name, child
        field = only(filter(f -> hasproperty(model, f), FLUX_NAMES[name]))
        part = getproperty(model, field)
        child isa NamedTuple ? in_shape_of(child, part) : part
    end)
end

function in_mode(model, training)
    training ? Flux.trainmode!(model) : Flux.testmode!(model)
    return model
end

@testset "nn like Flux, $T, training=$training" for (T, training) in TYPES_AND_MODES
    near(a, b, rtol) = isapprox(a, b; rtol, atol=rtol)
    @testset "$name" for (name, (layer, size, build)) in LAYERS
        LONG || name in KINDS || continue
        params, state = randomised(layer, T)
        x = T.(noise(size, 7))
        model = in_mode(build(params, state), training)
        expected = model(x)
        y, new = PyBridge.apply(layer, params, state, x; training)
        rtol = T === Float64 ? 1e-12 : 1e-5
        @test eltype(y) === T
        @test near(y, expected, rtol)
        for (ours, theirs) in zip(PyBridge.leaves(new), PyBridge.leaves(in_shape_of(new, model)))
            @test near(ours, theirs, rtol)
        end

        # Flux's running statistics have moved: it starts again.
        model = in_mode(build(params, state), training)
        w = T.(noise(Base.size(y), 3))
        theirs = Zygote.gradient((model, x) -> sum(abs2, w .* model(x)), model, x)
        ours = Zygote.gradient(params, x) do params, x
            sum(abs2, w .* PyBridge.apply(layer, params, state, x; training)[1])
        end
        rtol = T === Float64 ? 1e-11 : 1e-4
        @test near(ours[2], theirs[2], rtol)
        isempty(PyBridge.leaves(params)) && continue
        for (a, b) in zip(PyBridge.leaves(ours[1]), PyBridge.leaves(in_shape_of(params, theirs[1])))
            @test eltype(a) === T
            @test near(a, b, rtol)
        end
    end
end

# The column of Flux in the tables of docs/layers.
@testset "where Flux differs" begin
    batch = Flux.trainmode!(Flux.BatchNorm(2))
    batch(ones(Float32, 2, 1))
    @test all(isnan, batch.σ²)  # one value per channel
    @test_throws "more than one value per channel" PyBridge.batchnorm(
        (;), (mean=zeros(2), var=ones(2)), ones(2, 1); training=true)

    x = fill(NaN, 100)
    @test all(isnan, Flux.trainmode!(Flux.Dropout(0.5))(x))
    dropped = PyBridge.dropout((0x00000000, 0x00000001), x, 0.5; training=true)
    @test any(iszero, dropped)

    x = [0.0, 1e-3, 2e-3]
    @test Flux.LayerNorm(3; affine=false, eps=1e-5)(x) ≈ (x .- 1e-3) ./ sqrt(2e-6 / 3 + 1e-10)
    ours, _ = PyBridge.apply(PyBridge.LayerNorm(3; affine=false), (;), (;), x)
    @test ours ≈ (x .- 1e-3) ./ sqrt(2e-6 / 3 + 1e-5)
end
