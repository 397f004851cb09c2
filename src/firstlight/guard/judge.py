"""One action and a policy to a decision: allow, or deny with the reason, the policy's line and what is open."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping

from firstlight.frozen import dataclass
from firstlight.guard.allow_list import elsewhere, is_entry
from firstlight.guard.call import HOLE, Call, Unreadable
from firstlight.guard.follow import calls_of, calls_of_words
from firstlight.guard.git_hooks import leaves_hooks_out
from firstlight.guard.managers import OF_PYTHON, Change, Wanted, change_of
from firstlight.guard.overlap import may_bring, stays_within
from firstlight.guard.pins import StepsOff, change_off_pins, off_pins
from firstlight.guard.place import Place, program_file
from firstlight.guard.policy import CONSTRAINTS, LOCK, Policy
from firstlight.guard.programs import BUILTINS_THAT_DO_NOTHING, MANAGERS, OVERWRITE, STEERING, compiler, is_pip
from firstlight.guard.protect import Touched, protected_by, touched
from firstlight.guard.walk import Shell

_WRITTEN_BY = {LOCK: "firstlight lock", CONSTRAINTS: "firstlight lock --hold"}
_ONLY_ASKS = {"--version", "-V", "--help", "-h", "-v", "-version"}


@dataclass(frozen=True, slots=True)
class Denied:
    """Why an action is denied: the reason, the line of the policy (0: a rule of the guard itself), what is open."""

    reason: str
    key: str
    line: int
    instead: str
    command: str = ""  # to paste, where there is one
    trail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """Allow where nothing is denied; `calls` is how the action was read."""

    denied: tuple[Denied, ...]
    calls: tuple[Call, ...]

    @property
    def allowed(self) -> bool:
        return not self.denied


def decide_shell(text: str, policy: Policy, place: Place) -> Decision:
    """The decision on shell text."""
    try:
        return _decide(calls_of(text, place), policy, place)
    except (Unreadable, RecursionError) as error:
        return _unreadable(error, policy)


def decide_words(words: tuple[str, ...], policy: Policy, place: Place) -> Decision:
    """The decision on one command that is given as words."""
    if any("\0" in word for word in words):
        return _unreadable(Unreadable("a NUL byte in a word"), policy)
    try:
        return _decide(calls_of_words(words, place), policy, place)
    except (Unreadable, RecursionError) as error:
        return _unreadable(error, policy)


def decide_edit(path: str, policy: Policy, place: Place) -> Decision:
    """The decision on an edit of a file."""
    if "\0" in path or not path:
        return _unreadable(Unreadable("a path that cannot be one"), policy)
    call = Call(("edit", path), writes=(path,), cwds=(place.cwd,))
    return Decision(tuple(_protected(call, policy, place, {})), (call,))


def _unreadable(error: Exception, policy: Policy) -> Decision:
    reason = str(error) if isinstance(error, Unreadable) else "nested too deep to be read"
    return Decision(
        (
            Denied(
                f"this cannot be read: {reason}", "commands", policy.line("commands"), "Write it as one plain command."
            ),
        ),
        (),
    )


def _decide(shell: Shell, policy: Policy, place: Place) -> Decision:
    denied: list[Denied] = []
    for hidden in shell.opaque:
        denied.append(
            Denied(f"what would run cannot be seen: {hidden.what}", "mode", policy.line("mode"),
                   "Write the commands out, or save the script, read it, and run it as a file.", trail=hidden.trail)
        )  # fmt: skip
    for call in shell.calls:
        denied.extend(_of_call(call, policy, place, shell))
    return Decision(tuple(dict.fromkeys(denied)), tuple(shell.calls))


def _of_call(call: Call, policy: Policy, place: Place, shell: Shell) -> Iterator[Denied]:
    yield from _protected(call, policy, place, shell.links)
    name = call.words[0].rsplit("/", 1)[-1]
    if name in OVERWRITE:
        yield from _overwritten(call, name, policy, place, shell)
    if _is_firstlight(call, place):
        return
    for off in off_pins(call, policy):
        yield _off(off, policy, call)
    change = change_of(call, name, shell) if is_pip(name) or name in MANAGERS else None
    if change is not None:
        yield from _of_change(change, call, policy, place)
    if (
        policy.container
        and not (place.in_container or call.contained)
        and (change is not None or _compiles(call, name))
    ):
        yield Denied(f"{name} runs outside of a container", "container", policy.line("container"),
                     "Run it inside of the container.",
                     f'docker run --rm -v "$PWD:/w" -w /w IMAGE {shlex.join(call.words)}',
                     call.trail)  # fmt: skip
    if name == "git" and (told := leaves_hooks_out(call)):
        yield Denied(
            f"git is told to leave out the hooks ({told})",
            "protect",
            policy.line("protect"),
            "Let the hooks run.",
            trail=call.trail,
        )
    if policy.mode == "allow-list" and not any(step.startswith(("make ", "package.json: ")) for step in call.trail):
        yield from _allow_list(call, policy, place, name)


def _is_firstlight(call: Call, place: Place) -> bool:
    """firstlight itself, by its bare name, as a module, or by a path that is this one's."""
    word = call.words[0]
    if word == "firstlight":
        return True
    if not word.endswith("/firstlight"):
        return False
    real = program_file(word, call.cwds, place.env)
    home = os.path.join(place.root, ".venv/bin/firstlight")
    return os.path.normpath(os.path.join(place.cwd, word)) == home or (bool(real) and real in place.own)


