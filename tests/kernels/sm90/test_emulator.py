"""The emulator's threads, barriers and complaints, and that it has every instruction that the kernels use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.kernels.sm90.emulator.build import HEADERS, SOURCES, NotEmulated, as_host_code, needs_compiler
from tests.kernels.sm90.emulator.run import EmulatedFault, emulated_map
from tests.kernels.sm90.emulator.tiny import tiny

pytestmark = needs_compiler
_FUNCTION = re.compile(
    r"(?:__device__ __forceinline__|static inline) [\w ]+?[ *&]+(\w+)\(((?:[^()]|\([^()]*\))*)\)\s*\{"
)
BARRIERS = "if (t == 0) { barrier_init(base, 2); barriers_ready(); } __syncthreads();"


def functions(path: Path) -> set[tuple[str, int]]:
    """Name and number of parameters of every function of a header, e.g. ('barrier_wait', 2)."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    found = set()
    for name, parameters in _FUNCTION.findall(text):
        wanted = [part for part in parameters.split(",") if part.strip() not in ("", "CALLED_FROM")]
        found.add((name, len(wanted)))
    return found


def test_every_function_with_an_instruction_has_its_emulation() -> None:
    with_instructions = [path for path in sorted(SOURCES.glob("*.cuh")) if re.search(r"\basm\b", path.read_text())]
    assert {"ptx.cuh", "wgmma.cuh"} <= {path.name for path in with_instructions}
    assert ("barrier_wait", 2) in functions(SOURCES / "ptx.cuh")
    for path in with_instructions:
        assert (HEADERS / path.name).exists(), f"{path.name} holds instructions and has no emulated twin"
        missing = functions(path) - functions(HEADERS / path.name)
        assert not missing, f"{path.name}: the emulator lacks {sorted(missing)}"


def test_an_instruction_with_a_result_is_refused_outside_of_the_headers() -> None:
    text = 'void f() {\n  asm volatile("st.shared.u32 [%0], %1;" ::"r"(1), "r"(2) : "memory");\n}\n'
    assert as_host_code("mine.cu", text) == text, "one without a result is left to the preprocessor"
    with pytest.raises(NotEmulated, match=r"mine\.cu:5: an asm with a result"):
        as_host_code("mine.cu", text + 'int g() {\n  int x; asm volatile("mov.u32 %0, %%clock;" : "=r"(x));\n}\n')
    with pytest.raises(NotEmulated, match="__shared__"):
        as_host_code("mine.cu", "__shared__ int (*odd)[4];")


def test_maps_that_the_hardware_refuses_are_refused() -> None:
    with pytest.raises(AssertionError, match="multiple of 16"):
        emulated_map(1 << 20, torch.float16, (64, 8), (100,), (64, 8), 128)
    assert len(emulated_map(1 << 20, torch.float16, (64, 8), (128,), (64, 8), 128)) == 128


def test_lanes_exchange_and_vote() -> None:
    out = torch.full((5, 64), -1, dtype=torch.int32)
    tiny(
        """int* to = (int*)a[0] + t;
        to[0] = __shfl_sync(~0u, 10 * t, 3);
        to[64] = __shfl_xor_sync(~0u, t, 5);
        to[128] = __shfl_up_sync(~0u, t, 1);
        to[192] = (int)__ballot_sync(~0u, lane % 3 == 0);
        to[256] = __any_sync(~0u, lane == 7 && t < 32);""",
        out.data_ptr(), threads=64,
    )  # fmt: skip
    threads = torch.arange(64)
    assert out[0].tolist() == [30] * 32 + [350] * 32
    assert torch.equal(out[1], (threads ^ 5).int())
    assert torch.equal(out[2], torch.where(threads % 32 == 0, threads, threads - 1).int())
    assert set(out[3].tolist()) == {sum(1 << lane for lane in range(0, 32, 3))}
    assert out[4].tolist() == [1] * 32 + [0] * 32


