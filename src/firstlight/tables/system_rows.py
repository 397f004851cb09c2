"""Rows of what a system calls things: packages, repositories, keys, folders, services and commands, by family."""

from enum import Enum

from firstlight.tables.row import Row, row_class


class Family(Enum):
    """Distributions that share package names and tools; what is none of them is OTHER, and gets no names."""

    UBUNTU = "ubuntu"
    DEBIAN = "debian"
    RHEL = "rhel"  # and Rocky, Alma, Oracle, CentOS
    FEDORA = "fedora"
    SUSE = "suse"
    AMAZON = "amazon"
    AZURE = "azure"  # Azure Linux, and Mariner before it
    ARCH = "arch"
    NIXOS = "nixos"
    OSTREE = "ostree"  # Silverblue, CoreOS, Bazzite: /usr comes with the image
    IMAGE = "image"  # Talos, Bottlerocket, Flatcar, COS: nothing is installed there
    ALPINE = "alpine"
    OTHER = "other"


class Role(Enum):
    """What a name is for. A way asks for the role; the table has the name."""

    DRIVER = "driver"
    IMAGE_DRIVER = "image-driver"  # what brings it into a system that comes as an image, by a person
    IMAGE_BEFORE = "image-before"  # the command that goes back to the image that ran before
    FLAVOUR_SETTING = "flavour-setting"  # a file, and the line in it that chooses the module that is built
    DRIVER_LIBRARIES = "driver-libraries"  # libcuda and NVML without a kernel module
    SIGNED_MODULES = "signed-modules"  # built and signed by the distribution for one kernel
    BUILT_MODULES = "built-modules"  # a pattern of the packages that bring what dkms builds, of any branch
    KERNEL_HEADERS = "kernel-headers"
    FABRIC_MANAGER = "fabric-manager"
    FABRIC_SUBNET_MANAGER = "fabric-subnet-manager"  # NVLSM, of NVLink 5 systems
    IMEX = "imex"
    PERSISTENCE = "persistence"
    CONTAINER_TOOLKIT = "container-toolkit"
    REPOSITORY = "repository"  # its address; of Debian's own the address, the suite and the components
    REPOSITORY_KEY = "repository-key"  # the package or file that brings its key
    REPOSITORY_NEEDS = "repository-needs"  # packages of the system that NVIDIA's repository builds on
    MODULE_STREAM = "module-stream"  # dnf's stream that holds a branch of the driver
    BRANCH_LOCK = "branch-lock"  # what keeps the package manager at a branch
    TOOLKIT = "toolkit"
    COMPAT = "compat"  # forward-compatibility library
    CUDNN = "cudnn"
    COMPILER = "compiler"
    NUMBERED_COMPILER = "numbered-compiler"
    NINJA = "ninja"
    CXX_LIBRARY = "cxx-library"
    LIBRARY = "library"  # `of` is the name in Debian 12; no names: the system has none
    IMAGE_KEY = "image-key"  # the command that enrols the key of a system's image
    MACHINE_KEY = "machine-key"  # what modules built here are signed with
    MODULE_FOLDER = "module-folder"  # under /lib/modules/<kernel>
    BUILD_MODULES = "build-modules"  # the command
    EARLY_IMAGE = "early-image"  # the command that writes the initramfs anew
    REBOOT = "reboot"  # the command
    DEFAULT_KERNEL = "default-kernel"  # the command that chooses which kernel is started
    SERVICE = "service"


class RowKind(Enum):
    """What the strings of a row are."""

    PACKAGES = "packages"
    PATH = "path"
    ADDRESS = "address"
    COMMAND = "command"  # an argument list, without sudo
    UNIT = "unit"
    STREAM = "stream"
    SETTING = "setting"  # what a person writes, or a pattern that a package manager is given


@row_class(frozen=True, slots=True, kw_only=True)
class SystemName(Row):
    """What one family calls one thing: the driver of Ubuntu 22.04 to 26.04 is nvidia-driver-{branch}-server-open."""

    role: Role
    family: Family
    kind: RowKind
    names: tuple[str, ...]  # with {branch}, {number}, {major}, {minor}, {kernel}, {arch}, {release} to be filled in
    from_repository: str  # "" = the distribution's own; nvidia, rpmfusion, debian-nonfree, aur
    release_from: str = ""  # "" = any; both ends are included
    release_to: str = ""
    arch: str = ""  # x86_64, aarch64; "" = any
    flavour: str = ""  # open, proprietary; "" = either
    of: str = ""  # which of several, e.g. fabric-manager for a service
    numbers: tuple[int, ...] = ()  # the driver branches or compiler majors that there are; () = any
    version: str = ""  # that the package manager is told, e.g. {branch}*; "" = its newest
