"""What a host's sh is told: scripts that go in through stdin and answer between two marks. Pure.

Every word of ours in them is quoted; what the host finds out itself (the id of a loaded image, the folder of its store)
stays in its own variables. A script that arrives cut off does nothing: it is one function, called in its last line.
"""

from __future__ import annotations

import shlex

from firstlight.frozen import dataclass
from firstlight.machine.evidence import marks
from firstlight.ship.deciding import Engine, Gpus
from firstlight.ship.image import Blob, Image, docker_manifest_of, index_of
from firstlight.ship.naming import Name

COMMAND = "exec sh -s"
_ENVIRONMENT = """login_path=$PATH
PATH="$PATH:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
export LC_ALL=C PATH
"""
_LAYOUT = '{"imageLayoutVersion":"1.0.0"}'

_ASK = """
# rsync is started there by its own ssh, without the folders that we look into besides
if (PATH=$login_path && command -v rsync >/dev/null 2>&1); then echo "tool rsync"; fi
for tool in sha256sum tar podman docker skopeo; do
  if command -v "$tool" >/dev/null 2>&1; then echo "tool $tool"; fi
done
echo "machine $(uname -m)"
if [ -e /dev/nvidiactl ]; then echo "gpus device"; fi
for file in /etc/cdi/*nvidia* /var/run/cdi/*nvidia*; do if [ -e "$file" ]; then echo "gpus cdi"; fi; done
for file in /usr/share/containers/oci/hooks.d/*nvidia* /etc/containers/oci/hooks.d/*nvidia*; do
  if [ -e "$file" ]; then echo "gpus hook"; fi
done
if command -v nvidia-container-runtime-hook >/dev/null 2>&1; then echo "gpus docker"; fi
room() {
  path=$2
  while [ -n "$path" ] && [ ! -e "$path" ]; do
    case $path in */*) path=${path%/*} ;; *) path=. ;; esac
  done
  echo "room $1 $(df -Pk "${path:-/}" | tail -n 1)"
}
room folder "$folder"
if command -v podman >/dev/null 2>&1; then
  store=$(podman info --format '{{.Store.GraphRoot}}' 2>/dev/null) && [ -n "$store" ] && {
    echo "answers podman"; room podman "$store"
    echo "image podman $(podman image inspect --format '{{.Id}}' "$qualified" 2>/dev/null)"
  }
fi
if command -v docker >/dev/null 2>&1; then
  if docker info >/dev/null 2>&1; then
    echo "answers docker"
    store=$(docker info --format '{{.DockerRootDir}}' 2>/dev/null)
    room docker "${store:-/var/lib/docker}"
    echo "image docker $(docker image inspect --format '{{.Id}}' "$given" 2>/dev/null)"
  fi
fi
if command -v skopeo >/dev/null 2>&1; then
  echo "answers skopeo"
  if [ "$(id -u)" = 0 ]; then store=/var/lib/containers/storage; else store=$HOME/.local/share/containers/storage; fi
  room skopeo "$store"
  if skopeo inspect --raw "containers-storage:$qualified" >/dev/null 2>&1; then
    echo "image skopeo $(skopeo inspect --config --raw "containers-storage:$qualified" 2>/dev/null | sha256sum)"
  fi
fi
if cd "$folder/blobs/sha256" 2>/dev/null; then
  for blob in $blobs; do if [ -f "$blob" ]; then echo "blob $blob $(wc -c <"$blob")"; fi; done
fi
"""

_PREPARE = """
umask 077
if mkdir -p "$folder/blobs/sha256" "$folder/images" && cd "$folder/blobs/sha256"; then
  for blob in $bad; do rm -f "$blob"; done
  echo "ready"
fi
"""

_CHECK = """
if cd "$folder/blobs/sha256"; then sha256sum $blobs 2>/dev/null; fi
"""

_LAYOUT_THERE = """
umask 077
place=images/$manifest
cd "$folder" && mkdir -p "$place" && rm -f "$place/blobs" && ln -s ../../blobs "$place/blobs" &&
  printf %s "$index" >"$place/index.json" && printf %s "$layout" >"$place/oci-layout" || { echo "status 1"; return; }
"""

_LOAD = {
    Engine.PODMAN: """
id=$(podman pull -q "oci:$place:$ref" 2>"$place/said") && podman tag "$id" "$qualified" 2>>"$place/said"
echo "status $?"
for other in "localhost/$place:latest" "localhost/$ref:latest"; do podman untag "$id" "$other" >/dev/null 2>&1; done
echo "image $(podman image inspect --format '{{.Id}} {{.Digest}}' "$qualified" 2>/dev/null)"
""",
    Engine.DOCKER: """
printf %s "$docker_manifest" >"$place/manifest.json"
files="oci-layout index.json manifest.json"
for blob in $blobs; do files="$files blobs/sha256/$blob"; done
(cd "$place" && tar -chf - $files) 2>"$place/said" | docker load -q >>"$place/said" 2>&1
echo "status $?"
echo "image $(docker image inspect --format '{{.Id}}' "$given" 2>/dev/null)"
""",
    Engine.SKOPEO: """
skopeo copy -q "oci:$place:$ref" "containers-storage:$qualified" >"$place/said" 2>&1
echo "status $?"
echo "image $(skopeo inspect --config --raw "containers-storage:$qualified" 2>/dev/null | sha256sum)"
""",
}
_SAID = """
echo "said"
tail -c 4000 "$place/said"
"""

