"""Feed the ELF reader files that are cut, bent or lie about their sizes, and tell how much it read of them.

    python -m tools.fuzz_elf COUNT [SEED]

Every input is a real file with some of its bytes changed where the reader looks. A crash ends the run with a traceback
and the number of the input; the same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firstlight.elf.image import Read, bytes_of, open_image
from firstlight.elf.reader import (
    abi_tag,
    all_defined_of,
    build_id,
    elf_of,
    needed_of,
    notes_of,
    parse_elf,
    why_not_parsed,
)

ROOT = Path(__file__).parents[1]
LARGEST_SAMPLE = 64 << 10
LIMITS = (0, 1, 7, 16, 56, 64, 0xFF, 0xFFFF, 1 << 16, (1 << 31) - 1, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
KINDS = (2, 3, 4, 5, 10, 14, 15, 29, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF)  # of segments and dynamic tags
NUMBERS = (*LIMITS, *KINDS)


@dataclass(frozen=True)
class Sample:
    """A real file and the places in it that the reader looks at."""

    data: bytes
    places: tuple[range, ...]


def samples(most: int = 24) -> tuple[Sample, ...]:
    """Small libraries and programs of this system; some with the machine number of aarch64."""
    found: list[Sample] = []
    for folder in (f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/lib64", "/usr/bin"):
        for path in sorted(Path(folder).glob("*")) if Path(folder).is_dir() else ():
            if path.is_file() and not path.is_symlink() and 4096 < path.stat().st_size <= LARGEST_SAMPLE:
                data = path.read_bytes()
                if parse_elf(data, "") is not None:
                    found.append(_sample(data))
    step = max(1, len(found) // most)
    return tuple(found[::step][:most])


def _sample(data: bytes) -> Sample:
    image = open_image(bytes_of(data), "")
    assert image is not None
    places = [range(64), range(64, 64 + 56 * 14)]
    places.extend(range(item.offset, item.offset + item.size) for item in image.segments if item.kind in (2, 3, 4))
    for tag, size in ((5, 256), (0x6FFFFFFC, 256), (0x6FFFFFFE, 256)):
        start = image.file_offset(image.tag(tag))
        if start is not None:
            places.append(range(start, start + size))
    return Sample(data, tuple(place for place in places if place.stop <= len(data) and len(place) > 8))


def bent(sample: Sample, chance: random.Random) -> bytes:
    """The sample with one to six changes, and now and then cut short."""
    data = bytearray(sample.data)
    for _ in range(chance.randint(1, 6)):
        place = chance.choice(sample.places)
        at = chance.randrange(place.start, place.stop)
        kind = chance.random()
        if kind < 0.4:
            data[at] ^= chance.randint(1, 255)
        elif kind < 0.8:
            width = chance.choice((2, 4, 8))
            at = at // width * width
            number = chance.choice((chance.choice(NUMBERS), len(data), chance.getrandbits(64)))
            data[at : at + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        elif kind < 0.9:
            data[at : at + 64] = data[place.start : place.start + 64]
        else:
            data[at : at + 256] = bytes([chance.choice((0, 0xFF, 0x41))]) * len(data[at : at + 256])
    if chance.random() < 0.2:
        del data[chance.randrange(chance.choice((64, 1024, len(data)))) :]
    return bytes(data)


class _Counting:
    """Passes reads on and counts their bytes."""

    def __init__(self, read: Read) -> None:
        self._read, self.bytes = read, 0

    def __call__(self, offset: int, size: int) -> bytes:
        data = self._read(offset, size)
        self.bytes += len(data)
        return data


def read_everything(data: bytes) -> int:
    """Every question the reader answers; how many bytes it looked at for that."""
    counting = _Counting(bytes_of(data))
    why_not_parsed(data)
    image = open_image(counting, "fuzzed")
    if image is not None:
        elf_of(image)
        needed_of(image)
        all_defined_of(image)
        notes = notes_of(image)
        build_id(notes)
        abi_tag(notes)
    return counting.bytes


def fuzz(count: int, *, seed: int) -> dict[str, Any]:
    """Read `count` bent files; how many still were ELF files, and the most that was read of one."""
    chance = random.Random(seed)
    given = samples()
    most = elf = 0
    longest = 0.0
    begun = time.perf_counter()
    for number in range(count):
        data = bent(given[number % len(given)], chance)
        started = time.perf_counter()
        try:
            looked_at = read_everything(data)
        except Exception as error:
            raise AssertionError(f"input {number} of seed {seed}: {error!r}") from error
        longest = max(longest, time.perf_counter() - started)
        most, elf = max(most, looked_at), elf + (data[:4] == b"\x7fELF")
    return {
        "inputs": count,
        "seed": seed,
        "still_elf": elf,
        "crashes": 0,
        "most_bytes_read_of_one": most,
        "longest_ms": round(longest * 1e3, 2),
        "seconds": round(time.perf_counter() - begun, 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def fuzz_in_a_child(count: int, *, seed: int) -> dict[str, Any]:
    """The same in a process of its own, so that its peak memory is that of the reader."""
    argv = [sys.executable, "-m", "tools.fuzz_elf", str(count), str(seed)]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=8)
    asked = parser.parse_args()
    print(json.dumps(fuzz(asked.count, seed=asked.seed)))
