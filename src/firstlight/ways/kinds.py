"""The ways there are. Each holds what it is done to and with; commands, costs, undo and effects are made from that."""

from __future__ import annotations

from firstlight.frozen import dataclass
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion
from firstlight.ways.arguments import Flavour, Manner, Package, Scope, Service, Variable, Why, WiredBy
from firstlight.ways.gpu_kinds import MakeImexChannel, ResetGpu, SetComputeMode, SetPowerLimit, TurnOffMig
from firstlight.ways.way import Way

__all__ = [  # besides the ways that stand here
    "Flavour", "MakeImexChannel", "Manner", "Package", "ResetGpu", "Scope", "Service", "SetComputeMode",
    "SetPowerLimit", "TurnOffMig", "Variable", "Why", "WiredBy",
]  # fmt: skip

# -- Python packages --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MakeEnvironment(Way):
    """A virtual environment of our own, because the judged one is not to be changed; "" = firstlight-venv at home.

    Wheels that a chain installs after it go into it.
    """

    folder: str = ""
    python: str = ""  # 3.11, where another Python is needed than the judged one; uv fetches it
    no_room: bool = False  # it is made because the disk of the judged one is full


@dataclass(frozen=True, slots=True)
class InstallWheels(Way):
    """Packages into the judged environment (a new one of ours, where that is not to be changed), from one index.

    Where a uv or pixi project fills that environment the project's own files are edited, so that it stays.
    """

    packages: tuple[Package, ...]
    index: str = ""  # "" = the default index
    manner: Manner = Manner.PLAIN
    scratch: str = ""  # a folder for what is fetched, where the disk of /tmp and of the caches has no room for it

    def package(self, project: str) -> Package | None:
        return next((each for each in self.packages if each.project == project), None)


@dataclass(frozen=True, slots=True)
class RemoveDistributions(Way):
    """Packages out of the judged environment; `copies`: as many times, where one lies there more than once."""

    projects: tuple[str, ...]
    copies: int = 1
    folder: str = ""  # the copies that lie there alone, e.g. this user's own; those elsewhere stay
    version: str = ""  # of the copy in that folder, where it is one of one project


@dataclass(frozen=True, slots=True)
class KeepInProject(Way):
    """The packages that are installed, named in the project's own files, so that `uv run` does not undo them."""

    packages: tuple[Package, ...]
    index: str = ""


@dataclass(frozen=True, slots=True)
class ConstrainEnvironment(Way):
    """pip and uv of the judged environment held to exact versions, by a constraints file that they are told of."""

    file: str  # /srv/project/firstlight-constraints.txt
    packages: tuple[Package, ...]


@dataclass(frozen=True, slots=True)
class ConstrainProject(Way):
    """Exact versions among the constraint-dependencies of the uv project that fills the judged environment."""

    packages: tuple[Package, ...]


@dataclass(frozen=True, slots=True)
class PinConda(Way):
    """Packages of the judged conda environment kept at their version, by its file conda-meta/pinned."""

    packages: tuple[Package, ...]


@dataclass(frozen=True, slots=True)
class CloseLibraries(Way):
    """What `firstlight libs --fix` does: wheels that bring missing shared libraries, and links to reach them."""

    missing: tuple[str, ...]  # libcudss.so.0, ...
    wheels: tuple[Package, ...] = ()  # all that is fetched for them, as far as the tables tell


@dataclass(frozen=True, slots=True)
class InstallConda(Way):
    """A conda package in a prefix of its own (`prefix` "" for the judged conda environment itself)."""

    package: str  # cuda-toolkit=12.8
    channel: str
    prefix: str
    brings: str = ""  # a file under the prefix that it is known by, e.g. bin/nvcc


@dataclass(frozen=True, slots=True)
class BuildFromSource(Way):
    """A project built here for the GPUs at hand: torch at its tag, e.g. v2.9.0 for 9.0."""

    project: str
    version: str  # "" = the main branch
    capabilities: tuple[ComputeCapability, ...]


