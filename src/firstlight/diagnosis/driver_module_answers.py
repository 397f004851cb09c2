"""What is done where the kernel module is missing, kept out, of another version, or the wrong one."""

from __future__ import annotations

from firstlight.diagnosis.driver_answers import driver_answers, installed, of_somebody_else
from firstlight.diagnosis.driver_packages import LTS_BRANCH, branch_on_disk, branch_to_have, flavour_of, open_only_gpus
from firstlight.diagnosis.elsewhere_answers import WHOLE_SYSTEMS, libraries_of_host, started
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.module_build_answers import (
    AKMODS,
    built_here_taken_out,
    can_be_built,
    is_behind,
    source_for,
    source_package,
    without_failed,
)
from firstlight.diagnosis.observed import container, kernel_is_gone, typed
from firstlight.diagnosis.wheel_answers import cuda_of_torch
from firstlight.facts.collect import Facts
from firstlight.facts.driver import kernel_to_start
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.owners import NOT_NAMED
from firstlight.tables.system_rows import Role
from firstlight.versions import DriverVersion
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.managers import of_driver
from firstlight.ways.platform import Manager, ModuleBuilder, Platform, platform_of
from firstlight.ways.system_names import filled, headers_row, names_for, other_kernel, roles_of, version_of
from firstlight.ways.way import Chain, Proof, chain
from firstlight.ways.words import fitted

_MODULES = ("nvidia", "nvidia_uvm")
_UNLOADED = ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")  # in the order in which they let go
# NVIDIA's archive of installers, by processor; the file of a driver lies in a folder of its version.
_INSTALLERS = {
    "x86_64": "https://download.nvidia.com/XFree86/Linux-x86_64",
    "aarch64": "https://download.nvidia.com/XFree86/Linux-aarch64",
}
_BUILDERS = "dkms(8), autoinstall; akmods(1): modules of an installed driver are built for the kernel that runs"
_VARIANT = "variant"  # of packages that leave the kind of module to a file


def given_back(addresses: list[str]) -> tuple[Chain, ...]:
    """A GPU that is bound to vfio-pci was set aside for virtual machines by somebody."""
    which = addresses[0] if len(addresses) == 1 else f"{len(addresses)} GPUs"
    commands = tuple(("cat", f"/sys/bus/pci/devices/{each}/driver_override") for each in addresses[:4])
    return (chain(AskPerson("give-back-from-vfio", Why.DECISION, commands, of=(which,))),)


def driver_loaded(question: Question) -> tuple[Chain, ...]:
    facts = question.facts
    if waiting := _waits_for_restart(facts):
        return waiting
    newer = without_failed(driver_answers(question, cuda_of_torch(question)), facts)
    with_module = _with_other_kernel(question)
    # No package has modules for a kernel beside the plain one, so the plain one comes first.
    other = (*with_module, *newer) if other_kernel(platform_of(facts)) else (*newer, *with_module)
    if isinstance(facts.driver.module_file, Known):
        return (chain(kinds.LoadModules(_MODULES)), *other)
    built = _built_here(question)
    if built is None:
        return other
    return (chain(built, kinds.LoadModules(_MODULES), proof=Proof.DOCUMENTED, by=_BUILDERS), *other)


def _waits_for_restart(facts: Facts) -> tuple[Chain, ...]:
    """The restart that an upgraded kernel waits for: nothing is loaded or built for one whose modules are gone."""
    kernel = kernel_to_start(facts.driver, facts.place.kernel_release)
    if not kernel or container(facts) is not None:
        return ()
    return (chain(kinds.Restart(), title=fitted(f"restart into kernel {kernel}, which has the module")),)


def _with_other_kernel(question: Question) -> tuple[Chain, ...]:
    """The newest kernel that the module lies ready for, started in the place of the one that runs."""
    kernels = value_or(question.facts.driver.kernels_with_module, ())
    if not kernels:
        return ()
    title = fitted(f"start kernel {kernels[-1]}, which has the module")
    return (chain(kinds.StartKernel(kernels[-1]), kinds.Restart(), title=title),)


