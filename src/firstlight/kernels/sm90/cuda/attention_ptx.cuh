// The instructions that attention.cu needs besides those of ptx.cuh and wgmma.cuh: copies of five-dimensional boxes, the
// special functions, both products, and two ways to keep ptxas from moving what must stay.
#pragma once

#include "wgmma.cuh"

// ---- boxes of a [batch, head, row, column] tensor, its columns in halves of 64: (64 columns, rows, halves, head, batch)

__device__ __forceinline__ void load_rows(u32 to, const TensorMap* map, u32 barrier, int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%6, %3, %6, %4, %5}], [%2];"
      ::"r"(to), "l"(map), "r"(barrier), "r"(row), "r"(head), "r"(batch), "r"(0) : "memory");
}

__device__ __forceinline__ void store_rows(const TensorMap* map, u32 from, int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%5, %2, %5, %3, %4}], [%1];"
      ::"l"(map), "r"(from), "r"(row), "r"(head), "r"(batch), "r"(0) : "memory");
}

// One half of the columns, 64 of them.
__device__ __forceinline__ void store_half(const TensorMap* map, u32 from, int row, int half, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%6, %2, %3, %4, %5}], [%1];"
      ::"l"(map), "r"(from), "r"(row), "r"(half), "r"(head), "r"(batch), "r"(0) : "memory");
}

// ---- so many bytes of shared memory to memory, and numbers added to those there; both part of commit_stores's group

