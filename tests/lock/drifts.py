"""Drifts as data: a machine, what was changed on it since the lock, and what `check` has to say of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.facts.python_environments import StartupHook
from firstlight.facts.torch_libraries import MissingLibrary
from firstlight.frozen import dataclass
from firstlight.tables import load
from firstlight.versions import DriverVersion
from firstlight.ways.effects import after
from firstlight.ways.kinds import InstallWheels, Package, RemoveDistributions, SetVariables, UnsetVariables, Variable
from firstlight.ways.way import Way

Plant = Callable[[Facts], Facts]


@dataclass(frozen=True, slots=True)
class DriftCase:
    """`before` makes the machine that was locked of a recorded one, `plant` what it is now."""

    name: str
    machine: str
    before: Plant
    plant: Plant
    part: str  # "" = no class fits
    fact: str
    consequence: str


def as_it_is(facts: Facts) -> Facts:
    return facts


def with_set(*settings: str) -> Plant:
    return lambda facts: override(facts, settings)


def after_way(way: Way) -> Plant:
    return lambda facts: after(way, facts, load())


def with_variable(name: str, value: str) -> Plant:
    return after_way(SetVariables((Variable(name, value),)))


def without_variable(name: str) -> Plant:
    return after_way(UnsetVariables((name,)))


def without_compat(facts: Facts) -> Facts:
    """The compat folder deleted: the driver's own libcuda is loaded again."""
    own = next(each for each in facts.libcuda.candidates if not each.is_compat)
    libcuda = replace(
        facts.libcuda,
        would_load=Known(own, "ld.so.cache"),
        candidates=(own,),
        driver_cuda=Unknown("not asked"),
        init_code=Unknown("not asked"),
    )
    return replace(facts, compat=(), libcuda=libcuda)


def with_other_compat(facts: Facts) -> Facts:
    """A compat library in the place of the newer one that torch needs."""
    version = Known(DriverVersion.parse("575.57.08"), "its name")
    library = replace(facts.compat[0], version=version)
    loaded = facts.libcuda.would_load
    assert isinstance(loaded, Known)
    would = replace(loaded, value=replace(loaded.value, version=version))
    asked = replace(facts.libcuda, would_load=would, driver_cuda=Unknown("not asked"), init_code=Unknown("not asked"))
    return replace(facts, compat=(library, *facts.compat[1:]), libcuda=asked)


def with_hook(facts: Facts) -> Facts:
    chosen = facts.python.selected
    assert isinstance(chosen, Known)
    hook = StartupHook(f"{facts.python.environments[chosen.value].site_packages[0]}/patch_torch.pth", ())
    changed = tuple(
        replace(each, hooks=(*each.hooks, hook)) if place == chosen.value else each
        for place, each in enumerate(facts.python.environments)
    )
    return replace(facts, python=replace(facts.python, environments=changed))


def without_shadow(facts: Facts) -> Facts:
    assert isinstance(facts.torch, Known)
    return replace(facts, torch=replace(facts.torch, value=replace(facts.torch.value, shadowed_by=())))


def with_commit(commit: str) -> Plant:
    """The CUTLASS tree at a commit."""

    def planted(facts: Facts) -> Facts:
        from firstlight.facts.cutlass import CutlassTree

        tree = CutlassTree(
            "/opt/cutlass", ("/opt/cutlass",), Unknown("no header"), Known(commit, "HEAD"), has_cute=True
        )
        return replace(facts, cutlass=replace(facts.cutlass, trees=(tree,)))

    return planted


def with_gcc(version: str) -> Plant:
    def planted(facts: Facts) -> Facts:
        tools = tuple(
            replace(each, version=Known(version, each.path)) if each.name in ("gcc", "g++", "cc", "c++") else each
            for each in facts.compilers.compilers
        )
        return replace(facts, compilers=replace(facts.compilers, compilers=tools))

    return planted


def without_chosen_compilers(facts: Facts) -> Facts:
    """No CC and no CXX: gcc on PATH is what a build starts."""
    return replace(facts, compilers=replace(facts.compilers, chosen=()))


