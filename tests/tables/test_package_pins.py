"""package_pins.json and wheel_sizes.json: what they say, whether other tables agree, and the tool that writes them."""

from __future__ import annotations

import http.server
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firstlight.tables import load
from tests.http_server import served
from tools.refresh_pins import DATA, SINCE, Index, _notes, differences, main, pin_rows, required, written
from tools.refresh_tables import pip_index_url

TABLES = load()
_TAG = re.compile(r"cp3\d+(t|-abi3)?|py3\d*")


def test_no_release_is_in_two_tables_and_companions_are_those_of_both() -> None:
    own = {(row.project, row.version) for row in TABLES.rows("companions")}  # type: ignore[attr-defined]
    pinned = {(row.project, row.version) for row in TABLES.package_pins}
    assert not own & pinned
    names = {project for project, _ in own}
    all_of_them = {(row.project, row.version) for row in TABLES.companions}
    assert all_of_them == own | {each for each in pinned if each[0] in names}
    assert {"triton", "flash-attn"} & names == set()
    newer = TABLES.companion("vllm", "0.25.0")
    assert newer is not None
    assert {pin.project for pin in newer.pins("x86_64")} >= {"torch", "torchcodec", "flashinfer-python"}
    assert newer.pin("torch") in newer.pins("aarch64")


def test_what_somebody_wrote_beside_a_release_is_there_when_the_file_is_written_anew(tmp_path: Path) -> None:
    assert _notes(DATA / "package_pins.json")["torchaudio", "2.11.0"]["note"]
    assert _notes(tmp_path / "none.json") == {}


def test_torch_sizes_are_those_of_the_table_of_torch_releases() -> None:
    for release in TABLES.torch_releases:
        size = TABLES.wheel_size("torch", release.torch.public, machine=release.machine)
        if size is not None:
            assert abs(size.bytes / 1e6 - release.wheel_mb) < 0.2, release
            exact = {str(pin) for pin in release.pins if pin.version and not pin.extras}
            assert exact <= {str(pin) for pin in size.pulls}, release.torch


def test_every_torch_from_2_4_on_has_a_size_for_both_processors() -> None:
    for release in TABLES.torch_releases:
        known = TABLES.wheel_size("torch", release.torch.public, machine=release.machine) is not None
        assert known is (release.torch.release >= (2, 4, 0)), release.torch


def test_every_release_says_which_pythons_its_wheels_take_and_which_cuda_they_name() -> None:
    for row in TABLES.package_pins:
        assert row.sdist or row.x86_64 or row.aarch64, row
        assert all(_TAG.fullmatch(tag) for machine in ("x86_64", "aarch64") for tag in row.pythons(machine)), row
        assert {row.cuda_major_x86_64, row.cuda_major_aarch64} <= {None, 12, 13}, row
        assert row.cuda_major("x86_64") is None or row.x86_64, row
        assert row.pythons("riscv64") == ()


def test_the_traps_that_the_wheels_show() -> None:
    xformers = TABLES.package_release("xformers", "0.0.35")
    assert xformers is not None
    assert xformers.cuda_major("x86_64") == 12, "it admits torch 2.11 and later, whose PyPI wheels have CUDA 13"
    vllm = {row.version: row.cuda_major("x86_64") for row in TABLES.package_releases("vllm")}
    assert (vllm["0.19.1"], vllm["0.20.0"]) == (12, 13)
    assert not any(row.x86_64 for row in TABLES.package_releases("flash-attn")), "PyPI has its source alone"


def test_a_release_that_is_not_known_has_no_row() -> None:
    assert TABLES.package_release("vllm", "0.0.0") is None
    assert TABLES.package_releases("numpy") == ()
    assert TABLES.wheel_size("torch", "2.9.0", machine="riscv64") is None


def _wheel(metadata: str, library: bytes = b"") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("some/_C.so", b"\x7fELF" + bytes(500) + library)
        archive.writestr("some-1.dist-info/METADATA", metadata)
    return packed.getvalue()


