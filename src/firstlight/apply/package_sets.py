"""Which packages were there before a step, and the commands that bring exactly that set back."""

from __future__ import annotations

from firstlight.apply.conditions import installed_distributions, run
from firstlight.apply.surroundings import is_from_list
from firstlight.errors import CouldNotAct
from firstlight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed between two sets of name==version."""

    added: tuple[str, ...]  # names that were not there before
    back: tuple[str, ...]  # name==version that was there before and is not now


def distributions(interpreter: str) -> list[str]:
    """What is installed in an environment, [] where there is no environment yet."""
    return list(installed_distributions(interpreter) or ())


def packages() -> list[str]:
    """name==version of every installed Debian package, with a trailing ! where it was asked for by hand."""
    done = run(("dpkg-query", "-W", "-f", "${db:Status-Status} ${binary:Package}==${Version}\n"))
    if done.returncode != 0:
        raise CouldNotAct(f"dpkg-query could not list the packages: {done.stderr.strip()[:200]}")
    return sorted(line.split(" ", 1)[1] for line in done.stdout.splitlines() if line.startswith("installed "))


def manual_packages() -> list[str]:
    """Names that apt does not remove by itself."""
    return sorted(run(("apt-mark", "showmanual")).stdout.split())


def difference(before: list[str], after: list[str]) -> Difference:
    """What has to go and what has to come back."""
    then, now = dict(_split(before)), dict(_split(after))
    added = tuple(sorted(set(now) - set(then)))
    back = tuple(f"{name}=={version}" for name, version in sorted(then.items()) if now.get(name) != version)
    return Difference(added, back)


def _split(lines: list[str]) -> list[tuple[str, str]]:
    return [(name, version) for name, _, version in (line.partition("==") for line in lines)]


def commands_for_distributions(
    gap: Difference, *, interpreter: str, uv: str, sources: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    """Commands that turn an environment back: of uv where it has a name (its environments have no pip), else of pip.

    sources: where the versions of before can be had from.
    """
    commands: list[tuple[str, ...]] = []
    if uv:
        remove: tuple[str, ...] = (uv, "pip", "uninstall", "--python", interpreter)
        # uv takes a project from the first index that has it; pip looks at all of them.
        install: tuple[str, ...] = (
            uv, "pip", "install", "--python", interpreter, "--no-deps", "--reinstall",
            "--index-strategy", "unsafe-best-match",
        )  # fmt: skip
    else:
        pip = (interpreter, "-m", "pip", "--disable-pip-version-check")
        remove = (*pip, "uninstall", "--yes")
        install = (*pip, "install", "--no-deps", "--force-reinstall")
    if gap.added:
        commands.append((*remove, *gap.added))
    if gap.back:
        named = () if is_from_list(sources) else gap.back  # a list names them itself, each with its digest
        commands.append((*install, *sources, *named))
    return tuple(commands)


def commands_for_packages(gap: Difference, *, root: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """apt commands that turn the package set back; `root` comes before each, e.g. sudo."""
    commands: list[tuple[str, ...]] = []
    if gap.added:
        commands.append((*root, "apt-get", "purge", "--yes", *gap.added))
    if gap.back:
        exact = tuple(each.replace("==", "=", 1) for each in gap.back)
        commands.append((*root, "apt-get", "install", "--yes", "--allow-downgrades", "--no-install-recommends", *exact))
    return tuple(commands)
