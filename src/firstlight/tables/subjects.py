"""The subjects of the tables: one JSON file, one row class and one heading each, in printing order."""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.errors import BadInput
from firstlight.near import nearest


@dataclass(frozen=True, slots=True)
class Subject:
    """A table: cuda_majors, in the group cuda, rows of cuda_rows.CudaMajor, one row per `major`."""

    name: str
    group: str
    title: str
    rows_in: str  # the module of the row class
    row_class: str
    key: tuple[str, ...]  # the fields that no two rows may share


SUBJECTS = (
    Subject("cuda_majors", "cuda", "oldest driver that runs each CUDA major", "cuda_rows", "CudaMajor", ("major",)),
    Subject("driver_branches", "cuda", "highest CUDA each driver branch reports", "cuda_rows", "DriverBranch",
            ("branch",)),
    Subject("branch_life", "cuda", "how long a driver branch is supported", "cuda_rows", "BranchLife", ("branch",)),
    Subject("architecture_limits", "cuda", "last driver and CUDA for dropped GPUs", "cuda_rows", "ArchitectureLimit",
            ("architecture",)),
    Subject("cuda_releases", "cuda", "driver paired with each toolkit (no floor)", "cuda_rows", "CudaRelease",
            ("toolkit",)),
    Subject("cuda_runfiles", "cuda", "driver inside each toolkit's runfile", "cuda_rows", "CudaRunfile", ("toolkit",)),
    Subject("compat_packages", "compat", "forward-compatibility packages", "compat_rows", "CompatPackage", ("cuda",)),
    Subject("compat_accepts", "compat", "kernel driver branches each package accepts", "compat_rows", "CompatAccepts",
            ("cuda", "evidence", "library")),
    Subject("compat_builds", "compat", "driver builds seen in packages", "compat_rows", "CompatBuild",
            ("cuda", "driver")),
    Subject("compat_downloads", "compat", "files of the libraries, with sizes", "compat_rows", "CompatDownload",
            ("file",)),
    Subject("compat_sources", "compat", "where to get the libraries", "compat_rows", "CompatChannel", ("channel",)),
    Subject("compat_files", "compat", "libraries of a package", "compat_rows", "CompatFile", ("library",)),
    Subject("compat_brands", "compat", "which NVML brands may use it", "compat_rows", "CompatBrand", ("brand",)),
    Subject("images", "compat", "driver branches CUDA images let in", "compat_rows", "ImageRequirement", ("image",)),
    Subject("gpus", "gpu", "GPU models, names and capabilities", "gpu_rows", "GpuModel", ("model",)),
    Subject("gpu_peaks", "gpu", "dense peaks of GPU models", "peak_rows", "GpuPeak", ("gpu",)),
    Subject("gpu_rates", "gpu", "operations per clock and SM", "peak_rows", "GpuRate", ("line",)),
    Subject("nvlink_rates", "gpu", "what one NVLink carries each way", "peak_rows", "NvlinkRate", ("generation",)),
    Subject("capabilities", "gpu", "capability and architecture", "gpu_rows", "Capability", ("capability",)),
    Subject("code_rules", "gpu", "which code runs on which device", "gpu_rows", "CodeRule",
            ("code", "torch_cuda_from")),
    Subject("kernel_modules", "gpu", "open or proprietary modules", "gpu_rows", "KernelModule", ("architecture",)),
    Subject("system_names", "systems", "names of packages and commands, by system", "system_rows", "SystemName",
            ("role", "family", "release_from", "arch", "flavour", "of", "names")),
    Subject("tegra", "jetson", "CUDA of each Jetson Linux line", "gpu_rows", "TegraRelease", ("l4t",)),
    Subject("jetpacks", "jetson", "JetPack of each Jetson Linux release", "gpu_rows", "JetPack", ("l4t",)),
    Subject("toolkit_targets", "compilers", "GPU targets of each toolkit", "compiler_rows", "ToolkitTargets",
            ("toolkit",)),
    Subject("host_compilers", "compilers", "newest gcc and clang for each toolkit", "compiler_rows", "HostCompiler",
            ("toolkit", "compiler")),
    Subject("nvcc_wheels", "compilers", "which wheels carry nvcc", "compiler_rows", "NvccWheel", ("project",)),
    Subject("toolkit_wheels", "compilers", "the toolkit as wheels", "compiler_rows", "ToolkitWheel", ("release",)),
    Subject("torch_releases", "torch", "torch wheels on PyPI", "torch_rows", "TorchRelease", ("torch", "machine")),
    Subject("torch_variants", "torch", "CUDA variants of each torch", "torch_rows", "TorchVariant",
            ("torch", "wheel_cuda")),
    Subject("variant_targets", "torch", "what each variant is compiled for", "torch_rows", "VariantTargets",
            ("torch", "wheel_cuda", "machine")),
    Subject("variant_sightings", "torch", "variants seen on the PyTorch index", "torch_rows", "VariantSighting",
            ("torch", "wheel_cuda", "channel", "platform")),
    Subject("torch_indexes", "torch", "where PyTorch's own wheels are", "torch_rows", "TorchIndex", ("channel",)),
    Subject("compile_pythons", "torch", "Pythons that torch.compile takes", "torch_rows", "CompilePython", ("torch",)),
    Subject("triton_ptxas", "torch", "ptxas inside each Triton", "torch_rows", "TritonPtxas", ("triton", "program")),
    Subject("companions", "companions", "what vllm and others need of torch", "torch_rows", "Companion",
            ("project", "version")),
    Subject("release_wheels", "companions", "wheels of release pages that fit a torch", "torch_rows", "ReleaseWheel",
            ("project", "version", "torch", "strings")),
    Subject("package_pins", "companions", "requirements and wheels around torch", "pin_rows", "PackagePins",
            ("project", "version")),
    Subject("beside_wheels", "companions", "Pythons of what is installed beside torch", "pin_rows", "BesideWheel",
            ("project", "version")),
    Subject("framework_builds", "companions", "CUDA of TensorFlow, ONNX Runtime and CuPy", "pin_rows", "FrameworkBuild",
            ("project", "first")),
    Subject("framework_extras", "companions", "extras by which JAX brings CUDA", "pin_rows", "FrameworkExtra",
            ("project", "extra", "first")),
    Subject("wheel_sizes", "companions", "sizes of wheels on PyPI", "pin_rows", "WheelSize",
            ("project", "version", "machine")),
    Subject("newest_releases", "companions", "newest release of watched projects", "torch_rows", "NewestRelease",
            ("project",)),
    Subject("sonames", "libraries", "PyPI project that ships a library", "soname_rows", "SonameWheel",
            ("soname", "project", "machine", "first", "folder")),
    Subject("library_releases", "libraries", "releases of the projects with libraries", "soname_rows",
            "LibraryReleases", ("project", "machine", "first")),
    Subject("placeholder_projects", "libraries", "PyPI projects that hold no library", "soname_rows",
            "PlaceholderProject", ("project",)),
    Subject("debian_sonames", "libraries", "Debian package of a library", "soname_rows", "SonameDebian", ("soname",)),
    Subject("nvidia_sonames", "libraries", "NVIDIA's own package of a library", "soname_rows", "SonameNvidia",
            ("soname", "cuda_major", "channel")),
    Subject("error_codes", "errors", "CUDA and NVML error codes", "error_rows", "ErrorCode", ("api", "code")),
    Subject("xids", "errors", "Xid faults and what to do", "xid_rows", "Xid", ("code",)),
    Subject("runtime_settings", "settings", "who reads which variable", "setting_rows", "RuntimeSetting", ("name",)),
    Subject("source_tags", "settings", "commits of source trees", "setting_rows", "SourceTag", ("project", "tag")),
    Subject("features", "torch", "features of torch that people rely on", "feature_rows", "Feature", ("feature",)),
    Subject("downloads", "costs", "sizes of what no index lists", "cost_rows", "Download",
            ("fetched_by", "name", "machine")),
    Subject("build_options", "builds", "what a build from source reads", "build_rows", "BuildOption",
            ("project", "name", "kind")),
    Subject("unit_memory", "builds", "memory that a unit takes to compile", "build_rows", "UnitMemory",
            ("kind", "project")),
    Subject("unit_seconds", "builds", "how long a unit takes to compile", "build_rows", "UnitSeconds",
            ("kind", "project")),
    Subject("build_floors", "builds", "oldest CUDA a build takes", "build_rows", "BuildFloor", ("project", "first")),
    Subject("durations", "costs", "how long work takes", "cost_rows", "Duration", ("work",)),
)  # fmt: skip

# Told by `diagnosis`, which has the rows with the patterns they are found by: see diagnosis/error_table.py.
ERROR_TEXTS = Subject("error_texts", "errors", "error texts that explain knows", "error_rows", "ErrorText", ("code",))

GROUPS = tuple(dict.fromkeys(subject.group for subject in SUBJECTS))


def subjects_called(name: str, among: tuple[Subject, ...] = SUBJECTS) -> tuple[Subject, ...]:
    """The subjects of a group ('cuda') or the one of that name ('cuda_majors'); a name wins over a group."""
    wanted = name.strip().lower().replace("-", "_")
    found = tuple(s for s in among if s.name == wanted) or tuple(s for s in among if s.group == wanted)
    if not found:
        raise BadInput(
            f"no table is called {name!a}; accepted: a group ({', '.join(GROUPS)}), a table, or all. "
            f"{_advice(wanted, among)}"
        )
    return found


def _advice(wanted: str, among: tuple[Subject, ...]) -> str:
    near = nearest(wanted, [*GROUPS, *(subject.name for subject in among)])
    return f"Did you mean {near[0]}?" if near else "Run `firstlight tables` for the list."