def _built_here(question: Question) -> kinds.BuildModules | None:
    """The modules of a driver that is installed, built for the kernel that runs; None where nothing builds them."""
    facts, platform = question.facts, platform_of(question.facts)
    packages = value_or(facts.driver.packages, ())
    by = _builder(question, platform, packages)
    headers = headers_row(platform, question.tables)
    if not by or headers is None or platform.manager is Manager.NONE or not can_be_built(facts, by):
        return None
    version = version_of(headers, platform)
    return kinds.BuildModules(facts.place.kernel_release, filled(headers, platform)[0], by=by, version=version)


def _builder(question: Question, platform: Platform, packages: tuple[str, ...]) -> str:
    """dkms or akmods, by the packages of the driver that is here; "": its modules come built.

    Where the packages were not asked for, a driver's libraries beside the program that builds modules tell it.
    """
    if any(name.startswith("akmod-") for name in packages):
        return AKMODS
    if any("dkms" in name for name in packages):
        return ModuleBuilder.DKMS.value
    if isinstance(question.facts.driver.packages, Unknown) and branch_on_disk(question.facts):
        own = [each for each in platform.module_builders if each is not ModuleBuilder.WEAK_UPDATES]
        return own[0].value if len(own) == 1 else ""
    return ""


def module_let_in(question: Question) -> tuple[Chain, ...]:
    """A module that the system signed, the key of this machine, or Secure Boot off where no console is at hand."""
    facts, tables = question.facts, question.tables
    platform = platform_of(facts)
    restart = names_for(Role.REBOOT, platform, tables)
    into_it = (typed(facts, *restart, "--firmware-setup"),) if restart else ()
    off = AskPerson("turn-secure-boot-off", Why.FIRMWARE, into_it, as_root=True)
    rest = (*_key_enrolled(question), chain(off, kinds.LoadModules(_MODULES)))
    branch = branch_on_disk(facts) or branch_to_have(question) or LTS_BRANCH
    flavour, of = _kind_installed(question)
    package = names_for(
        Role.SIGNED_MODULES, platform, tables, flavour=flavour, number=branch, branch=str(branch), of=of
    )
    gone = built_here_taken_out(question)
    # taken out last: the driver's package is content with either, and goes where for a moment there is neither
    signed = (kinds.InstallPackages(package), *gone, kinds.LoadModules(_MODULES))
    first = chain(*signed, title="take the system's signed modules, not those built here" if gone else "")
    return (first, *rest) if package else rest


def _kind_installed(question: Question) -> tuple[str, str]:
    """The modules that stand in for those of the driver's packages: ("open", "desktop") for nvidia-driver-580-open.

    Those for servers, and those that drive all GPUs, where packages were not seen.
    """
    names = value_or(question.facts.driver.packages, ())
    own = [name for name in names if "-driver-" in name or "-dkms-" in name]
    flavour = flavour_of(question)
    if own and not any("-open" in name for name in own) and not open_only_gpus(question):
        flavour = kinds.Flavour.PROPRIETARY
    return flavour.value, "desktop" if own and not any("-server" in name for name in own) else ""


def _key_enrolled(question: Question) -> tuple[Chain, ...]:
    """The key that modules built here are signed with; by whom they were built tells which it is."""
    platform = platform_of(question.facts)
    if command := names_for(Role.IMAGE_KEY, platform, question.tables, of=platform.distribution):
        own = AskPerson("enrol-image-key", Why.FIRMWARE, (command,), as_root=True)
        return (chain(own, kinds.Restart()),)
    key = names_for(Role.MACHINE_KEY, platform, question.tables, of=_signed_by(question))
    if key:
        return (chain(kinds.EnrolKey(key[0]), kinds.Restart()),)
    look = AskPerson(
        "enrol-key", Why.FIRMWARE, (("modinfo", "-F", "signer", "nvidia"),),
        as_root=True,
    )  # fmt: skip
    return (chain(look, kinds.Restart()),)