def _compiles(call: Call, name: str) -> bool:
    return bool(compiler(name)) and not (len(call.words) > 1 and set(call.words[1:]) <= _ONLY_ASKS)


def _off(off: StepsOff, policy: Policy, call: Call) -> Denied:
    asked = off.asked.replace(HOLE, "?")
    return Denied(
        f"{asked} steps off the pin {off.key} = {off.pinned}",
        off.key,
        policy.line(off.key),
        f"Keep to {off.pinned}.",
        trail=call.trail,
    )


def _protected(call: Call, policy: Policy, place: Place, links: Mapping[str, str]) -> Iterator[Denied]:
    inside = call.words[0] == "mentions"
    for touch in touched(call):
        if entry := protected_by(touch, call, policy, place, links=links):
            path = touch.path.replace(HOLE, "?")
            reason = f"{path if len(path) < 100 else entry} is protected ({entry})"
            command = _WRITTEN_BY.get(entry, "")
            instead = "firstlight writes it:" if command else "Only a person changes it, in an editor."
            yield Denied(reason, "protect", policy.line("protect"), instead, command, call.trail)
            return
        if inside and (manager := _names_a_manager(touch)):
            yield Denied(
                f"code that calls {manager}", "ban", policy.line("ban"), f"Call {manager} directly.", trail=call.trail
            )
            return


def _overwritten(call: Call, name: str, policy: Policy, place: Place, shell: Shell) -> Iterator[Denied]:
    from firstlight.guard.overwrites import overwritten  # most actions do not need it

    for swath in overwritten(call, name, shell.written):
        for entry in policy.protected:
            if swath.covers(os.path.join(place.root, os.path.expanduser(entry))):
                reason = f"{swath.by} may overwrite {entry}, which is protected"
                yield Denied(reason, "protect", policy.line("protect"), swath.instead, trail=call.trail)
                return


def _names_a_manager(touch: Touched) -> str:
    words = touch.path.replace("'", " ").replace('"', " ").split()
    return next((word for word in words if is_pip(word) and "install" in words), "")


def _of_change(change: Change, call: Call, policy: Policy, place: Place) -> Iterator[Denied]:
    for off in change_off_pins(change, policy):
        yield _off(off, policy, call)
    cares = bool(policy.bans or policy.kept)
    for path in change.unreadable:
        if cares:
            yield Denied(
                f"the requirements of {path} cannot be read",
                "ban",
                policy.line("ban"),
                "Save the file in the project first.",
                trail=call.trail,
            )
    for wanted in change.wants:
        if wanted.name == HOLE:
            if cares:
                yield Denied("a package whose name only the running shell knows", "packages", policy.line("packages"),
                             "Write the name out.", trail=call.trail)  # fmt: skip
            continue
        yield from _of_wanted(wanted, policy, call)
    for name in change.removes:
        if any(kept.name in _names(name) for kept in policy.kept):
            yield Denied(
                f"{name} is kept by {policy.require}",
                "require",
                policy.line("require"),
                "Leave it installed.",
                trail=call.trail,
            )
    yield from _held(change, call, policy, place)


