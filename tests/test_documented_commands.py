"""Commands as the docs print them: each is read by the parser, and run here or by the test that is named for it."""

from __future__ import annotations

import re
import shlex
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from firstlight.cli.main import cli, run

ROOT = Path(__file__).parents[1]
RULES = ROOT / "docs" / "rules"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *(path for folder in ("docs", "docs/kernels", "docs/rules") for path in sorted((ROOT / folder).glob("*.md"))),
]
SHOWN = re.compile(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(firstlight(?: .*)?)$")
IN_A_SENTENCE = re.compile(r"`(?:\$ )?(firstlight(?: [^`]+)?)`")
REMARK = re.compile(r"\s{2,}\S.*$|\s+#.*$|\s\.\.\.$")
FORM = re.compile(r"\[|\.\.\.|\||KIND|CODE|CLASS|--option N")  # `rules [CODE]`: what a command looks like, none yet
# Of verbs in the table below: what only looks, or writes into a folder of its own, is run here all the same.
RUN_ALL_THE_SAME = (
    "apply --dry-run", "bench --list", "bench check-claim", "bench compare", "bench export", "bench report results/",
    "build --list", "fleet doctor --facts", "mcp --json", "profile --list", "profile --show-tiers", "undo --list",
    "verify --list",
)  # fmt: skip
# What these do is acting, asks a network or another machine, or takes minutes. The test on the right carries such a
# command out; here it is parsed. The longest beginning that fits decides.
CARRIED_OUT_BY = {
    "apply": "apply/test_apply_cli.py",
    "apply --offline": "apply/test_bundle.py",
    "undo": "apply/test_undo_cli.py",
    "bench": "bench/test_cli.py",
    "bench --only collective": "bench/test_collective.py",
    "bench examples/user_kernels/cheats.py": "bench/test_user_cases.py",
    "build": "build/test_build_command.py",
    "bundle": "cli/test_bundle_command.py",
    "run": "cli/test_run_command.py",
    "run --explain": "cli/test_run_explain.py",
    "verify": "verify/test_verify_command.py",
    "lock": "lock/test_lock_file.py",
    "lock --hold": "lock/test_hold.py",
    "check": "lock/test_live_drifts.py",
    "handover": "report/test_handover.py",
    "profile": "profile/test_profile_command.py",
    "fleet": "system/test_fleet_doctor.py",
    "fleet plan": "system/test_fleet_apply.py",
    "fleet apply": "system/test_fleet_apply.py",
    "fleet status": "system/test_fleet_apply.py",
    "fleet undo": "system/test_fleet_apply.py",
    "fleet verify": "system/test_fleet_bench.py",
    "fleet bench": "system/test_fleet_bench.py",
    "fleet add": "fleet/test_adding.py",
    "ship": "system/test_ship.py",
    "guard test": "guard/test_emit_agents.py",
    "mcp": "guard/test_mcp.py",
    "libs --fix": "cli/test_libs_for_real.py",
    "doctor --host": "system/test_fleet_doctor.py",
    "facts --host": "system/test_fleet_doctor.py",
    "plan --host": "system/test_fleet_doctor.py",
    "doctor --gate": "fleet/test_node_gate.py",
    "kernels autotune": "kernels/test_kernels_command.py",
    "report --from": "report/test_html_report.py",
    "emit agents --remove": "guard/test_emit_agents.py",
    "emit bash --build": "emit/test_build_files.py",
    "emit dockerfile --build": "emit/test_build_files.py",
}

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
    """Each command with the page it stands on, of a code block or within a sentence; a remark behind it is left out."""
    for page in PAGES:
        in_fence = False
        for line in page.read_text().splitlines():
            if line.startswith("```"):
                in_fence = not in_fence
            elif (in_fence or line.startswith("    ")) and (found := SHOWN.match(line.strip())):
                for part in REMARK.sub("", found[1]).split(" && "):
                    for words in alternatives(part.split(" > ")[0]):
                        yield page.relative_to(ROOT).as_posix(), words
            elif not in_fence:
                for shown in IN_A_SENTENCE.findall(line):
                    if not FORM.search(shown):
                        yield page.relative_to(ROOT).as_posix(), tuple(shlex.split(shown)[1:])


def alternatives(shown: str) -> Iterator[tuple[str, ...]]:
    """`libs --all | --json` is two command lines."""
    first, *others = shown.split(" | ")
    words = shlex.split(first)[1:]
    yield tuple(words)
    for other in others:
        yield (*words[: words.index(next(word for word in words if word.startswith("-")))], *shlex.split(other))


COMMANDS = sorted(set(documented()))
WITHIN_A_PAGE = ("doctor", "--facts", "tests/machines/h100-driver-570")
ALL = sorted({words for _, words in COMMANDS})


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


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_a_documented_command_is_one_that_the_parser_accepts(words: tuple[str, ...]) -> None:
    if is_the_name_of_a_verb(words):
        assert cli.get_command(click.Context(cli), words[0]) is not None
    else:
        parsed(words)


def test_most_verbs_are_documented_and_a_wrong_option_is_seen() -> None:
    assert len(ALL) > 250
    assert is_the_name_of_a_verb(("lint",))
    assert {words[0] for words in ALL if words} >= {"doctor", "plan", "apply", "verify", "lint", "emit", "bench"}
    assert ("docs/rules/driver-too-old-for-wheel.md", WITHIN_A_PAGE) in COMMANDS
    with pytest.raises(click.UsageError):
        parsed(("doctor", "--wnat", "torch"))
    with pytest.raises(click.UsageError):
        parsed(("docter",))


def carried_out_by(words: tuple[str, ...]) -> str:
    """The file of tests that carries such a command out; "" where it is run here."""
    if any(begins(words, each) for each in RUN_ALL_THE_SAME):
        return ""
    fitting = [each for each in CARRIED_OUT_BY if begins(words, each)]
    return CARRIED_OUT_BY[max(fitting, key=len)] if fitting else ""


def begins(words: tuple[str, ...], with_words: str) -> bool:
    """Whether a command line begins so; an option that the docs have further back counts as well."""
    verb, _, options = with_words.partition(" -")
    return " ".join(words).startswith(verb) and set(f"-{options}".split() if options else ()) <= set(words)


def is_the_name_of_a_verb(words: tuple[str, ...]) -> bool:
    """`firstlight explain` in a sentence; what it needs is not said there."""
    complete = ((), ("--help",), ("doctor",), ("facts",), ("kernels",), ("plan",), ("rules",), ("tables",))
    named = (
        ("lint", "FILE"),
        ("bench", "compare"),
        ("emit", "kit"),
        ("explain", "--json"),
        ("bench", "check-claim", "--json"),
    )
    return words in named or (len(words) < 2 and words not in complete)


RUN = [words for words in ALL if not carried_out_by(words) and not is_the_name_of_a_verb(words)]


def test_each_command_is_run_here_or_carried_out_by_a_test_that_has_its_words() -> None:
    assert len(RUN) > 180
    used = {each for words in ALL for each in CARRIED_OUT_BY if carried_out_by(words) == CARRIED_OUT_BY[each]}
    assert set(CARRIED_OUT_BY) - used == set()
    for words, path in CARRIED_OUT_BY.items():
        text = (ROOT / "tests" / path).read_text()
        assert [word for word in words.split() if word.partition("/")[0] not in text] == [], path


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the docs speak of."""
    import triton

    folder = tmp_path_factory.mktemp("reader")
    for name in FACTS:
        (folder / name).write_text((ROOT / "src/firstlight/examples/h100-driver-570.json").read_text())
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "recorded").mkdir()
    (folder / "my-machine").symlink_to(ROOT / "tests" / "machines" / "h100-driver-570")
    for name in ("tests", "results", "examples"):  # what is typed in the tree
        (folder / name).symlink_to(ROOT / name)
    for name in ("before.json", "after.json", "run.json"):
        (folder / name).symlink_to(ROOT / "results" / "bench-h200-standard.json")
    (folder / "recordings").mkdir()
    for name in ("h100-driver-570", "h200-healthy"):
        shutil.copytree(ROOT / "tests" / "machines" / name, folder / "recordings" / name)  # links are not followed
    [library] = Path(triton.__file__).parent.glob("_C/libtriton*.so")
    (folder / "build").mkdir()
    (folder / "build" / "my_extension.so").symlink_to(library)
    (folder / "site-packages").mkdir()
    (folder / "site-packages" / "xformers").symlink_to(library.parent)
    with zipfile.ZipFile(folder / "torch-2.9.0-cp312-cp312-manylinux_2_28_aarch64.whl", "w") as wheel:
        wheel.write(library, "torch/lib/libtorch_python.so")
    return folder


# words of the docs that stand for something of the reader's
READERS = {
    "DIR": "my-machine",
    "PATH": "my-machine",
    "FILE": "page.html",
    "nvidia-cudnn-cu13": "triton",
    "/var/lib/prometheus/node-exporter/firstlight.prom": "firstlight.prom",
}


@pytest.mark.parametrize("words", RUN, ids=" ".join)
def test_a_documented_command_that_changes_nothing_runs(
    words: tuple[str, ...], reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(reader)
    monkeypatch.setenv("FIRSTLIGHT_STATE_DIR", str(reader / "state"))
    given = [READERS.get(word, word).replace("DIGEST", "ab" * 32) for word in words]
    if "--record" in words:
        given[given.index("--record") + 1] = str(reader / "recorded" / words[-1].lower())
    if words[:1] == ("emit",) and "--out" in words:
        given[given.index("--out") + 1] = str(reader / "emitted" / str(RUN.index(words)))
    if words[:2] == ("bench", "report"):
        given += ["--out", "report.html"]
    if words[:1] in ((), ("doctor",), ("plan",)) and "--facts" not in words:
        given = [*(given or ["doctor"]), "--facts", "machine.json"]  # the machine of the tests may be any
    code = run(given)
    said = capsys.readouterr()
    good = (0, 2) if words[:1] == ("guard",) else (0, 1)  # 2: denied
    assert code in good, f"{given}: {code}: {said.err}"
    assert "Traceback" not in said.err
    assert said.out or said.err or words[0] == "guard"  # an action that is allowed goes on without a word
    pages = [Path(page).stem for page, each in COMMANDS if each == words and (RULES / Path(page).name).exists()]
    assert [code for code in pages if code not in ("README", "doctor") and f"[{code}]" not in said.out] == []
