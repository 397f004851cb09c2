// The functions of the kernels' attention_ptx.cuh, carried out by the emulator.
#pragma once

#include "wgmma.cuh"

static inline void load_rows(u32 to, const TensorMap* map, u32 barrier, int row, int head, int batch, CALLED_FROM) {
  const int at[] = {0, row, 0, head, batch};
  emulator_load_box(to, map, barrier, 5, at, 0, HERE);
}
static inline void store_rows(const TensorMap* map, u32 from, int row, int head, int batch, CALLED_FROM) {
  const int at[] = {0, row, 0, head, batch};
  emulator_store_box(map, from, 5, at, HERE);
}

static inline void store_half(const TensorMap* map, u32 from, int row, int half, int head, int batch, CALLED_FROM) {
  const int at[] = {0, row, half, head, batch};
  emulator_store_box(map, from, 5, at, HERE);
}

static inline void store_bytes(void* to, u32 from, u32 bytes, CALLED_FROM) {
  emulator_store_bytes(to, from, bytes, 0, HERE);
}
static inline void add_floats(float* to, u32 from, u32 bytes, CALLED_FROM) {
  emulator_store_bytes(to, from, bytes, 1, HERE);
}
static inline void store_four(u32 to, float a, float b, float c, float d, CALLED_FROM) {
  const float four[4] = {a, b, c, d};
  emulator_store_four(to, four, HERE);
}

static inline void wait_for_turn(const int* turn, int mine, CALLED_FROM) {
  emulator_wait_for_turn(turn, mine, HERE);
}
static inline void end_turn(int* turn, int next) { emulator_end_turn(turn, next); }

static inline void take_turn(int number, CALLED_FROM) { emulator_meet(number, 256, 0, HERE); }
static inline void pass_turn(int number, CALLED_FROM) { emulator_arrive(number, 256, HERE); }

static inline float log_of_two(float x) { return log2f(emulator_flushed(x)); }

static inline float larger_bits(float x, float y, float z) {
  return __int_as_float(max(max(__float_as_int(x), __float_as_int(y)), __float_as_int(z)));
}

template <int count> static inline void scores_first(float (&d)[count], u64 a, u64 b, CALLED_FROM) {
  emulator_wgmma(d, a, b, 0, 0, 0, HERE);
}
template <int count> static inline void scores_more(float (&d)[count], u64 a, u64 b, CALLED_FROM) {
  emulator_wgmma(d, a, b, 1, 0, 0, HERE);
}
template <int count> static inline void scores_first(float (&d)[count], const u32 (&a)[4], u64 b, CALLED_FROM) {
  const EmulatorRegister four[4] = {a[0], a[1], a[2], a[3]};
  emulator_wgmma(d, four, b, 0, 0, HERE);
}
template <int count> static inline void scores_more(float (&d)[count], const u32 (&a)[4], u64 b, CALLED_FROM) {
  const EmulatorRegister four[4] = {a[0], a[1], a[2], a[3]};
  emulator_wgmma(d, four, b, 1, 0, HERE);
}
template <int count>
static inline void values_more(
    float (&d)[count], const EmulatorRegister& a0, const EmulatorRegister& a1, const EmulatorRegister& a2,
    const EmulatorRegister& a3, u64 b, CALLED_FROM) {
  const EmulatorRegister four[4] = {a0, a1, a2, a3};
  emulator_wgmma(d, four, b, 1, 1, HERE);
}

template <int count> static inline void turned_first(float (&d)[count], u64 a, u64 b, CALLED_FROM) {
  emulator_wgmma(d, a, b, 0, 1, 1, HERE);
}
template <int count> static inline void turned_more(float (&d)[count], u64 a, u64 b, CALLED_FROM) {
  emulator_wgmma(d, a, b, 1, 1, 1, HERE);
}

static inline void stay_above(int) { emulator_pause(); }
template <int count> static inline void still_needed(const u32 (&)[count], u32, int) {}
template <int count> static inline void taken_over(u32 (&to)[count], const u32 (&from)[count]) {
  for (int i = 0; i < count; i++) to[i] = from[i];
}
