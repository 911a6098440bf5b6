# The examples in docstrings give what stands below them, each docstring in a module of its own.

"The inputs of a block of a Julia session, each with the output below it."
function session_steps(block)
    steps = split(block, r"^julia> "m; keepempty=false)
    return map(steps) do step
        lines = split(chomp(step), '\n')
        inputs = something(findnext(!startswith("       "), lines, 2), length(lines) + 1) - 1
        join(lines[1:inputs], '\n'), strip(join(lines[inputs+1:end], '\n'))
    end
end

function shown(place, input, value)
    (value === nothing || endswith(input, ';')) && return ""
    return sprint(show, MIME("text/plain"), value; context=(:limit => true, :module => place))
end

@testset "examples in docstrings" begin
    blocks = [(binding, block[1]) for (binding, docs) in Base.Docs.meta(PyBridge)
              for doc in values(docs.docs)
              for block in eachmatch(r"```jldoctest\n(.*?)```"s, join(doc.text))]
    @test length(blocks) > 30
    @testset "$binding" for (binding, block) in blocks
        place = Module()
        for (input, output) in session_steps(block)
            value = include_string(place, input)
            @test Base.invokelatest(shown, place, input, value) == output
        end
    end
end
