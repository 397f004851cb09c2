"""Blobs and manifests: what is whole, how large it is unpacked, what is refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from firstlight.errors import BadInput
from firstlight.ship.image import Blob, docker_manifest_of, index_of, read_image
from firstlight.ship.layers import Inside, look_inside, read_inside
from firstlight.ship.own import own_blob


def _tar(*names: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 5000
            archive.addfile(entry, io.BytesIO(bytes(5000)))
    return out.getvalue()


def _blob(data: bytes) -> Blob:
    return Blob(hashlib.sha256(data).hexdigest(), len(data), "layer")


TAR = _tar("usr/share/firstlight", "opt/env/bin/firstlight", "bin/firstlight")
HALF = len(TAR) // 2
FORMS = {
    "plain": TAR,
    "gzip": gzip.compress(TAR),
    "two streams": gzip.compress(TAR[:HALF]) + gzip.compress(TAR[HALF:]),
}


@pytest.mark.parametrize("name", ["usr/bin/python3", "./opt/conda/bin/python3", "/usr/local/bin/python3"])
def test_a_python_in_a_layer_is_found(name: str) -> None:
    data = _tar("usr/bin/python3-config", "usr/share/python3", name)
    assert read_inside(io.BytesIO(data), _blob(data)) == Inside(len(data), "", f"/{name.lstrip('./')}")


def test_firstlight_as_an_archive_is_the_same_bytes_each_time_and_runs(tmp_path: Path) -> None:
    blob = own_blob(tmp_path)
    assert own_blob(tmp_path) == blob
    [path] = tmp_path.iterdir()
    assert (path.name, path.stat().st_size) == (hashlib.sha256(path.read_bytes()).hexdigest(), blob.size_bytes)
    folder = tmp_path / "left"
    folder.mkdir()
    argv = [sys.executable, "-I", "-S", str(path), "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"TMPDIR": str(folder)})
    assert (done.returncode, done.stdout.startswith("firstlight")) == (0, True), done.stderr
    assert list(folder.iterdir()) == [], "what was unpacked is gone"


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_is_measured_unpacked_and_firstlight_is_found(form: str) -> None:
    data = FORMS[form]
    assert read_inside(io.BytesIO(data), _blob(data)) == Inside(len(TAR), "/opt/env/bin/firstlight")
    for damaged in (data[:-1], data + b"x", data[:50] + b"!" + data[51:], b""):
        assert read_inside(io.BytesIO(damaged), _blob(data)) is None


def test_a_layer_that_is_no_tar_has_no_firstlight() -> None:
    for data in (b"", b"\x1f\x8b", b"\x28\xb5\x2f\xfd" + bytes(100), bytes(3000), b"x" * 3000):
        found = read_inside(io.BytesIO(data), _blob(data))
        assert found is not None
        assert found.firstlight == ""


def test_a_large_layer_of_nothing_is_not_held_in_memory() -> None:
    data = gzip.compress(bytes(100_000_000), 1)
    blob = Blob(hashlib.sha256(data).hexdigest(), len(data), "config")
    tracemalloc.start()
    try:
        assert read_inside(io.BytesIO(data), blob) == Inside(100_000_000)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_what_was_read_is_kept_until_the_blob_changes(tmp_path: Path) -> None:
    data = FORMS["gzip"]
    blob, path = _blob(data), tmp_path / "blobs/sha256" / _blob(data).digest
    path.parent.mkdir(parents=True)
    assert look_inside(tmp_path, blob) is None
    path.write_bytes(data)
    first = look_inside(tmp_path, blob)
    assert look_inside(tmp_path, blob) == first == Inside(len(TAR), "/opt/env/bin/firstlight")
    path.write_bytes(data[:-1] + b"x")
    assert look_inside(tmp_path, blob) is None


LAYER = {"digest": "sha256:" + "1" * 64, "size": 5}
CONFIG = {"digest": "sha256:" + "2" * 64, "size": 7}


def _manifest(**changed: object) -> bytes:
    return json.dumps({"schemaVersion": 2, "config": CONFIG, "layers": [LAYER, LAYER], **changed}).encode()


def test_a_layer_that_stands_twice_is_one_blob() -> None:
    image = read_image(_manifest(), "3" * 64, b'{"architecture": "arm64", "config": {"Entrypoint": ["/x"]}}')
    assert [blob.kind for blob in image.blobs] == ["manifest", "config", "layer"]
    assert image.size_bytes == len(_manifest()) + 12
    assert (image.architecture, image.entrypoint) == ("arm64", ("/x",))
    assert [image.runs_on(machine) for machine in ("aarch64", "x86_64", "riscv64", "")] == [True, False, True, True]
    assert len(json.loads(docker_manifest_of(image, "a:1"))[0]["Layers"]) == 2
    assert json.loads(index_of(image, "ref", "x"))["manifests"][0]["digest"] == "sha256:" + "3" * 64


@pytest.mark.parametrize(
    "changed",
    [
        {"layers": None},
        {"layers": [LAYER] * 1001},
        {"layers": [{"digest": "sha256:../../x", "size": 1}]},
        {"layers": [{"digest": "sha512:" + "1" * 128, "size": 1}]},
        {"layers": [{"digest": LAYER["digest"], "size": -1}]},
        {"layers": [{**LAYER, "urls": ["https://example.com"]}]},
        {"config": None},
    ],
)
def test_a_manifest_that_names_what_is_no_blob_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        read_image(_manifest(**changed), "3" * 64, b"{}")
    for text in (b"", b"[]", b"[" * 100_000):
        with pytest.raises(BadInput):
            read_image(text, "3" * 64, b"{}")
