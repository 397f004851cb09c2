"""tools/refresh_tables.py against a small index on the loopback, over real HTTP."""

from __future__ import annotations

import http.server
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from firstlight.tables import load
from firstlight.tables.torch_rows import TorchRelease
from tests.http_server import served

TOOL = Path(__file__).parents[2] / "tools" / "refresh_tables.py"
TABLES = load()


def wheel(metadata: str) -> bytes:
    """A wheel with a METADATA behind some weight, so that a range is less than the whole."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("some/library.so", bytes(300_000))
        archive.writestr("some-1.dist-info/METADATA", metadata)
    return packed.getvalue()


def metadata_of(release: TorchRelease, *changes: tuple[str, str]) -> str:
    """METADATA that says what the tables say, as torch's own does: CRLF and a marker on every line."""
    marker = f'; platform_system == "Linux" and platform_machine == "{release.machine}"'
    pins = [f"Requires-Dist: {pin}{marker}" for pin in release.pins]
    text = "\r\n".join(["Metadata-Version: 2.1", "Name: torch", *pins, "Requires-Dist: filelock", ""])
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@dataclass
class Index:
    """What the server offers: files by name, pages by project, and how it behaves."""

    files: dict[str, bytes] = field(default_factory=dict)
    metadata: dict[str, bytes] = field(default_factory=dict)
    as_json: bool = False
    serves_ranges: bool = True
    busy_answers: int = 0
    yanked: frozenset[str] = frozenset()
    asked: list[tuple[str, str]] = field(default_factory=list)

    def page(self, project: str) -> bytes:
        names = [name for name in self.files if name.split("-")[0].replace("_", "-") == project]
        if self.as_json:
            entries = [{"filename": n, "url": f"../../packages/{n}", "yanked": n in self.yanked} for n in names]
            return json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": entries}).encode()
        lines = []
        for name in names:
            attributes = ' data-yanked=""' if name in self.yanked else ""
            attributes += ' data-core-metadata="true"' if name in self.metadata else ""
            lines.append(f'<a href="../../packages/{name}#sha256=00"{attributes}>{name}</a><br/>')
        return f"<!DOCTYPE html><html><body>{''.join(lines)}</body></html>".encode()


