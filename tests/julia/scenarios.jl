using TOML: TOML

# The table that `pybridge check` runs, asked without Python in between: where no answer is
# documented as another one, each system gives the expected one.
@testset "scenarios" begin
    table = TOML.parsefile(joinpath(ROOT, "pybridge", "consistency", "suites", "scenarios.toml"))

    # A nested list is an array, row by row, as in Python.
    array(x) = x
    array(x::Vector) = isempty(x) || !(first(x) isa Vector) ? Float64.(x) :
                       permutedims(reduce(hcat, map(array, x)))

    function as_expected(scenario, gradient)
        haskey(scenario, "derivative") &&
            return isapprox(gradient, array(scenario["derivative"]); rtol=1e-5, atol=1e-8, nans=true)
        low, high = array.(scenario["subdifferential"])
        return all(low .- 1e-8 .<= gradient .<= high .+ 1e-8)
    end

    systems_of(known) = known["system"] isa Vector ? known["system"] : [known["system"]]

    for (system, scenario) in combined(SYSTEMS, table["scenario"])
        documented = any(k -> String(system) in systems_of(k), get(scenario, "known", []))
        documented && continue
        @testset "$system: $(scenario["name"])" begin
            f = PyBridge.evaluate(scenario["julia"])
            args = Tuple(map(array, scenario["args"]))
            value, (gradient,) = Base.invokelatest(
                PyBridge.value_and_gradient, PyBridge.BACKENDS[system], f, args, Val((1,)))
            @test isapprox(value, scenario["value"]; rtol=1e-5, atol=1e-8, nans=true)
            @test as_expected(scenario, gradient)
        end
    end
end