def _names(name: str) -> set[str]:
    """The names that one thing has among managers: torch is pytorch in conda and python3-torch in apt."""
    names = {name, name.removeprefix("python3-"), name.removeprefix("python-")}
    return names | ({"torch"} if names & {"pytorch", "pytorch-gpu", "pytorch-cuda"} else set())


def _of_wanted(wanted: Wanted, policy: Policy, call: Call) -> Iterator[Denied]:
    """What is asked for by name is taken in its newest version; what the project asks for is mostly there already."""
    name, spec = wanted.name, wanted.spec
    names = _names(name)
    brings = may_bring if wanted.asked_by == "" else stays_within
    for ban in policy.bans:
        if ban.name in names and (not ban.spec or brings(spec, ban.spec)):
            instead = (
                f"Take a version outside of {ban.spec}, e.g. with ==." if ban.spec else "The team does without it."
            )
            asked = f", which {wanted.asked_by} asks for," if wanted.asked_by else ""
            within = f" ({ban.name}{ban.spec})" if f"{name}{spec}" != f"{ban.name}{ban.spec}" else ""
            yield Denied(f"{name}{spec}{asked} is banned{within}", "packages", ban.line, instead, trail=call.trail)
    fits = stays_within if wanted.asked_by == "" else may_bring
    for kept in policy.kept:
        if kept.name in names and not fits(spec, kept.spec):
            yield Denied(f"{name}{spec} may leave {kept.name}{kept.spec}, which {policy.require} asks for", "require",
                         policy.line("require"), f"Ask for {kept.name}{kept.spec}.", trail=call.trail)  # fmt: skip


def _held(change: Change, call: Call, policy: Policy, place: Place) -> Iterator[Denied]:
    """Where `lock --hold` left its constraints, an installation that resolves dependencies goes by them."""
    path = os.path.join(place.root, CONSTRAINTS)
    if change.manager not in OF_PYTHON or change.removes or not os.path.exists(path):
        return
    given = [os.path.realpath(os.path.join(cwd, each)) for cwd in call.cwds for each in change.constraints]
    if os.path.realpath(path) in given:
        return
    held = _held_names(path)
    alone = "--no-deps" in change.options or "--no-dependencies" in change.options
    if alone and not any(wanted.name in held for wanted in change.wants):
        return
    repair = f"{shlex.join(word.replace(HOLE, '?') for word in call.words)} -c {shlex.quote(CONSTRAINTS)}"
    yield Denied(f"{change.manager} may replace what {CONSTRAINTS} holds", "lock", 0,
                 "Install it with the constraints:", repair, call.trail)  # fmt: skip


def _held_names(path: str) -> set[str]:
    from firstlight.guard.place import text_of
    from firstlight.versions import canonical

    return {
        canonical(line.split("=")[0].split("<")[0].split(">")[0].strip())
        for line in (text_of(path) or "").splitlines()
        if line.strip()
    }


def _allow_list(call: Call, policy: Policy, place: Place, name: str) -> Iterator[Denied]:
    words = call.words
    entries = ", ".join(" ".join(entry) for entry in policy.allow)
    if steering := [variable for variable, _ in call.sets if STEERING.fullmatch(variable)]:
        yield Denied(
            f"{steering[0]} makes other programs run under an allowed name",
            "allow",
            policy.line("allow"),
            "Leave it as it is.",
            trail=call.trail,
        )
    if name in BUILTINS_THAT_DO_NOTHING and "/" not in words[0] and not call.writes:
        return
    shown = " ".join(word.replace(HOLE, "?") for word in words)
    if any(is_entry(words, entry) for entry in policy.allow):
        if folder := elsewhere(call, place):
            yield Denied(
                f"{shown if len(shown) < 100 else name} would run in {folder}",
                "allow",
                policy.line("allow"),
                f"The list is for the project's folder: {place.root}.",
                trail=call.trail,
            )
        return
    if call.words[0] in ("source", "."):
        return
    yield Denied(
        f"{shown if len(shown) < 100 else name} is not on the list",
        "allow",
        policy.line("allow"),
        f"Allowed: {entries}.",
        trail=call.trail,
    )
