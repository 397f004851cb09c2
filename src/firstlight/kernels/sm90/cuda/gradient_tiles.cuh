// What gradient.cu and gradient_once.cu share: sizes, and what one thread does with its elements of S, T and their products.
// KEYSIDE 1: S and T are turned, [keys, queries]. EXACT 1: D is made of P in 32 bits, not of what the product with Y gets.
#pragma once

#include "attention_queue.cuh"

constexpr int BLOCK = 128;
constexpr int WIDE = 64;                      // rows of X and Y in a stage
constexpr int PARTS = BLOCK / WIDE;           // stages of a block
constexpr int WORDS = BLOCK / 32;             // of a row of bits
constexpr int HALVES = HEAD / 64;             // 64 columns of 2 bytes are the 128 bytes that a swizzle spans
constexpr int HALF_TILE = WIDE * 128;         // bytes
constexpr int TILE_BYTES = HALVES * HALF_TILE;
constexpr int HALF_SEAT = BLOCK * 128;
constexpr int SEAT_BYTES = HALVES * HALF_SEAT;  // of F; as much of G behind it
constexpr int VECTOR_BYTES = WIDE * 4;
constexpr int WARPS = 8;
constexpr int SCORES = WIDE / 2;              // registers of a thread
constexpr int PACKED = WIDE / 4;
constexpr int OUTPUTS = HEAD / 2;

// ---- consuming. A thread holds elements of two rows, 8 apart: element i lies in row (i >> 1) & 1 and column
// (i >> 2) * 8 + (lane & 3) * 2 + (i & 1).

// s = a b^T: 64 rows of a seat with a tile of the ring.
__device__ __forceinline__ void multiply_turned(float (&s)[SCORES], u32 rows, u32 tile) {
  u64 a = operand<128>(rows, 16), b = operand<128>(tile, 16);
  scores_first(s, a, b);
#pragma unroll
  for (int k = 1; k < HEAD / 16; k++)
    scores_more(s, a + (k >> 2) * (HALF_SEAT >> 4) + (k & 3) * 2, b + (k >> 2) * (HALF_TILE >> 4) + (k & 3) * 2);
  wgmma_commit();
}

// sum += p b.
__device__ __forceinline__ void multiply_more(float (&sum)[OUTPUTS], const u32 (&p)[PACKED], u32 tile) {
  u64 b = operand<128>(tile, HALF_TILE);
#pragma unroll
  for (int k = 0; k < WIDE / 16; k++)
    values_more(sum, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], b + k * (16 * 128 >> 4));
  wgmma_commit();
}

#if KEYSIDE
// Of this thread's rows and columns the elements that are not seen get -inf: for a column the word of bits that both of
// its rows lie in, loaded by the column.
template <class Args, class Mark>
__device__ __forceinline__ void hide(float (&s)[SCORES], const Args& args, Mark mark, int row, int lane) {
  if (mark.bits < 0) return;
  const u32* bits = args.bits + ((long long)mark.bits * BLOCK + mark.part * WIDE) * WORDS + (row >> 5);
#pragma unroll
  for (int i = 0; i < SCORES; i += 4) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      u32 word = bits[((i >> 2) * 8 + (lane & 3) * 2 + j) * WORDS] >> (row & 31);
      if (!(word & 1)) s[i + j] = -INFINITE;
      if (!(word >> 8 & 1)) s[i + 2 + j] = -INFINITE;
    }
  }
}

