"""Commands as the docs print them: each is read by the command line's own parser, and what changes nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from firstlight.cli.main import cli, run

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "examples" / "README.md",
    *(path for folder in ("docs", "docs/kernels", "docs/rules") for path in sorted((ROOT / folder).glob("*.md"))),
]
SHOWN = re.compile(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(firstlight(?: .*)?)$")
REMARK = re.compile(r"\s{2,}\S.*$|\s+#.*$|\s\.\.\.$")
# what these do is acting, needs another machine or a network, or takes minutes: they are parsed, not run
NOT_RUN = {"apply", "build", "bundle", "run", "verify", "fleet", "ship", "mcp", "handover", "lock", "check"}
# of verbs that are not run, or not with all words: what only reads, or writes into a folder of its own
STILL_RUN = ("undo --list", "profile --list", "profile --show-tiers", "build --list")
# names in the docs of files that a reader has
FACTS = ("machine.json", "thor.json")
TEXTS = {
    "build.log": "libcudss.so.0: cannot open shared object file: No such file or directory\n",
    "train.log": "RuntimeError: The NVIDIA driver on your system is too old (found version 12040).\n",
    "Dockerfile": "ARG CUDA=13.0.2\nFROM nvidia/cuda:${CUDA}-devel-ubuntu24.04 AS train\nRUN pip install torch\n",
    "compose.yaml": "services:\n  train:\n    image: nvidia/cuda:13.0.2-base-ubuntu24.04\n",
    "requirements.txt": "torch==2.9.0\n",
    "k8s/job.yaml": "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - {name: a, image: python:3.12}\n",
    "train.sbatch": "#!/bin/sh\n#SBATCH --gpus=1\npython train.py\n",
}


def documented() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each command of a code block with the page it stands on; a remark behind two spaces or # is left out."""
    for page in PAGES:
        in_fence = False
        for line in page.read_text().splitlines():
            if line.startswith("```"):
                in_fence = not in_fence
            elif (in_fence or line.startswith("    ")) and (found := SHOWN.match(line.strip())):
                for part in REMARK.sub("", found[1]).split(" && "):
                    for words in alternatives(part.split(" > ")[0]):
                        yield page.name, words


def alternatives(shown: str) -> Iterator[tuple[str, ...]]:
    """`libs --all | --json` is two command lines."""
    first, *others = shown.split(" | ")
    words = shlex.split(first)[1:]
    yield tuple(words)
    for other in others:
        yield (*words[: words.index(next(word for word in words if word.startswith("-")))], *shlex.split(other))


COMMANDS = sorted(set(documented()))
VERBS = sorted({words[0] for _, words in COMMANDS if words})


def parsed(words: tuple[str, ...]) -> None:
    """Read by the parser alone: a wrong option, verb or value of a choice is a UsageError."""
    command: click.Command = cli
    context = click.Context(cli, info_name="firstlight")
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        if (inner := command.get_command(context, rest[0])) is None:
            if command is cli:
                raise click.UsageError(f"{rest[0]!r} is not a verb")
            break
        command, rest = inner, rest[1:]
    try:
        command.make_context(words[0] if words else "", rest, parent=context)
    except click.exceptions.Exit:  # --version, --help
        return
    except click.BadParameter as refusal:
        if "does not exist" not in refusal.format_message():  # a file that the reader has
            raise


@pytest.mark.parametrize("words", [words for _, words in COMMANDS], ids=lambda words: " ".join(words)[:60])
def test_a_documented_command_is_one_that_the_parser_accepts(words: tuple[str, ...]) -> None:
    parsed(words)


def test_most_verbs_are_documented_and_a_wrong_option_is_seen() -> None:
    assert len(COMMANDS) > 120
    assert set(VERBS) >= {"doctor", "plan", "apply", "verify", "lint", "emit", "bench", "fleet", "build"}
    with pytest.raises(click.UsageError):
        parsed(("doctor", "--wnat", "torch"))
    with pytest.raises(click.UsageError):
        parsed(("docter",))


def can_be_run(words: tuple[str, ...]) -> bool:
    """Whether it changes nothing but a folder of its own, asks no other machine and is quick."""
    if " ".join(words) in STILL_RUN:
        return True
    if words[:1] == ("bench",):
        return words[1:2] in (("check-claim",), ("compare",), ("export",)) and "/var" not in " ".join(words)
    if words[:1] == ("emit",):
        return not {"--build", "--remove"} & set(words) and "DIGEST" not in " ".join(words)
    if words[:1] == ("guard",):
        return "test" not in words
    changing = {"--fix", "--host", "--gate"}
    own_files = words[:1] == ("libs",) and len(words) > 1 and "--facts" not in words
    return bool(words) and words[0] not in (*NOT_RUN, "undo", "profile") and not changing & set(words) and not own_files


RUN = [words for page, words in COMMANDS if can_be_run(words) and not (ROOT / "docs" / "rules" / page).exists()]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the docs speak of."""
    folder = tmp_path_factory.mktemp("reader")
    for name in FACTS:
        (folder / name).write_text((ROOT / "src/firstlight/examples/h100-driver-570.json").read_text())
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "recorded").mkdir()
    (folder / "my-machine").symlink_to(ROOT / "tests" / "machines" / "h100-driver-570")
    (folder / "tests").symlink_to(ROOT / "tests")  # the commands of examples/README.md are typed in the tree
    for name in ("before.json", "after.json", "run.json"):
        (folder / name).symlink_to(ROOT / "results" / "bench-h200-standard.json")
    return folder


@pytest.mark.parametrize("words", RUN, ids=lambda words: " ".join(words)[:60])
def test_a_documented_command_that_changes_nothing_runs(
    words: tuple[str, ...], reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(reader)
    monkeypatch.setenv("FIRSTLIGHT_STATE_DIR", str(reader / "state"))
    folder = str(reader / "recorded" / words[-1].lower()) if "--record" in words else "my-machine"
    given = [folder if word in ("DIR", "PATH", "my-machine") else word for word in words]
    given = [str(reader / "page.html") if word == "FILE" else word for word in given]
    if words[0] == "emit" and "--out" in words:
        given[given.index("--out") + 1] = str(reader / "emitted" / str(RUN.index(words)))
    if words[0] in ("doctor", "plan") and "--facts" not in words:
        given += ["--facts", "machine.json"]  # the machine of the tests may be any
    code = run(given)
    said = capsys.readouterr()
    good = (0, 2) if words[0] == "guard" else (0, 1)  # 2: denied
    assert code in good, f"{given}: {code}: {said.err}"
    assert "Traceback" not in said.err
    assert said.out or said.err or words[0] == "guard"  # an action that is allowed goes on without a word
