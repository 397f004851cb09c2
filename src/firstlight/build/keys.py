"""What each stage was made from: a stage holds while its key does, and a changed flag changes the keys behind it."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import subprocess
import zipfile

from firstlight.build.backend import BY_NINJA
from firstlight.build.engines import STATUS, compile_engine, configure_engine, wheel_engine
from firstlight.build.spec import BuildSpec, Stage, read_document, write_document

ABOUT = "firstlight-build.json"
WHEEL_ALONE = "the wheel, which is not installed"
_ASK = (
    "import os, sys, importlib.metadata as m; "
    "found = list(m.distributions(name=sys.argv[1], path=sys.argv[2:] or sys.path)); "
    "about = (found and found[0].read_text('firstlight-build.json')) or ''; "
    "seen = os.stat(found[0].locate_file(found[0]._path.name + '/RECORD')) if about else None; "
    "sys.stdout.write(f'{found[0]._path} {seen.st_ino} {seen.st_mtime_ns}\\n{about}' if seen else '')"
)
_WORK = re.compile(r"\[\d+/\d+\] (?:Building .* object |Linking )")
_NINJA_LIMIT_S = 50
_TOLD = 5


def key_of(spec: BuildSpec, stage: Stage) -> str:
    """A digest of all that a stage's result depends on; jobs, time limits and the prefix do not count."""
    tree = [spec.commit, spec.tree_digest, *spec.source.patch_sums]
    parts: list[object] = [spec.backend.value, spec.python, spec.toolkit_version, spec.compiler, tree, spec.archs]
    parts += [[each.name, each.value] for each in (*spec.settings, *spec.defines, *spec.links)]
    if stage is not Stage.CONFIGURE:
        parts += [list(spec.targets), spec.only]
    if stage in (Stage.WHEEL, Stage.INSTALL, Stage.PROVE):
        parts.append(spec.local)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def mark_done(spec: BuildSpec, stage: Stage, about: dict[str, object]) -> None:
    """Write down that a stage ended well, and from what."""
    os.makedirs(f"{spec.folder}/done", exist_ok=True)
    write_document(f"{spec.folder}/done", f"{stage.value}.json", {"key": key_of(spec, stage), **about})


def done_record(spec: BuildSpec, stage: Stage) -> dict[str, object]:
    """What a stage wrote down; {} where it never ended well, or from other inputs."""
    found = read_document(f"{spec.folder}/done/{stage.value}.json")
    same = isinstance(found, dict) and found.get("key") == key_of(spec, stage)
    return found if same and isinstance(found, dict) else {}


def holds(spec: BuildSpec, stage: Stage) -> bool:
    """Whether a stage is done: its record has the key of today, and what it made is there."""
    if stage is Stage.INSTALL:
        return is_installed(spec)
    if stage is Stage.REQUIREMENTS:
        from firstlight.build.requirements_here import requirements_met  # a stage that compiles starts without

        return requirements_met(spec)
    if not done_record(spec, stage):
        return False
    if stage is Stage.CONFIGURE:
        return spec.backend not in BY_NINJA or os.path.isfile(f"{spec.build_dir}/build.ninja")
    if stage is Stage.COMPILE:
        return nothing_to_compile(spec) if spec.backend in BY_NINJA else raw_wheel(spec) != ""
    if stage is Stage.WHEEL:
        return finished_wheel(spec) != ""
    return done_record(spec, stage).get("of") == installation(spec)


def nothing_to_compile(spec: BuildSpec) -> bool:
    """Whether ninja would compile and link nothing; a dry run starts no compiler."""
    return units_to_compile(spec) == 0


