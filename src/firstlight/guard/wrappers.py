"""Programs that run the words they are given: env, sudo, timeout, xargs, find -exec, ssh, docker run."""

from __future__ import annotations

from dataclasses import replace

from firstlight.guard import interpreters
from firstlight.guard.call import HOLE, Call, fields
from firstlight.guard.programs import WRAPPERS
from firstlight.guard.steps import again, leaf, scan
from firstlight.guard.walk import Shell


def env(shell: Shell, call: Call) -> str:
    sets, words = list(call.sets), list(call.words[1:])
    while words:
        word = words[0]
        if word in ("-S", "--split-string") and len(words) > 1:
            words = [*fields(words[1]), *words[2:]]
        elif word.startswith("--split-string="):
            words = [*fields(word.partition("=")[2]), *words[1:]]
        elif word.startswith("-S") and len(word) > 2:
            words = [*fields(word[2:]), *words[1:]]
        elif word in ("-u", "--unset", "-C", "--chdir"):
            if word == "-u" and len(words) > 1:
                sets.append((words[1], ""))
            words = words[2:]
        elif word == "--":
            words = words[1:]
            break
        elif word.startswith("-"):
            words = words[1:]
        elif "=" in word:
            name, _, value = word.partition("=")
            sets.append((name, value))
            words = words[1:]
        else:
            break
    inner = replace(call, sets=tuple(sets))
    return again(shell, inner, tuple(words), "env") if words else leaf(shell, replace(inner, words=("env",)), "env")


def wrapper(shell: Shell, call: Call, name: str) -> str:
    valued, positionals = WRAPPERS[name]
    words = list(call.words[1:])
    if name == "command" and words[:1] and words[0] in ("-v", "-V"):
        return f"{words[-1]}\n"
    if name in ("sudo", "doas", "chroot"):
        shell.calls.append(replace(call, words=(name,)))
    if name == "flock" and "-c" in words[:-1]:
        return shell.read(words[words.index("-c") + 1], name)
    while words:
        word = words[0]
        if word == "--":
            words = words[1:]
            break
        if word.startswith("-") and len(word) > 1:
            words = words[2 if word in valued else 1 :]
        elif name in ("sudo", "doas") and "=" in word and not word.startswith("/"):
            variable, _, value = word.partition("=")
            call = replace(call, sets=(*call.sets, (variable, value)))
            words = words[1:]
        else:
            break
    words = words[positionals:]
    if name in ("exec", "time", "coproc", "nohup") and not words:
        return leaf(shell, call, name)
    if name == "watch":
        return shell.read(" ".join(words), name) if words else ""
    return again(shell, call, tuple(words), name)


def dash_c(shell: Shell, call: Call, name: str) -> str:
    code = interpreters.option_value(call.words[1:], ("-c", "--command"))
    shell.calls.append(replace(call, words=(name,)))
    if code is not None:
        return shell.read(code, f"{name} -c")
    if name == "runuser" and "--" in call.words:
        return again(shell, call, call.words[call.words.index("--") + 1 :], name)
    return HOLE


def xargs(shell: Shell, call: Call) -> str:
    words, marker, source = list(call.words[1:]), "", call.stdin
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in ("-I", "-n", "-P", "-L", "-d", "-a", "-E", "-s", "--max-args", "--max-procs", "--arg-file", "-j"):
            value = words.pop(0) if words else ""
            marker = value if word == "-I" else marker
            source = shell.file(value) or HOLE if word in ("-a", "--arg-file") else source
        elif word.startswith("-I"):
            marker = word[2:]
        elif word.startswith("--arg-file="):
            source = shell.file(word.partition("=")[2]) or HOLE
    given = fields(source) if source is not None else (HOLE,)
    if not words:
        return source or HOLE
    if marker:
        whole = " ".join(given)
        words = [word.replace(marker, whole) for word in words]
        return again(shell, replace(call, stdin=None), tuple(words), "xargs")
    return again(shell, replace(call, stdin=None), (*words, *given), "xargs")


def find(shell: Shell, call: Call) -> str:
    words = call.words[1:]
    starts = []
    for word in words:
        if word.startswith(("-", "(", "!")):
            break
        starts.append(word)
    names = [words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-name", "-iname", "-path", "-wholename")]
    tail = f"/{HOLE}/{names[-1].replace('*', HOLE)}" if names else f"/{HOLE}"
    found = tuple(f"{start.rstrip('/') or '/'}{tail}" for start in starts or ["."])
    direct = tuple(f"{start.rstrip('/')}/{names[-1]}" for start in starts or ["."]) if names else ()
    leaf(shell, call, "find")
    if "-delete" in words:
        shell.calls.append(replace(call, words=("rm", "-rf", *found, *direct)))
    for at, word in enumerate(words):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            inner = list(words[at + 1 :])
            end = next((place for place, each in enumerate(inner) if each in (";", "+")), len(inner))
            for path in (*found, *direct):
                again(shell, call, tuple(each.replace("{}", path) for each in inner[:end]), "find -exec")
    return HOLE


def ssh(shell: Shell, call: Call) -> str:
    words = list(call.words[1:])
    shell.calls.append(replace(call, words=("ssh",)))
    while words and words[0].startswith("-"):
        words = words[
            2 if words[0] in ("-p", "-i", "-l", "-o", "-F", "-L", "-R", "-D", "-J", "-b", "-c", "-E", "-W") else 1 :
        ]
    if len(words) > 1:
        return shell.aside(lambda: shell.read(" ".join(words[1:]), "ssh", call.stdin))
    if call.stdin is not None:
        return shell.aside(lambda: shell.read(call.stdin or "", "ssh"))
    return HOLE


def contained(shell: Shell, call: Call) -> str:
    before, shell.contained = shell.contained, True
    try:
        shell.calls.append(replace(call, contained=True))
        scan(shell, replace(call, contained=True), call.words[0])
    finally:
        shell.contained = before
    return HOLE
