// What a warpgroup of attention.cu does with its registers: 64 query rows against one tile of KEYS keys. A thread holds
// elements of two rows, 8 apart: element i lies in row (i >> 1) & 1 and column (i >> 2) * 8 + (lane & 3) * 2 + (i & 1).
#pragma once

#include "attention_queue.cuh"

constexpr int KEYS = BLOCK;              // keys of a tile
constexpr int ENGINES = BLOCK == 64 ? 2 : 1;
constexpr int ROWS = 128 / ENGINES;      // query rows of an engine
constexpr int HALVES = HEAD / 64;        // 64 columns of 2 bytes are the 128 bytes that a swizzle spans
constexpr int HALF_TILE = KEYS * 128;    // bytes
constexpr int TILE_BYTES = HALVES * HALF_TILE;
constexpr int HALF_QUERY = ROWS * 128;
constexpr int QUERY_BYTES = HALVES * HALF_QUERY;
constexpr int HALF_STAGING = 16 * 128;
constexpr int STAGING_BYTES = HALVES * HALF_STAGING;  // of one warp
constexpr int SCORES = KEYS / 2;         // registers of a thread
constexpr int PACKED = KEYS / 4;
constexpr int OUTPUTS = HEAD / 2;
constexpr int WORDS = KEYS / 32;         // of a row of bits
constexpr float KEPT = 8.0f;             // a maximum may lag behind by this power of two

// Of two rows: running maximum of the raw scores, and this thread's share of the sum of exponentials against it.
struct Sums {
  float max0, max1, sum0, sum1;
};

__device__ __forceinline__ Sums no_sums() { return {-INFINITE, -INFINITE, 0.0f, 0.0f}; }

// ---- which keys are seen

struct Seen {
  u32 low[WORDS], high[WORDS];  // of the two rows, shifted to this thread's columns
};

// `bits` of this thread's first row; null: all. `keys` of the tile lie inside of the sequence.
__device__ __forceinline__ Seen keys_seen(const u32* bits, int keys, int lane) {
  Seen seen;
#pragma unroll
  for (int w = 0; w < WORDS; w++) {
    int inside = keys - 32 * w;
    u32 all = inside >= 32 ? ~0u : inside <= 0 ? 0u : (1u << inside) - 1;
    int shift = (lane & 3) * 2;
    seen.low[w] = (bits ? bits[w] & all : all) >> shift;
    seen.high[w] = (bits ? bits[8 * WORDS + w] & all : all) >> shift;
  }
  return seen;
}

__device__ __forceinline__ void hide_others(float (&s)[SCORES], const Seen& seen) {
#pragma unroll
  for (int i = 0; i < SCORES; i++) {
    u32 word = ((i >> 1) & 1) ? seen.high[i >> 4] : seen.low[i >> 4];
    if (!((word >> (((i >> 2) & 3) * 8 + (i & 1))) & 1)) s[i] = -INFINITE;
  }
}

// ---- softmax

struct Scale {
  float row0, row1;
};

__device__ __forceinline__ float largest_of_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float finite_or_zero(float x) { return x == -INFINITE ? 0.0f : x; }

// A maximum that grew by no more than 2^KEPT stays as it was, the exponentials are then below 2^KEPT: so the output is seldom
// scaled anew, and the exponentials need not wait for the maximum.

// Exponentials of elements `from` to `to` into `p`, against maxima that c0 and c1 stand for; their sums to a0, a1.
template <int from, int to>
__device__ __forceinline__ void exponentials(
    const float (&s)[SCORES], u32 (&p)[PACKED], float scale_log2, float c0, float c1, float& a0, float& a1) {
  float b0 = 0.0f, b1 = 0.0f;
#pragma unroll
  for (int i = from; i < to; i += 4) {
    float e0 = power_of_two(fmaf(s[i], scale_log2, c0)), e1 = power_of_two(fmaf(s[i + 1], scale_log2, c0));
    float e2 = power_of_two(fmaf(s[i + 2], scale_log2, c1)), e3 = power_of_two(fmaf(s[i + 3], scale_log2, c1));
    a0 += e0;
    b0 += e1;
    a1 += e2;
    b1 += e3;
    p[i / 2] = packed(e0, e1);
    p[i / 2 + 1] = packed(e2, e3);
  }
  a0 += b0;
  a1 += b1;
}

