"""tools/add_torch_release.py: a wheel in the shape of torch's on a small index, and the rows that come of it."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from firstlight.tables import load
from firstlight.versions import CudaVersion, TorchVersion
from tests.tables.test_refresh_tables import Index, serving
from tools.add_torch_release import _KEYS, main
from tools.refresh_pins import DATA

ARCHES = {"x86_64": "sm_75 sm_80 sm_90 sm_100 sm_120", "aarch64": "sm_80 sm_90 sm_110"}
METADATA = """Metadata-Version: 2.1\r
Name: torch\r
Version: 2.16.0\r
Requires-Dist: filelock\r
Requires-Dist: nvidia-cudnn-cu13==9.30.0.1; platform_system == "Linux"\r
Requires-Dist: triton~=4.0.0; platform_system == "Linux"\r
"""


def _zip(members: dict[str, str | bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def _torch(machine: str, listed: str) -> bytes:
    return _zip(
        {
            "torch/version.py": "__version__ = '2.16.0+cu134'\ncuda: Optional[str] = '13.4'\n",
            "torch/lib/libtorch_python.so": b"\x7fELF sm_ \0sm_\0" + bytes(5000) + listed.encode() + bytes(100),
            "torch/cuda/__init__.py": "import os\nPYTORCH_RELEASES_CODE_CC: dict[str, dict[str, set[int]]] = "
            "{'13.0': {'x86_64': {75, 120}, 'aarch64': {80, 110}}, '13.4': {'x86_64': {80, 75}, 'aarch64': {90}}}\n",
            "torch/_dynamo/eval_frame.py": "def check_if_dynamo_supported() -> None:\n"
            "    if sys.version_info >= (3, 17):\n        raise RuntimeError()\n",
            "torch-2.16.0.dist-info/METADATA": METADATA,
        }
    )


def _index(listed: str = "\0{}\0") -> Index:
    wheels = {
        f"torch-2.16.0-cp{python}-manylinux_2_28_{machine}.whl": _torch(machine, listed.format(ARCHES[machine]))
        for machine in ARCHES
        for python in ("312-cp312", "313-cp313", "313-cp313t")
    }
    said = b"ptxas\0Cuda compilation tools, release 13.4, V13.4.%d\0"
    triton = _zip(
        {f"triton/backends/nvidia/bin/{name}": said % n for n, name in enumerate(("ptxas", "ptxas-blackwell"))}
    )
    return Index(files={**wheels, "triton-4.0.1-cp312-cp312-manylinux_2_28_x86_64.whl": triton})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "data"))


def test_one_command_reads_the_wheels_and_writes_every_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(_index()) as url:
        words = ["2.16.0", "--index-url", f"{url}", "--released", "2026-12-02", "--folder", str(folder)]
        assert main(words) == 0
        assert "torch_releases: 2 new" in capsys.readouterr().out
        once = {name: (folder / f"{name}.json").read_bytes() for name in _KEYS}
        assert main(words) == 0
        assert once == {name: (folder / f"{name}.json").read_bytes() for name in _KEYS}
    tables, torch = load(str(folder)), TorchVersion.parse("2.16.0")
    release = tables.torch_release(torch)
    assert release is not None
    assert (str(release.wheel_cuda), release.cpython) == ("13.4", ("3.12", "3.13", "3.13t"))
    assert [str(each) for each in release.compiled_for] == ["7.5", "8.0", "9.0", "10.0", "12.0"]
    assert [str(each) for each in release.pins] == ["nvidia-cudnn-cu13==9.30.0.1", "triton~=4.0.0"]
    assert (str(release.released), release.platform_tag) == ("2026-12-02", "manylinux_2_28")
    assert [str(each.wheel_cuda) for each in tables.torch_variants(torch)] == ["13.0", "13.4"]
    targets = tables.variant_targets(torch, CudaVersion(13, 4), machine="x86_64")
    assert targets is not None
    assert [str(each) for each in targets.compiled_for] == ["7.5", "8.0"]
    assert [(row.program, str(row.ptxas), row.torch) for row in tables.triton_programs("4.0")] == [
        ("ptxas", "13.4.0", ("2.16",)),
        ("ptxas-blackwell", "13.4.1", ("2.16",)),
    ]
    assert [row.below for row in tables.compile_pythons if row.torch == "2.16"] == ["3.17"]


def test_the_rows_of_before_keep_their_bytes(folder: Path) -> None:
    with serving(_index()) as url:
        main(["2.16.0", "--index-url", f"{url}", "--released", "2026-12-02", "--folder", str(folder)])
    for name in _KEYS:
        before = json.loads((DATA / f"{name}.json").read_text())["rows"]
        assert json.loads((folder / f"{name}.json").read_text())["rows"][: len(before)] == before


@pytest.mark.parametrize(
    ("version", "more", "listed", "said"),
    [
        ("2.17.0", ("--released", "2026-12-02"), "\0{}\0", "no Linux wheel for x86_64"),
        ("2.16.0", (), "\0{}\0", "does not tell when it was released; give --released DAY"),
        ("2.16.0", ("--released", "2026-12-02"), "", "has no list of architectures"),
    ],
)
def test_what_the_index_has_not_is_said_and_nothing_is_written(
    version: str, more: tuple[str, ...], listed: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(_index(listed)) as url:
        assert main([version, "--index-url", f"{url}", "--folder", str(folder), *more]) == 4
    assert said in capsys.readouterr().err
    for name in _KEYS:
        assert (folder / f"{name}.json").read_bytes() == (DATA / f"{name}.json").read_bytes()


def test_a_version_that_is_none_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["newest", "--folder", str(folder)])
    assert "accepted: a release such as 2.16.0" in capsys.readouterr().err
