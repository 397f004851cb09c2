"""The tables of library providers agree with each other, and the tool that writes them reads wheels by range."""

from __future__ import annotations

import http.server
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from packaging.version import Version

from firstlight.tables import load
from firstlight.tables.soname_rows import LibraryReleases, PlaceholderProject, SonameNvidia
from tests.http_server import served
from tools.make_sonames import cuda_major_of, main, part_of

TABLES = load()
RELEASES: tuple[LibraryReleases, ...] = TABLES._rows("library_releases")
PLACEHOLDERS: tuple[PlaceholderProject, ...] = TABLES._rows("placeholder_projects")


def releases_of(project: str, machine: str) -> list[str]:
    return [version for row in TABLES.library_releases(project, machine=machine) for version in row.versions]


def test_the_ends_of_every_run_are_releases_and_the_newest_is_marked() -> None:
    for row in TABLES.soname_wheels:
        versions = releases_of(row.project, row.machine)
        assert row.first in versions, row
        assert row.last in versions, row
        assert versions.index(row.first) <= versions.index(row.last), row
        assert row.in_newest is (row.last == versions[-1]), row


def test_the_runs_of_one_file_do_not_overlap() -> None:
    ends: dict[tuple[str, str, str], int] = {}
    for row in TABLES.soname_wheels:
        versions = releases_of(row.project, row.machine)
        key = (row.path, row.project, row.machine)
        assert versions.index(row.first) > ends.get(key, -1), row
        ends[key] = versions.index(row.last)


def test_releases_go_upwards_and_each_has_a_size() -> None:
    for row in RELEASES:
        assert len(row.bytes) == len(row.versions), row.project
        assert row.versions[0] == row.first
        versions = [Version(each) for each in releases_of(row.project, row.machine)]
        assert versions == sorted(set(versions)), row.project
        assert not [each for each in versions if each.is_prerelease], row.project


def test_every_project_with_releases_ships_a_library_and_no_placeholder_does() -> None:
    shipping = {row.project for row in TABLES.soname_wheels}
    assert {row.project for row in RELEASES} == shipping
    for row in PLACEHOLDERS:
        assert row.project not in shipping
        assert row.instead in shipping
        assert row.bytes < 100_000, row


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("nvidia-cublas-cu13", "nvidia-cublas"),
        ("nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime"),
        ("nvidia-cudnn", "nvidia-cudnn-cu13"),
        ("nvidia-nccl-cu116", "nvidia-nccl-cu11"),
    ],
)
def test_a_project_that_holds_nothing_is_known_with_the_one_to_take(name: str, instead: str) -> None:
    row = TABLES.placeholder_project(name)
    assert row is not None
    assert row.instead == instead
    assert TABLES.placeholder_project("nvidia-cudss-cu13") is None


def test_the_libraries_that_torch_pins_packages_for_are_all_there() -> None:
    for release in TABLES.torch_releases:
        for pin in release.pins:
            if pin.version and pin.project.startswith("nvidia-"):
                assert pin.version in releases_of(pin.project, release.machine), (release.torch, pin)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_nvpl_is_for_aarch64_and_for_any_cuda(machine: str) -> None:
    rows = TABLES.wheels_with("libnvpl_blas_lp64_gomp.so.0", machine=machine)
    assert [row.project for row in rows] == (["nvpl-blas"] if machine == "aarch64" else [])
    assert all(row.cuda_major is None for row in rows)


def test_only_nvpl_is_of_no_cuda_major() -> None:
    without = {row.project for row in TABLES.soname_wheels if row.cuda_major is None}
    assert all(project.startswith("nvpl-") for project in without), without


def test_no_stub_and_nothing_of_the_driver_is_in_the_table() -> None:
    for row in TABLES.soname_wheels:
        assert "stubs" not in row.folder, row
        assert not row.soname.startswith(("libcuda.so", "libnvidia-ml.so")), row


def test_nvidias_own_packages_are_known_by_cuda_major() -> None:
    [thirteen] = TABLES.nvidia_packages_with("libcudss.so.0", cuda_major=13)
    assert thirteen.package == "libcudss0-cuda-13"
    assert TABLES.nvidia_packages_with("libcudss.so.0", cuda_major=None) == ()
    rows: tuple[SonameNvidia, ...] = TABLES._rows("nvidia_sonames")
    assert {row.channel for row in rows} == {"apt", "pip"}


