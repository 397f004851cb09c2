"""Hold a team's list against the machine: each requirement becomes a row with what is needed and what is given."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from firstlight.elf.fatbin import read_fatbins
from firstlight.facts.known import Known, value_or
from firstlight.machine.interface import which
from firstlight.verify.check import Answer, Case, Check, Lane, Met, RequirementResult
from firstlight.verify.child import ask_child
from firstlight.verify.needs import toolkit_taken, toolkit_version
from firstlight.verify.require_file import Requirement, RequirementKind
from firstlight.versions import ComputeCapability, DriverVersion

_VERSIONS_LIMIT_S = 60.0
Given = tuple[str, Met]
Done = dict[str, Answer]


def results_of_requirements(
    requirements: tuple[Requirement, ...], case: Case, done: Done
) -> tuple[RequirementResult, ...]:
    """One row per requirement, in the order of the file."""
    versions = _installed(requirements, case, done)
    rows = []
    for each in requirements:
        given, met = (
            _version(each, versions) if each.kind is RequirementKind.VERSION else _HOLDS[each.kind](each, case, done)
        )
        rows.append(RequirementResult(_shown(each), each.needed.lstrip("="), given, met, each.line))
    return tuple(rows)


def _shown(each: Requirement) -> str:
    if each.kind in (RequirementKind.TAG, RequirementKind.COMMIT):
        return f"{each.name} at {each.path}"
    return each.name or each.kind.value


def _installed(requirements: tuple[Requirement, ...], case: Case, done: Done) -> dict[str, str]:
    """Versions of the distributions asked for, told by the interpreter under proof; torch says its own build too."""
    names = [each.name for each in requirements if each.kind is RequirementKind.VERSION]
    if not names:
        return {}
    ask = Check("versions", "", "package_versions", (), Lane.SHELL, _VERSIONS_LIMIT_S, asks=lambda _: {"names": names})
    found = {str(name): str(version) for name, version in ask_child(ask, case).more.get("versions", {}).items()}
    imported = done.get("import")
    if imported is not None and imported.more.get("version"):
        found["torch"] = str(imported.more["version"])
    elif isinstance(case.facts.torch, Known) and isinstance(case.facts.torch.value.version, Known):
        found["torch"] = str(case.facts.torch.value.version.value)
    return found


def _version(each: Requirement, versions: dict[str, str]) -> Given:
    given = versions.get(each.name)
    if given is None:
        return "not installed", Met.NO
    try:
        fits = Version(given) in SpecifierSet(each.needed, prereleases=True)
    except InvalidVersion:
        return f"{given}, which is not a version that can be compared", Met.NOT_KNOWN
    return given, _met(fits=fits)


def _met(*, fits: bool) -> Met:
    return Met.YES if fits else Met.NO


def _gpus(each: Requirement, case: Case, done: Done) -> Given:
    answer = done.get("gpus")
    if answer is not None:
        count, where = len(answer.more.get("capabilities", [])), "in torch"
    else:
        count, where = value_or(case.facts.gpus.count, 0), "by the driver"
    return f"{count} {where}", _met(fits=count >= int(each.needed))


def _gpu_name(each: Requirement, case: Case, done: Done) -> Given:
    names = [gpu.name.value for gpu in case.facts.gpus.devices if isinstance(gpu.name, Known)]
    if not names:
        return "no GPU", Met.NO
    return ", ".join(dict.fromkeys(names)), _met(fits=all(re.search(each.needed, name) for name in names))


def _driver(each: Requirement, case: Case, done: Done) -> Given:
    given = case.facts.driver.kernel_version
    if not isinstance(given, Known):
        return "no driver is loaded", Met.NO
    return str(given.value), _met(fits=given.value >= DriverVersion.parse(each.needed))


def _capability(each: Requirement, case: Case, done: Done) -> Given:
    given = [gpu.capability.value for gpu in case.facts.gpus.devices if isinstance(gpu.capability, Known)]
    if not given:
        return "no GPU", Met.NO
    return str(min(given)), _met(fits=min(given) >= ComputeCapability.parse(each.needed))


def _toolkit(each: Requirement, case: Case, done: Done) -> Given:
    toolkit = toolkit_taken(case)
    if toolkit is None:
        return "none with nvcc", Met.NO
    version = toolkit_version(toolkit)
    if version is None:
        return f"{toolkit.path}, of unknown version", Met.NOT_KNOWN
    return f"{version} at {toolkit.path}", _met(fits=Version(str(version)) in SpecifierSet(each.needed))


def _command(each: Requirement, case: Case, done: Done) -> Given:
    found = which(case.machine, each.name) if "/" not in each.name else each.name
    return (found, Met.YES) if found and case.machine.stat(found) is not None else ("not found", Met.NO)


def _file(each: Requirement, case: Case, done: Done) -> Given:
    path = os.path.join(case.machine.host.cwd, os.path.expanduser(each.name))
    return ("there", Met.YES) if case.machine.stat(path) is not None else (case.machine.why_not(path), Met.NO)


def _checkout(each: Requirement, case: Case, done: Done) -> Given:
    """The commit a work tree stands at, by git itself; safe.directory lets it read another user's tree."""
    path = os.path.join(case.machine.host.cwd, os.path.expanduser(each.path))
    if case.machine.stat(path) is None:
        return f"{path}: no such folder", Met.NO
    git = ("git", "-c", f"safe.directory={os.path.realpath(path)}", "-C", path)
    head = case.machine.run((*git, "rev-parse", "--verify", "HEAD^{commit}"))
    if not head.ok:
        return head.complaint, Met.NOT_KNOWN if head.outcome.value == "not found" else Met.NO
    if each.kind is RequirementKind.COMMIT:
        return head.first_line[:12], _met(fits=head.first_line.startswith(each.needed))
    tag = case.machine.run((*git, "rev-parse", "--verify", f"refs/tags/{each.needed}^{{commit}}"))
    tags = case.machine.run((*git, "tag", "--points-at", "HEAD"))
    here = ", ".join(tags.stdout.split()[:3]) if tags.ok else ""
    given = f"commit {head.first_line[:12]}" + (f", tag {here}" if here else ", no tag")
    if not tag.ok:
        return f"{given}; it has no tag {each.needed}", Met.NO
    return given, _met(fits=tag.first_line == head.first_line)


