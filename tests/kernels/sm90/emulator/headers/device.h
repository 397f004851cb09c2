// CUDA C++ as a compiler for the processor takes it: qualifiers, built-in variables, vectors, arithmetic, warp
// functions. Stands in front of a kernel's source, which must not include anything but its own headers.
#pragma once

#include <math.h>
#include <string.h>

#include "interface.h"

#define __device__
#define __host__
#define __global__
#define __constant__ static const
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __cluster_dims__(...)  // the launch is told, see run.py
#define __align__(bytes) __attribute__((aligned(bytes)))
// Instructions outside of the emulated headers are left out: build.py lets only those through that give no result.
#define asm
#define volatile(...)

#define threadIdx (emulator_now->thread)
#define blockIdx (emulator_now->block)
#define gridDim (emulator_now->grid)
#define blockDim (emulator_now->threads)
constexpr int warpSize = 32;

// ---- vectors

#define VECTOR2(T, name) \
  struct alignas(2 * sizeof(T)) name { T x, y; }; \
  static inline name make_##name(T x, T y) { return {x, y}; }
#define VECTOR4(T, name, alignment) \
  struct alignas(alignment) name { T x, y, z, w; }; \
  static inline name make_##name(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTOR2(int, int2)
VECTOR2(u32, uint2)
VECTOR2(float, float2)
VECTOR2(short, short2)
VECTOR2(u16, ushort2)
VECTOR4(int, int4, 16)
VECTOR4(u32, uint4, 16)
VECTOR4(float, float4, 16)
VECTOR4(u16, ushort4, 8)
#undef VECTOR2
#undef VECTOR4

// ---- arithmetic

#define BOTH_WAYS(T) \
  static inline T min(T a, T b) { return b < a ? b : a; } \
  static inline T max(T a, T b) { return a < b ? b : a; }
BOTH_WAYS(int)
BOTH_WAYS(u32)
BOTH_WAYS(long long)
BOTH_WAYS(u64)
#undef BOTH_WAYS
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }

template <class To, class From> static inline To emulator_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "one size");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}
static inline float __int_as_float(int bits) { return emulator_bits<float>(bits); }
static inline float __uint_as_float(u32 bits) { return emulator_bits<float>(bits); }
static inline int __float_as_int(float number) { return emulator_bits<int>(number); }
static inline u32 __float_as_uint(float number) { return emulator_bits<u32>(number); }
static inline int __popc(u32 bits) { return __builtin_popcount(bits); }
static inline int __popcll(u64 bits) { return __builtin_popcountll(bits); }
static inline int __ffs(int bits) { return __builtin_ffs(bits); }
static inline int __clz(int bits) { return bits ? __builtin_clz((u32)bits) : 32; }
static inline u32 __brev(u32 bits) {
  u32 turned = 0;
  for (int i = 0; i < 32; i++) turned |= (bits >> i & 1) << (31 - i);
  return turned;
}
static inline u32 __byte_perm(u32 low, u32 high, u32 which) {
  u64 both = (u64)high << 32 | low;
  u32 made = 0;
  for (int i = 0; i < 4; i++) {
    u32 picked = which >> 4 * i & 15, byte = both >> 8 * (picked & 7) & 255;
    if (picked & 8) byte = byte >> 7 ? 255 : 0;
    made |= byte << 8 * i;
  }
  return made;
}
static inline u32 __funnelshift_r(u32 low, u32 high, u32 by) { return (u32)(((u64)high << 32 | low) >> (by & 31)); }
static inline u32 __funnelshift_l(u32 low, u32 high, u32 by) {
  return (u32)(((u64)high << 32 | low) << (by & 31) >> 32);
}
#define __expf(x) expf(x)
#define __exp2f(x) exp2f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __fdividef(x, y) ((float)(x) / (float)(y))
#define __frcp_rn(x) (1.0f / (float)(x))
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
template <class T> static inline T __ldg(const T* from) { return *from; }

// ---- threads together

static inline void __syncthreads(CALLED_FROM) {
  emulator_meet(0, (int)(blockDim.x * blockDim.y * blockDim.z), 0, HERE);
}
static inline void __syncwarp(u32 mask = ~0u, CALLED_FROM) { emulator_ballot(mask, 0, HERE); }
static inline u32 __ballot_sync(u32 mask, int mine, CALLED_FROM) { return emulator_ballot(mask, mine, HERE); }
static inline int __any_sync(u32 mask, int mine, CALLED_FROM) { return emulator_ballot(mask, mine, HERE) != 0; }
static inline int __all_sync(u32 mask, int mine, CALLED_FROM) { return emulator_ballot(mask, mine, HERE) == mask; }
template <class T>
static inline T emulator_shuffled(u32 mask, T mine, int lane, int kind, int width, EmulatorHere here) {
  static_assert(sizeof(T) <= sizeof(u64), "a register or two");
  u64 value = 0;
  memcpy(&value, &mine, sizeof(T));
  value = emulator_shuffle(mask, value, lane, kind, width, here);
  memcpy(&mine, &value, sizeof(T));
  return mine;
}
#define SHUFFLE(name, kind) \
  template <class T> static inline T name(u32 mask, T mine, int lane, int width = 32, CALLED_FROM) { \
    return emulator_shuffled(mask, mine, lane, kind, width, HERE); \
  }
SHUFFLE(__shfl_sync, EMULATOR_FROM)
SHUFFLE(__shfl_xor_sync, EMULATOR_XOR)
SHUFFLE(__shfl_up_sync, EMULATOR_UP)
SHUFFLE(__shfl_down_sync, EMULATOR_DOWN)
#undef SHUFFLE

// ---- memory

static inline void __threadfence() { emulator_pause(); }
static inline void __threadfence_block() { emulator_pause(); }
static inline void __nanosleep(u32) { emulator_step_aside(); }
// change(old) takes the place of what is there; nobody comes in between.
template <class T, class Change> static inline T emulator_changed(T* at, Change change) {
  emulator_pause();
  T before = *at;
  *at = change(before);
  return before;
}
#define ATOMIC(name, after) \
  template <class T, class U> static inline T name(T* at, U by) { \
    return emulator_changed(at, [&](T was) { return (T)(after); }); \
  }
ATOMIC(atomicAdd, was + (T)by)
ATOMIC(atomicSub, was - (T)by)
ATOMIC(atomicOr, was | (T)by)
ATOMIC(atomicAnd, was & (T)by)
ATOMIC(atomicMax, was < (T)by ? (T)by : was)
ATOMIC(atomicMin, (T)by < was ? (T)by : was)
ATOMIC(atomicExch, by)
#undef ATOMIC
template <class T, class U, class V> static inline T atomicCAS(T* at, U expected, V by) {
  return emulator_changed(at, [&](T was) { return was == (T)expected ? (T)by : was; });
}
static inline void __trap(CALLED_FROM) { emulator_fault("the kernel stops itself", HERE); }

// One kernel with one struct, from the struct's bytes.
template <class Arguments> static inline void emulator_enter(void (*kernel)(Arguments), const void* bytes) {
  kernel(*(const Arguments*)bytes);
}
template <class Arguments> constexpr size_t emulator_size(void (*)(Arguments)) { return sizeof(Arguments); }
