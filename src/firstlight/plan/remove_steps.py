"""Taking out what is in the way: a folder of LD_LIBRARY_PATH where it is set, an ldconfig file, a stale package."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.compat_choice import STARTUP_FILES, compat_in_use, wired_by
from firstlight.diagnosis.finding import Finding, Question, with_other_ways
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.observed import container
from firstlight.diagnosis.rules import rule_named
from firstlight.diagnosis.wheel_choice import INDEX
from firstlight.facts.known import Known
from firstlight.plan.back import Back, BackKind, moved_back, shown, through
from firstlight.plan.building import (
    NOT_MEASURED,
    Argv,
    a_person,
    as_root,
    blank,
    installed_versions,
    is_requirement,
    slug,
    written,
)
from firstlight.plan.by_hand import Line, edited_by_a_person
from firstlight.plan.costs import NOTHING
from firstlight.plan.extras import Extras
from firstlight.plan.library_path import Edited, lines_naming, without_folders
from firstlight.plan.loader_conf import without_conf_folders
from firstlight.plan.option import Kind, Option
from firstlight.plan.shell_kinds import dialect_of
from firstlight.plan.situation import ANSWERS
from firstlight.plan.step import CheckKind, Condition, FileChange, Step, StepKind
from firstlight.plan.told_commands import told_command
from firstlight.plan.told_effects import takes_root
from firstlight.plan.wheel_steps import copies_replaced, wheel_steps

_VARIABLE = "LD_LIBRARY_PATH"
_MOST_NAMED = 5  # lines that a note shows
_NO_SHELL = (".toml", ".py", ".pth", ".txt", ".lock", ".yml", ".yaml", "ld.so.conf")
_PIN_IN_PROJECT = "pin-in-project"


def remove_steps(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """For each way in which the folder gets in the way: the files that do it, this shell, the loader, the package."""
    folders = names_of(question, option.folder) or _named_by_commands(question, option)
    in_use = compat_in_use(question.facts)
    steps = list(_out_of_the_path(question, option, folders, extras=extras))
    if in_use is not None and in_use.library.path.rpartition("/")[0] in folders:
        steps += _from_the_loader(question, option, extras)
    if in_use is not None and in_use.copied:
        steps += _from_the_runtime(option, in_use.copied)
    steps += _packages(question, option, folders)
    # What only a person can do comes last, so that nothing else waits for it.
    steps.sort(key=lambda step: step.kind is StepKind.MANUAL)
    yield from steps or repair_steps(question, option, extras)


def unbaked(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """Beside a compat library that is wired at start: the lines that wire it for good, whatever the driver."""
    folder = option.folder.replace("~", extras.home_for(question.facts), 1)
    for step in _out_of_the_path(question, option, names_of(question, folder), extras=extras):
        yield replace(step, optional=step.optional or step.kind is StepKind.MANUAL)


def _out_of_the_path(question: Question, option: Option, folders: tuple[str, ...], *, extras: Extras) -> Iterator[Step]:
    """The files that set LD_LIBRARY_PATH to a folder, or where to look for them, and this shell."""
    on_path = tuple(each for each in question.facts.libcuda.ld_library_path if each.rstrip("/") in folders)
    if not on_path:
        return
    edits = _from_files(question, option, folders, extras)
    yield from edits or [_find_it(question, option, on_path[0], extras)]
    yield _this_shell(question, option, on_path)


def _named_by_commands(question: Question, option: Option) -> tuple[str, ...]:
    """The folders that the finding's own command leaves out of LD_LIBRARY_PATH; all of them where it unsets it."""
    path = tuple(each.rstrip("/") for each in question.facts.libcuda.ld_library_path if each)
    for line in option.brings:
        told = told_command(line)
        argv: Argv = () if told.words else told.argv
        if argv == ("unset", _VARIABLE):
            return path
        if argv[:1] == ("export",) and argv[-1].startswith(f"{_VARIABLE}="):
            kept = {each.rstrip("/") for each in argv[-1].partition("=")[2].split(":")}
            return tuple(each for each in path if each not in kept)
    return ()


