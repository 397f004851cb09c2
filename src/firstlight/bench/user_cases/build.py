"""A user's cases as cases of the suite: the same record, the same stopwatch, the same limits."""

from __future__ import annotations

from functools import partial

from firstlight.bench.case import Case, Place
from firstlight.bench.cases.needs import is_cpu, memory_needs
from firstlight.bench.choice import Suite
from firstlight.bench.operator_counts import Work
from firstlight.bench.user_cases.cuda_file import cuda_binder
from firstlight.bench.user_cases.declare import META, CudaFile, Maker, UserCase
from firstlight.bench.user_cases.guards import bytes_of, tolerance_of
from firstlight.bench.user_cases.load import Loaded, load_cases
from firstlight.bench.user_cases.prepare import BoundCase, as_tuple, prepare, python_call
from firstlight.bench.user_cases.seal import Seal, seal

FAMILY = "user"
CHECKING = 8  # sets of buffers in all while one is checked: copies, doubles, and what comparing them takes


def user_suite(path: str) -> Suite:
    """The suite of a file; the instruments are sealed before the first line of it runs."""
    import firstlight.bench.runner  # noqa: F401 all that measures has to be there to be sealed

    instruments = seal()
    loaded = load_cases(path)
    return partial(cases_of, loaded, instruments)


def cases_of(loaded: Loaded, instruments: Seal, place: Place) -> tuple[Case, ...]:
    """The cases of a place, e.g. user/axpy/fp32."""
    return tuple(_case(each, loaded.folder, instruments, place) for each in loaded.cases)


def _case(user: UserCase, folder: str, instruments: Seal, place: Place) -> Case:
    is_cuda = isinstance(user.run, CudaFile)
    set_bytes = buffer_bytes(user)
    bind = cuda_binder(user.run, folder, place) if isinstance(user.run, CudaFile) else partial(python_call, user.run)
    needs = "" if is_cuda and is_cpu(place) else memory_needs(CHECKING * set_bytes, place)
    return Case(
        id=f"{FAMILY}/{user.name}",
        family=FAMILY,
        params=(("source", "cuda" if is_cuda else "python"), ("tolerance", f"{tolerance_of(user):.3g}")),
        dtype=user.dtype,
        work=Work(user.flops, user.flops, user.bytes, "as the file of cases says", "as the file of cases says"),
        peak=user.peak or ("bandwidth" if user.flops <= user.bytes else user.dtype),
        prepare=partial(prepare, BoundCase(user, bind, instruments, f"{FAMILY}/{user.name}")),
        set_bytes=set_bytes,
        tolerance=tolerance_of(user),
        cache=user.cache,
        devices=("cuda",) if is_cuda else ("cuda", "cpu"),
        needs=needs,
        flags=("repeated_input",) if user.may_repeat else (),
    )


def buffer_bytes(user: UserCase) -> int:
    """Memory of one set of inputs and outputs, learned from shapes alone; as the file counts where that cannot be."""
    maker = Maker(META, None)
    try:
        inputs = as_tuple(user.inputs(maker))
        if user.outputs is not None:
            return bytes_of((*inputs, *as_tuple(user.outputs(maker))))
        wanted = as_tuple(user.reference(*inputs))
        if any(getattr(each, "device", None) is None or each.device.type != META for each in (*inputs, *wanted)):
            return user.bytes
        return bytes_of((*inputs, *wanted))
    except Exception:  # noqa: BLE001 the user's functions need not work on shapes alone
        return user.bytes
