"""What hosts answer, what is made of it, and what their sh is told: by the real sh with stand-ins for the engines."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.errors import BadInput, CouldNotLook
from firstlight.fleet.reply import between_marks
from firstlight.fleet.target import parse_target
from firstlight.ship import questions
from firstlight.ship.answers import read_loaded, read_ran, read_state, read_sums
from firstlight.ship.deciding import (
    Engine,
    Gpus,
    HostState,
    Missing,
    Room,
    choose_engine,
    how_gpus,
    is_there,
    missing,
    require_processor,
    require_room,
    rooms_needed,
    too_long,
)
from firstlight.ship.host import Host
from firstlight.ship.image import Blob, Image
from firstlight.ship.naming import parse_name
from firstlight.ship.questions import Place
from firstlight.ship.sending import Sending, rsync_argv

MANIFEST, CONFIG, LAYER = (Blob(str(n) * 64, size, kind) for n, size, kind in
                           ((1, 500, "manifest"), (2, 300, "config"), (3, 9000, "layer")))  # fmt: skip
IMAGE = Image(MANIFEST, CONFIG, (LAYER,), "amd64")
ANSWER = f"""tool rsync
tool sha256sum
tool podman
answers podman
machine x86_64
gpus device
gpus cdi
room folder /dev/sda1 1000 500 500 50% /
room podman overlay of mine 1000 500 7 50% /var/lib/with space
image podman {"2" * 64}
blob {"3" * 64} 4000
blob {"1" * 64} 501
"""
STATE = read_state(ANSWER.encode(), IMAGE)
TOKEN = "0123456789abcdef"
PLACE = Place("ship", parse_name("team/train:3"))


def test_an_answer_is_read() -> None:
    assert read_state(ANSWER.encode(), IMAGE) == HostState(
        frozenset({"rsync", "sha256sum", "podman"}),
        frozenset({Engine.PODMAN}),
        "x86_64",
        frozenset({"device", "cdi"}),
        (("folder", Room(500 << 10, "/")), ("podman", Room(7 << 10, "/var/lib/with space"))),
        ((Engine.PODMAN, "2" * 64),),
        (("3" * 64, 4000), ("1" * 64, 501)),
    )


def test_what_was_not_asked_for_is_dropped_and_controls_are_spelled_out() -> None:
    hostile = (
        b"tool rm\ntool $(id)\nanswers crio\nmachine x86_64; rm -rf /\ngpus \x1b[2J\nroom other a 1 1 1 1% /\n"
        b"room folder x 1 1 99999999999999999999 1% /\nroom podman x 1 1 5 1% /\x1b[2J\nimage podman ../../etc\n"
        b"blob ../../etc 5\nblob " + b"3" * 64 + b" -5\nblob " + b"9" * 64 + b" 5\n\xff\xfe\x00\n" + b"tool\n" * 10_000
    )
    state = read_state(hostile, IMAGE)
    assert state == HostState(
        frozenset(), frozenset(), "", frozenset(), (("podman", Room(5 << 10, "/\\x1b[2J")),), (), ()
    )
    ran = read_ran(b"status 0\nsaid\nstatus 1\n\x1b]0;owned\x07\n" + b"line\n" * 1000)
    assert (ran.status, len(ran.said)) == (0, 200)
    assert "\x1b" not in read_loaded(b"status 1\nimage x\nsaid\n\x1b[2J\n").said[0]
    assert [read_ran(text).status for text in (b"", b"status x\nsaid\n", b"status -1\nsaid\n")] == [-1, -1, -1]
    assert read_sums(f"{'3' * 64}  {'3' * 64}\n{'4' * 64} *{'1' * 64}\n../x  y\n".encode()) == {
        "3" * 64: "3" * 64, "1" * 64: "4" * 64,
    }  # fmt: skip


def test_only_what_is_missing_is_sent_and_what_is_begun_is_gone_on_with() -> None:
    assert missing(STATE, IMAGE) == (Missing(MANIFEST, 0), Missing(CONFIG, 0), Missing(LAYER, 4000))
    assert too_long(STATE, IMAGE) == (MANIFEST,)
    assert is_there(STATE, Engine.PODMAN, IMAGE)
    assert not is_there(STATE, Engine.DOCKER, IMAGE)
    assert missing(replace(STATE, blobs=()), Image(MANIFEST, CONFIG, (Blob("4" * 64, 0, "layer"),)))[2].left_bytes == 0


def test_the_first_engine_that_answers_is_taken() -> None:
    both = replace(STATE, answers=frozenset({Engine.DOCKER, Engine.SKOPEO}))
    assert choose_engine(both, None) is Engine.DOCKER
    assert choose_engine(both, Engine.SKOPEO) is Engine.SKOPEO
    with pytest.raises(CouldNotLook, match=r"podman does not answer this user; .* there: docker, skopeo"):
        choose_engine(both, Engine.PODMAN)
    silent = replace(STATE, tools=STATE.tools | {"docker"}, answers=frozenset())
    with pytest.raises(
        CouldNotLook, match="docker is there and does not answer this user; nothing there takes an image"
    ):
        choose_engine(silent, None)
    with pytest.raises(CouldNotLook, match=r"missing there: rsync .*; sha256sum"):
        choose_engine(replace(STATE, tools=frozenset()), None)
    with pytest.raises(BadInput, match="is for amd64, and the host is aarch64"):
        require_processor(replace(STATE, machine="aarch64"), IMAGE)


def test_room_is_counted_by_disk() -> None:
    sizes = (100, 200, 600)
    one = replace(STATE, rooms=(("folder", Room(1000, "/")), ("podman", Room(1000, "/"))))
    [need] = rooms_needed(one, Engine.PODMAN, sizes)
    assert (need.mount, need.free_bytes, need.needed_bytes) == ("/", 1000, 900)
    require_room((need,))
    two = replace(STATE, rooms=(("folder", Room(99, "/home")), ("podman", Room(1000, "/"))))
    with pytest.raises(CouldNotLook, match="/home has 99 bytes free and 100 are needed"):
        require_room(rooms_needed(two, Engine.PODMAN, sizes))


@pytest.mark.parametrize(
    ("gpus", "engine", "how"),
    [
        ({"cdi"}, Engine.PODMAN, Gpus.NONE),
        ({"device", "cdi"}, Engine.PODMAN, Gpus.CDI),
        ({"device", "hook"}, Engine.PODMAN, Gpus.HOOK),
        ({"device", "docker"}, Engine.PODMAN, Gpus.NO_WAY),
        ({"device", "docker"}, Engine.DOCKER, Gpus.HOOK),
        ({"device"}, Engine.DOCKER, Gpus.NO_WAY),
    ],
)
def test_how_a_container_gets_the_gpus(gpus: set[str], engine: Engine, how: Gpus) -> None:
    assert how_gpus(replace(STATE, gpus=frozenset(gpus)), engine) is how


def _sh(script: bytes, folder: Path, **programs: str) -> str:
    """What the real sh answers to a script, in a home of its own with stand-ins for programs."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(folder)}
    done = subprocess.run(["sh", "-s"], input=script, cwd=folder, env=environ, capture_output=True, check=False)
    answer = between_marks(done.stdout, TOKEN)
    assert answer is not None, done
    return answer.decode()