def names_of(question: Question, folder: str) -> tuple[str, ...]:
    """A folder under all its names: /usr/local/cuda/compat is a link to /usr/local/cuda-13.0/compat."""
    names = dict.fromkeys([folder.rstrip("/")] if folder else [])
    for library in question.facts.compat:
        known = (library.folder, *library.aliases)
        if folder.rstrip("/") in known:
            names.update(dict.fromkeys(known))
    return tuple(names)


def _from_files(question: Question, option: Option, folders: tuple[str, ...], extras: Extras) -> list[Step]:
    """An edit for each file that sets the variable to the folder; lines that cannot be edited safely are told."""
    steps = []
    for file in extras.files:
        if _is_no_shell_text(file.path) or file.path.startswith(f"{extras.state_for(question.facts)}/"):
            continue
        edited = without_folders(
            file.text, folders, dialect=dialect_of(file.path, file.text), home=extras.home_for(question.facts)
        )
        name = file.path.strip("/").replace("/", " ")
        step = replace(
            blank(option),
            id=slug(f"edit {name}"),
            kind=StepKind.FILE,
            title=f"take {folders[0]} out of {_VARIABLE} in {file.path}",
            needs_root=file.path.startswith("/etc/"),
        )
        if edited.text != file.text:
            change = FileChange(file.path, file.text, edited.text, takes_out=folders)
            note = "Takes effect in shells that are opened from then on. Shells read the file first to try the edit."
            steps.append(replace(step, files=(change,), done_when=_edited(change, edited), note=note))
        if edited.left:
            lines = tuple(Line(each.number, each.text) for each in edited.left)
            told = replace(step, id=slug(f"edit by hand {name}"))
            steps.append(edited_by_a_person(told, file.path, lines, note="It is not a plain assignment."))
    return steps


def _is_no_shell_text(path: str) -> bool:
    """Files that a plan may change and no shell reads: a project's, the loader's, Python's."""
    return path.endswith(_NO_SHELL) or path.startswith("/etc/ld.so.conf.d/")


def _edited(change: FileChange, edited: Edited) -> tuple[Condition, ...]:
    """The lines are gone, whatever else somebody writes into the file; to the byte where they stand elsewhere too."""
    rest = change.after.splitlines()
    if any(line in rest or len(line.splitlines()) != 1 for line in edited.lines_taken_out):
        return (written(change),)
    return tuple(Condition(CheckKind.FILE_LACKS_LINE, change.path, line) for line in edited.lines_taken_out)


def _find_it(question: Question, option: Option, entry: str, extras: Extras) -> Step:
    """No file that was read sets it: where to look, for a person, and the lines that name it for whatever reason."""
    image = " or as an ENV line of the image" if container(question.facts) else ""
    home = extras.home_for(question.facts)
    named = [
        f"{file.path}, line {line.number}: {line.text.strip()}"
        for file in extras.files
        for line in lines_naming(file.text, (entry.rstrip("/"),))
    ]
    seen = f"These lines name it: {'; '.join(named[:_MOST_NAMED])}. " if named else ""
    return replace(
        blank(option),
        id="find-who-sets-it",
        title=f"find who puts {entry} into {_VARIABLE}, and delete it there",
        commands=(("grep", "-rn", entry, *(each.replace("~", home, 1) for each in STARTUP_FILES.split())),),
        done_when=(a_person(f"a new shell has no {entry} in {_VARIABLE}"),),
        note=f"No start-up file that was read sets it plainly. {seen}"
        f"It may stand in a job script, in a parent's environment{image}.",
    )


