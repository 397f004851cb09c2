"""Editors, multiplexers, debuggers and the like that run text which they are handed: awk, sed, vim, tmux, gdb, git."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from firstlight.guard import interpreters
from firstlight.guard.call import HOLE, Call, known
from firstlight.guard.justfile import NAMES, behind, parse_justfile
from firstlight.guard.programs import SHELLS
from firstlight.guard.protect import git_folder
from firstlight.guard.sed_script import Does, commands_of
from firstlight.guard.steps import again, leaf, scan
from firstlight.guard.walk import Shell

_AWK = re.compile(r'\s*(?:"(?:[^"\\]|\\.)*"|\|\||\|&?|[A-Za-z_]\w*|\S)')
_AWK_PATTERN = re.compile(r"\s*/(?:[^/\\\n]|\\.)*/")
_BANG = re.compile(r"(?:^|[\s|:%\d,$.'>])!(?!=)(.+)", re.S)
_VIM_HIDES = re.compile(r"\b(?:system|systemlist|term|terminal|termopen|job_?start|shell-command|call-process)\b")
_VIM_WRITES = re.compile(r":?\s*[%\d,$.]*\s*(?:w|write|wq|sav|saveas|up|update)!?\s+(?:>>\s*)?([^\s!|]+)")
_TMUX_RUNS = re.compile(r"new.*|split.*|send.*|run.*|if.*|respawn.*|.*popup|pipe-pane|pipep")
_TMUX_VALUED = {"-n", "-s", "-t", "-c", "-F", "-x", "-y", "-e", "-l", "-L", "-f", "-S", "-N", "-w", "-h", "-d", "-T"}
_KEYS = {"Enter": "\n", "C-m": "\n", "KPEnter": "\n", "Space": " "}
_KEY = re.compile(r"(?:[CMS]-.|Up|Down|Left|Right|Escape|Tab|BSpace|Home|End|F\d+)")
_GDB = {"-ex", "-iex", "--ex", "--iex", "-eval-command", "--eval-command", "-o", "-O", "--one-line", "-k"}
_GIT_RUNS = re.compile(
    r"(?:alias\..+|core\.(?:pager|editor|sshcommand|fsmonitor)|sequence\.editor|pager\..+|.*\.textconv)", re.I
)


def follow(shell: Shell, call: Call, name: str) -> str:
    """Follow the text that a runner is handed; what it prints."""
    said = leaf(shell, call, name)
    _RUNNERS[name](shell, call)
    return said


def _scripts(shell: Shell, call: Call, by_text: set[str], by_file: set[str]) -> list[str]:
    """The texts behind options, of files, or the first word that is no option."""
    words, found, operands = list(call.words[1:]), [], []
    while words:
        word = words.pop(0)
        option, _, value = word.partition("=")
        if word in by_text | by_file | {"-v", "-F", "--assign", "--field-separator", "-l"}:
            value = words.pop(0) if words else ""
            option = word
        if option in by_text:
            found.append(value)
        elif option in by_file:
            piped = value in ("-", "/dev/stdin")
            found.append((call.stdin if piped else shell.file(value) if known(value) else None) or "")
        elif not word.startswith("-"):
            operands.append(word)
    return found or operands[:1]


def _awk(shell: Shell, call: Call) -> None:
    for code in _scripts(shell, call, {"-e", "--source"}, {"-f", "--file"}):
        tokens = _awk_tokens(code)
        for at, mark in enumerate(tokens):
            before, after = tokens[at - 1] if at else "", tokens[at + 1 : at + 3]
            if mark == "system" and after[:1] == ["("]:
                _awk_text(shell, after[1:2], "" if tokens[at + 3 : at + 4] == [")"] else HOLE)
            elif mark in ("|", "|&") and after[:1] == ["getline"]:
                _awk_text(shell, [before], "")
            elif mark in ("|", "|&"):
                _awk_text(shell, after[:1], "" if tokens[at + 2 : at + 3] in ([], [";"], ["}"]) else HOLE)


def _awk_tokens(code: str) -> list[str]:
    """Strings, names and marks; a pattern between slashes is one of them, where a value may begin."""
    tokens: list[str] = []
    at = 0
    while at < len(code):
        value_before = bool(tokens) and re.fullmatch(r"[\w)\]$]+|\".*", tokens[-1], re.S)
        found = (None if value_before else _AWK_PATTERN.match(code, at)) or _AWK.match(code, at)
        if found is None:
            return tokens
        tokens.append(found[0].strip())
        at = found.end()
    return tokens


def _awk_text(shell: Shell, tokens: list[str], more: str) -> None:
    """A command of awk's: a string, with a hole where more is put to it; what is no string cannot be seen."""
    if tokens and tokens[0].startswith('"'):
        text = tokens[0][1:-1].replace('\\"', '"')
        shell.aside(lambda: shell.read(f"{text}{more}", "awk"))
    else:
        shell.hide("a command that awk makes at run time")


