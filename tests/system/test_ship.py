"""`ship` over real ssh, rsync and podman: cut off and gone on, one changed layer, damage, no room, missing tools."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apply.stand_ins import can_have_its_own_mounts
from tests.system.clean_root import closure, copy_packages
from tests.system.fleet_hosts import Host, Room, _children, _command, _numbers, _space_of, free_port
from tests.system.ship_hosts import FOLDER, PACKAGES, Dock, make_ship_base, start, without

_NEEDED = ("ssh", "gcc", "buildah", "podman", "skopeo", "rsync")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
    pytest.mark.skipif(not all(map(shutil.which, _NEEDED)), reason=f"needs {', '.join(_NEEDED)}"),
    pytest.mark.skipif(
        not all(Path("/usr/share/doc", name).exists() for name in PACKAGES), reason=f"needs {', '.join(PACKAGES)}"
    ),
]
LARGE, SMALL, CUT_AT = 3_000_000, 300_000, 1_000_000
RATE = ("--rate", "2000")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    room = Room(tmp_path_factory.mktemp("ship"))
    make_ship_base(room.base)
    without(room, "norsync", "rsync")
    without(room, "noengine", "podman", "skopeo")
    without(room, "skopeoalone", "podman")
    found: dict[str, Host] = {}
    try:
        for name in ("node", "norsync", "noengine", "skopeoalone"):
            found[name] = start(room, name)
        room.know("gone", free_port(), "ssh-ed25519 AAAA")
        yield found
    finally:
        for host in found.values():
            host.stop()
        shutil.rmtree(room.folder)


@pytest.fixture(scope="module")
def dock(hosts: dict[str, Host], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dock]:
    folder = tmp_path_factory.mktemp("dock")
    made = Dock(Room(hosts["node"].folder.parent), folder)
    made.make_store()
    for name, size in (("large", LARGE), ("first", SMALL), ("second", SMALL)):
        (folder / name).write_bytes(os.urandom(size))
    made.build("base", {"/large": folder / "large"})
    made.build("one", {"/changed": folder / "first"}, base="localhost/base")
    made.build("two", {"/changed": folder / "second"}, base="localhost/base")
    made.build("proves", {"/usr/bin/firstlight": made.program("good", 0)})
    made.build("fails", {"/usr/bin/firstlight": made.program("bad", 1)})
    yield made
    shutil.rmtree(folder)


@pytest.fixture
def bare(dock: Dock) -> Dock:
    """The host without any image and without any blob of ours."""
    dock.there("node", "podman rmi --all --force >/dev/null; rm -rf .cache/firstlight")
    return dock


def _there(host: Host) -> dict[str, Path]:
    """The blobs on a host, by digest."""
    folder = host.upper / FOLDER / "blobs/sha256"
    return {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}


def _id(dock: Dock, name: str) -> str:
    return dock.there("node", f"podman image inspect --format '{{{{.Id}}}}' {name}").strip()


def _layers(document: Any) -> list[dict[str, Any]]:
    return [blob for blob in document["blobs"] if blob["kind"] == "layer"]


def test_the_second_image_sends_its_changed_layer_alone(bare: Dock, hosts: dict[str, Host]) -> None:
    code, dry, _ = bare.ship("one", "node", "--dry-run")
    assert (code, dry["dry_run"], dry["bytes_sent"], _there(hosts["node"])) == (0, True, 0, {})
    code, first, _ = bare.ship("one", "node")
    assert code == 0
    assert first["bytes_sent"] == first["bytes_total"] == dry["bytes_to_send"] > LARGE + SMALL
    assert first["bytes_total"] <= first["bytes_on_wire"] < first["bytes_total"] + 5000
    assert _id(bare, "localhost/one:latest") == first["config_digest"].removeprefix("sha256:")
    assert first["verify"]["why_not"] == "there is no firstlight in the image"

    code, second, _ = bare.ship("two", "node")
    assert code == 0
    large, changed = _layers(second)
    assert (large["bytes_there"], changed["bytes_there"]) == (large["bytes"], 0)
    sent = [blob for blob in second["blobs"] if not blob["bytes_there"]]
    assert sorted(blob["kind"] for blob in sent) == ["config", "layer", "manifest"]
    assert second["bytes_sent"] == sum(blob["bytes"] for blob in sent) < SMALL + 5000
    assert second["bytes_on_wire"] < SMALL + 8000
    assert second["bytes_skipped"] == large["bytes"]
    assert _id(bare, "localhost/two:latest") == second["config_digest"].removeprefix("sha256:")

    code, again, _ = bare.ship("two", "node")
    assert (code, again["there_already"], again["bytes_on_wire"]) == (0, True, 0)
    assert bare.ship("two", "node", "--name", "team/other:3")[1]["bytes_on_wire"] == 0
    tags = bare.there("node", "podman images --format '{{.Repository}}:{{.Tag}}'").split()
    assert sorted(tags) == ["localhost/one:latest", "localhost/team/other:3", "localhost/two:latest"]


def _arrived(host: Host) -> int:
    """Bytes of the largest blob there."""
    return max((path.stat().st_size for path in _there(host).values()), default=0)


def _ours(pid: int, program: str) -> int:
    """A process under ours by its name; 0 where there is none yet."""
    for child in _children(pid):
        if _command(child).split(" ")[0].rsplit("/", 1)[-1] == program:
            return child
    return 0


def _rsync_there(host: Host) -> int:
    [init] = _children(host.daemon.pid)
    space = os.readlink(f"/proc/{init}/ns/pid")
    return next((pid for pid in _numbers() if _space_of(pid) == space and "rsync --server" in _command(pid)), 0)


def _kill_ours(process: subprocess.Popen[str], host: Host) -> None:
    process.kill()


def _kill_rsync_here(process: subprocess.Popen[str], host: Host) -> None:
    os.kill(_ours(process.pid, "rsync"), signal.SIGKILL)


def _kill_rsync_there(process: subprocess.Popen[str], host: Host) -> None:
    os.kill(_rsync_there(host), signal.SIGKILL)


Reached = Callable[[Dock, subprocess.Popen[str], Host], bool]
CUTS: dict[str, tuple[Reached, Callable[[subprocess.Popen[str], Host], None]]] = {
    "ours in the copy": (lambda dock, ours, _: bool(list(dock.folder.glob("cache/ship/copies/*"))), _kill_ours),
    "ours while it sends": (lambda _, ours, host: _arrived(host) > CUT_AT, _kill_ours),
    "rsync here": (lambda _, ours, host: _arrived(host) > CUT_AT, _kill_rsync_here),
    "rsync there": (lambda _, ours, host: _arrived(host) > CUT_AT, _kill_rsync_there),
    "ours while it loads": (lambda _, ours, host: any((host.upper / FOLDER).glob("images/*/said")), _kill_ours),
}


@pytest.mark.parametrize("cut", CUTS)
def test_cut_off_the_same_command_goes_on(bare: Dock, hosts: dict[str, Host], cut: str) -> None:
    reached, kill = CUTS[cut]
    host = hosts["node"]
    rate = RATE if "load" not in cut else ()
    if "copy" in cut:
        shutil.rmtree(bare.folder / "cache", ignore_errors=True)
    process = subprocess.Popen(
        bare.argv("one", "node", *rate), env=bare.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 20
    while not reached(bare, process, host):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    kill(process, host)
    _, said = process.communicate(timeout=30)
    if kill is not _kill_ours:
        assert process.returncode == 4, said
        assert "sending was cut off" in said
        assert "the same command continues from it" in said
    while _rsync_there(host):  # it ends with the connection
        assert time.monotonic() < deadline
        time.sleep(0.05)
    before = sum(path.stat().st_size for path in _there(host).values())
    code, document, said = bare.ship("one", "node")
    assert code == 0, said
    if "rsync" in cut or "sends" in cut:
        assert CUT_AT < before < LARGE
    if not document["there_already"]:
        assert document["bytes_skipped"] == before
        assert document["bytes_on_wire"] < document["bytes_total"] - before + 20_000
    assert _id(bare, "localhost/one:latest") == document["config_digest"].removeprefix("sha256:")


def test_blobs_that_are_damaged_there_are_found_and_sent_again(bare: Dock) -> None:
    """One in its middle, one longer than it can be, and one that was cut off with a damaged beginning."""
    first = bare.ship("one", "node")[1]
    (_, config, large, small), folder = first["blobs"], f"{FOLDER.removeprefix('root/')}/blobs/sha256"
    config_at, large_at, small_at = (
        f"{folder}/{each['digest'].removeprefix('sha256:')}" for each in (config, large, small)
    )
    damage = "printf damaged | dd bs=1 seek=1000 conv=notrunc 2>/dev/null"
    bare.there(
        "node",
        f"podman rmi --all --force >/dev/null; printf more >>{config_at}; {damage} of={small_at}; "
        f"truncate -s {CUT_AT} {large_at}; {damage} of={large_at}",
    )
    code, document, said = bare.ship("one", "node")
    assert code == 0, said
    assert [each["digest"] for each in document["blobs"] if each["sent_again"]] == [small["digest"]]
    assert document["bytes_sent"] == config["bytes"] + small["bytes"] + large["bytes"] - CUT_AT
    assert document["bytes_on_wire"] > small["bytes"] + large["bytes"] - CUT_AT
    assert _id(bare, "localhost/one:latest") == document["config_digest"].removeprefix("sha256:")


def test_a_blob_that_is_damaged_in_our_cache_is_copied_again(bare: Dock) -> None:
    first = bare.ship("one", "node", "--dry-run")[1]
    layer = _layers(first)[1]
    blob = bare.folder / "cache/ship/blobs/sha256" / layer["digest"].removeprefix("sha256:")
    blob.write_bytes(b"damaged")
    code, document, said = bare.ship("one", "node", "--dry-run")
    assert code == 0, said
    assert document["blobs"] == first["blobs"]
    assert f"sha256:{hashlib.sha256(blob.read_bytes()).hexdigest()}" == layer["digest"]


def test_too_little_room_is_refused_with_figures_before_anything_is_sent(bare: Dock, hosts: dict[str, Host]) -> None:
    code, document, said = bare.ship("one", "node", "--folder", "/small/ship")
    assert (code, document) == (4, None)
    assert "node: too little room there: /small has 2,097,152 bytes free and 3," in said
    assert "Nothing was sent" in said
    assert bare.there("node", "ls -A /small") == ""


def test_missing_tools_are_named_with_what_to_install(bare: Dock, hosts: dict[str, Host]) -> None:
    for host, says in (
        ("norsync", "norsync: missing there: rsync (apt-get install rsync, dnf install rsync)"),
        ("noengine", "noengine: nothing there takes an image: install podman"),
    ):
        code, document, said = bare.ship("one", host)
        assert (code, document) == (4, None)
        assert says in said
        assert _there(hosts[host]) == {}
    code, _, said = bare.ship("one", "skopeoalone", "--engine", "podman")
    assert code == 4
    assert "podman is not there; engines that answer there: skopeo" in said
    assert bare.ship("one", "gone")[0] == 4


def test_a_host_with_skopeo_alone_takes_the_image_and_proves_nothing(bare: Dock) -> None:
    code, _, said = bare.ship("proves", "skopeoalone", "--verify")
    assert code == 4
    assert "skopeo starts no container" in said
    code, document, said = bare.ship("proves", "skopeoalone")
    assert (code, document["engine"], document["verify"]["ran"]) == (0, "skopeo", False), said


def test_verify_brings_firstlight_to_an_image_that_has_python_alone(bare: Dock, hosts: dict[str, Host]) -> None:
    root = bare.folder / "python"
    copy_packages(root, closure(("python3",), without=("debconf", "perl-base", "tzdata")))
    (root / "tmp").mkdir()
    bare.build("python", {"/": root})
    code, document, said = bare.ship("python", "node")
    assert (code, document["verify"]["why_not"]) == (0, "there is no firstlight in the image; --verify brings one"), (
        said
    )
    code, document, said = bare.ship("python", "node", "--verify")
    verify = document["verify"]
    assert (verify["ran"], document["there_already"]) == (True, True), said
    assert 500_000 < verify["brought_bytes"] < 20_000_000
    assert any("torch" in line for line in verify["said"]), verify["said"]
    assert bare.there("node", "podman ps --all --quiet") == ""
    [brought] = [path for path in _there(hosts["node"]).values() if path.read_bytes().startswith(b"PK")]
    times = brought.stat().st_mtime_ns
    assert bare.ship("python", "node", "--verify")[1]["verify"]["exit_code"] == verify["exit_code"]
    assert brought.stat().st_mtime_ns == times, "what is there is not sent again"
    brought.write_bytes(b"PK" + bytes(brought.stat().st_size - 2))
    assert bare.ship("python", "node", "--verify")[1]["verify"]["said"] == verify["said"], "and what is damaged is"


def test_verify_runs_in_a_container_of_the_image(bare: Dock) -> None:
    code, document, said = bare.ship("proves", "node")
    assert code == 0, said
    assert (document["verify"]["exit_code"], document["verify"]["said"]) == (0, ["stand-in: verify"])
    code, document, said = bare.ship("fails", "node")
    assert (code, document["verify"]["exit_code"]) == (1, 1), said
    code, document, said = bare.ship("fails", "node", "--no-verify")
    assert (code, document["there_already"]) == (0, True), said
    code, _, said = bare.ship("one", "node", "--verify")
    assert code == 2
    assert "there is neither firstlight nor python3 in one" in said
