"""What the kernels take: each check says what was given, what is accepted and what to do."""

from __future__ import annotations

import itertools
import warnings

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.pattern import BLOCKS, rows_of_entries

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INDEX_DTYPES = (torch.int32, torch.int64)
ALIGNMENT_BYTES = 16  # of a tensor's first element: what vector loads and TMA descriptors need
MAX_ENTRIES = 2**31 - 1  # entry numbers are int32 in a schedule


class CopiedInput(UserWarning):
    """An input was copied because of how it lies in memory; names the tensor and the reason."""


_WARNED: set[tuple[str, str]] = set()


def prepared(tensor: Tensor, name: str) -> Tensor:
    """The tensor itself if contiguous and 16-byte aligned, else a copy, with one warning per name and reason."""
    if tensor.is_contiguous():
        if tensor.data_ptr() % ALIGNMENT_BYTES == 0:
            return tensor
        _warn_of_copy(name, f"its first element is not at a multiple of {ALIGNMENT_BYTES} bytes", ".clone() it once")
        return tensor.clone(memory_format=torch.contiguous_format)
    _warn_of_copy(name, "it is not contiguous", "call .contiguous() once")
    return tensor.contiguous()


def _warn_of_copy(name: str, reason: str, remedy: str) -> None:
    if (name, reason) not in _WARNED:
        _WARNED.add((name, reason))
        message = f"{name} is copied on every call because {reason}; to avoid the copy, {remedy} before the calls."
        warnings.warn(message, CopiedInput, stacklevel=3)


def require_block(block: object) -> None:
    """Raises unless block is 16, 32, 64 or 128."""
    if isinstance(block, bool) or block not in BLOCKS:
        raise UnsupportedInput(
            f"block is {block!r}; 16, 32, 64 and 128 are accepted. Choose one of them, or re-block with "
            f"firstlight.kernels.convert.reblock."
        )


def require_dtype(tensor: Tensor, name: str, accepted: tuple[torch.dtype, ...] = DTYPES) -> None:
    """Raises unless the tensor has one of the accepted dtypes."""
    if tensor.dtype not in accepted:
        words = ", ".join(_short(dtype) for dtype in accepted)
        raise UnsupportedInput(
            f"{name} is {_short(tensor.dtype)}; accepted are {words}. Convert it, e.g. with "
            f"{name}.to(torch.{_short(accepted[0])})."
        )


def require_shape(tensor: Tensor, name: str, shape: tuple[int | None, ...]) -> None:
    """Raises unless the tensor has this shape; None stands for any size."""
    given = tuple(tensor.shape)
    fits = len(given) == len(shape) and all(want in (None, have) for have, want in zip(given, shape, strict=True))
    if not fits:
        wanted = "[" + ", ".join("any" if want is None else str(want) for want in shape) + "]"
        raise UnsupportedInput(f"{name} has shape {list(given)}; {wanted} is accepted. Pass {name} in that shape.")


def require_same_device(first: Tensor, first_name: str, second: Tensor, second_name: str) -> None:
    """Raises unless both tensors are on one device."""
    if first.device != second.device:
        raise UnsupportedInput(
            f"{first_name} is on {first.device} and {second_name} on {second.device}; one device is accepted. "
            f"Move one: {second_name}.to({str(first.device)!r})."
        )


def require_same_dtype(first: Tensor, first_name: str, second: Tensor, second_name: str) -> None:
    """Raises unless both tensors have one dtype."""
    if first.dtype != second.dtype:
        raise UnsupportedInput(
            f"{first_name} is {_short(first.dtype)} and {second_name} {_short(second.dtype)}; one dtype is accepted. "
            f"Convert one: {second_name}.to(torch.{_short(first.dtype)}), or use torch.autocast."
        )


def require_size(rows: object, cols: object) -> None:
    """Raises unless the matrix has at least one row and one column."""
    for name, value in (("rows", rows), ("columns", cols)):
        if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)) or value < 1:
            raise UnsupportedInput(f"the matrix has {value!r} {name}; whole numbers of 1 or more are accepted.")