def test_the_question_is_answered_by_a_real_sh_and_changes_nothing(tmp_path: Path) -> None:
    blobs = tmp_path / "ship/blobs/sha256"
    blobs.mkdir(parents=True)
    (blobs / LAYER.digest).write_bytes(bytes(10))
    before = sorted(tmp_path.rglob("*"))
    podman = f'case $1 in info) echo /var/lib ;; image) [ "$5" = localhost/team/train:3 ] && echo {"2" * 64} ;; esac'
    answer = _sh(questions.ask(PLACE, IMAGE, TOKEN), tmp_path, podman=podman, docker="exit 1", skopeo="exit 1")
    state = read_state(answer.encode(), IMAGE)
    assert {Engine.PODMAN, Engine.SKOPEO} == state.answers
    assert state.images == ((Engine.PODMAN, "2" * 64),)
    assert state.blobs == ((LAYER.digest, 10),)
    assert {"folder", "podman", "skopeo"} == {name for name, _ in state.rooms}
    assert [path for path in sorted(tmp_path.rglob("*")) if "tools" not in path.parts] == before


def test_a_script_that_is_cut_off_does_nothing(tmp_path: Path) -> None:
    script = questions.prepare(PLACE, (), TOKEN)
    for end in range(0, len(script) - len(b"all </dev/null\nexit\n"), 40):
        subprocess.run(["sh", "-s"], input=script[:end], cwd=tmp_path, capture_output=True, check=False)
    assert list(tmp_path.iterdir()) == []
    assert "ready" in _sh(script, tmp_path).split()
    assert (tmp_path / "ship/blobs/sha256").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("engine", "gpus", "words"),
    [
        (Engine.DOCKER, Gpus.HOOK, "run --rm --gpus=all --entrypoint /usr/bin/firstlight team/train:3 verify"),
        (Engine.PODMAN, Gpus.CDI, "run --rm --security-opt=label=disable --device=nvidia.com/gpu=all --entrypoint "
         "/usr/bin/firstlight localhost/team/train:3 verify"),
        (Engine.PODMAN, Gpus.NONE, "run --rm --entrypoint /usr/bin/firstlight localhost/team/train:3 verify"),
    ],
)  # fmt: skip
def test_verify_is_started_with_the_gpus(engine: Engine, gpus: Gpus, words: str, tmp_path: Path) -> None:
    script = questions.verify(PLACE, IMAGE, "/usr/bin/firstlight", (engine, gpus), TOKEN)
    program = 'echo "$*"; echo more >&2; exit 3'
    ran = read_ran(_sh(script, tmp_path, docker=program, podman=program).encode())
    assert (ran.status, ran.said) == (3, (words, "more"))