def without_cudnn(facts: Facts) -> Facts:
    """The wheel of cuDNN uninstalled: the loader no longer finds what torch asks for."""
    facts = after(RemoveDistributions(("nvidia-cudnn-cu13",)), facts, load())
    assert isinstance(facts.torch_libraries, Known)
    chain = facts.torch_libraries.value
    lost = MissingLibrary("libcudnn.so.9", ("libtorch_cuda.so",), "")
    kept = tuple(each for each in chain.loaded if each.name != lost.name)
    seen = replace(facts.torch_libraries, value=replace(chain, loaded=kept, missing=(lost,)))
    return replace(facts, torch_libraries=seen)


def with_other_nvcc(facts: Facts) -> Facts:
    """Another toolkit first on PATH: CUDA 12.8 where 13.0 was."""
    nvcc, old = facts.toolkits.nvcc_on_path, facts.toolkits.toolkits[0]
    assert isinstance(nvcc, Known)
    folder = "/usr/local/cuda-12.8"
    seen = override(facts, ("toolkits.toolkits.0.version=12.8.93", "toolkits.toolkits.0.nvcc_version=12.8.93"))
    other = replace(seen.toolkits.toolkits[0], path=folder, found_by=("PATH",))
    first = replace(
        nvcc.value, path=f"{folder}/bin/nvcc", real=f"{folder}/bin/nvcc", toolkit=Known(folder, f"{folder}/bin/nvcc")
    )
    toolkits = replace(
        facts.toolkits,
        toolkits=(other, old, *facts.toolkits.toolkits[1:]),
        nvcc_on_path=Known(first, "PATH"),
        cpp_extension_home=Known(folder, "nvcc on PATH"),
    )
    return replace(facts, toolkits=toolkits)


def without_cuda_home(facts: Facts) -> Facts:
    return after(UnsetVariables(("CUDA_HOME",)), facts, load())


def installed(name: str, version: str) -> Plant:
    return after_way(InstallWheels((Package(name, version),)))


def with_distributions(*names: str) -> Plant:
    """Distributions beside those that are there, copies of one that no rule looks at."""

    def planted(facts: Facts) -> Facts:
        chosen = facts.python.selected
        assert isinstance(chosen, Known)
        environment = facts.python.environments[chosen.value]
        other = next(each for each in environment.distributions if each.name == "numpy")
        more = tuple(replace(other, name=name) for name in names)
        changed = tuple(
            replace(each, distributions=(*each.distributions, *more)) if place == chosen.value else each
            for place, each in enumerate(facts.python.environments)
        )
        return replace(facts, python=replace(facts.python, environments=changed))

    return planted


def both(first: Plant, second: Plant) -> Plant:
    return lambda facts: second(first(facts))


CUDNN = "nvidia-cudnn-cu12"

