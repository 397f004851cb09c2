"""Runtime settings: what nothing reads is refused with the nearest that is, what is read is written and explained."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.session import Asked, act
from firstlight.apply.undo import undo
from firstlight.errors import BadInput
from firstlight.tables.row import Confidence
from firstlight.tables.setting_rows import SettingReader
from firstlight.ways.checkouts import checkout_steps, parse_checkout
from firstlight.ways.extras import Extras
from firstlight.ways.step import CheckKind, Step, StepKind
from firstlight.ways.tuning import parse_settings, tuning_steps
from tests.apply.acting import acting
from tests.plan.planning import TABLES, patched
from tests.ways.machines import at

# what the report on a CUDA 13 fork sets for its programs, and who reads it
FIELD_REPORT_004 = {
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1": SettingReader.TORCH,
    "CUDA_MODULE_LOADING=LAZY": SettingReader.CUDA,
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True": SettingReader.TORCH,
    "NCCL_IB_DISABLE=0": SettingReader.NCCL,
    "NCCL_NET_GDR_LEVEL=2": SettingReader.NCCL,
}


def _step(tmp_path: Path, *texts: str) -> Step:
    extras = Extras(parse_settings(texts, TABLES), state=str(tmp_path / "state of mine"))
    [step] = tuning_steps(at("h200", extras=extras))
    return step


@pytest.mark.parametrize(("text", "reader"), FIELD_REPORT_004.items())
def test_the_settings_of_field_report_004_that_something_reads_are_taken(text: str, reader: SettingReader) -> None:
    [setting] = parse_settings((text,), TABLES)
    assert f"{setting.name}={setting.value}" == text
    row = TABLES.runtime_setting(setting.name)
    assert row is not None
    assert row.read_by is reader


def test_the_one_that_nothing_reads_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(BadInput) as caught:
        parse_settings(("CUDNN_ALLOW_TF32_CUBLAS_OVERRIDE=1",), TABLES)
    said = str(caught.value)
    assert "torch and NCCL do not read CUDNN_ALLOW_TF32_CUBLAS_OVERRIDE" in said
    assert "The nearest that is read is TORCH_ALLOW_TF32_CUBLAS_OVERRIDE" in said
    assert "libtorch_cuda.so" in said, "what the refusal rests on"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("USE_MSLK=1", "nothing reads USE_MSLK when a program runs"),
        ("MAX_JOBS=64", "nothing reads MAX_JOBS when a program runs"),
        ("USE_TENSOREXPR=1", "torch and NCCL do not read USE_TENSOREXPR"),
        ("NCCL_IB_GDR_LEVEL=2", "The nearest that is read is NCCL_NET_GDR_LEVEL"),
        ("NCCL_IB_DISABEL=1", "The nearest that is read is NCCL_IB_DISABLE"),
        ("PYTORCH_CUDA_ALLOC_CONFIG=a:b", "The nearest that is read is PYTORCH_CUDA_ALLOC_CONF"),
        ("TORCH_NCCL_AVOID_RECORD_STREAMS=1", "not in 2.15.0"),
        ("COLUMNS=80", "are not known to read 'COLUMNS'"),
        ("torch.backends.cudnn.benchmark=True", "that is a line of Python"),
        ("NCCL_NET_GDR_LEVEL=9", "NCCL_NET_GDR_LEVEL takes LOC, PIX, PXB, PHB or SYS"),
        ("CUDA_MODULE_LOADING=lazy", "CUDA_MODULE_LOADING takes LAZY or EAGER"),
        ("NCCL_DEBUG", "accepted is NCCL_DEBUG=VALUE"),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=", "accepted is TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1"),
        ("=1", "are not known to read ''"),
        ("NCCL_SOCKET_IFNAME=eth0;rm -rf /", "NCCL_SOCKET_IFNAME takes"),
    ],
)
def test_a_refusal_says_why_and_what_to_give_instead(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_settings((text,), TABLES)
    assert said in str(caught.value)
    assert str(caught.value).startswith("--tuning ")
    assert "\n" not in str(caught.value)


def test_all_means_every_setting_with_a_suggested_value_and_a_given_one_wins() -> None:
    found = {each.name: each.value for each in parse_settings(("all", "CUDA_MODULE_LOADING=EAGER"), TABLES)}
    assert set(found) == {row.name for row in TABLES.runtime_settings if row.suggested}
    assert found["CUDA_MODULE_LOADING"] == "EAGER"
    assert not any(name.startswith("NCCL_") for name in found), "NVIDIA advises against leaving those set"


def test_the_step_is_optional_and_its_file_explains_every_setting(tmp_path: Path) -> None:
    step = _step(tmp_path, "all", "NCCL_NET_GDR_LEVEL=PXB")
    assert step.kind is StepKind.TUNING
    assert step.optional
    [change] = step.files
    assert change.path == f"{tmp_path}/state of mine/tuning.sh"
    exports = re.findall(r"(?m)^export (\w+)=", change.after)
    assert exports == [*(row.name for row in TABLES.runtime_settings if row.suggested), "NCCL_NET_GDR_LEVEL"]
    assert "Read by NCCL since NCCL 2.3.4 (documented)" in change.after
    assert "Changes results" in change.after
    assert patched(change, tmp_path) == change.after
    assert step.done_when[0].kind is CheckKind.FILE_HOLDS


def test_a_real_shell_reads_the_file_as_it_is_meant(tmp_path: Path) -> None:
    [change] = _step(tmp_path, "NCCL_SOCKET_IFNAME=^docker,lo", "PYTORCH_ALLOC_CONF=a:1,b:[2]").files
    file = tmp_path / "tuning.sh"
    file.write_text(change.after)
    argv = ["sh", "-c", f". '{file}'; printf '%s|%s' \"$NCCL_SOCKET_IFNAME\" \"$PYTORCH_ALLOC_CONF\""]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "^docker,lo|a:1,b:[2]"
    assert done.stderr == ""


def test_every_row_can_be_asked_for_or_says_why_not() -> None:
    for row in TABLES.runtime_settings:
        assert row.does.endswith("."), row.name
        if row.read_by in (SettingReader.NOBODY, SettingReader.BUILD):
            assert not row.accepts, row.name
            assert not row.suggested, row.name
            continue
        assert row.accepts, row.name
        assert row.accepted, row.name
        for pattern in row.accepts:
            re.compile(pattern)
        if row.suggested:
            assert parse_settings((f"{row.name}={row.suggested}",), TABLES)
        if row.instead:
            meant = TABLES.runtime_setting(row.instead)
            assert meant is not None, row.name
            assert meant.read_by not in (SettingReader.NOBODY, SettingReader.BUILD), row.name


def test_what_is_said_to_be_read_by_nobody_was_looked_for() -> None:
    rows = [row for row in TABLES.runtime_settings if row.read_by is SettingReader.NOBODY]
    assert len(rows) >= 8
    for row in rows:
        assert row.confidence is not Confidence.REPORTED, row.name


def test_a_checkout_is_pinned_to_the_commit_of_its_tag(tmp_path: Path) -> None:
    checkout = parse_checkout("CUTLASS@4.2.1", TABLES)
    assert checkout.commit == "f3fde58372d33e9a5650ba7b80fc48b3b49d40c8"
    extras = Extras(checkouts=(checkout,), state=str(tmp_path))
    [step] = checkout_steps(at("h200", extras=extras))
    assert step.kind is StepKind.GIT
    assert step.commands[1][-1] == checkout.commit
    assert step.done_when[0].kind is CheckKind.GIT_COMMIT
    assert step.done_when[0].expected == checkout.commit
    assert step.undo == (("rm", "-rf", f"{tmp_path}/source/cutlass-v4.2.1"),)


def test_a_real_git_checks_the_commit_out_and_nothing_else(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    git = ("git", "-C", str(origin), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", "init", "--quiet", str(origin)], check=True)
    for text in ("one", "two"):
        (origin / "file").write_text(text)
        subprocess.run([*git, "add", "file"], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", text], check=True)
    log = subprocess.run([*git, "rev-list", "--reverse", "HEAD"], capture_output=True, text=True, check=True)
    first = log.stdout.split()[0]
    checkout = parse_checkout(f"cutlass@{first}", TABLES)
    extras = Extras(checkouts=(checkout,), state=str(tmp_path / "state"))
    [step] = checkout_steps(at("h200", extras=extras))
    commands = tuple(tuple(word.replace(checkout.address, origin.as_uri()) for word in argv) for argv in step.commands)
    step, folder = replace(step, commands=commands), Path(step.done_when[0].target)
    asked = Asked((step,), "d", "o", "t")
    [run] = act(acting(tmp_path), asked)
    assert (folder / "file").read_text() == "one"
    head = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert head.stdout.strip() == first
    assert act(acting(tmp_path), asked) == (), "there is nothing to do the second time"
    undo(acting(tmp_path), run)
    assert not (tmp_path / "state/source").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cutlass", "accepted is PROJECT@TAG"),
        ("cutlass@", "accepted is PROJECT@TAG"),
        ("linux@v6", "linux is not known"),
        ("cutlass@v9.9.9", "git ls-remote https://github.com/NVIDIA/cutlass.git v9.9.9"),
        ("cutlass@../../etc", "accepted is PROJECT@TAG"),
    ],
)
def test_a_tree_that_cannot_be_pinned_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_checkout(text, TABLES)
    assert said in str(caught.value)