__device__ __forceinline__ void store_bytes(void* to, u32 from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void add_floats(float* to, u32 from, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
               ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void store_four(u32 to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

// ---- turns of thread blocks at something in memory: a count of those that have been, waited for until it is `mine`. What
// the copy engine did before end_turn is seen by what it does behind wait_for_turn. A turn that does not come traps.

__device__ __forceinline__ void wait_for_turn(const int* turn, int mine) {
  int now, tries = 0;
  for (;;) {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
    if (now == mine) break;
    if (++tries > (1 << 26)) __trap();  // a minute
  }
  asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ __forceinline__ void end_turn(int* turn, int next) {
  asm volatile("fence.proxy.async;\nst.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(next) : "memory");
}

// ---- two warpgroups in turns: each waits at a barrier of its own, which the other one passes

__device__ __forceinline__ void take_turn(int number) { asm volatile("bar.sync %0, 256;" ::"r"(number) : "memory"); }
__device__ __forceinline__ void pass_turn(int number) { asm volatile("bar.arrive %0, 256;" ::"r"(number) : "memory"); }

// ---- one more special function, to about 22 bits

__device__ __forceinline__ float log_of_two(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The one of three numbers whose bits are the largest integer: numbers that are not negative are in that order and above all
// negative ones. Integers are compared by three at once, numbers are not; nor may the bits leave the asm, as the compiler
// then takes them in front of the wait for the product that makes them.
__device__ __forceinline__ float larger_bits(float x, float y, float z) {
  float largest;
  asm("{\n.reg .s32 a, b, c;\nmov.b32 a, %1;\nmov.b32 b, %2;\nmov.b32 c, %3;\n"
      "max.s32 a, a, b;\nmax.s32 a, a, c;\nmov.b32 %0, a;\n}"
      : "=f"(largest) : "f"(x), "f"(y), "f"(z));
  return largest;
}

// ---- products of a warpgroup: 64 rows x N, K = 16 at a time

#define R4(kind, i) kind(d[i]), kind(d[i + 1]), kind(d[i + 2]), kind(d[i + 3])
#define R16(kind, i) R4(kind, i), R4(kind, i + 4), R4(kind, i + 8), R4(kind, i + 12)
#define R32(kind) R16(kind, 0), R16(kind, 16)
#define R64(kind) R32(kind), R16(kind, 32), R16(kind, 48)
#define NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define N64 "wgmma.mma_async.sync.aligned.m64n64k16." WGMMA_TYPES " {" NAMES_32 "}, "
#define N128 "wgmma.mma_async.sync.aligned.m64n128k16." WGMMA_TYPES " {" NAMES_64 "}, "

// d = a b^T, or d += a b^T: both operands in shared memory with K contiguous. That the first of a sum overwrites is said by
// a constant (a predicate known only at run time serialises the products) and by accumulators that are written alone.
__device__ __forceinline__ void scores_first(float (&d)[32], u64 a, u64 b) {
  asm volatile(N64 "%32, %33, 0, 1, 1, 0, 0;" : R32("=f") : "l"(a), "l"(b));
}
__device__ __forceinline__ void scores_more(float (&d)[32], u64 a, u64 b) {
  asm volatile(N64 "%32, %33, 1, 1, 1, 0, 0;" : R32("+f") : "l"(a), "l"(b));
}
__device__ __forceinline__ void scores_first(float (&d)[64], u64 a, u64 b) {
  asm volatile(N128 "%64, %65, 0, 1, 1, 0, 0;" : R64("=f") : "l"(a), "l"(b));
}
__device__ __forceinline__ void scores_more(float (&d)[64], u64 a, u64 b) {
  asm volatile(N128 "%64, %65, 1, 1, 1, 0, 0;" : R64("+f") : "l"(a), "l"(b));
}

// The same with a in registers.
__device__ __forceinline__ void scores_first(float (&d)[32], const u32 (&a)[4], u64 b) {
  asm volatile(N64 "{%32, %33, %34, %35}, %36, 0, 1, 1, 0;"
               : R32("=f") : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void scores_more(float (&d)[32], const u32 (&a)[4], u64 b) {
  asm volatile(N64 "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
               : R32("+f") : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// d += a b: a in registers, b in shared memory with N contiguous.
__device__ __forceinline__ void values_more(float (&d)[32], u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
  asm volatile(N64 "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
               : R32("+f") : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
__device__ __forceinline__ void values_more(float (&d)[64], u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
  asm volatile(N128 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
               : R64("+f") : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

// d = a b or d += a b: both operands in shared memory, with M and N contiguous.
__device__ __forceinline__ void turned_first(float (&d)[32], u64 a, u64 b) {
  asm volatile(N64 "%32, %33, 0, 1, 1, 1, 1;" : R32("=f") : "l"(a), "l"(b));
}
__device__ __forceinline__ void turned_more(float (&d)[32], u64 a, u64 b) {
  asm volatile(N64 "%32, %33, 1, 1, 1, 1, 1;" : R32("+f") : "l"(a), "l"(b));
}

// ---- what ptxas must not move. `never` is a kernel argument that is never negative.

// ptxas schedules freely inside a basic block and takes arithmetic across wgmma waits, where nothing overlaps the products
// any more; neither volatile asm nor a memory clobber holds it. A branch that is never taken ends the block.
__device__ __forceinline__ void stay_above(int never) {
  asm volatile("{\n.reg .pred p;\nsetp.ge.s32 p, %0, 0;\n@p bra ON;\ntrap;\nON:\n}" ::"r"(never));
}

// ptxas takes the A registers of a product for free at the next wait, even at one that leaves the product running: new
// values were put into registers that the tensor cores still read. A use in a branch that is never taken, behind the wait
// that does cover the product, keeps them until there; to places of their own, as a store that is overwritten is dropped.
template <int count> __device__ __forceinline__ void still_needed(const u32 (&p)[count], u32 anywhere, int never) {
#pragma unroll
  for (int i = 0; i < count; i += 16)
    asm volatile(
        "{\n.reg .pred q;\nsetp.ge.s32 q, %17, -7;\n@q bra ON;\n"
        "st.shared.v4.b32 [%16], {%0, %1, %2, %3};\nst.shared.v4.b32 [%16 + 16], {%4, %5, %6, %7};\n"
        "st.shared.v4.b32 [%16 + 32], {%8, %9, %10, %11};\nst.shared.v4.b32 [%16 + 48], {%12, %13, %14, %15};\nON:\n}"
        ::"r"(p[i]), "r"(p[i + 1]), "r"(p[i + 2]), "r"(p[i + 3]), "r"(p[i + 4]), "r"(p[i + 5]), "r"(p[i + 6]),
        "r"(p[i + 7]), "r"(p[i + 8]), "r"(p[i + 9]), "r"(p[i + 10]), "r"(p[i + 11]), "r"(p[i + 12]), "r"(p[i + 13]),
        "r"(p[i + 14]), "r"(p[i + 15]), "r"(anywhere + 4 * i), "r"(never) : "memory");
}

// Moves that stay where they are written.
template <int count> __device__ __forceinline__ void taken_over(u32 (&to)[count], const u32 (&from)[count]) {
#pragma unroll
  for (int i = 0; i < count; i++) asm volatile("mov.b32 %0, %1;" : "=r"(to[i]) : "r"(from[i]));
}