def require_parts(values: Tensor, crow: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
    """Raises unless shapes, dtypes and devices of the parts fit each other; looks at no number on the device."""
    if values.dim() != 3 or values.shape[1] != values.shape[2]:
        raise UnsupportedInput(
            f"values has shape {list(values.shape)}; [stored blocks, block, block] is accepted. For rectangular blocks "
            f"use firstlight.kernels.convert.from_torch_bsr with block=."
        )
    require_block(values.shape[1])
    require_dtype(values, "values")
    if len(shape) != 2:
        raise UnsupportedInput(f"shape is {tuple(shape)}; (rows, columns) is accepted.")
    require_size(*shape)
    for name, tensor in (("crow", crow), ("col", col)):
        require_dtype(tensor, name, INDEX_DTYPES)
        require_same_device(values, "values", tensor, name)
    require_same_dtype(crow, "crow", col, "col")
    block_rows = -(-shape[0] // values.shape[1])
    require_shape(crow, "crow", (block_rows + 1,))
    require_shape(col, "col", (values.shape[0],))
    if values.shape[0] > MAX_ENTRIES:
        raise UnsupportedInput(
            f"there are {values.shape[0]} stored blocks; at most {MAX_ENTRIES} are accepted. Use a larger block."
        )


def called(value: object) -> str:
    """What a value is, for a message, e.g. 'a list' or 'None'."""
    return "None" if value is None else f"a {type(value).__name__}"


def require_tensor(value: object, name: str) -> None:
    """Raises unless the value is a tensor."""
    if not isinstance(value, Tensor):
        raise UnsupportedInput(f"{name} is {called(value)}; a tensor is accepted. Make one with torch.as_tensor.")


def require_values(values: Tensor, entries: int, block: int) -> None:
    """Raises unless values is a tensor with one block for each stored block."""
    require_tensor(values, "values")
    if values.shape != (entries, block, block):
        raise UnsupportedInput(
            f"values has shape {list(values.shape)}; [{entries}, {block}, {block}] is accepted, as the pattern stores "
            f"{entries} blocks of {block} x {block}. Give values of that shape, or make the matrix with "
            f"BlockSparseMatrix.from_parts."
        )


def require_memory(values: Tensor) -> None:
    """Raises where the memory of the values was freed under them."""
    if values.numel() and not values.data_ptr():
        raise UnsupportedInput(
            f"values has shape {list(values.shape)} and no memory behind it; values with their numbers are accepted. "
            "Gather them first where something has freed them, as FSDP does between its calls."
        )


def require_pattern(
    crow: Tensor, col: Tensor, block_cols: int, *, allow_unsorted: bool = False, allow_duplicates: bool = False
) -> None:
    """Raises on offsets that do not count the stored blocks, and on columns out of range, unsorted or stored twice.

    Computes on the device and reads the answers back once (the host waits).
    """
    entries = col.shape[0]
    steps = crow[1:] - crow[:-1]
    rows = rows_of_entries(crow, col).to(torch.int64)
    # one number per place, in 64 bits: equal numbers are one block stored twice, falling ones an unsorted row
    place = rows * block_cols + col
    in_order = place[1:] > place[:-1]
    ordered = torch.sort(place).values
    answers = torch.stack(
        [
            crow[0] != 0,
            crow[-1] != entries,
            (steps < 0).any(),
            ((col < 0) | (col >= block_cols)).any(),
            ~in_order.all(),
            (ordered[1:] == ordered[:-1]).any(),
        ]
    ).tolist()
    bad_first, bad_last, falling, outside, unsorted, duplicate = answers
    if bad_first or bad_last or falling:
        _complain_about_offsets(crow, entries)
    if outside:
        _complain_about_range(rows, col, block_cols)
    if duplicate and not allow_duplicates:
        _complain_about_duplicate(ordered, block_cols)
    if unsorted and not (allow_unsorted or (allow_duplicates and not _falls(rows, col))):
        _complain_about_order(rows, col)


def _falls(rows: Tensor, col: Tensor) -> bool:
    return bool(((col[1:] < col[:-1]) & (rows[1:] == rows[:-1])).any())


def _complain_about_offsets(crow: Tensor, entries: int) -> None:
    starts = crow.tolist()
    if starts[0] != 0:
        raise UnsupportedInput(f"crow starts with {starts[0]}; it has to start with 0. Rebuild crow.")
    for row, (begin, end) in enumerate(itertools.pairwise(starts)):
        if end < begin:
            raise UnsupportedInput(
                f"crow falls from {begin} to {end} at block row {row}; offsets that never fall are accepted. "
                f"Rebuild crow as the running sum of the blocks in each row."
            )
    raise UnsupportedInput(
        f"crow ends with {starts[-1]} and there are {entries} stored blocks; the last offset has to be their number. "
        f"Rebuild crow, or pass all of col and values."
    )


def _complain_about_range(rows: Tensor, col: Tensor, block_cols: int) -> None:
    entry = int(((col < 0) | (col >= block_cols)).to(torch.int32).argmax())
    raise UnsupportedInput(
        f"col holds {int(col[entry])} at entry {entry}, in block row {int(rows[entry])}; block columns 0 to "
        f"{block_cols - 1} are accepted. Correct col, or pass the shape it was made for."
    )


def _complain_about_duplicate(ordered: Tensor, block_cols: int) -> None:
    place = int(ordered[1:][int((ordered[1:] == ordered[:-1]).to(torch.int32).argmax())])
    raise UnsupportedInput(
        f"block row {place // block_cols} stores block column {place % block_cols} more than once; distinct blocks are "
        f"accepted. Pass allow_duplicates=True to have them summed, and call canonicalize() to store the sum once."
    )


def _complain_about_order(rows: Tensor, col: Tensor) -> None:
    entry = int(((col[1:] < col[:-1]) & (rows[1:] == rows[:-1])).to(torch.int32).argmax())
    raise UnsupportedInput(
        f"block row {int(rows[entry])} stores block column {int(col[entry])} before {int(col[entry + 1])}; ascending "
        f"block columns are accepted. Pass allow_unsorted=True, and call canonicalize() to sort them once."
    )


def require_zero_padding(values: Tensor, crow: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
    """Raises if stored values beyond the last row or column are not 0, where the block does not divide the shape."""
    block = values.shape[1]
    rows_used, cols_used = shape[0] % block or block, shape[1] % block or block
    if values.shape[0] == 0 or (rows_used == block and cols_used == block):
        return
    last_row = values[int(crow[-2]) : int(crow[-1]), rows_used:, :]
    last_col = values[(col == (shape[1] - 1) // block).nonzero().flatten(), :, cols_used:]
    for name, part, size in (("row", last_row, shape[0]), ("column", last_col, shape[1])):
        if bool((part.detach() != 0).any()):
            raise UnsupportedInput(
                f"values holds non-zero numbers beyond {name} {size - 1} of the matrix, in the unused part of the last "
                f"block {name}; zeros are accepted there. Zero them, or pass the larger shape."
            )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