def _this_shell(question: Question, option: Option, taken: tuple[str, ...]) -> Step:
    path = question.facts.libcuda.ld_library_path
    kept = [each for each in path if each and each not in taken]
    now: Argv = ("export", f"{_VARIABLE}={':'.join(kept)}") if kept else ("unset", _VARIABLE)
    return replace(
        blank(option),
        id="this-shell",
        title="the same for shells that are open: type this there",
        commands=(now,),
        done_when=(a_person(f"echo ${_VARIABLE} shows no {taken[0]}"),),
        back=shown(("export", f"{_VARIABLE}={':'.join(path)}")),
        optional=True,
        note="No program can change the environment of the shell that started it. New shells do not need it.",
    )


def _from_the_loader(question: Question, option: Option, extras: Extras) -> list[Step]:
    """LD_PRELOAD, or a file of /etc/ld.so.conf.d that names the folder."""
    facts, in_use = question.facts, compat_in_use(question.facts)
    assert in_use is not None
    wired = wired_by(in_use.library)
    if wired == "LD_PRELOAD":
        return [
            replace(
                blank(option),
                id="unset-preload",
                title="take the library out of LD_PRELOAD",
                commands=(("unset", "LD_PRELOAD"),),
                done_when=(a_person("echo $LD_PRELOAD shows no libcuda"),),
                back=shown(("export", f"LD_PRELOAD={':'.join(facts.libcuda.ld_preload)}")),
                note=f"Delete it where it is set too: grep -rn LD_PRELOAD {STARTUP_FILES} /etc/ld.so.preload",
            )
        ]
    if not wired.startswith("/etc/") or wired == "/etc/ld.so.cache":
        return []
    return [_without_conf_line(question, option, wired, text=extras.text_of(wired))]


def _without_conf_line(question: Question, option: Option, conf: str, *, text: str | None) -> Step:
    """The folder's line out of an ldconfig file; a file that then names no folder goes, and so does one not read."""
    facts, saved = question.facts, f"{conf}.before-firstlight"
    folders = names_of(question, option.folder)
    kept = without_conf_folders(text or "", folders)
    left = any(line.strip() and not line.lstrip().startswith("#") for line in kept.split("\n"))
    change = FileChange(conf, text, kept if left else "", removes=not left) if text else None
    refresh = as_root(facts, "ldconfig")
    again = through(refresh, Back(BackKind.RELOAD_LOADER))
    gone = (written(change),) if change else (Condition(CheckKind.FILE_ABSENT, conf),)
    return replace(
        blank(option),
        id="take-out-ldconfig-line",
        kind=StepKind.FILE,
        title=f"take {folders[0]} out of {conf}, so that the loader's cache forgets it",
        commands=(refresh,) if change else (as_root(facts, "mv", "--no-clobber", conf, saved), refresh),
        files=(change,) if change else (),
        needs_root=True,
        done_when=gone,
        back=(again,) if change else (through(refresh, moved_back(saved, conf)), again),
        note="" if change else f"The text of {conf} was not read: look whether it names other folders too.",
    )


def _from_the_runtime(option: Option, copied: str) -> list[Step]:
    """The container runtime puts the image's library over the host's: the image or the host has to change."""
    return [
        replace(
            blank(option),
            id="tell-the-container-runtime",
            title="keep the container runtime from putting the image's compat library in",
            commands=(("rm", "-r", copied),),
            done_when=(a_person("a container started anew loads the host's libcuda"),),
            note=f"In the image: RUN rm -r {shlex.quote(copied)}. Or on the host, in /etc/nvidia-container-runtime/"
            'config.toml under [nvidia-container-runtime.modes.legacy]: cuda-compat-mode = "disabled".',
        )
    ]


def _packages(question: Question, option: Option, folders: tuple[str, ...]) -> Iterator[Step]:
    """The compat packages that brought the folder: NVIDIA says to remove them once the driver is newer."""
    facts = question.facts
    for library in facts.compat:
        if library.folder not in folders or not isinstance(library.package, Known):
            continue
        name = library.package.value
        if not re.fullmatch(r"cuda-compat(?:-orin)?-\d+-\d+", name):
            continue
        yield replace(
            blank(option),
            id=slug(f"remove {name}"),
            kind=StepKind.APT,
            title=f"remove {name}, so that nothing can wire it again",
            commands=(as_root(facts, "apt-get", "remove", "--yes", name),),
            needs_root=True,
            done_when=(Condition(CheckKind.FILE_ABSENT, library.library),),
            back=shown(as_root(facts, "apt-get", "install", "--yes", name)),
            optional=True,
            note="Not needed for the repair: a library that no path leads to is not loaded.",
        )


