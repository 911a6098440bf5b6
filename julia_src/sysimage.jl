# Build a system image that holds PyBridge and the packages of the main environment:
#
#     julia --project=<main environment> sysimage.jl <folder> <image> <statements> <offline>
#
# `statements` is a file of calls to compile, as `--trace-compile` writes it. The environment of
# PackageCompiler is made in `folder`, from the main one, whose versions it keeps.

using Pkg: Pkg
using TOML: TOML

folder, image, statements, offline = ARGS
main = dirname(Base.active_project())
packages = collect(keys(TOML.parsefile(joinpath(main, "Project.toml"))["deps"]))

ENV["JULIA_PKG_PRECOMPILE_AUTO"] = "0"
offline == "true" && Pkg.offline(true)
mkpath(folder)
for file in ("Project.toml", "Manifest.toml")
    cp(joinpath(main, file), joinpath(folder, file); force=true)
end
Pkg.activate(folder; io=devnull)
Pkg.develop(; path=@__DIR__)
Pkg.add("PackageCompiler"; preserve=Pkg.PRESERVE_ALL)

using PackageCompiler: create_sysimage
create_sysimage(["PyBridge", packages...]; project=folder, sysimage_path=image,
    precompile_statements_file=statements, cpu_target="native")
