// wgmma: a warpgroup multiplies a 64 x 16 tile of A with a 16 x TOKENS tile of B into TOKENS / 2 float registers each.
// A from shared memory (_shared) or from registers (_registers); B always from shared memory. A_TURNED and B_TURNED say
// that the operand lies with its M or N dimension contiguous instead of K. TOKENS is 64 or 256; a kernel with products
// of other shapes leaves it undefined and gets what all of them need.
#pragma once

#include "ptx.cuh"

#if BF16
#define WGMMA_TYPES "f32.bf16.bf16"
#else
#define WGMMA_TYPES "f32.f16.f16"
#endif

// Descriptor of an operand with rows of `row` bytes (128 or 64), swizzled over that width in units of 8 rows. K
// contiguous: `leading` is not used. M or N contiguous: `leading` bytes to the next 64 elements, 8 rows to the next 8 of K.
template <int row> __device__ __forceinline__ u64 operand(u32 address, u32 leading) {
  constexpr u64 swizzle = row == 128 ? 1 : 2;
  return (u64)((address & 0x3FFFF) >> 4) | (u64)(leading >> 4) << 16 | (u64)(row * 8 >> 4) << 32 | swizzle << 62;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int left> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

#ifdef TOKENS
#define ACCUMULATORS (TOKENS / 2)

#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
#define D32(i) D16(i), D16(i + 16)

#define NEW_D4(i) "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3])
#define NEW_D16(i) NEW_D4(i), NEW_D4(i + 4), NEW_D4(i + 8), NEW_D4(i + 12)
#define NEW_D32(i) NEW_D16(i), NEW_D16(i + 16)

#if TOKENS == 64
#define WGMMA "wgmma.mma_async.sync.aligned.m64n64k16." WGMMA_TYPES
#define D_LIST "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define D_ALL D32(0)
#define NEW_D_ALL NEW_D32(0)
#define AFTER_D_1 "%32"
#define AFTER_D_2 "%33"
#define AFTER_D_3 "%34"
#define AFTER_D_4 "%35"
#define AFTER_D_5 "%36"
#define AFTER_D_6 "%37"
#elif TOKENS == 256
#define WGMMA "wgmma.mma_async.sync.aligned.m64n256k16." WGMMA_TYPES
#define D_LIST "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define D_ALL D32(0), D32(32), D32(64), D32(96)
#define NEW_D_ALL NEW_D32(0), NEW_D32(32), NEW_D32(64), NEW_D32(96)
#define AFTER_D_1 "%128"
#define AFTER_D_2 "%129"
#define AFTER_D_3 "%130"
#define AFTER_D_4 "%131"
#define AFTER_D_5 "%132"
#define AFTER_D_6 "%133"
#else
#error "TOKENS must be 64 or 256"
#endif

// add 0: the product replaces what the registers hold
template <int a_turned, int b_turned, int add>
__device__ __forceinline__ void wgmma_shared(float (&d)[ACCUMULATORS], u64 a, u64 b) {
  if (add)
    asm volatile(WGMMA " {" D_LIST "}, " AFTER_D_1 ", " AFTER_D_2 ", 1, 1, 1, " AFTER_D_3 ", " AFTER_D_4 ";\n"
                 : D_ALL : "l"(a), "l"(b), "n"(a_turned), "n"(b_turned));
  else
    asm volatile(WGMMA " {" D_LIST "}, " AFTER_D_1 ", " AFTER_D_2 ", 0, 1, 1, " AFTER_D_3 ", " AFTER_D_4 ";\n"
                 : NEW_D_ALL : "l"(a), "l"(b), "n"(a_turned), "n"(b_turned));
}

template <int b_turned>
__device__ __forceinline__ void wgmma_registers(float (&d)[ACCUMULATORS], const u32 (&a)[4], u64 b) {
  asm volatile(WGMMA " {" D_LIST "}, {" AFTER_D_1 ", " AFTER_D_2 ", " AFTER_D_3 ", " AFTER_D_4 "}, " AFTER_D_5 ", 1, 1, 1, " AFTER_D_6 ";\n"
               : D_ALL : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(b_turned));
}
#endif