def removal_beside(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """The removal that an option of another kind names at the end of its title: what is in the way of any torch."""
    words = _removal_named(option.title)
    library = question.facts.libcuda.would_load
    if re.match(r"(?:take|remove) /", words) and isinstance(library, Known):
        folder = library.value.path.rpartition("/")[0]
        yield from remove_steps(question, replace(option, folder=folder, brings=()), extras)
        return
    finding = _what_is_removed(question, option) if words else None
    if finding is None:
        return
    lines = finding.do
    if any(is_requirement(piece) for piece in option.brings):  # which take the place of those that the finding names
        lines = tuple(line for line in lines if not re.search(r"\bpip (?:un)?install\b", line))
        if not lines and copies_replaced(question, option):
            return
    alone = replace(
        option,
        title=words,
        because=(finding.code,),
        needs_root=takes_root(lines),
        cost=replace(option.cost, download_bytes=NOTHING),
        brings=lines or ("see whether any is left: firstlight doctor",),
        folder="",
    )
    yield from remove_steps(question, alone, extras)


def _removal_named(title: str) -> str:
    """'take the library that is preloaded out of LD_PRELOAD' of a title that ends so; '' where only packages follow."""
    parts = (part.partition("; ")[0] for part in title.split("; and ")[1:])
    return next((part for part in parts if not is_requirement(part.partition(",")[0])), "")


def _what_is_removed(question: Question, option: Option) -> Finding | None:
    """The finding among those that an option answers which a removal cures."""
    for code in option.because:
        rule = rule_named(code)
        if any(remedy in ANSWERS[Kind.REMOVE] for remedy in rule.remedies):
            return judge(question, (rule,)).of(code)
    return None


def repair_steps(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """Any other repair: what the finding says to do, line by line, for a person to read before it is run."""
    if option.id.endswith(f":{_PIN_IN_PROJECT}"):
        pinned = tuple(wheel_steps(question, _installed_now(question, option), extras))
        if pinned:
            yield from pinned
            return
    lines = [line for line in option.brings if not is_requirement(line)]
    code = option.because[0] if option.because else option.id
    steps = with_other_ways(lines)
    for number, (line, *others) in enumerate(steps, 1):
        told = told_command(line)
        count = f" ({number} of {len(steps)})" if len(steps) > 1 else ""
        yield replace(
            blank(option),
            id=slug(f"repair {number}"),
            title=told.words or f"{option.title}{count}",
            commands=(told.argv,) if told.argv else (),
            needs_root=option.needs_root or takes_root((line,)),
            done_when=(a_person(f"`firstlight doctor` no longer finds {code}"),),
            seconds=NOT_MEASURED,
            bytes=option.cost.download_bytes,
            note="; ".join(filter(None, (told.remark, *map(_in_words, others)))),
        )


def _in_words(line: str) -> str:
    """Another way to do a step, for its note: what stands behind a # in brackets."""
    text, _, remark = line.partition("  # ")
    return f"{text} ({remark})" if remark else text


def _installed_now(question: Question, option: Option) -> Option:
    """The option with the torch family that is installed as its packages, to be kept by the project."""
    have = installed_versions(question.facts.environment)
    names = [name for name in ("torch", "torchvision", "torchaudio") if name in have]
    local = have.get("torch", "").partition("+")[2]
    index = f"{INDEX}{local}" if local.startswith("cu") else ""
    return replace(option, brings=tuple(f"{name}=={have[name]}" for name in names), index=index)