def built_and_signed(question: Question, enrolled: Chain) -> Chain:
    """A module without a signature built anew, which signs it with a key that is made where there is none; then that.

    Told to a person: dkms takes what is there for built unless it is forced, and only its status has the name.
    """
    facts = question.facts
    by_dkms = (("dkms", "status"), typed(facts, "dkms", "install", "--force", "NAME/VERSION", "-k",
                                         facts.place.kernel_release))  # fmt: skip
    by_akmods = (typed(facts, "kmodgenca", "--auto"),
                 typed(facts, "akmods", "--force", "--rebuild", "--kernels", facts.place.kernel_release))  # fmt: skip
    commands = by_akmods if _signed_by(question) == AKMODS else by_dkms
    return chain(AskPerson("build-and-sign", Why.DECISION, commands, as_root=True), *enrolled.ways)


def _signed_by(question: Question) -> str:
    """akmods where its folder has the module, or where it alone builds modules here; else dkms."""
    platform = platform_of(question.facts)
    folder = names_for(Role.MODULE_FOLDER, platform, question.tables, of=AKMODS)
    file = value_or(question.facts.driver.module_file, "")
    by_folder = any(f"/{each}/" in file for each in folder if each.count("/"))
    alone = platform.module_builders == (ModuleBuilder.AKMODS,)
    return AKMODS if folder and (by_folder or alone) else ModuleBuilder.DKMS.value


def same_version_again(question: Question) -> tuple[Chain, ...]:
    facts = question.facts
    kind = container(facts)
    if kind is not None and kind.value in WHOLE_SYSTEMS and (own := libraries_of_host(question)):
        return (chain(*own),)
    if kind is not None:  # the host's driver changed while it ran: a new container is not enough
        anew = started(kind.value)
        return (chain(kinds.ReloadModules(_UNLOADED), anew), chain(kinds.Restart(), anew))
    disk, library = facts.driver.module_on_disk, facts.driver.nvml_library_version
    if isinstance(disk, Known) and isinstance(library, Known) and disk.value != library.value:
        return _of_one_version(question, disk.value)  # a restart loads the module that is on disk
    held = _driver_package(question)
    # What is unloaded on a kernel whose modules are gone does not come back.
    reload = () if kernel_is_gone(facts) else (chain(kinds.ReloadModules(_UNLOADED)),)
    return (
        chain(kinds.Restart()),
        *reload,
        *((chain(kinds.HoldPackages((held,)), kinds.Restart()),) if held else ()),  # so that it does not come again
    )


def _driver_package(question: Question) -> str:
    """The package of the driver that is installed here, by the names that this system's tables have; "" none."""
    platform, tables = platform_of(question.facts), question.tables
    for name in value_or(question.facts.driver.packages, ()):
        if any(row.role is Role.DRIVER and row.names[0] != name for row in roles_of(name, platform, tables)):
            return name  # one with its branch in the name: others are held by their repository
    return ""


def _of_one_version(question: Question, module: DriverVersion) -> tuple[Chain, ...]:
    """Both of one image; the module built anew; the libraries in its version; else by whoever put them there."""
    if platform_of(question.facts).is_image_based:
        return (_image_before(question) if libraries_are_newer(question.facts) else _found_first(question),)
    anew = _built_anew(question)
    owners = value_or(question.facts.library_owners, ())
    names = tuple(dict.fromkeys(each.package for each in owners if each.package != NOT_NAMED))
    if not names:
        from firstlight.ways.owned_effects import driver_libraries  # with all that facts on paper take

        names = driver_libraries(question.facts, question.tables, module)
    if not names and not anew:
        look = (("modinfo", "nvidia"),)
        return (chain(AskPerson("bring-to-one-version", Why.DECISION, look)),)
    if not names or (anew and platform_of(question.facts).manager is Manager.PACMAN):
        return anew  # pacman has one version of each: there is no going back to the one before
    same = kinds.InstallPackages(names, version=of_driver(module))
    kernel = question.facts.driver.kernel_version
    loaded = isinstance(kernel, Known) and kernel.value == module
    # Where a newer module can be built, going back to older libraries lasts until the next upgrade.
    back = chain(same, *(() if loaded else (kinds.Restart(),)), proof=Proof.GUESSED if anew else Proof.REPORTED)
    return (*anew, back)