// The largest of this thread's elements in each of its rows.
__device__ __forceinline__ void largest(const float (&s)[SCORES], float& x0, float& x1) {
  x0 = fmaxf(s[0], s[1]), x1 = fmaxf(s[2], s[3]);
  float y0 = fmaxf(s[4], s[5]), y1 = fmaxf(s[6], s[7]);
#pragma unroll
  for (int i = 8; i < SCORES; i += 8) {
    x0 = fmaxf(x0, fmaxf(s[i], s[i + 1]));
    x1 = fmaxf(x1, fmaxf(s[i + 2], s[i + 3]));
    y0 = fmaxf(y0, fmaxf(s[i + 4], s[i + 5]));
    y1 = fmaxf(y1, fmaxf(s[i + 6], s[i + 7]));
  }
  x0 = fmaxf(x0, y0);
  x1 = fmaxf(x1, y1);
}

// The same by the bits, three at once: the largest where that is not negative, else one of the negative numbers.
__device__ __forceinline__ void largest_bits(const float (&s)[SCORES], float& x0, float& x1) {
  x0 = larger_bits(s[0], s[1], s[1]), x1 = larger_bits(s[2], s[3], s[3]);
  float y0 = larger_bits(s[4], s[5], s[5]), y1 = larger_bits(s[6], s[7], s[7]);
#pragma unroll
  for (int i = 8; i < SCORES; i += 8) {
    x0 = larger_bits(x0, s[i], s[i + 1]);
    x1 = larger_bits(x1, s[i + 2], s[i + 3]);
    y0 = larger_bits(y0, s[i + 4], s[i + 5]);
    y1 = larger_bits(y1, s[i + 6], s[i + 7]);
  }
  x0 = larger_bits(x0, y0, y0);
  x1 = larger_bits(x1, y1, y1);
}

// Against the maxima as they are, which is nearly always right after an item's first tile: half of the exponentials hide the
// search for the maximum. False: some row of the warp grew too much, and nothing but `p` has changed. The search goes by the
// bits, which tell whether a limit is passed that is not negative: a row with another limit counts as grown, so does one that
// has seen no key yet.
__device__ __forceinline__ bool softmax_kept(const float (&s)[SCORES], u32 (&p)[PACKED], Sums& sums, float scale_log2) {
  float top0 = sums.max0 * scale_log2, top1 = sums.max1 * scale_log2;
  float a0 = 0.0f, a1 = 0.0f, x0, x1;
  largest_bits(s, x0, x1);
  exponentials<0, SCORES / 2>(s, p, scale_log2, -top0, -top1, a0, a1);
  bool grew = fmaf(x0, scale_log2, -top0) > KEPT | fmaf(x1, scale_log2, -top1) > KEPT | top0 < -KEPT | top1 < -KEPT;
  if (__any_sync(~0u, grew)) return false;
  exponentials<SCORES / 2, SCORES>(s, p, scale_log2, -top0, -top1, a0, a1);
  sums.sum0 += a0;
  sums.sum1 += a1;
  return true;
}

// The new maximum of a row. One that softmax_kept would have left as it was stays here too: the warp comes here when any of its
// rows grew, and no row's result may hang on another's. Of the same value in all four threads of the row.
__device__ __forceinline__ float renewed(float found, float kept, float scale_log2) {
  float top = kept * scale_log2;
  return fmaf(found, scale_log2, -top) > KEPT | top < -KEPT ? fmaxf(found, kept) : kept;
}

// Against new maxima, for which the output must be scaled by `scale`, by 1 in rows that did not grow. The sums are added up in
// the order of softmax_kept, so that such a row gets the same bits here. A row that has seen no key yet has a maximum of -inf;
// 0 stands in for it, and all its exponentials are 0.
__device__ __forceinline__ void softmax_anew(
    const float (&s)[SCORES], u32 (&p)[PACKED], Sums& sums, Scale& scale, float scale_log2) {
  float x0, x1, a0 = 0.0f, a1 = 0.0f;
  largest(s, x0, x1);
  x0 = renewed(largest_of_row(x0), sums.max0, scale_log2);
  x1 = renewed(largest_of_row(x1), sums.max1, scale_log2);
  float top0 = finite_or_zero(x0), top1 = finite_or_zero(x1);
  scale.row0 = power_of_two((sums.max0 - top0) * scale_log2);
  scale.row1 = power_of_two((sums.max1 - top1) * scale_log2);
  sums.max0 = x0;
  sums.max1 = x1;
  exponentials<0, SCORES / 2>(s, p, scale_log2, -top0 * scale_log2, -top1 * scale_log2, a0, a1);
  exponentials<SCORES / 2, SCORES>(s, p, scale_log2, -top0 * scale_log2, -top1 * scale_log2, a0, a1);
  sums.sum0 = sums.sum0 * scale.row0 + a0;
  sums.sum1 = sums.sum1 * scale.row1 + a1;
}