_VERIFY = """
umask 077
place=images/$manifest
mkdir -p "$folder/$place" && cd "$folder" || return
set --
if [ -n "$brought" ]; then
  chmod a+r "blobs/sha256/$brought"  # whoever the image runs as has to read it; the folders above stay closed
  set -- "--mount=type=bind,source=$(pwd -P)/blobs/sha256/$brought,target=$inside,readonly"
fi
$engine run --rm $options "$@" "$named" $words >"$place/verify" 2>&1
echo "status $?"
echo "said"
tail -c 65536 "$place/verify"
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an image goes on a host, and under which name."""

    folder: str
    name: Name


def ask(place: Place, image: Image, token: str) -> bytes:
    """What the host has: tools, room, GPUs, the image, and which of its blobs."""
    return _script(_ASK, _words(place, image.blobs), token)


def prepare(place: Place, bad: tuple[Blob, ...], token: str) -> bytes:
    """The folder, without the blobs that cannot be gone on with."""
    return _script(_PREPARE, {**_words(place, ()), "bad": _digests(bad)}, token)


def check(place: Place, blobs: tuple[Blob, ...], token: str) -> bytes:
    """The sha256 of every blob, as it lies there."""
    return _script(_CHECK, _words(place, blobs), token)


def load(place: Place, image: Image, engine: Engine, token: str) -> bytes:
    """The blobs as an image of the host's engine, and the id that it has there."""
    ref = f"firstlight-ship-{image.manifest.digest[:12]}"
    words = {
        **_words(place, image.blobs),
        "manifest": image.manifest.digest,
        "ref": ref,
        "layout": _LAYOUT,
        "index": index_of(image, ref, place.name.in_containerd),
        "docker_manifest": docker_manifest_of(image, place.name.given),
    }
    return _script(_LAYOUT_THERE + _LOAD[engine] + _SAID, words, token)


def verify(place: Place, image: Image, program: str | Blob, how: tuple[Engine, Gpus], token: str) -> bytes:
    """`firstlight verify` in a container of the image, with the GPUs; a blob is run by the Python of the image."""
    engine, gpus = how
    brought = program if isinstance(program, Blob) else None
    started = (program,) if isinstance(program, str) else ("python3", _INSIDE)
    ours = any("firstlight" in word for word in image.entrypoint)  # it ends with exec "$@", and chooses libcuda
    options = (*_GPU_OPTIONS[engine, gpus], *(() if ours else ("--entrypoint", started[0])))
    if brought is not None and _NO_LABEL not in options:
        options = (_NO_LABEL, *options)
    words = {
        **_words(place, ()),
        "manifest": image.manifest.digest,
        "engine": engine.value,
        "options": " ".join(options),
        "named": place.name.given if engine is Engine.DOCKER else place.name.qualified,
        "words": " ".join((*(started if ours else started[1:]), "verify")),
        "brought": "" if brought is None else brought.digest,
        "inside": _INSIDE,
    }
    return _script(_VERIFY, words, token)


_NO_LABEL = "--security-opt=label=disable"
_INSIDE = "/run/firstlight.zip"
_CDI = (_NO_LABEL, "--device=nvidia.com/gpu=all")
_GPU_OPTIONS = {
    (Engine.PODMAN, Gpus.NONE): (),
    (Engine.DOCKER, Gpus.NONE): (),
    (Engine.PODMAN, Gpus.CDI): _CDI,
    (Engine.DOCKER, Gpus.CDI): ("--gpus=all",),
    (Engine.PODMAN, Gpus.HOOK): (_NO_LABEL, "--env=NVIDIA_VISIBLE_DEVICES=all"),
    (Engine.DOCKER, Gpus.HOOK): ("--gpus=all",),
}


def _words(place: Place, blobs: tuple[Blob, ...]) -> dict[str, str]:
    return {
        "folder": place.folder,
        "given": place.name.given,
        "qualified": place.name.qualified,
        "blobs": _digests(blobs),
    }


def _digests(blobs: tuple[Blob, ...]) -> str:
    return " ".join(blob.digest for blob in blobs)


def _script(body: str, words: dict[str, str], token: str) -> bytes:
    begin, end = marks(token)
    named = "".join(f"{name}={shlex.quote(value)}\n" for name, value in words.items())
    return (
        f"ship() {{\n{_ENVIRONMENT}{named}{body}\n}}\n"
        f"all() {{\nprintf '%s\\n' {begin}\nship\nprintf '\\n%s\\n' {end}\n}}\nall </dev/null\nexit\n"
    ).encode()
