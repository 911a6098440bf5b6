# Make the environment of one package of environments.toml:
#
#     julia --project=<main environment> provision.jl <package> <folder> <offline>
#
# A process of its own, so that Pkg's progress goes to the terminal, and so that nothing that
# Pkg loads stays in the Julia that Python talks to.

using FileWatching.Pidfile: mkpidlock
using Pkg: Pkg
using TOML: TOML

package, folder, offline = ARGS

# One process at a time; the others find the work done. A lock that nobody refreshes is stale.
const DONE = joinpath(folder, "pybridge-installed")
mkpath(dirname(folder))
const LOCK = mkpidlock("$folder.lock"; stale_age=10)
atexit(() -> close(LOCK))
isfile(DONE) && exit()

entry = TOML.parsefile(joinpath(@__DIR__, "environments.toml"))[package]
main = dirname(Base.active_project())

# Compiling here would be for this environment alone; what counts is all of them together,
# below.
ENV["JULIA_PKG_PRECOMPILE_AUTO"] = "0"
offline == "true" && Pkg.offline(true)
mkpath(folder)

if get(entry, "with_main", false)
    for file in ("Project.toml", "Manifest.toml")
        cp(joinpath(main, file), joinpath(folder, file); force=true)
    end
end
Pkg.activate(folder; io=devnull)
Pkg.add([Pkg.PackageSpec(; name, version) for (name, version) in entry["add"]])

if haskey(entry, "beyond")
    # Past Pkg's resolver, which would refuse; the loader does not look at compat bounds.
    project_file, manifest_file = joinpath.(folder, ("Project.toml", "Manifest.toml"))
    project, manifest = TOML.parsefile(project_file), TOML.parsefile(manifest_file)
    project["deps"][package] = entry["uuid"]
    manifest["deps"][package] = [merge(entry["beyond"], Dict("uuid" => entry["uuid"]))]
    delete!(manifest, "project_hash")
    open(io -> TOML.print(io, project), project_file, "w")
    open(io -> TOML.print(io, manifest), manifest_file, "w")
    Pkg.instantiate()
end

# Compile as it will be used: with the main environment in front and PyBridge beside it.
push!(empty!(LOAD_PATH), main, @__DIR__, folder, "@stdlib")
Base.set_active_project(joinpath(main, "Project.toml"))
@info "Precompiling $package"
import PyBridge
try
    PyBridge.load(package)
catch exception
    # The session says so in its own words, each time: the environment is as it should be.
    exception isa PyBridge.NotLoadedError || rethrow()
end
touch(DONE)