@dataclass(frozen=True, slots=True)
class ClearCache(Way):
    """The cache of a package tool emptied, to free disk space."""

    tool: str  # pip, uv, conda


# -- System packages and the driver -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetUpRepository(Way):
    """A package repository that the system does not come with, e.g. NVIDIA's of this distribution, with its key."""

    name: str = "nvidia"  # or rpmfusion, epel, debian-nonfree


@dataclass(frozen=True, slots=True)
class InstallPackages(Way):
    """Packages of the system's package manager; `brings`: files that are there afterwards."""

    packages: tuple[str, ...]
    brings: tuple[str, ...] = ()
    version: str = ""  # of all of them, e.g. 570.133.20*; "" = what the repository has


@dataclass(frozen=True, slots=True)
class RemovePackages(Way):
    """System packages taken out; `purge`: with their configuration."""

    packages: tuple[str, ...]
    purge: bool = False
    alone: bool = False  # nothing is removed where another package would go with them; looked at by apt


@dataclass(frozen=True, slots=True)
class HoldPackages(Way):
    """System packages kept at their version, so that an upgrade does not part them."""

    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InstallDriver(Way):
    """The kernel driver of a branch; it is in use after a restart. `packages` (): which ones is not known here."""

    branch: int
    flavour: Flavour
    packages: tuple[str, ...] = ()
    version: str = ""  # of all of them, e.g. 580*, where nothing else keeps the branch
    stream: str = ""  # of dnf's module, e.g. nvidia-driver:580-open


# -- Kernel modules, devices, services --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadModules(Way):
    """Kernel modules loaded, e.g. nvidia_uvm."""

    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReloadModules(Way):
    """Kernel modules unloaded and loaded again, in this order of unloading; every program has to be off the GPU."""

    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuildModules(Way):
    """The driver's modules built for the running kernel by dkms or akmods, with the headers of that kernel."""

    kernel: str
    headers: str  # the package of the headers; "" where they are here
    by: str = "dkms"  # or akmods
    version: str = ""  # of the headers, where their name does not have it
    source: str = ""  # the one that dkms is to take, e.g. nvidia/595.84; "" all that it has


@dataclass(frozen=True, slots=True)
class ForbidModule(Way):
    """A module kept from loading at the next start, e.g. nouveau."""

    module: str


@dataclass(frozen=True, slots=True)
class SetModuleOption(Way):
    """An option of a module in /etc/modprobe.d, e.g. nvidia_uvm uvm_disable_hmm=1."""

    module: str
    option: str
    file: str


@dataclass(frozen=True, slots=True)
class ChooseModules(Way):
    """akmods told which of NVIDIA's modules it builds, by a line in a file of its own."""

    flavour: Flavour
    file: str  # /etc/rpm/macros.nvidia-kmod
    line: str
    instead_of: str = ""  # what ends a line of the file now: kernel


@dataclass(frozen=True, slots=True)
class StartKernel(Way):
    """Another kernel that is installed, at every start from the next one on."""

    kernel: str  # 6.8.0-1029-gcp


@dataclass(frozen=True, slots=True)
class EnrolKey(Way):
    """The key that a module is signed with, enrolled; the firmware asks for it at the next start."""

    key: str


@dataclass(frozen=True, slots=True)
class MakeDeviceNodes(Way):
    """The nodes under /dev made by nvidia-modprobe."""


@dataclass(frozen=True, slots=True)
class StartService(Way):
    """A system service started, e.g. nvidia-fabricmanager."""

    unit: str
    action: Service = Service.START


@dataclass(frozen=True, slots=True)
class ConfigureContainers(Way):
    """The container engine told to use NVIDIA's runtime (nvidia-ctk runtime configure), e.g. docker."""

    engine: str
    file: str = ""  # the description of the GPUs that is there and is written anew: /etc/cdi/nvidia.yaml


# -- The loader -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchCompat(Way):
    """A forward-compat library from NVIDIA's archive, unpacked into a folder of the user's."""

    file: str  # of the table compat_downloads
    cuda: CudaVersion
    driver: DriverVersion  # of the library in it
    folder: str  # ~/.local/share/firstlight/cuda-compat-13.1