def test_an_entrypoint_of_ours_is_kept_because_it_chooses_libcuda(tmp_path: Path) -> None:
    image = replace(IMAGE, entrypoint=("/opt/firstlight/entrypoint.sh",))
    script = questions.verify(PLACE, image, "/usr/bin/firstlight", (Engine.PODMAN, Gpus.NONE), TOKEN)
    ran = read_ran(_sh(script, tmp_path, podman='echo "$*"').encode())
    assert ran.said == ("run --rm localhost/team/train:3 /usr/bin/firstlight verify",)


@pytest.mark.parametrize("entrypoint", [(), ("/opt/firstlight/entrypoint.sh",)])
def test_a_firstlight_that_was_brought_is_run_by_the_python_of_the_image(
    entrypoint: tuple[str, ...], tmp_path: Path
) -> None:
    ours = Blob("e" * 64, 5, "firstlight")
    (tmp_path / "ship/blobs/sha256").mkdir(parents=True)
    (tmp_path / "ship/blobs/sha256" / ours.digest).touch(mode=0o600)
    image = replace(IMAGE, entrypoint=entrypoint)
    script = questions.verify(PLACE, image, ours, (Engine.PODMAN, Gpus.NONE), TOKEN)
    ran = read_ran(_sh(script, tmp_path, podman='echo "$*"').encode())
    source = tmp_path / "ship/blobs/sha256" / ours.digest
    mount = f"--mount=type=bind,source={source},target=/run/firstlight.zip,readonly"
    given, behind = ("", "python3 ") if entrypoint else (" --entrypoint python3", "")
    words = f"run --rm --security-opt=label=disable{given} {mount} localhost/team/train:3 {behind}/run/firstlight.zip"
    assert ran.said == (f"{words} verify",)
    assert source.stat().st_mode & 0o777 == 0o644, "whoever the image runs as reads it"


def test_docker_is_handed_an_archive_with_every_blob(tmp_path: Path) -> None:
    blobs = tmp_path / "ship/blobs/sha256"
    blobs.mkdir(parents=True)
    for blob in IMAGE.blobs:
        (blobs / blob.digest).write_bytes(b"x")
    docker = f"case $1 in load) tar -tf - | sort >&2 ;; image) echo sha256:{'2' * 64} ;; esac"
    loaded = read_loaded(_sh(questions.load(PLACE, IMAGE, Engine.DOCKER, TOKEN), tmp_path, docker=docker).encode())
    assert (loaded.status, loaded.id) == (0, CONFIG.digest)
    assert loaded.said == (
        *(f"blobs/sha256/{blob.digest}" for blob in IMAGE.blobs), "index.json", "manifest.json", "oci-layout",
    )  # fmt: skip


def test_rsync_goes_over_our_ssh() -> None:
    way = Sending(Path("/cache/blobs/sha256"), "ship", parse_target("root@[fe80::1]:2222"), "/a b/config", 5)
    *words, shell, source, there = rsync_argv(way)
    assert words[-1] == "-e"
    assert shell.startswith('ssh -T -F "/a b/config" -o BatchMode=yes ')
    assert shell.endswith(" -p 2222 -l root --")
    assert (source, there) == ("/cache/blobs/sha256/", "[fe80::1]:ship/blobs/sha256/")
    assert {"--partial", "--append-verify", "--bwlimit=5"} <= set(words)
    with pytest.raises(BadInput, match="quotation mark"):
        rsync_argv(replace(way, config='/a"b'))


@pytest.mark.parametrize(
    ("ssh", "says"),
    [
        ("yes </dev/null | head -c 20000000", "it printed more than 8 MB"),
        ("echo 'ssh: connect to host node port 22: Connection refused' >&2; exit 255", "Connection refused"),
        ("echo firstlight-x-begin; echo '{'", "it stopped in the middle of its answer"),
    ],
)
def test_a_host_that_means_no_good_is_not_reached(
    ssh: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ssh").write_text(f"#!/bin/sh\n{ssh}\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(CouldNotLook, match=says):
        Host(parse_target("node"), PLACE).state(IMAGE)
