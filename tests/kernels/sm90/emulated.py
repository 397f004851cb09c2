"""A stand-in for the driver and for the kernels: launches compute on the processor what their arguments say.

The arguments are read from memory as the .cu files declare them, tensor maps give boxes with zeros outside of the
tensor, portions meet through the parts and counts in memory. What a kernel does with them is written down here once
more, without its pipeline: so lists, portions, maps, sizes and addresses are held without a GPU, the kernels are not.
"""

from __future__ import annotations

import ctypes
import re
import struct
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.kernels.sm90.variants import TURN_SIDE
from tests.kernels.sm90.structs import fields_of

FAKE_NVCC = """#!/bin/sh
case "$1" in --version) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0;; esac
for last in "$@"; do :; done
printf '\\177ELF %s' "$*" > "$last"
"""
ACTIVATIONS = (
    lambda x: x, torch.relu, functional.gelu, lambda x: functional.gelu(x, approximate="tanh"), functional.silu
)  # fmt: skip
_DTYPES = {6: torch.float16, 9: torch.bfloat16}


class Map(NamedTuple):
    """A tensor map as it was asked for."""

    address: int
    dtype: torch.dtype
    dims: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes, the innermost left out
    box: tuple[int, ...]
    swizzle: int

    def tensor(self) -> Tensor:
        """The tensor, outermost dimension first."""
        steps = [step // 2 for step in (2, *self.strides)]
        size = 1 + sum((dim - 1) * step for dim, step in zip(self.dims, steps, strict=True))
        return memory(self.address, size, self.dtype).as_strided(self.dims[::-1], steps[::-1])

    def load(self, *at: int) -> Tensor:
        """The box at a place, zero outside of the tensor."""
        found = torch.zeros(self.box[::-1], dtype=self.dtype)
        inside, source = self._overlap(at)
        found[inside] = self.tensor()[source]
        return found

    def store(self, given: Tensor, *at: int) -> None:
        """Writes a box; what lies outside of the tensor is dropped."""
        inside, target = self._overlap(at)
        self.tensor()[target] = given.view(self.box[::-1])[inside].to(self.dtype)

    def _overlap(self, at: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        inside, outside = [], []
        for first, dim, edge in list(zip(at, self.dims, self.box, strict=True))[::-1]:
            assert first >= 0, at
            length = max(0, min(edge, dim - first))
            inside.append(slice(0, length))
            outside.append(slice(first, first + length) if length else slice(0, 0))
        return tuple(inside), tuple(outside)


def memory(address: int, count: int, dtype: torch.dtype) -> Tensor:
    """Numbers at an address."""
    if not count:
        return torch.empty(0, dtype=dtype)
    room = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(room, dtype=dtype)


class Arguments:
    """A kernel's struct in memory, field by field."""

    def __init__(self, source: str, name: str, address: int, maps: list[Map]) -> None:
        self._fields, self._address, self._maps = fields_of(source, name), address, maps

    def __getattr__(self, name: str) -> Any:
        field = self._fields[name]
        at = self._address + field.offset
        if field.kind == "m":
            return self._maps[struct.unpack("<q", ctypes.string_at(at, 8))[0]]
        return struct.unpack(f"<{field.kind}", ctypes.string_at(at, struct.calcsize(field.kind)))[0]

    def ints(self, name: str, count: int) -> Tensor:
        """int32 numbers behind a pointer."""
        return memory(getattr(self, name), count, torch.int32)


class Driver:
    """What the backend calls of libcuda."""

    def __init__(self) -> None:
        self.cubins: list[bytes] = []
        self.maps: list[Map] = []
        self.launched: list[str] = []
        self.grids: list[tuple[int, int, int]] = []
        self.splits = 0  # sums that were put together from portions

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: 0  # contexts and attributes

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        context._obj.value = 1
        return 0

    def cuModuleLoadData(self, module: Any, cubin: bytes) -> int:
        self.cubins.append(cubin)
        module._obj.value = len(self.cubins)
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        function._obj.value = module.value
        return 0

    def cuFuncGetParamInfo(self, *given: Any) -> int:
        return 1

    def cuTensorMapEncodeTiled(self, to: Any, *given: Any) -> int:
        kind, rank, address, sizes, strides, box, _, _, swizzle, _, _ = given
        made = Map(
            address.value, _DTYPES[kind], tuple(sizes), tuple(strides)[: rank - 1], tuple(box), swizzle
        )  # fmt: skip
        self.maps.append(made)
        place = ctypes.cast(to, ctypes.c_void_p).value
        assert place
        ctypes.memmove(place, struct.pack("<q", len(self.maps) - 1), 8)
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:
        told = self.cubins[function.value - 1].decode("latin-1")
        source = re.findall(r"(\w+)\.cu\b", told)[-1]
        macros = {name: int(value) for name, value in re.findall(r"-D(\w+)=(\d+)", told)}
        self.launched.append(source)
        self.grids.append(tuple(config.contents.grid))
        name = f"{source.capitalize()}Args"
        arguments = Arguments(source, name, pointers[0], self.maps)
        known = {"multiply": self._multiply, "sample": self._sample, "turn": _turn}
        if source == "pitch":
            _repitch(arguments, rows=self.grids[-1][0])
        else:
            known[source](arguments, macros)
        return 0

    def _multiply(self, args: Arguments, macros: dict[str, int]) -> None:
        cluster = macros.get("CLUSTER", 1)
        tiles = args.tiles * args.batches // cluster  # of all thread blocks of a cluster
        portions = args.ints("portions", 4 * args.portions_count).view(-1, 4).tolist()
        assert not args.ints("queue", 2).any()
        for number in range(args.portions_count * tiles):  # those of run_queue of multiply.cu, in whichever order
            tile, portion = number % tiles, portions[number // tiles]
            if portion[0] >= 0:
                for rank in range(cluster):
                    self._item(args, macros, portion, tile * cluster + rank)

    def _item(self, args: Arguments, macros: dict[str, int], portion: list[int], tile: int) -> None:
        group, begin, end, slot = portion
        block, tokens = macros["BLOCK"], macros["TOKENS"]
        height, width = 128 // block, max(1, 64 // block)
        batch, first = tile // args.tiles, tile % args.tiles * tokens
        total = torch.zeros(128, tokens, dtype=torch.float64)
        columns = args.ints("columns", end * width)
        members = args.ints("members", end * width * height).view(-1, height)
        for entry in range(begin * width, end * width):
            column = int(columns[entry])
            if column * block >= args.cols:
                assert (members[entry] < 0).all()
                continue
            x = dense_tile(args, macros, column * block, (first, batch))
            for row, member in enumerate(members[entry].tolist()):
                if member >= 0:
                    total[row * block : (row + 1) * block] += stored_block(args, macros, member) @ x
        tiles = args.tiles * args.batches
        if slot >= 0:
            start = int(args.ints("first_slot", group + 1)[group])
            count = int(args.ints("slot_counts", group + 1)[group])
            place = (start * tiles + tile) * 2
            found = self._together(args, (place, place), (slot - start, count, tiles * 2), total)
            if found is None:
                return
            total = found
        rows = [group]
        if block < 128:
            rows = args.ints("block_rows", (group + 1) * height)[group * height :].tolist()
        for line in range(0, 128, 64 if block >= 64 else block):
            row = rows[line // block] * block + line % block
            finish(args, macros, total[line : line + min(64, block)], (row, first, batch))

    def _together(
        self, args: Arguments, places: tuple[int, int], part: tuple[int, int, int], total: Tensor
    ) -> Tensor | None:
        """The sum of all portions in the order of their slots, for the last one that comes.

        places: of the first half-part and of its count.
        """
        (place, counted), (own, count, stride) = places, part
        size = total.numel() // 2  # two warpgroups, each half the rows
        halves = memory(args.parts, (place + 2 + (count - 1) * stride) * size, torch.float32).view(-1, size)
        halves[place + own * stride], halves[place + own * stride + 1] = total.float().view(2, -1)
        arrivals = args.ints("arrivals", counted + 2)
        arrivals[counted] += 1
        if arrivals[counted] < count:
            return None
        arrivals[counted] = 0
        self.splits += 1
        both = sum(halves[place + part * stride : place + part * stride + 2].double() for part in range(count))
        assert isinstance(both, Tensor)
        return both.reshape(total.shape)

    def _sample(self, args: Arguments, macros: dict[str, int]) -> None:
        block = macros["BLOCK"]
        width = 256 // block
        starts = args.ints("starts", args.groups + 1).tolist()
        stages = args.depth * args.batches
        for group in range(args.groups):
            for step in range(starts[group], starts[group + 1]):
                columns = args.ints("columns", (step + 1) * width).tolist()[step * width :]
                for split in range(args.splits):
                    total = torch.zeros(128, 256, dtype=torch.float64)
                    for k in range(stages * split // args.splits, stages * (split + 1) // args.splits):
                        total += sample_stage(args, macros, columns, (group, k))
                    found: Tensor | None = total
                    if args.splits > 1:
                        found = self._together(args, (step * args.splits * 2, step * 2), (split, args.splits, 2), total)
                    if found is not None:
                        store_sampled(args, block, (group, step), found)


def stored_block(args: Arguments, macros: dict[str, int], member: int) -> Tensor:
    """A stored block, turned where it is used as its transpose; through the map but for blocks of 16."""
    block = macros["BLOCK"]
    if block == 16:
        found = memory(args.values, (member + 1) * 256, args.w.dtype)[member * 256 :].view(16, 16)
    else:
        rows = [
            torch.cat([args.w.load(x, y, member)[0] for x in range(0, block, args.w.box[0])], 1)
            for y in range(0, block, args.w.box[1])
        ]
        found = torch.cat(rows)
    found = found.double()
    return found.T if macros["TURNED"] else found


def dense_tile(args: Arguments, macros: dict[str, int], k: int, where: tuple[int, int]) -> Tensor:
    """[block, TOKENS] of X as load_x of multiply.cu asks for it."""
    block, tokens = macros["BLOCK"], macros["TOKENS"]
    first, batch = where
    depth = min(block, 64)
    parts = []
    for at in range(k, k + block, depth):
        if macros["X_BY_TOKEN"]:
            parts.append(args.x.load(at, first, 0, 0).view(tokens, depth).T)
        elif args.boxes == 1:
            parts.append(args.x.load(0, at, first // 64, batch).view(-1, depth, 64).transpose(0, 1).reshape(depth, -1))
        else:
            boxes = [args.x.load(first + 64 * box, at, 0, batch).view(depth, 64) for box in range(tokens // 64)]
            parts.append(torch.cat(boxes, 1))
        assert parts[-1].shape == (depth, tokens)
    return torch.cat(parts).double()


def finish(args: Arguments, macros: dict[str, int], total: Tensor, where: tuple[int, int, int]) -> None:
    """The epilogue of up to 64 rows of one block row and the stores, of 64 x 64 or of a warp's 16 rows."""
    row, first, batch = where
    by_token, count = macros["OUT_BY_TOKEN"], len(total)
    if count > 16 and not by_token:
        for line in range(0, count, 16):
            finish(args, macros, total[line : line + 16], (row + line, first, batch))
        return
    for token in range(first, first + macros["TOKENS"], 64):
        at = (row, token, batch) if by_token else (token, row, batch)
        tile = total[:, token - first :][:, :64]
        if not args.plain:
            tile = args.alpha * tile
            before = args.c.load(*at)[0].double() if args.addend else torch.zeros_like(tile)
            before = before.T if by_token and args.addend else before
            if not args.gated:
                tile = tile + args.beta * before
            if args.bias:
                bias, inside = torch.zeros(count, dtype=torch.float64), max(0, min(count, args.rows - row))
                bias[:inside] = memory(args.bias, args.rows, args.y.dtype)[row : row + inside].double()
                tile = tile + bias[:, None]
            tile = ACTIVATIONS[args.activation](tile)
            if args.gated:
                tile = tile.to(args.y.dtype).double() * before
        args.y.store((tile.T if by_token else tile).contiguous(), *at)


def sample_stage(args: Arguments, macros: dict[str, int], columns: list[int], at: tuple[int, int]) -> Tensor:
    """[128, 256] of one stage of the contraction, as load_stage of sample.cu asks for it."""
    group, k = at
    block = macros["BLOCK"]
    batch, start = k // args.depth, k % args.depth * 64
    if macros["BY_TOKEN"]:
        left = torch.cat([args.a.load(group * 128 + x, start, 0)[0] for x in (0, 64)], 1).T
        right = [args.b.load(column * block + x, start, 0)[0] for column in columns for x in range(0, block, 64)]
        return left.double() @ torch.cat(right, 1).double()
    left = args.a.load(start, group * 128, batch)[0]
    found = [args.b.load(start, column * block, batch)[0] for column in columns]
    product: Tensor = left.double() @ torch.cat(found).double().T
    return product


def store_sampled(args: Arguments, block: int, at: tuple[int, int], total: Tensor) -> None:
    """The stored blocks of a tile; what lies past the matrix is 0."""
    group, step = at
    width, height = 256 // block, 128 // block
    columns = args.ints("columns", (step + 1) * width).tolist()[step * width :]
    members = args.ints("members", (step + 1) * width * height).view(-1, width, height)[step]
    for entry, column in enumerate(columns):
        for line, member in enumerate(members[entry].tolist()):
            if member < 0:
                continue
            tile = args.alpha * total[line * block : (line + 1) * block, entry * block : (entry + 1) * block].clone()
            tile[max(0, args.rows - group * 128 - line * block) :] = 0
            tile[:, max(0, args.cols - column * block) :] = 0
            to = memory(args.values, (member + 1) * block * block, args.a.dtype)[member * block * block :]
            to.copy_(tile.reshape(-1).to(to.dtype))


def _repitch(args: Arguments, rows: int) -> None:
    size = (rows - 1) * args.from_pitch + args.there
    source = memory(getattr(args, "from"), size, torch.int16).as_strided((rows, args.there), (args.from_pitch, 1))
    size = (rows - 1) * args.to_pitch + args.wanted
    to = memory(args.to, size, torch.int16).as_strided((rows, args.wanted), (args.to_pitch, 1))
    to.zero_()
    to[:, : args.there] = source


def _turn(args: Arguments, macros: dict[str, int]) -> None:
    source = memory(getattr(args, "from"), args.rows * args.cols, torch.int16).view(args.rows, args.cols)
    wide = min(args.pitch, -(-args.rows // TURN_SIDE) * TURN_SIDE)
    to = memory(args.to, (args.cols - 1) * args.pitch + wide, torch.int16).as_strided(
        (args.cols, wide), (args.pitch, 1)
    )
    to.zero_()
    to[:, : args.rows] = source.T