@dataclass(frozen=True, slots=True)
class WireCompat(Way):
    """A compat library wired when a program starts, if the driver loaded then is of these branches."""

    folder: str  # ~ is the home folder
    cuda: CudaVersion
    branches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unwire(Way):
    """Folders (or preloaded libraries) taken out of what the loader reads, in the files that set it."""

    folders: tuple[str, ...]  # as the path spells them; of PRELOAD the libraries
    by: WiredBy
    conf: str = ""  # of LOADER_CONF the file


@dataclass(frozen=True, slots=True)
class RegisterFolder(Way):
    """A folder of libraries made known to the loader: a file in /etc/ld.so.conf.d, and ldconfig."""

    folder: str
    conf: str


@dataclass(frozen=True, slots=True)
class RefreshLoaderCache(Way):
    """ldconfig run: /etc/ld.so.cache names a libcuda.so.1 that is gone, or a folder that no file names any more."""


@dataclass(frozen=True, slots=True)
class LinkFile(Way):
    """A symbolic link, e.g. lib64 -> lib beside nvcc."""

    path: str
    to: str


@dataclass(frozen=True, slots=True)
class RemoveFiles(Way):
    """Files moved aside (they come back by undo), e.g. an empty libcuda.so.1."""

    paths: tuple[str, ...]
    as_root: bool = False  # they are another user's


# -- Variables --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetVariables(Way):
    """Variables set, e.g. CUDA_DEVICE_ORDER=PCI_BUS_ID for login shells."""

    variables: tuple[Variable, ...]
    scope: Scope = Scope.LOGIN


@dataclass(frozen=True, slots=True)
class UnsetVariables(Way):
    """Variables taken out of the files that set them, e.g. CUDA_VISIBLE_DEVICES."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllowLockedMemory(Way):
    """No limit on the memory that a user's processes may lock, from the next login on; RDMA locks what it reads."""


@dataclass(frozen=True, slots=True)
class ReadEnvironment(Way):
    """The variables that the container was started with, handed on to login shells, e.g. from /etc/rp_environment."""

    file: str
    names: tuple[str, ...]


# -- Elsewhere, and people --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restart(Way):
    """The machine restarted."""


@dataclass(frozen=True, slots=True)
class StartContainer(Way):
    """The container around us started anew with arguments, e.g. --gpus all, or --shm-size=8g."""

    arguments: tuple[str, ...]
    gives_gpus: bool = False


@dataclass(frozen=True, slots=True)
class UseImage(Way):
    """Programs run in a container image, e.g. nvidia/cuda:13.0.2-devel-ubuntu24.04; "" = of a newer distribution."""

    image: str


@dataclass(frozen=True, slots=True)
class ChangeImage(Way):
    """A line of the Dockerfile that this container was made from, e.g. ENV NVIDIA_REQUIRE_CUDA=cuda>=13.0."""

    line: str
    gate: str = ""  # where it sets NVIDIA_REQUIRE_CUDA: to what, e.g. cuda>=13.0


@dataclass(frozen=True, slots=True)
class OtherMachine(Way):
    """Another machine, with the provider's exact filter where one is known: runpodctl pod create ..."""

    min_driver: int  # branch; 0 = any
    cuda: CudaVersion | None
    capability: ComputeCapability | None
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskPerson(Way):
    """What a person does, with the commands that help: the last way, for what no program here can do."""

    what: str  # its name in `asks.py`, which has the words: power-off-and-on
    why: Why
    commands: tuple[tuple[str, ...], ...] = ()
    cures: bool = True  # False: it only looks, or only follows; nothing is claimed from it
    as_root: bool = False  # one of its commands takes root, here or on the host
    fetches: str = ""  # what is downloaded by it, e.g. NVIDIA's installer; its size is on no record
    of: tuple[str, ...] = ()  # what its words speak of, e.g. the number of a GPU
