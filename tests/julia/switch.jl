@testset "switch" begin
    f(index) = x -> PyBridge.switch(index, (sin, x -> x^2, exp), x)
    @testset "$system" for system in SYSTEMS
        for index in 1:3
            @test is_gradient(value_and_gradient(system, f(index), 0.7)[2], f(index), 0.7)
        end
        captured(x, a) = PyBridge.switch(2, (x -> x, x -> a * x), x)
        @test value_and_gradient(system, captured, 2.0, 5.0) == (10.0, (5.0, 2.0))
    end
    @test f(0)(0.7) == sin(0.7)
    @test f(9)(0.7) == exp(0.7)
    @test_throws ArgumentError PyBridge.switch(1, (), 1.0)
    @test_throws ArgumentError PyBridge.switch(1.5, (sin,), 1.0)
end