def _sed(shell: Shell, call: Call) -> None:
    for script in _scripts(shell, call, {"-e", "--expression", "-ne", "-nEe", "-Ee", "-re", "-ie"}, {"-f", "--file"}):
        for command in commands_of(script):
            if command.does is Does.WRITE:
                shell.calls.append(Call((":",), writes=(command.text,), cwds=call.cwds, trail=call.trail))
            elif command.text:
                shell.aside(lambda text=command.text: shell.read(text, "sed e"))  # type: ignore[misc]
            else:
                shell.hide("text that sed runs")


def _editor(shell: Shell, call: Call) -> None:
    words = call.words[1:]
    texts = [words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-c", "--cmd", "--eval", "-eval")]
    texts += [word[1:] for word in words if word.startswith("+") and len(word) > 1]
    if call.stdin is not None and (
        set(words) & {"-", "-s", "-e", "-es", "-E", "-Es"} or call.words[0].endswith(("ex", "ed"))
    ):
        texts += call.stdin.splitlines()
    for text in texts:
        if _VIM_HIDES.search(text):
            shell.hide("a command inside of an editor's own language")
        if found := _BANG.search(text):
            shell.aside(lambda found=found: shell.read(found[1], "an editor's !"))  # type: ignore[misc]
        if found := _VIM_WRITES.match(text):
            shell.calls.append(Call((":",), writes=(found[1],), cwds=call.cwds, trail=call.trail))


def _tmux(shell: Shell, call: Call) -> None:
    scan(shell, call, "tmux")
    words = list(call.words[1:])
    while words and not _TMUX_RUNS.fullmatch(words[0]):
        words.pop(0)
    verb, words = (words[0], words[1:]) if words else ("", [])
    rest = [word for at, word in enumerate(words)
            if not word.startswith("-") and (at == 0 or words[at - 1] not in _TMUX_VALUED - {"-d", "-h"})]  # fmt: skip
    if verb.startswith("send"):
        typed = "".join(_KEYS.get(word, "" if _KEY.fullmatch(word) else word) for word in rest)
        shell.aside(lambda: shell.read(typed, "tmux send-keys"))
        return
    for word in rest:
        if " " in word and not word.startswith("#"):
            shell.aside(lambda word=word: shell.read(word, "tmux"))  # type: ignore[misc]


def _screen(shell: Shell, call: Call) -> None:
    scan(shell, call, "screen")
    if "stuff" in call.words[:-1]:
        typed = call.words[call.words.index("stuff") + 1].replace("\\n", "\n").replace("^M", "\n").replace("\\r", "\n")
        shell.aside(lambda: shell.read(typed, "screen stuff"))


def _at(shell: Shell, call: Call) -> None:
    file = interpreters.option_value(call.words[1:], ("-f", "--file"))
    if file is not None:
        shell.aside(lambda: interpreters.script_text(shell, file, f"at -f {file}"))
    elif call.stdin is not None:
        shell.aside(lambda: shell.read(call.stdin or "", "at"))


def _debugger(shell: Shell, call: Call) -> None:
    scan(shell, call, "gdb")
    words = call.words[1:]
    texts = [words[at + 1] for at, word in enumerate(words[:-1]) if word in _GDB]
    texts += [word.partition("=")[2] for word in words if word.startswith(("--eval-command=", "-ex="))]
    for text in texts:
        if found := re.match(r"\s*(?:platform\s+)?(?:shell\b|sh\b|!|make\b|pipe\b[^|]*\|)(.*)", text, re.S):
            shell.aside(lambda found=found: shell.read(found[1], "gdb shell"))  # type: ignore[misc]
        elif found := re.match(r"\s*(?:python|py|pi|script)\b(.*)", text, re.S):
            interpreters.run_code(shell, found[1].strip(), "python in gdb")


def _git(shell: Shell, call: Call) -> None:
    words = list(call.words[1:])
    _, rest = git_folder(words)
    before = words[: len(words) - len(rest)]
    for at, word in enumerate(before[:-1]):
        name, equals, value = before[at + 1].partition("=")
        if (
            word == "-c"
            and equals
            and _GIT_RUNS.fullmatch(name)
            and (not name.lower().startswith("alias.") or value[:1] == "!")
        ):
            shell.aside(lambda value=value: shell.read(value.removeprefix("!"), "git -c"))  # type: ignore[misc]
    if rest[:1] == ["rebase"]:
        for at, word in enumerate(rest):
            text = (
                rest[at + 1]
                if word in ("-x", "--exec") and at + 1 < len(rest)
                else word[7:]
                if word.startswith("--exec=")
                else ""
            )
            if text:
                shell.aside(lambda text=text: shell.read(text, "git rebase --exec"))  # type: ignore[misc]
    if rest[:2] == ["bisect", "run"]:
        again(shell, call, tuple(rest[2:]), "git bisect run")
    if rest[:2] == ["submodule", "foreach"]:
        inner = [word for word in rest[2:] if not word.startswith("--")]
        shell.aside(lambda: shell.read(" ".join(inner), "git submodule foreach"))


def _just(shell: Shell, call: Call) -> None:
    words = [word for at, word in enumerate(call.words[1:]) if not word.startswith("-") and "=" not in word]
    file = interpreters.option_value(call.words[1:], ("-f", "--justfile"))
    words = [word for word in words if word != file]
    for name in (file,) if file else NAMES:
        if not known(name) or (text := shell.file(name)) is None:
            continue
        made = parse_justfile(text)
        for each in made.at_once:
            shell.aside(lambda each=each: shell.read(each, "just"))  # type: ignore[misc]
        for recipe in behind(made, words):
            _recipe(shell, recipe.name, recipe.lines)
        return
    if file:
        shell.hide(f"just with a file that cannot be read: {file.replace(HOLE, '?')}")


def _recipe(shell: Shell, name: str, lines: tuple[str, ...]) -> None:
    if lines and lines[0].startswith("#!"):
        program = os.path.basename(lines[0].split()[-1])
        if program in SHELLS:
            shell.aside(lambda: shell.read("\n".join(lines[1:]), f"just {name}"))
        return
    for line in lines:
        text = line.lstrip("@-")
        shell.aside(lambda text=text: shell.read(text, f"just {name}"))  # type: ignore[misc]


_RUNNERS: dict[str, Callable[[Shell, Call], None]] = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk), **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("vim", "vi", "nvim", "ex", "ed", "view", "gvim", "emacs"), _editor),
    "tmux": _tmux, "screen": _screen, "at": _at, "batch": _at, "gdb": _debugger, "lldb": _debugger,
    "cuda-gdb": _debugger, "git": _git, "just": _just,
}  # fmt: skip