@contextmanager
def serving(index: Index) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append((self.path, self.headers.get("Range", "")))
            if index.busy_answers:
                index.busy_answers -= 1
                return self.answer(429, b"", {"Retry-After": "0"})
            parts = self.path.strip("/").split("/")
            if parts[0] == "simple" and any(name.split("-")[0].replace("_", "-") == parts[1] for name in index.files):
                return self.answer(200, index.page(parts[1]), {})
            if parts[0] == "packages" and parts[1].removesuffix(".metadata") in index.metadata:
                return self.answer(200, index.metadata[parts[1].removesuffix(".metadata")], {})
            if parts[0] == "packages" and parts[1] in index.files:
                return self.send_file(index.files[parts[1]])
            return self.answer(404, b"", {})

        def send_file(self, content: bytes) -> None:
            asked = self.headers.get("Range", "")
            if not asked or not index.serves_ranges:
                return self.answer(200, content, {})
            first, last = (int(number) for number in asked.removeprefix("bytes=").split("-"))
            part = content[first : last + 1]
            return self.answer(206, part, {"Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(content)}"})

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silence: the requests are in Index.asked."""

    with served(Handler) as port:
        yield f"http://127.0.0.1:{port}/simple"


def refresh(index: Index, *projects: str) -> subprocess.CompletedProcess[str]:
    with serving(index) as url:
        return run_tool("--index-url", url, *projects)


def run_tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def newest_torch_files(*changes: tuple[str, str]) -> dict[str, bytes]:
    """The newest torch of the tables for both machines; changes go into the x86_64 METADATA."""
    files = {}
    for machine in ("x86_64", "aarch64"):
        release = TABLES.newest_torch(machine)
        assert release is not None
        name = f"torch-{release.torch}-cp312-cp312-manylinux_2_28_{machine}.whl"
        files[name] = wheel(metadata_of(release, *(changes if machine == "x86_64" else ())))
    return files


@pytest.mark.parametrize("as_json", [False, True], ids=["html", "json"])
def test_an_index_that_says_what_the_tables_say_shows_no_difference(*, as_json: bool) -> None:
    index = Index(files=newest_torch_files(), as_json=as_json)
    done = refresh(index, "torch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "newest 2.15.0" in done.stdout
    assert done.stdout.endswith("\n0 differences\n")


def test_metadata_is_read_by_range_and_the_wheel_is_not_downloaded() -> None:
    index = Index(files=newest_torch_files())
    assert refresh(index, "torch").returncode == 0
    ranges = [asked for path, asked in index.asked if path.startswith("/packages/")]
    assert ranges
    assert all(asked.startswith("bytes=") for asked in ranges)
    read = sum(int(asked.split("-")[1]) - int(asked.removeprefix("bytes=").split("-")[0]) + 1 for asked in ranges)
    assert read < sum(len(content) for content in index.files.values()) / 2


def test_a_metadata_file_of_the_index_is_preferred_and_its_absence_survived() -> None:
    index = Index(files=newest_torch_files())
    index.metadata = dict.fromkeys(index.files, b"Metadata-Version: 2.1\nName: torch\n")
    done = refresh(index, "torch")
    assert done.returncode == 1
    assert "torch: 2.15.0 x86_64: no longer requires triton~=3.9.0" in done.stdout
    assert not [path for path, _ in index.asked if path.endswith(".whl")]


def test_a_new_release_is_told_with_what_it_requires() -> None:
    index = Index(files=newest_torch_files())
    index.files["torch-2.16.0-cp312-cp312-manylinux_2_28_x86_64.whl"] = wheel(
        "Metadata-Version: 2.1\nName: torch\nRequires-Dist: triton~=4.0.0\nRequires-Dist: filelock\n"
        'Requires-Dist: cuda-toolkit[cublas]==13.4.3; platform_system == "Linux"\n'
        'Requires-Dist: pywin32; platform_system == "Windows"\n'
    )
    index.files["torch-2.17.0rc1-cp312-cp312-manylinux_2_28_x86_64.whl"] = wheel("")
    done = refresh(index, "torch")
    assert done.returncode == 1
    assert done.stdout.endswith(
        "\n1 difference\n  torch: new release 2.16.0; requires triton~=4.0.0, cuda-toolkit[cublas]==13.4.3\n"
    )


def test_a_changed_pin_is_told_with_both_sides() -> None:
    done = refresh(Index(files=newest_torch_files(("nvidia-nccl-cu13==2.30.7", "nvidia-nccl-cu13==2.32.3"))), "torch")
    assert done.returncode == 1
    assert (
        "torch: 2.15.0 x86_64: requires nvidia-nccl-cu13==2.32.3, the tables say nvidia-nccl-cu13==2.30.7"
        in done.stdout
    )
    assert "aarch64" not in done.stdout


def test_the_order_of_bounds_is_no_difference() -> None:
    files = newest_torch_files(("cuda-bindings<14,>=13.0.3", "cuda-bindings>=13.0.3,<14"))
    assert refresh(Index(files=files), "torch").returncode == 0


def test_a_yanked_release_is_not_offered() -> None:
    index = Index(files=newest_torch_files())
    index.files["torch-2.14.1-cp312-cp312-manylinux_2_28_x86_64.whl"] = wheel("")
    index.yanked = frozenset(name for name in index.files if "2.15.0" in name)
    done = refresh(index, "torch")
    assert done.returncode == 1
    assert "torch: 2.15.0, the newest in the tables, is yanked or gone" in done.stdout


def test_a_companion_with_another_torch_is_told() -> None:
    newest = TABLES.companions_for("vllm", TABLES.torch_releases[-1].torch) or TABLES.companions
    row = [row for row in newest if row.project == "vllm"][-1]
    name = f"vllm-{row.version}-cp38-abi3-manylinux_2_28_x86_64.whl"
    index = Index(files={name: wheel("Metadata-Version: 2.1\nName: vllm\nRequires-Dist: torch==2.15.0\n")})
    done = refresh(index, "vllm")
    assert done.returncode == 1
    assert f"vllm: {row.version} x86_64: requires torch==2.15.0, the tables say torch==2.13.0" in done.stdout


def test_a_project_that_is_not_on_the_index_is_a_difference_and_not_a_crash() -> None:
    done = refresh(Index(files=newest_torch_files()), "nvidia-cudss-cu13")
    assert done.returncode == 1
    assert "nvidia-cudss-cu13: no release on this index" in done.stdout


def test_a_busy_index_is_asked_again() -> None:
    index = Index(files=newest_torch_files(), busy_answers=3)
    done = refresh(index, "torch")
    assert done.returncode == 0, done.stderr
    assert [path for path, _ in index.asked[:4]] == ["/simple/torch/"] * 4


def test_an_index_that_stays_busy_is_given_up_with_exit_4() -> None:
    done = refresh(Index(files=newest_torch_files(), busy_answers=100), "torch")
    assert done.returncode == 4
    assert "refresh_tables: /simple/torch/: the index answered 429; try again later." in done.stderr


def test_an_index_without_ranges_is_refused_rather_than_downloaded_from() -> None:
    done = refresh(Index(files=newest_torch_files(), serves_ranges=False), "torch")
    assert done.returncode == 4
    assert "serves no ranges" in done.stderr


def test_an_index_out_of_reach_is_exit_4_and_names_no_host() -> None:
    with serving(Index()) as url:
        pass
    done = run_tool("--index-url", url, "torch")
    assert done.returncode == 4
    assert "the index is out of reach" in done.stderr
    assert "127.0.0.1" not in done.stderr


def test_a_wheel_that_is_no_archive_is_exit_4() -> None:
    index = Index(files={name: bytes(1000) for name in newest_torch_files()})
    done = refresh(index, "torch")
    assert done.returncode == 4
    assert "not a wheel" in done.stderr


def test_a_project_the_tables_do_not_follow_is_bad_usage() -> None:
    done = run_tool("numpy")
    assert done.returncode == 2
    assert "numpy is not followed; accepted: torch, cuda-toolkit, torchvision" in done.stderr


@pytest.mark.network
def test_the_index_of_this_machine_is_read() -> None:
    done = run_tool("torch", "cuda-toolkit")
    if done.returncode == 4:
        pytest.skip(f"no index could be read: {done.stderr}")
    assert done.returncode in (0, 1), done.stderr
    assert "releases, newest" in done.stdout