def libraries_are_newer(facts: Facts) -> bool:
    """Whether NVML is of a later driver than the module on disk: an upgrade left the module behind."""
    disk, library = facts.driver.module_on_disk, facts.driver.nvml_library_version
    return isinstance(disk, Known) and isinstance(library, Known) and disk.value < library.value


def _found_first(question: Question) -> Chain:
    """Older libraries than the module's, which no image brings: somebody put them before its own."""
    library = value_or(question.facts.driver.nvml_library, "")
    look = (("ls", "-l", library),) if library else ()
    return chain(AskPerson("take-out-older-libraries", Why.DECISION, look))


def _image_before(question: Question) -> Chain:
    """The image that ran before this one, whose module and libraries came together too."""
    platform = platform_of(question.facts)
    command = names_for(Role.IMAGE_BEFORE, platform, question.tables, of=platform.image_based.value)
    commands = (typed(question.facts, *command),) if command else ()
    back = AskPerson("go-back-to-image", Why.IMAGE, commands, as_root=True)
    return chain(back, kinds.Restart())


def _built_anew(question: Question) -> tuple[Chain, ...]:
    """The module in the version of newer libraries, by what builds modules here; () where nothing does."""
    facts = question.facts
    by, library = _builder(question, platform_of(facts), value_or(facts.driver.packages, ())), None
    if isinstance(facts.driver.nvml_library_version, Known):
        library = facts.driver.nvml_library_version.value
    if not by or library is None or not libraries_are_newer(facts) or not can_be_built(facts, by):
        return ()
    build = kinds.BuildModules(facts.place.kernel_release, "", by=by, source=source_for(facts, by, library))
    if not is_behind(facts, by, library):
        return (chain(build, kinds.Restart()),)
    package = source_package(question, by)
    if not package:
        return ()
    return (chain(kinds.InstallPackages(package, version=of_driver(library)), build, kinds.Restart()),)


def open_module(question: Question, branch: int) -> tuple[Chain, ...]:
    facts, driver = question.facts, question.facts.driver.kernel_version
    first = (*rebuilt_as(question, kinds.Flavour.OPEN), chain(*installed(question, branch, kinds.Flavour.OPEN).ways))
    if isinstance(driver, Unknown) or container(facts) or of_somebody_else(question, branch) is not None:
        return first
    if facts.place.arch not in _INSTALLERS or platform_of(facts).is_image_based:
        return first  # an installer writes into folders that come with the image
    by_hand = by_installer(facts, driver.value, "install-open-by-installer", words=("-m=kernel-open",))
    return (*first, chain(by_hand, kinds.Restart()))


def by_installer(facts: Facts, driver: DriverVersion, what: str, *of: str, words: tuple[str, ...] = ()) -> AskPerson:
    """What a person does with NVIDIA's own installer of a driver, which is fetched; without it where there is none."""
    if facts.place.arch not in _INSTALLERS:
        return AskPerson(what, Why.DECISION, of=of)
    file = f"NVIDIA-Linux-{facts.place.arch}-{driver}.run"
    fetch = ("curl", "-fLO", f"{_INSTALLERS[facts.place.arch]}/{driver}/{file}")
    run = typed(facts, "sh", file, *words)
    return AskPerson(what, Why.DECISION, (fetch, run), as_root=True, fetches=file, of=of)


def rebuilt_as(question: Question, flavour: kinds.Flavour) -> tuple[Chain, ...]:
    """akmods told by its own setting to build the other modules of the driver that is installed."""
    facts, platform = question.facts, platform_of(question.facts)
    variant = facts.place.boot.module_variant
    of = _VARIANT if isinstance(variant, Known) else AKMODS
    setting = names_for(Role.FLAVOUR_SETTING, platform, question.tables, flavour=flavour.value, of=of)
    if platform.is_image_based or not setting or AKMODS not in (_signed_by(question), _builder(question, platform, ())):
        return ()
    file, line = setting
    if isinstance(variant, Known) and variant.value == line:
        return ()
    told = kinds.ChooseModules(flavour, file, line, value_or(variant, ""))
    kernel = facts.place.kernel_release
    return (chain(told, kinds.BuildModules(kernel, "", by=AKMODS), kinds.Restart()),)