def units_to_compile(spec: BuildSpec) -> int:
    """How many units ninja would compile or link now; -1 where it cannot tell.

    CMake's own commands do not count: a tree that globs its sources looks at its folders in every run.
    """
    if not os.path.isfile(f"{spec.build_dir}/build.ninja"):
        return -1
    argv = compile_engine(spec, 1).argv
    own = {**os.environ, "NINJA_STATUS": STATUS}
    try:
        asked = subprocess.run(
            [argv[0], "-n", *argv[1:]], capture_output=True, text=True, errors="replace", timeout=_NINJA_LIMIT_S,
            check=False, env=own,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return -1
    if asked.returncode != 0:
        return -1
    return sum(_WORK.match(line) is not None for line in asked.stdout.splitlines())


def raw_wheel(spec: BuildSpec) -> str:
    """The wheel as the backend made it; "" where there is none."""
    found = sorted(glob.glob(f"{glob.escape(spec.raw)}/*.whl"), key=os.path.getmtime)
    return found[-1] if found else ""


def finished_wheel(spec: BuildSpec) -> str:
    """The wheel with its local version, if it is the one that the record names and whole."""
    record = done_record(spec, Stage.WHEEL)
    path = os.path.join(spec.wheels, str(record.get("file", "")))
    if not record or not os.path.isfile(path):
        return ""
    return path if digest_of_file(path) == record.get("sha256") else ""


def digest_of_file(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def is_installed(spec: BuildSpec) -> bool:
    """Whether what the environment or the prefix holds is the finished wheel."""
    return installation(spec) not in ("", WHEEL_ALONE)


def installation(spec: BuildSpec) -> str:
    """The very copy that is installed, by its place and time: another one has to be proved anew; "" where none is.

    It is the finished wheel's by the file that says what that was built from.
    """
    wheel = finished_wheel(spec)
    if not wheel:
        return ""
    if spec.wheel_only:
        return WHEEL_ALONE
    with zipfile.ZipFile(wheel) as file:
        name = next((each for each in file.namelist() if each.endswith(f".dist-info/{ABOUT}")), "")
        wanted = file.read(name).decode() if name else ""
    folders = site_folders(spec) if spec.prefix else []
    if spec.prefix and not folders:
        return ""
    argv = [spec.python, "-I", "-c", _ASK, spec.name, *folders]
    try:
        asked = subprocess.run(argv, capture_output=True, text=True, cwd="/", timeout=_NINJA_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    place, _, about = asked.stdout.partition("\n")
    return place if wanted and asked.returncode == 0 and about == wanted else ""


def site_folders(spec: BuildSpec) -> list[str]:
    """Where pip puts packages under --prefix."""
    found = []
    for folder, folders, _ in os.walk(spec.prefix):
        found += [os.path.join(folder, each) for each in folders if each in ("site-packages", "dist-packages")]
        folders[:] = [each for each in folders if each not in ("site-packages", "dist-packages")]
    return found


def what_changed(before: BuildSpec, after: BuildSpec) -> tuple[str, ...]:
    """What of a new spec differs from the last one in a way that costs units, in words."""
    said = []
    old, new = ({each.name: each.value for each in (*spec.settings, *spec.defines)} for spec in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            said.append(f"{name} was {old.get(name, 'not set')} and is {new.get(name, 'not set')}")
    for label, first, second in (
        ("the compiler", before.compiler, after.compiler),
        ("the toolkit", before.toolkit_version, after.toolkit_version),
        ("the commit", before.commit, after.commit),
        ("Python", before.python, after.python),
    ):
        if first != second:
            said.append(f"{label} changed: {first or 'none'} -> {second or 'none'}")
    if before.source.patch_sums != after.source.patch_sums:
        said.append(f"the patches changed: {_named(before.source.patches)} -> {_named(after.source.patches)}")
    elif before.tree_digest != after.tree_digest:
        said.append("files of the tree changed" + (f": {', '.join(after.edits[:_TOLD])}" if after.edits else ""))
    return tuple(said)


def _named(paths: tuple[str, ...]) -> str:
    """fix-a.diff, fix-b.diff; none."""
    return ", ".join(os.path.basename(each) for each in paths) or "none"


def engines_shown(spec: BuildSpec) -> tuple[tuple[str, ...], ...]:
    """The commands of a build for a reader."""
    configure = configure_engine(spec)
    compiled = (compile_engine(spec, spec.jobs).argv,) if spec.backend in BY_NINJA else ()
    packed = () if spec.only else (wheel_engine(spec, spec.jobs).argv,)
    return (*((configure.argv,) if configure else ()), *compiled, *packed)