def _sdist(metadata: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("flash_attn-2.8.3/PKG-INFO")
        member.size = len(metadata)
        archive.addfile(member, io.BytesIO(metadata.encode()))
    return packed.getvalue()


@contextmanager
def _serving(files: dict[str, bytes]) -> Iterator[str]:
    """PyPI's simple pages, JSON pages and files of these wheels, with ranges."""

    def body(path: str) -> bytes | None:
        parts = path.strip("/").split("/")
        names = [name for name in files if name.split("-")[0].replace("_", "-") == parts[1]]
        if parts[0] == "simple" and names:
            return "".join(f'<a href="../../files/{name}#sha256=0">{name}</a>' for name in names).encode()
        if parts[0] == "pypi" and names:
            releases: dict[str, list[dict[str, object]]] = {}
            for name in names:
                version = re.split(r"-|\.tar", name)[1]
                entry = {"filename": name, "size": len(files[name]), "requires_python": ">=3.10", "yanked": False}
                releases.setdefault(version, []).append({**entry, "upload_time": "2026-01-02T03:04:05"})
            return json.dumps({"releases": releases}).encode()
        return files.get(parts[-1]) if parts[0] == "files" else None

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = body(self.path)
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            self.send_response(404 if found is None else 206 if asked else 200)
            part = found or b""
            if asked and found is not None:
                part = found[int(asked[1]) : int(asked[2]) + 1]
                self.send_header("Content-Range", f"bytes {asked[1]}-{asked[2]}/{len(found)}")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            self.wfile.write(part)

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    with served(Handler) as port:
        yield f"http://127.0.0.1:{port}/simple"


VLLM = (
    "Metadata-Version: 2.1\r\nName: vllm\r\nRequires-Dist: torch==2.8.0\r\nRequires-Dist: regex\r\n"
    'Requires-Dist: xformers==0.0.32.post1; platform_machine == "x86_64"\r\n'
    'Requires-Dist: zentorch==1; extra == "zen"\r\n'
)


def test_a_row_is_read_from_metadata_file_names_and_libraries() -> None:
    files = {
        "vllm-0.11.0-cp38-abi3-manylinux1_x86_64.whl": _wheel(VLLM, b"\0libcudart.so.12\0"),
        "vllm-0.11.0-cp38-abi3-manylinux2014_aarch64.whl": _wheel(VLLM, b"\0libcudart-1234abcd.so.13\0"),
        "vllm-0.11.0-cp38-abi3-win_amd64.whl": _wheel(VLLM),
        "vllm-0.12.0rc1-cp38-abi3-manylinux1_x86_64.whl": _wheel(VLLM),
        "vllm-0.5.0-cp38-abi3-manylinux1_x86_64.whl": _wheel(VLLM),
    }
    with _serving(files) as url:
        [row] = pin_rows(Index(url), "vllm", today="2026-11-15")
    assert row["version"] == "0.11.0", "neither the release candidate nor what is older than torch 2.4"
    assert (row["x86_64"], row["aarch64"]) == (["cp38-abi3"], ["cp38-abi3"])
    assert (row["cuda_major_x86_64"], row["cuda_major_aarch64"]) == (12, 13)
    assert row["requires"] == ["torch==2.8.0"]
    assert (row["requires_x86_64"], row["requires_aarch64"]) == (["xformers==0.0.32.post1"], [])
    assert (row["sdist"], row["released"]) == (False, "2026-01-02")


def test_a_project_of_source_archives_is_read_from_their_pkg_info() -> None:
    with _serving({"flash_attn-2.8.3.tar.gz": _sdist("Name: flash_attn\nRequires-Dist: torch\n")}) as url:
        [row] = pin_rows(Index(url), "flash-attn", today="2026-11-15")
    assert (row["x86_64"], row["aarch64"], row["sdist"], row["requires"]) == ([], [], True, ["torch"])


def test_check_names_new_changed_and_lost_releases() -> None:
    files = {
        "vllm-0.11.0-cp38-abi3-manylinux1_x86_64.whl": _wheel(VLLM.replace("2.8.0", "2.8.1"), b"\0libcudart.so.12\0"),
        "vllm-99.0-cp38-abi3-manylinux1_x86_64.whl": _wheel(VLLM),
    }
    with _serving(files) as url:
        found = list(differences(Index(url), ["vllm"]))
    assert any(text.startswith("vllm 99.0: new release, requires") for text in found)
    assert any(text.startswith("vllm 0.11.0: ") and "'torch==2.8.1'" in text for text in found)
    assert "vllm 0.12.0: no longer on the index" in found


def test_an_index_out_of_reach_is_exit_4_and_an_unknown_project_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "vllm", "--index-url", "http://127.0.0.1:9/simple"]) == 4
    assert "out of reach" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["--check", "numpy"])
    assert ended.value.code == 2


@pytest.mark.parametrize("name", ["package_pins", "wheel_sizes"])
def test_the_files_are_as_the_tool_writes_them(name: str) -> None:
    text = (DATA / f"{name}.json").read_text()
    document = json.loads(text)
    assert written(name, document["about"], document["rows"]) == text
    assert "tools/refresh_pins.py" in document["about"]


def test_requirements_of_extras_count_only_where_the_extra_is_asked_for() -> None:
    assert "zentorch" not in required(VLLM, "x86_64")
    assert "zentorch" in required(VLLM, "x86_64", extras=frozenset({"zen"}))


@pytest.mark.network
@pytest.mark.parametrize("project", list(SINCE))
def test_a_sample_of_rows_is_what_the_index_says_now(project: str) -> None:
    """The oldest, a middle and the newest release of each project, read anew from the index that pip uses."""
    index = Index(pip_index_url())
    rows = TABLES.package_releases(project)
    sample = {rows[0].version, rows[len(rows) // 2].version, rows[-1].version}
    again = {str(row["version"]): row for row in pin_rows(index, project, today="", only=sample)}
    assert set(again) == sample
    for row in rows:
        if row.version in sample:
            told = again[row.version]
            assert [str(pin) for pin in row.requires] == told["requires"]
            assert (list(row.x86_64), list(row.aarch64)) == (told["x86_64"], told["aarch64"])
            assert row.cuda_major_x86_64 == told["cuda_major_x86_64"]