def test_the_major_of_a_project_is_that_of_its_name_or_its_folder() -> None:
    assert cuda_major_of("nvidia-cudss-cu12", "nvidia/cu12/lib") == 12
    assert cuda_major_of("nvidia-nccl-cu116", "nvidia/nccl/lib") == 11
    assert cuda_major_of("tensorrt-rtx-cu13-libs", "tensorrt_rtx_libs") == 13
    assert cuda_major_of("nvidia-cublas", "nvidia/cu14/lib") == 14
    assert cuda_major_of("cutensor", "cutensor/lib/11.0") == 11
    assert cuda_major_of("nvpl-blas", "nvpl/lib") is None
    assert part_of("tensorrt-cu13-libs") == "tensorrt-libs"


# The tool, against an index on the loopback


ELF = {
    "x86_64": b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00",
    "aarch64": b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xb7\x00",
    "i686": b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x03\x00\x03\x00",
}


def wheel(*libraries: str, elf: str = "x86_64", requires: tuple[str, ...] = ()) -> bytes:
    """A wheel of 300 KB, so that its end is less than the whole."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in libraries:
            archive.writestr(path, ELF["i686" if "/x86/" in path else elf] + bytes(1000))
        archive.writestr(zipfile.ZipInfo("weight.bin"), bytes(300_000))
        lines = "".join(f"Requires-Dist: {each}\n" for each in requires)
        archive.writestr("some-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: some\n{lines}")
    return packed.getvalue()


@dataclass
class Upload:
    content: bytes
    day: str = "2026-01-01"
    yanked: bool = False


@dataclass
class FakeIndex:
    files: dict[str, Upload] = field(default_factory=dict)
    gives_ranges: bool = True
    sent: int = 0

    def of(self, project: str) -> dict[str, Upload]:
        own = project.replace("-", "_") + "-"
        return {name: upload for name, upload in self.files.items() if name.startswith(own)}

    def answer(self, path: str) -> bytes | None:
        parts = path.strip("/").split("/")
        if parts == ["simple"]:
            names = {name.split("-")[0].replace("_", "-") for name in self.files}
            return "".join(f'<a href="{name}/">{name}</a>\n' for name in sorted(names)).encode()
        own = self.of(parts[1])
        if parts[0] == "simple":
            return "".join(f'<a href="../../packages/{name}#sha256=00">{name}</a>\n' for name in own).encode()
        if parts[0] == "pypi":
            releases: dict[str, list[dict[str, object]]] = {}
            for name, upload in own.items():
                releases.setdefault(name.removesuffix(".tar.gz").split("-")[1], []).append(
                    {
                        "filename": name,
                        "size": len(upload.content),
                        "requires_python": None,
                        "upload_time": f"{upload.day}T00:00:00",
                        "yanked": upload.yanked,
                    }
                )
            return json.dumps({"releases": releases}).encode()
        return None


@contextmanager
def serving(index: FakeIndex) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, status, headers = index.answer(self.path), 200, {}
            asked = self.headers.get("Range", "")
            if body is None:
                body = index.files[self.path.rpartition("/")[2]].content
                if asked and index.gives_ranges:
                    first, last = (int(number) for number in asked.removeprefix("bytes=").split("-"))
                    headers = {"Content-Range": f"bytes {first}-{last}/{len(body)}"}
                    body, status = body[first : last + 1], 206
                index.sent += len(body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    with served(Handler) as port:
        yield f"http://127.0.0.1:{port}/simple"


LIB = "nvidia/cu13/lib"


def cudss(version: str, *libraries: str, requires: tuple[str, ...] = ("nvidia-cublas",)) -> dict[str, Upload]:
    name = f"nvidia_cudss_cu13-{version}-py3-none-manylinux_2_17_x86_64.whl"
    return {name: Upload(wheel(*(f"{LIB}/{library}" for library in libraries), requires=requires))}


def made(index: FakeIndex, folder: Path, *options: str) -> dict[str, list[dict[str, object]]]:
    with serving(index) as url:
        assert main(["--index-url", url, "--folder", str(folder), *options]) == 0
    return {path.stem: json.loads(path.read_text())["rows"] for path in folder.iterdir()}


def runs(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [(row["soname"], row["first"], row["last"], row["in_newest"]) for row in rows]


def test_a_library_is_a_run_of_releases_and_a_hole_or_another_soname_ends_it(tmp_path: Path) -> None:
    index = FakeIndex()
    for version, library in (("0.7", "libcudss.so.0"), ("0.8", "libcudss.so.0"), ("1.0", "libcudss.so.1")):
        index.files |= cudss(version, library)
    index.files |= cudss("1.1") | cudss("1.2", "libcudss.so.1")
    tables = made(index, tmp_path)
    assert runs(tables["sonames"]) == [
        ("libcudss.so.0", "0.7", "0.8", False),
        ("libcudss.so.1", "1.0", "1.0", False),
        ("libcudss.so.1", "1.2", "1.2", True),
    ]
    assert tables["sonames"][0]["cuda_major"] == 13
    assert index.sent < sum(len(upload.content) for upload in index.files.values())


def test_stubs_python_modules_headers_and_libraries_of_another_machine_are_left_out(tmp_path: Path) -> None:
    held = ("libcudss.so.0", "stubs/libcuda.so", "x86/libcudss_old.so.0", "sort.so_heap.h", "m.cpython-312-x86_64.so")
    tables = made(FakeIndex(files=cudss("0.8", *held)), tmp_path)
    assert [row["soname"] for row in tables["sonames"]] == ["libcudss.so.0"]


def test_early_yanked_and_later_uploads_are_left_out(tmp_path: Path) -> None:
    index = FakeIndex(files=cudss("0.8", "libcudss.so.0") | cudss("0.9rc1", "libcudss.so.0"))
    for version in ("0.9", "1.0"):
        index.files |= cudss(version, "libcudss.so.0")
    index.files["nvidia_cudss_cu13-0.9-py3-none-manylinux_2_17_x86_64.whl"].yanked = True
    index.files["nvidia_cudss_cu13-1.0-py3-none-manylinux_2_17_x86_64.whl"].day = "2026-11-16"
    tables = made(index, tmp_path, "--as-of", "2026-11-15")
    assert runs(tables["sonames"]) == [("libcudss.so.0", "0.8", "0.8", True)]
    assert tables["sonames"][0]["date"] == "2026-11-15"


def test_releases_are_grouped_by_what_they_require(tmp_path: Path) -> None:
    index = FakeIndex(files=cudss("0.7", "libcudss.so.0", requires=("nvidia-cublas-cu13",)))
    index.files |= cudss("0.8", "libcudss.so.0") | cudss("0.9", "libcudss.so.0")
    rows = made(index, tmp_path)["library_releases"]
    assert [(row["first"], row["versions"], row["requires"]) for row in rows] == [
        ("0.7", ["0.7"], ["nvidia-cublas-cu13"]),
        ("0.8", ["0.8", "0.9"], ["nvidia-cublas"]),
    ]
    assert rows[1]["bytes"] == [len(upload.content) for upload in list(index.files.values())[1:]]


def test_a_project_of_empty_archives_is_a_placeholder_for_the_one_with_libraries(tmp_path: Path) -> None:
    name = "nvidia_cublas-13.1.0.3-py3-none-manylinux_2_27_x86_64.whl"
    index = FakeIndex(files={name: Upload(wheel(f"{LIB}/libcublas.so.13"))})
    index.files["nvidia_cublas_cu13-0.0.1.tar.gz"] = Upload(b"1.4 KB")
    [row] = made(index, tmp_path)["placeholder_projects"]
    assert (row["project"], row["newest"], row["instead"]) == ("nvidia-cublas-cu13", "0.0.1", "nvidia-cublas")


def test_an_index_without_ranges_is_refused_rather_than_downloaded_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(FakeIndex(files=cudss("0.8", "libcudss.so.0"), gives_ranges=False)) as url:
        assert main(["--index-url", url, "--folder", str(tmp_path)]) == 4
    assert "serves no ranges" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_wheel_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: Upload(bytes(1000)) for name in cudss("0.8")}
    with serving(FakeIndex(files=files)) as url:
        assert main(["--index-url", url, "--folder", str(tmp_path)]) == 4
    assert "not a wheel" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_check_says_what_the_index_would_give_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeIndex(files=cudss("0.8", "libcudss.so.9"))) as url:
        assert main(["--index-url", url, "--check", "nvidia-cudss-cu13"]) == 1
    said = capsys.readouterr().out
    assert "sonames: only on the index: libcudss.so.9 nvidia-cudss-cu13 x86_64 13 0.8 0.8 True" in said
    assert "sonames: only in the tables: libcudss.so.0 nvidia-cudss-cu13 x86_64 13 0.7.0.20 0.8.0.10 False" in said


def test_a_project_that_is_no_library_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--check", "numpy"])
    assert stopped.value.code == 2
    assert "numpy is not among them" in capsys.readouterr().err


@pytest.mark.network
def test_the_index_gives_the_committed_rows_again(capsys: pytest.CaptureFixture[str]) -> None:
    projects = ("nvidia-cudss-cu13", "nvidia-cudss-cu12", "nvpl-lapack", "nvidia-cusparselt-cu13", "nvidia-nvtx-cu12")
    status = main(["--check", *projects])
    if status == 4:
        pytest.skip("no index could be read")
    assert status == 0, capsys.readouterr().out
