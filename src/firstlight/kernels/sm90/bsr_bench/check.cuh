// Random data that host and device compute alike, and the product in the plainest form to compare with.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "call.h"

typedef unsigned long long u64;
typedef unsigned short u16;

// About normal, mean 0 and deviation 1: four uniform numbers added, in integers, so that both sides get the same bits.
__host__ __device__ inline float random_number(u64 seed, u64 place) {
  u64 x = place * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull + 0x632BE59BD9B4E019ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  int sum = (int)(x & 0xFFFF) + (int)(x >> 16 & 0xFFFF) + (int)(x >> 32 & 0xFFFF) + (int)(x >> 48);
  return (float)(sum - 131070) * (1.0f / 37837.0f);
}

__host__ __device__ inline u16 stored(float value, bool bf16) {
  if (bf16) {
    __nv_bfloat16_raw raw = __float2bfloat16_rn(value);
    return raw.x;
  }
  __half_raw raw = __float2half_rn(value);
  return raw.x;
}

__host__ __device__ inline float number_of(u16 bits, bool bf16) {
  if (bf16) {
    __nv_bfloat16_raw raw;
    raw.x = bits;
    return __bfloat162float(raw);
  }
  __half_raw raw;
  raw.x = bits;
  return __half2float(raw);
}

struct Fill {
  u64 seed;
  float scale;
  bool bf16;
};

// `across` > 0: to[i] is element [i / across][i % across] of the transpose of what it is without.
__global__ void fill(u16* to, u64 count, Fill how, u64 across, u64 down) {
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
    u64 place = across ? i % across * down + i / across : i;
    to[i] = stored(random_number(how.seed, place) * how.scale, how.bf16);
  }
}

// Exact products summed in float64, and how far a right result may be off: half a unit in the last place of the result,
// and for the sum in float32 a unit per 16 terms, in the tensor cores' coarser rounding, of the sum of magnitudes.
struct Sum {
  double exact = 0.0, magnitude = 0.0;
  int terms = 0;

  __host__ __device__ void add(float a, float b) {  // a * b has at most 22 digits: exact in float
    double product = (double)(a * b);
    exact += product;
    magnitude += product < 0 ? -product : product;
    terms++;
  }
  __host__ __device__ double bound(bool bf16) const {
    double unit = bf16 ? 0x1p-8 : 0x1p-11, size = exact < 0 ? -exact : exact;
    return unit * size * 1.01 + (terms / 16 + 4) * 0x1p-21 * magnitude + 0x1p-24;
  }
  // 1 and more is wrong; a NaN in the result is.
  __host__ __device__ double off(float found, bool bf16) const {
    double difference = (double)found - exact;
    if (difference < 0) difference = -difference;
    double ratio = difference / bound(bf16);
    return ratio >= 0 ? ratio : 1e30;
  }
};

struct Reference {
  const int *starts, *columns;  // the pattern, not the lists that the kernel walks
  const u16 *values, *x;        // x is [cols, n], whatever the kernel reads
  const u16* out;
  int block, rows, cols, n;
  bool bf16, linear;
};

struct Verdict {
  u64 wrong, first;  // elements, and the place of the first one
  int worst;         // bits of a float: the largest share of its bound
};

__global__ void compare(Reference at, Verdict* verdict) {
  int token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= at.n) return;
  float worst = 0.0f;
  for (int row = blockIdx.y; row < at.rows; row += gridDim.y) {
    Sum sum;
    int line = row % at.block;
    for (int entry = at.starts[row / at.block]; entry < at.starts[row / at.block + 1]; entry++) {
      const u16* w = at.values + ((long long)entry * at.block + line) * at.block;
      int column = at.columns[entry] * at.block, depth = min(at.block, at.cols - column);
      for (int k = 0; k < depth; k++)
        sum.add(number_of(w[k], at.bf16), number_of(at.x[(long long)(column + k) * at.n + token], at.bf16));
    }
    long long place = at.linear ? (long long)token * at.rows + row : (long long)row * at.n + token;
    float off = (float)sum.off(number_of(at.out[place], at.bf16), at.bf16);
    worst = fmaxf(worst, off);
    if (off >= 1.0f) {
      atomicAdd(&verdict->wrong, 1ull);
      atomicMin(&verdict->first, (u64)place);
    }
  }
  atomicMax(&verdict->worst, __float_as_int(worst));  // not negative: their bits are in the order of the numbers
}

__global__ void differences(const u16* one, const u16* other, u64 count, u64* found) {
  u64 mine = 0;
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x)
    mine += one[i] != other[i];
  if (mine) atomicAdd(found, mine);
}
