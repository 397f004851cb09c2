// The functions of the kernels' ptx.cuh, carried out by the emulator. A test holds both files to the same names.
#pragma once

#include "device.h"

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

static inline void stress(u32) { emulator_pause(); }

static inline u32 shared_address(const void* pointer, CALLED_FROM) { return emulator_shared_address(pointer, HERE); }

// ---- mbarriers

static inline void barrier_init(u32 barrier, u32 arrivals, CALLED_FROM) {
  emulator_barrier_init(barrier, arrivals, HERE);
}
static inline void barrier_arrive(u32 barrier, CALLED_FROM) { emulator_barrier_arrive(barrier, 0, HERE); }
static inline void barrier_expect(u32 barrier, u32 bytes, CALLED_FROM) {
  emulator_barrier_arrive(barrier, bytes, HERE);
}
static inline void barrier_wait(u32 barrier, u32 parity, CALLED_FROM) { emulator_barrier_wait(barrier, parity, HERE); }
static inline void barriers_ready() { emulator_barriers_ready(); }
static inline void meet(int number, CALLED_FROM) { emulator_meet(number, 128, 0, HERE); }
static inline void meet_two(int number, CALLED_FROM) { emulator_meet(number, 64, 0, HERE); }
static inline bool any_of_warpgroup(int number, bool mine, CALLED_FROM) {
  return emulator_meet(number, 128, mine, HERE);
}

// ---- the copy engine

static inline void fetch_map(const TensorMap*) {}
static inline void load_box_3d(u32 to, const TensorMap* map, u32 barrier, int x, int y, int z, CALLED_FROM) {
  const int at[] = {x, y, z};
  emulator_load_box(to, map, barrier, 3, at, 0, HERE);
}
static inline void load_box_4d(u32 to, const TensorMap* map, u32 barrier, int x, int y, int z, int w, CALLED_FROM) {
  const int at[] = {x, y, z, w};
  emulator_load_box(to, map, barrier, 4, at, 0, HERE);
}
static inline void load_box_5d(
    u32 to, const TensorMap* map, u32 barrier, int x, int y, int z, int w, int v, CALLED_FROM) {
  const int at[] = {x, y, z, w, v};
  emulator_load_box(to, map, barrier, 5, at, 0, HERE);
}
static inline void load_bytes(u32 to, const void* from, u32 bytes, u32 barrier, CALLED_FROM) {
  emulator_load_bytes(to, from, bytes, barrier, 0, HERE);
}
static inline void store_box_3d(const TensorMap* map, u32 from, int x, int y, int z, CALLED_FROM) {
  const int at[] = {x, y, z};
  emulator_store_box(map, from, 3, at, HERE);
}
static inline void store_box_3d_passing(const TensorMap* map, u32 from, int x, int y, int z, CALLED_FROM) {
  const int at[] = {x, y, z};
  emulator_store_box(map, from, 3, at, HERE);
}
static inline void store_box_4d(const TensorMap* map, u32 from, int x, int y, int z, int w, CALLED_FROM) {
  const int at[] = {x, y, z, w};
  emulator_store_box(map, from, 4, at, HERE);
}
static inline void store_box_5d(const TensorMap* map, u32 from, int x, int y, int z, int w, int v, CALLED_FROM) {
  const int at[] = {x, y, z, w, v};
  emulator_store_box(map, from, 5, at, HERE);
}
static inline void commit_stores() { emulator_commit_stores(); }
template <int left> static inline void stores_read(CALLED_FROM) { emulator_wait_stores(left, 0, HERE); }
static inline void stores_done(CALLED_FROM) { emulator_wait_stores(0, 1, HERE); }
static inline void publish_shared() { emulator_publish_shared(); }

// ---- thread blocks of one cluster

