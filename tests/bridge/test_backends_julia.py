"""The table of AD systems: what it says of Julia's systems is what they do."""

import pytest
from bridge_helpers import ROWS

import pybridge as pb

pytestmark = pytest.mark.julia


@pytest.mark.parametrize("system", ROWS, ids=lambda system: system.name)
def test_modes_and_second_order(system):
    f = pb.from_julia("x -> sin(x)")
    tried = {
        "reverse": lambda: pb.vjp(f, 1.0, backend=system.name),
        "forward": lambda: pb.jvp(f, (1.0,), (1.0,), backend=system.name),
        "second": lambda: pb.hessian(f, backend=system.name)(1.0),
    }
    able = set()
    for mode, run in tried.items():
        try:
            run()
            able.add(mode)
        except (pb.UnsupportedModeError, pb.JuliaError):
            pass
    assert able == set(system.modes)


@pytest.mark.parametrize("system", ROWS, ids=lambda system: system.name)
def test_detection(system):
    f = pb.from_julia(
        "(w, x) -> PyBridge.cond(within_gradient(w), v -> 10v, v -> v, "
        "PyBridge.cond(within_gradient(x), v -> 100v, v -> v, w * x))"
    )
    expected = {"value": 10.0, "program": 1000.0}[system.detection]
    assert float(pb.value_and_grad(f, backend=system.name)(2.0, 3.0)[0]) == 6.0 * expected


@pytest.mark.parametrize("system", ROWS, ids=lambda system: system.name)
def test_rules_of_chainrules(system):
    f = pb.from_julia(
        "begin ruled(x) = x^2; "
        "ChainRulesCore.rrule(::typeof(ruled), x) = "
        "ruled(x), d -> (ChainRulesCore.NoTangent(), 7d); "
        "x -> ruled(x) end"
    )
    derivative = float(pb.grad(f, backend=system.name)(3.0))
    assert derivative == (7.0 if system.reads_chainrules else 6.0)


EXTENSIONS = """
() -> begin
    loaded = Set(id.name for id in keys(Base.loaded_modules))
    needs(triggers) = triggers isa String ? [triggers] : triggers
    due = Tuple{Module,String}[]
    for m in Base.loaded_modules_array()
        file = joinpath(something(pkgdir(m), ""), "Project.toml")
        project = isfile(file) ? Base.parsed_toml(file) : Dict()
        # Extensions are modules too, with their package's folder.
        string(nameof(m)) == get(project, "name", "") || continue
        for (name, triggers) in get(project, "extensions", ())
            all(in(loaded), needs(triggers)) && push!(due, (m, name))
        end
    end
    absent = [name for (m, name) in due if Base.get_extension(m, Symbol(name)) === nothing]
    isempty(absent) || error("not loaded: ", join(absent, ", "))
    count(((m, _),) -> m === PyBridge, due)
end
"""


def test_every_extension_is_loaded_where_its_packages_are():
    # Julia says of one that does not compile what it is, and goes on without. Those of other
    # packages count too: without Mooncake's for NNlib, Flux's convolutions have no rule.
    assert pb.from_julia(EXTENSIONS)() >= len(ROWS)
