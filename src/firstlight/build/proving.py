"""The stage prove: machine code for every architecture, an import, a call with a known result."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import zipfile

from firstlight.build.backend import Backend
from firstlight.build.keys import finished_wheel, installation, mark_done, site_folders
from firstlight.build.loading_chain import chain_of
from firstlight.build.requirements_here import unmet_by_wheel
from firstlight.build.running import say
from firstlight.build.spec import BuildSpec, Stage
from firstlight.elf.fatbin import CodeKind, read_fatbins
from firstlight.errors import CouldNotAct
from firstlight.facts.known import Unknown
from firstlight.frozen import dataclass
from firstlight.machine.live import LiveMachine
from firstlight.ways.names import normal

_LIMIT_S = 600
_CHILD = os.path.join(os.path.dirname(__file__), "children", "prove.py")


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing that was shown, or not."""

    what: str
    holds: bool
    saw: str


def prove(spec: BuildSpec) -> None:
    """Show that the installed wheel is what was asked for; CouldNotAct names what is not."""
    wheel = finished_wheel(spec)
    if not wheel:
        raise CouldNotAct("the wheel that was built is not there any more. Run the same command again.")
    of = installation(spec)
    proofs = (*_code(spec, wheel), *(() if spec.wheel_only else _of_installed(spec, wheel)))
    for each in proofs:
        say(f"{'ok  ' if each.holds else 'FAIL'} {each.what}: {each.saw}")
    if failed := [each for each in proofs if not each.holds]:
        raise CouldNotAct(
            f"built and installed, and not proved: {'; '.join(f'{each.what}: {each.saw}' for each in failed)}"
        )
    mark_done(spec, Stage.PROVE, {"of": of, "proofs": [f"{each.what}: {each.saw}" for each in proofs]})


def _code(spec: BuildSpec, wheel: str) -> tuple[Proof, ...]:
    """What GPU code the libraries of the wheel hold, held against the architectures asked for."""
    if not spec.sms:
        return ()
    machine = LiveMachine()
    found: set[str] = set()
    for path in _unpacked(spec, wheel):
        codes = read_fatbins(machine, path).codes
        found |= {f"{each.capability.sm}{each.suffix}" for each in codes if each.kind == CodeKind.MACHINE_CODE.value}
    missing = missing_code(spec.sms, found)
    saw = f"machine code for {', '.join(sorted(found)) or 'no GPU'}" + (
        f"; missing: {', '.join(missing)}" if missing else ""
    )
    return (Proof("architectures", not missing, saw),)


def missing_code(asked: tuple[str, ...], found: set[str]) -> list[str]:
    """The architectures without code: sm_90a in the file does for sm_90, whose GPUs run it; not the other way round."""
    return [each for each in asked if not {each, f"{each}a", f"{each}f"} & found]


def _of_installed(spec: BuildSpec, wheel: str) -> tuple[Proof, ...]:
    """What it requires, the libraries it leads to, an import and a call: all gaps are known at once."""
    child, loaded = _child(spec, wheel)
    return (*_requirements(spec, wheel), *_chain(spec, loaded), *child)


def _requirements(spec: BuildSpec, wheel: str) -> tuple[Proof, ...]:
    """What the finished metadata requires; the tree may have stated less, or nothing."""
    found = unmet_by_wheel(spec, wheel)
    if isinstance(found, Unknown):
        return (Proof("requirements", holds=False, saw=found.reason),)
    gaps = found.value
    if not gaps.missing and not gaps.unfit:
        return (Proof("requirements", holds=True, saw="everything that the wheel requires is installed"),)
    listed = ", ".join((*gaps.missing, *gaps.unfit))
    command = shlex.join((spec.python, "-m", "pip", "install", *gaps.missing, *gaps.wanted))
    if spec.no_deps:
        return (Proof("requirements", holds=True, saw=f"not all are there, and --no-deps was given: {listed}"),)
    saw = f"not installed: {listed}. This installs it, then run the same command again: {command}"
    return (Proof("requirements", holds=False, saw=saw),)


def _chain(spec: BuildSpec, loaded: tuple[str, ...]) -> tuple[Proof, ...]:
    """The loader's way to every library; one that the import itself opened first is there, whatever the way."""
    chain = chain_of(spec)
    if not chain.looked_at:
        return ()
    open_ones = [words for name, words in zip(chain.missing, chain.words, strict=True) if name not in loaded]
    if open_ones:
        how = f". This closes it: {chain.command}" if chain.command else ""
        return (Proof("closure", holds=False, saw=f"{'; '.join(open_ones)}{how}"),)
    by_itself = f"; its import opens {', '.join(chain.missing)} by itself" if chain.missing else ""
    driver = f"; {', '.join(chain.of_driver)} comes with the driver" if chain.of_driver else ""
    return (Proof("closure", holds=True, saw=f"{chain.looked_at}, nothing is missing{by_itself}{driver}"),)


def _unpacked(spec: BuildSpec, wheel: str) -> list[str]:
    """The shared libraries of a wheel, in a folder of the build."""
    folder = f"{spec.folder}/proof"
    found = []
    with zipfile.ZipFile(wheel) as file:
        for name in file.namelist():
            if name.endswith(".so") or ".so." in os.path.basename(name):
                found.append(file.extract(name, folder))
    return found


def _child(spec: BuildSpec, wheel: str) -> tuple[tuple[Proof, ...], tuple[str, ...]]:
    """What the environment itself says, in a process of its own and outside of the tree; and what it loaded."""
    info = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA"))
    question = {
        "project": normal(spec.name), "modules": _modules(wheel), "inside": compiled_inside(wheel),
        "info": os.path.basename(os.path.dirname(info)),
        "before": ["torch"] if spec.backend is Backend.TORCH_EXTENSION else [],  # whose libraries they lean on
    }  # fmt: skip
    env = {name: value for name, value in os.environ.items() if name not in spec.removed}
    if spec.prefix:
        env["PYTHONPATH"] = ":".join(site_folders(spec))
    try:
        asked = subprocess.run(
            [spec.python, "-I" if not spec.prefix else "-B", _CHILD, json.dumps(question)], cwd="/", env=env,
            capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return (Proof("import", holds=False, saw=str(error)),), ()
    try:
        answers = json.loads(asked.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        last = (asked.stderr.strip().splitlines() or ["nothing was printed"])[-1]
        return (Proof("import", holds=False, saw=f"status {asked.returncode}: {last}"),), ()
    loaded = tuple(name for each in answers for name in each.get("loaded", ()))
    return tuple(Proof(each["what"], bool(each["holds"]), each["saw"]) for each in answers), loaded


def _modules(wheel: str) -> list[str]:
    """What a wheel lets one import: its packages and single modules."""
    found: dict[str, None] = {}
    with zipfile.ZipFile(wheel) as file:
        for name in file.namelist():
            top, _, rest = name.partition("/")
            if rest == "__init__.py":
                found[top] = None
            elif not rest and top.endswith((".py", ".so")):
                found[top.split(".")[0]] = None
    return list(found)


def compiled_inside(wheel: str) -> list[str]:
    """The compiled modules inside of packages, pkg._C: an __init__.py need not import what was built."""
    found = []
    with zipfile.ZipFile(wheel) as file:
        for name in file.namelist():
            folder, _, base = name.rpartition("/")
            words = (*folder.split("/"), base.split(".")[0])
            if not folder or not base.endswith(".so") or not all(each.isidentifier() for each in words):
                continue
            if f"PyInit_{words[-1]}\0".encode() in file.read(name):
                found.append(".".join(words))
    return found