def test_thread_blocks_have_shared_memory_of_their_own_and_run_at_once() -> None:
    out = torch.full((7, 64), -1, dtype=torch.int32)
    counter = torch.zeros(1, dtype=torch.int32)
    for seed in range(3):
        tiny(
            """__shared__ int own[64], taken;
            own[t] = blockIdx.x * 100 + t;
            if (t == 0) taken = atomicAdd((int*)a[1], 1);
            __syncthreads();
            ((int*)a[0])[blockIdx.x * 64 + t] = own[63 - t];
            __syncthreads();
            if (taken < 0 || taken > 20) __trap();""",
            out.data_ptr(), counter.data_ptr(), threads=64, grid=7, seed=seed,
        )  # fmt: skip
    assert torch.equal(out, (torch.arange(7)[:, None] * 100 + torch.arange(63, -1, -1)).int())
    assert counter.item() == 21


def test_a_seed_decides_everything() -> None:
    body = f"{BARRIERS} if (t % 64 == 0) barrier_arrive(base); barrier_wait(base, 0); meet(1); __syncwarp();"
    turns = [tiny(body, seed=seed).turns for seed in (0, 1, 2, 3, 0, 1, 2, 3)]
    assert turns[:4] == turns[4:]
    assert len(set(turns)) > 1


def test_a_deadlock_is_told_with_who_waits_where() -> None:
    with pytest.raises(EmulatedFault) as told:
        tiny(f"{BARRIERS}\nif (t == 5) barrier_arrive(base);\nif (warp == 1) barrier_wait(base, 0);\nmeet(3);")
    text = str(told.value)
    assert "nothing can go on" in text
    assert re.search(
        r"block 0, warp 1: tiny\.cu:\d+ barrier_wait: parity 0, mbarrier at 0x400 in phase 0, "
        r"1 of 2 arrivals and 0 bytes missing", text
    )  # fmt: skip
    assert re.search(r"block 0, warp 0, warp 2, warp 3: tiny\.cu:\d+ meet: barrier 3, for 128 threads", text)


FAULTS = {
    f"{BARRIERS} if (t < 3) barrier_arrive(base + 8);": "there is no mbarrier at 0x408",
    f"{BARRIERS} if (t == 0) {{ barrier_expect(base, 64); barrier_arrive(base); barrier_arrive(base); }}":
        "0 of 2 arrivals and 64 bytes missing: one more arrival than it counts",
    f"{BARRIERS} if (t == 0) {{ *(int*)memory = 7; barrier_arrive(base); }}": "the mbarrier at 0x400 was overwritten",
    f"{BARRIERS} if (t == 0) barrier_expect(base, 64);": "the thread block ended; mbarrier at 0x400",
    "if (lane < 16) __syncwarp(); else wgmma_fence();": "lanes of a warp are apart",
    "if (lane == 0) { u32 r[4]; load_matrices(base + 4, r); }": "address 0x404 is not a multiple of 16",
    "if (t == 0) barrier_init(base + 4096, 1);": "are not in shared memory",
    "if (t == 9) __trap();": "block 0 thread 9: the kernel stops itself",
    "meet(t / 64 == 0 ? 1 : 16);": "barrier 16; there are 16",
    "give_registers<100>();": "100 registers; multiples of 8",
    "int x; shared_address(&x);": "the pointer is not to shared memory",
    "const int at[3] = {0, 0, 0}; load_box_3d(base, &args.map, base, 0, 0, 0);": "this is no tensor map",
}  # fmt: skip


@pytest.mark.parametrize("body", FAULTS, ids=list(FAULTS.values()))
def test_a_fault_is_told_in_words(body: str) -> None:
    with pytest.raises(EmulatedFault, match=re.escape(FAULTS[body])):
        tiny(body)


def test_registers_are_given_before_they_are_taken() -> None:
    body = "if (warp >= 8) give_registers<{0}>(); else take_registers<{1}>();"
    tiny(body.format(40, 232), threads=384)
    with pytest.raises(EmulatedFault, match=r"take_registers: \d+ registers a thread, \d+ are free"):
        tiny(body.format(32, 240), threads=384)