__device__ __forceinline__ void scaled(float (&o)[OUTPUTS], const Scale& scale) {
#pragma unroll
  for (int i = 0; i < OUTPUTS; i += 4) {
    o[i] *= scale.row0;
    o[i + 1] *= scale.row0;
    o[i + 2] *= scale.row1;
    o[i + 3] *= scale.row1;
  }
}

__device__ __forceinline__ void cleared(float (&o)[OUTPUTS]) {
#pragma unroll
  for (int i = 0; i < OUTPUTS; i++) o[i] = 0.0f;
}

// ---- products

// s = Q K^T for one tile; the queries in shared memory, or in registers where a tile is narrow: a product of 64 x 64 would
// else read as many bytes of Q as of K, more than shared memory gives.
#if BLOCK == 64
typedef u32 Queries[HEAD / 16][4];

__device__ __forceinline__ void load_queries(Queries& q, u32 from, int t) {
  int lane = t & 31, row = (t >> 5) * 16 + (lane & 15);
#pragma unroll
  for (int k = 0; k < HEAD / 16; k++)
    load_matrices(from + (k >> 2) * HALF_QUERY + row * 128 + ((((k & 3) * 2 + (lane >> 4)) ^ (row & 7)) << 4), q[k]);
}

__device__ __forceinline__ void multiply_scores(float (&s)[SCORES], const Queries& q, u32 tile) {
  u64 b = operand<128>(tile, 16);
  scores_first(s, q[0], b);
#pragma unroll
  for (int k = 1; k < HEAD / 16; k++) scores_more(s, q[k], b + (k >> 2) * (HALF_TILE >> 4) + (k & 3) * 2);
  wgmma_commit();
}
#else
__device__ __forceinline__ void multiply_scores(float (&s)[SCORES], u32 queries, u32 tile) {
  u64 a = operand<128>(queries, 16), b = operand<128>(tile, 16);
  scores_first(s, a, b);
#pragma unroll
  for (int k = 1; k < HEAD / 16; k++)
    scores_more(s, a + (k >> 2) * (HALF_QUERY >> 4) + (k & 3) * 2, b + (k >> 2) * (HALF_TILE >> 4) + (k & 3) * 2);
  wgmma_commit();
}
#endif

// o += P V: the accumulators of the scores, packed, are the A fragments of this product as they lie.
__device__ __forceinline__ void multiply_values(float (&o)[OUTPUTS], const u32 (&p)[PACKED], u32 tile) {
  u64 b = operand<128>(tile, HALF_TILE);
#pragma unroll
  for (int k = 0; k < KEYS / 16; k++)
    values_more(o, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], b + k * (16 * 128 >> 4));
  wgmma_commit();
}

// ---- results

// o / sum in 16 bits into this warp's staging; the logarithms of the sums straight to memory. `row` and `rows`: this
// thread's first row and the number of rows of the sequence; `lse` of the sequence's first row.
__device__ __forceinline__ void finish(
    const float (&o)[OUTPUTS], Sums sums, float scale_log2, u32 staging, int lane, float* lse, int row, int rows) {
  int r = lane & 15;
  float sum0 = sums.sum0, sum1 = sums.sum1;
  sum0 += __shfl_xor_sync(~0u, sum0, 1);
  sum1 += __shfl_xor_sync(~0u, sum1, 1);
  sum0 += __shfl_xor_sync(~0u, sum0, 2);
  sum1 += __shfl_xor_sync(~0u, sum1, 2);
  float by0 = sum0 > 0.0f ? reciprocal(sum0) : sum0, by1 = sum1 > 0.0f ? reciprocal(sum1) : sum1;  // NaN stays NaN
#pragma unroll
  for (int j = 0; j < HEAD / 16; j++) {
    const float* f = &o[j * 8];
    const u32 four[4] = {packed(f[0] * by0, f[1] * by0), packed(f[2] * by1, f[3] * by1),
                         packed(f[4] * by0, f[5] * by0), packed(f[6] * by1, f[7] * by1)};
    store_matrices(staging + (j >> 2) * HALF_STAGING + r * 128 + ((((j & 3) * 2 + (lane >> 4)) ^ (r & 7)) << 4), four);
  }
  constexpr float LN2 = 0.69314718f;
  float log0 = (finite_or_zero(sums.max0) * scale_log2 + log_of_two(sum0)) * LN2;
  float log1 = (finite_or_zero(sums.max1) * scale_log2 + log_of_two(sum1)) * LN2;
  bool writes = (lane & 3) == 0;
  if (writes && row < rows) lse[row] = log0;
  if (writes && row + 8 < rows) lse[row + 8] = log1;
}