def _variable(each: Requirement, case: Case, done: Done) -> Given:
    value = case.machine.env(each.name)
    if each.needed == "set":
        return ("set", Met.YES) if value else ("not set", Met.NO)  # the value may be a secret
    if each.needed == "not set":
        return (f"set to {value!r}", Met.NO) if value else ("not set", Met.YES)
    return "not set" if value is None else repr(value), _met(fits=value == each.needed[1:])


def _binary(each: Requirement, case: Case, done: Done) -> Given:
    path = os.path.join(case.machine.host.cwd, os.path.expanduser(each.name))
    found = read_fatbins(case.machine, path)
    codes = [str(code) for code in found.codes]
    return " ".join(codes) or found.complaint, _met(fits=each.needed in codes)


_HOLDS: dict[RequirementKind, Callable[[Requirement, Case, Done], Given]] = {
    RequirementKind.GPUS: _gpus,
    RequirementKind.GPU_NAME: _gpu_name,
    RequirementKind.DRIVER: _driver,
    RequirementKind.CAPABILITY: _capability,
    RequirementKind.TOOLKIT: _toolkit,
    RequirementKind.COMMAND: _command,
    RequirementKind.FILE: _file,
    RequirementKind.TAG: _checkout,
    RequirementKind.COMMIT: _checkout,
    RequirementKind.VARIABLE: _variable,
    RequirementKind.BINARY: _binary,
}