DRIFTS: tuple[DriftCase, ...] = (
    DriftCase("torch of a CUDA that the driver cannot run", "two-gpus-on-a-network", as_it_is,
              with_set("torch.version=2.9.0+cu130", "torch.wheel_cuda=13.0"), "packages", "torch", "blocks"),
    DriftCase("torch of another release, same CUDA", "h200", as_it_is,
              with_set("torch.version=2.10.0+cu130"), "packages", "torch", "abi"),
    DriftCase("one NVIDIA wheel off its pin", "h100-cudnn-off-pin", installed(CUDNN, "9.1.0.70"), as_it_is,
              "packages", CUDNN, "abi"),
    DriftCase("an NVIDIA wheel that torch needs is removed", "h200", as_it_is,
              without_cudnn, "packages", "nvidia-cudnn-cu13", "blocks"),
    DriftCase("compat swapped for one too old for torch", "h100-driver-570-compat", as_it_is, with_other_compat,
              "compat", "/usr/local/cuda-13.0/compat", "blocks"),
    DriftCase("compat removed", "h100-driver-570-compat", as_it_is, without_compat,
              "compat", "/usr/local/cuda-13.0/compat", "blocks"),
    DriftCase("stale compat folder first in LD_LIBRARY_PATH", "h200-compat-stale", without_variable("LD_LIBRARY_PATH"),
              as_it_is, "settings", "LD_LIBRARY_PATH", "blocks"),
    DriftCase("another toolkit first in PATH", "h200", without_cuda_home, both(without_cuda_home, with_other_nvcc),
              "toolkit", "nvcc", "blocks"),
    DriftCase("LD_LIBRARY_PATH to other CUDA libraries", "cuda-lib64-newer-first", without_variable("LD_LIBRARY_PATH"),
              as_it_is, "settings", "LD_LIBRARY_PATH", "abi"),
    DriftCase("LD_LIBRARY_PATH to older CUDA libraries", "cuda-lib64-first", without_variable("LD_LIBRARY_PATH"),
              as_it_is, "settings", "LD_LIBRARY_PATH", "blocks"),
    DriftCase("driver older than torch needs", "h200", as_it_is, with_set("driver=570.133.20"),
              "driver", "version", "blocks"),
    DriftCase("driver newer, same branch", "h200", as_it_is, with_set("driver=580.178.01"),
              "driver", "version", "harmless"),
    DriftCase("driver newer, newer branch", "h200", as_it_is, with_set("driver=590.48.01"),
              "driver", "version", "harmless"),
    DriftCase("gcc newer than nvcc takes", "h200", without_chosen_compilers,
              both(without_chosen_compilers, with_gcc("16.1.0")), "compiler", "gcc", "blocks"),
    DriftCase("gcc of another patch release", "h200", as_it_is, with_gcc("13.4.0"), "compiler", "gcc", "harmless"),
    DriftCase("a .pth file that runs code", "h200", as_it_is, with_hook, "startup", "patch_torch.pth", "harmless"),
    DriftCase("a folder that shadows torch", "pytorch-checkout-shadows", without_shadow, as_it_is,
              "imports", "~/pytorch/torch/__init__.py", "blocks"),
    DriftCase("a checkout moved", "h200", with_commit("a" * 40), with_commit("b" * 40),
              "checkouts", "/opt/cutlass", "harmless"),
    DriftCase("setting added: NCCL_P2P_DISABLE", "two-gpus-on-a-network", as_it_is,
              with_variable("NCCL_P2P_DISABLE", "1"), "settings", "NCCL_P2P_DISABLE", "performance"),
    DriftCase("setting added: CUDA_LAUNCH_BLOCKING", "h200", as_it_is, with_variable("CUDA_LAUNCH_BLOCKING", "1"),
              "settings", "CUDA_LAUNCH_BLOCKING", "performance"),
    DriftCase("setting added: every GPU hidden", "devices-masked", without_variable("CUDA_VISIBLE_DEVICES"), as_it_is,
              "settings", "CUDA_VISIBLE_DEVICES", "blocks"),
    DriftCase("setting of the lock gone", "h200", with_variable("TORCH_CUDA_ARCH_LIST", "9.0"), as_it_is,
              "settings", "TORCH_CUDA_ARCH_LIST", "harmless"),
    DriftCase("Python of another patch release", "h200", as_it_is,
              with_set("python.environments.0.python_version=3.12.9"), "python", "version", "harmless"),
    DriftCase("a package added", "h200", as_it_is, installed("xformers", "0.0.34"), "packages", "xformers", "abi"),
    DriftCase("a package replaced", "h200", as_it_is, installed("numpy", "2.4.0"), "packages", "numpy", "harmless"),
    DriftCase("LD_PRELOAD of a library", "h200", as_it_is, with_variable("LD_PRELOAD", "/opt/lib/libjemalloc.so.2"),
              "settings", "LD_PRELOAD", "harmless"),
    DriftCase("a second NVIDIA wheel off its pin", "h100-cudnn-off-pin", as_it_is,
              installed("nvidia-nccl-cu12", "2.20.5"), "packages", "nvidia-nccl-cu12", "abi"),
    DriftCase("one of two NVIDIA wheels back on its pin", "h100-cudnn-off-pin", installed("nvidia-nccl-cu12", "2.20.5"),
              as_it_is, "packages", "nvidia-nccl-cu12", "harmless"),
    DriftCase("another kind of GPU", "h200", as_it_is, with_set("capability=10.0"), "", "", ""),
)  # fmt: skip