static inline u32 cluster_rank() { return emulator_cluster_rank(); }
static inline void meet_cluster(CALLED_FROM) { emulator_meet_cluster(HERE); }
static inline void barrier_arrive_in(u32 barrier, u32 rank, CALLED_FROM) {
  emulator_barrier_arrive_in(barrier, rank, HERE);
}
static inline void tell(u32 to, u32 what, u32 barrier, u32 rank, CALLED_FROM) {
  emulator_tell(to, what, barrier, rank, HERE);
}
static inline void load_box_3d_for(
    u32 to, const TensorMap* map, u32 barrier, int x, int y, int z, u32 blocks, CALLED_FROM) {
  const int at[] = {x, y, z};
  emulator_load_box(to, map, barrier, 3, at, blocks, HERE);
}
// ---- 8x8 matrices between registers and shared memory

static inline void load_matrices(u32 from, u32 (&r)[4], CALLED_FROM) { emulator_load_matrices(from, r, 4, 0, HERE); }
static inline void load_matrices_turned(u32 from, u32 (&r)[4], CALLED_FROM) {
  emulator_load_matrices(from, r, 4, 1, HERE);
}
static inline void store_matrices(u32 to, const u32 (&r)[4], CALLED_FROM) {
  emulator_store_matrices(to, r, 4, 0, HERE);
}
static inline void store_matrices_turned(u32 to, const u32 (&r)[4], CALLED_FROM) {
  emulator_store_matrices(to, r, 4, 1, HERE);
}

static inline void seem_used(u32, u32, const u32 (&)[4]) {}

// ---- 16-bit numbers: BF16 is 1 for bfloat16, 0 for float16

static inline u16 emulator_bfloat16(float wide) {
  u32 bits = __float_as_uint(wide);
  if (wide != wide) return 0x7FFF;
  return (u16)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
static inline u16 emulator_float16(float wide) {
  u32 bits = __float_as_uint(wide), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
  if (size > 0x7F800000) return 0x7FFF;
  if (size >= 0x477FF000) return (u16)(sign | 0x7C00);  // 65520 and beyond round to infinity
  if (size < 0x38800000) {                              // below 2^-14: multiples of 2^-24, rounded by the addition
    u32 sum = __float_as_uint(__uint_as_float(size) + 0.5f);
    return (u16)(sign | (sum - 0x3F000000));
  }
  return (u16)(sign | ((size - 0x38000000 + 0xFFF + (size >> 13 & 1)) >> 13));
}
static inline float emulator_wide(u16 bits) {
  u32 sign = (u32)(bits & 0x8000) << 16, size = bits & 0x7FFF;
  if (size >= 0x7C00) return __uint_as_float(sign | 0x7F800000 | (size & 0x3FF) << 13);
  if (size < 0x400) return (sign ? -1.0f : 1.0f) * (float)size * 0x1p-24f;
  return __uint_as_float(sign | ((size << 13) + 0x38000000));
}
static inline u32 packed(float low, float high) {
#if BF16
  return emulator_bfloat16(low) | (u32)emulator_bfloat16(high) << 16;
#else
  return emulator_float16(low) | (u32)emulator_float16(high) << 16;
#endif
}
static inline float number(u16 bits) {
#if BF16
  return __uint_as_float((u32)bits << 16);
#else
  return emulator_wide(bits);
#endif
}
static inline u16 narrow(float wide) { return (u16)packed(wide, 0.0f); }
static inline u32 multiplied_pair(u32 a, u32 b) {
  return packed(number((u16)a) * number((u16)b), number((u16)(a >> 16)) * number((u16)(b >> 16)));
}
static inline void not_before(u32, float&, float) {}
static inline float larger(float a, float b) { return a != a || a > b ? a : b; }

// ---- special functions

// As the approximate instructions: subnormal numbers count as zero.
static inline float emulator_flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static inline float power_of_two(float x) { return emulator_flushed(exp2f(emulator_flushed(x))); }
static inline float reciprocal(float x) { return emulator_flushed(1.0f / emulator_flushed(x)); }

// ---- registers of a warpgroup, and memory that other multiprocessors write

template <int count> static inline void give_registers(CALLED_FROM) { emulator_registers(count, 0, HERE); }
template <int count> static inline void take_registers(CALLED_FROM) { emulator_registers(count, 1, HERE); }
static inline float4 load_fresh(const float4* from) {
  emulator_pause();
  return *from;
}