// Of this thread's two rows, 8 apart, those of which the first lies so far inside of the sequence.
__device__ __forceinline__ void hide_rows(float (&s)[SCORES], int inside) {
#pragma unroll
  for (int i = 0; i < SCORES; i++)
    if (inside <= ((i >> 1) & 1) * 8) s[i] = -INFINITE;
}
#else
// The same for rows of queries: two words for each of them. Keys past the end are hidden too.
template <class Args, class Mark>
__device__ __forceinline__ void hide(float (&s)[SCORES], const Args& args, Mark mark, int row, int lane) {
  if (mark.bits < 0 && mark.keys >= WIDE) return;
  const u32* bits = args.bits + ((long long)mark.bits * BLOCK + row) * WORDS + mark.part * (WIDE / 32);
  int shift = (lane & 3) * 2;
#pragma unroll
  for (int w = 0; w < WIDE / 32; w++) {
    int inside = mark.keys - 32 * w;
    u32 all = inside >= 32 ? ~0u : inside <= 0 ? 0u : (1u << inside) - 1;
    u32 low = (mark.bits < 0 ? all : bits[w] & all) >> shift;
    u32 high = (mark.bits < 0 ? all : bits[8 * WORDS + w] & all) >> shift;
#pragma unroll
    for (int i = 16 * w; i < 16 * w + 16; i++)
      if (!(((i >> 1) & 1 ? high : low) >> (((i >> 2) & 3) * 8 + (i & 1)) & 1)) s[i] = -INFINITE;
  }
}
#endif

// log_sums or deltas: of this thread's two rows, or of its columns.
struct Vector {
  float row0, row1;
  const float2* columns;

  __device__ __forceinline__ float2 at(int i) const {  // for elements i, i + 1 and, 8 rows further down, i + 2, i + 3
    return columns[(i >> 2) * 4];
  }
};

// p of s. By key blocks in 16 bits, for the product with Y; what is left of it in registers then is half as much, and two
// sums and two products need all there are. By query blocks s becomes p.
__device__ __forceinline__ void exponentials(float (&s)[SCORES], u32 (&p)[PACKED], const Vector& logs, float scale_log2) {
#pragma unroll
  for (int i = 0; i < SCORES; i += 4) {
    float2 low = KEYSIDE ? logs.at(i) : make_float2(logs.row0, logs.row0), high = low;
    if (!KEYSIDE) high = make_float2(logs.row1, logs.row1);
    s[i] = power_of_two(fmaf(s[i], scale_log2, -low.x));
    s[i + 1] = power_of_two(fmaf(s[i + 1], scale_log2, -low.y));
    s[i + 2] = power_of_two(fmaf(s[i + 2], scale_log2, -high.x));
    s[i + 3] = power_of_two(fmaf(s[i + 3], scale_log2, -high.y));
    if (KEYSIDE) {
      p[i / 2] = packed(s[i], s[i + 1]);
      p[i / 2 + 1] = packed(s[i + 2], s[i + 3]);
    }
  }
}

// ptxas moves the exponentials behind the wait for t, even over a branch, where they have nothing to overlap with any more.
// A branch that is never taken and uses them holds them above.
__device__ __forceinline__ void stay_computed(const float (&s)[SCORES], u32 anywhere, int never) {
  u32 bits[SCORES];
#pragma unroll
  for (int i = 0; i < SCORES; i++) bits[i] = __float_as_uint(s[i]);
  still_needed(bits, anywhere, never);
}

__device__ __forceinline__ float2 both(u32 two) { return make_float2(number((u16)two), number((u16)(two >> 16))); }

__device__ __forceinline__ void differences(
    const float (&s)[SCORES], const u32 (&p)[PACKED], const float (&t)[SCORES], u32 (&d)[PACKED], const Vector& deltas) {
#pragma unroll
  for (int i = 0; i < SCORES; i += 4) {
    float2 low = KEYSIDE ? deltas.at(i) : make_float2(deltas.row0, deltas.row0), high = low;
    if (!KEYSIDE) high = make_float2(deltas.row1, deltas.row1);
    float2 p0 = EXACT ? make_float2(s[i], s[i + 1]) : both(p[i / 2]);
    float2 p1 = EXACT ? make_float2(s[i + 2], s[i + 3]) : both(p[i / 2 + 1]);
    d[i / 2] = packed(p0.x * (t[i] - low.x), p0.y * (t[i + 1] - low.y));
    d[i / 2 + 1] = packed(p1.x * (t[i + 2] - high.x), p1.y * (t[i + 3] - high.y));
  }
}

__device__ __forceinline__ void cleared(float (&sum)[OUTPUTS]) {
#pragma unroll
  for (int i = 0; i < OUTPUTS; i++) sum[i] = 0.0f;
}
