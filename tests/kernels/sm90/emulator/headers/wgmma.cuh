// The functions of the kernels' wgmma.cuh, carried out by the emulator.
#pragma once

#include "ptx.cuh"

template <int row> static inline u64 operand(u32 address, u32 leading) {
  constexpr u64 swizzle = row == 128 ? 1 : 2;
  return (u64)((address & 0x3FFFF) >> 4) | (u64)(leading >> 4) << 16 | (u64)(row * 8 >> 4) << 32 | swizzle << 62;
}

static inline void wgmma_fence(CALLED_FROM) { emulator_fence_products(HERE); }
static inline void wgmma_commit(CALLED_FROM) { emulator_commit_products(HERE); }
template <int left> static inline void wgmma_wait(CALLED_FROM) { emulator_wait_products(left, HERE); }

// d (+)= A B for N columns, twice as many as numbers in d; A from shared memory or from registers.
template <int count>
static inline void emulator_wgmma(
    float (&d)[count], u64 a, u64 b, int accumulate, int a_turned, int b_turned, EmulatorHere here) {
  const EmulatorProduct product = {d, 2 * count, accumulate, a_turned, b_turned, BF16, a, b, 0, {}};
  emulator_multiply(&product, here);
}
template <int count>
static inline void emulator_wgmma(
    float (&d)[count], const EmulatorRegister (&a)[4], u64 b, int accumulate, int b_turned, EmulatorHere here) {
  const EmulatorProduct product = {d, 2 * count, accumulate, 0, b_turned, BF16, 0, b, 1, {a[0], a[1], a[2], a[3]}};
  emulator_multiply(&product, here);
}

#ifdef TOKENS
#define ACCUMULATORS (TOKENS / 2)

template <int a_turned, int b_turned, int add>
static inline void wgmma_shared(float (&d)[ACCUMULATORS], u64 a, u64 b, CALLED_FROM) {
  emulator_wgmma(d, a, b, add, a_turned, b_turned, HERE);
}
template <int b_turned>
static inline void wgmma_registers(float (&d)[ACCUMULATORS], const u32 (&a)[4], u64 b, CALLED_FROM) {
  const EmulatorRegister four[4] = {a[0], a[1], a[2], a[3]};
  emulator_wgmma(d, four, b, 1, b_turned, HERE);
}
#endif
