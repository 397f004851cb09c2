// A part of multiply.cu: the activations, by the special function unit's power of two and reciprocal.
//
// All but relu are one function, x / (1 + 2^z) with z = x P(x^2), and differ in the coefficients: silu has P = -log2(e); gelu by
// tanh is the same function written otherwise; for gelu by erf P was fitted to the logarithm of the odds, and the result is
// off by at most 2^-11 of itself plus 2^-24. The unit gives 16 results a clock, and an item has 32768 numbers: four share
// one reciprocal, of the product of their denominators. So that it stays finite no number counts as less than `lowest`,
// where z is 30 and the result within 2e-8 of zero.
#pragma once

constexpr int RELU = 1, GELU = 2, GELU_TANH = 3, SILU = 4;
constexpr float LARGEST_POWER = 30.5f;
constexpr int AT_ONCE = 16;  // with more numbers at once ptxas runs out of registers

template <int kind> __device__ __forceinline__ float power_for(float x) {
  if (kind == SILU) return -1.442695f * x;
  float square = x * x;
  if (kind == GELU_TANH) return x * fmaf(-0.10294324f, square, -2.3022082f);
  float sum = fmaf(-6.301572e-07f, square, 1.45391e-05f);
  sum = fmaf(sum, square, 0.0010329786f);
  sum = fmaf(sum, square, -0.10742926f);
  return x * fmaf(sum, square, -2.3001661f);
}

template <int kind, int count> __device__ __forceinline__ void activate_all(float (&f)[count], u32 never) {
  constexpr float lowest = kind == SILU ? -21.0f : kind == GELU ? -5.9f : -5.55f;
#pragma unroll
  for (int i = 0; i < count; i += 4) {
    float under[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      f[i + j] = larger(f[i + j], lowest);
      // of NaN a finite number, for the sake of the three that share the reciprocal
      under[j] = 1.0f + power_of_two(fminf(power_for<kind>(f[i + j]), LARGEST_POWER));
    }
    float first = under[0] * under[1], second = under[2] * under[3], over = reciprocal(first * second);
    float over_first = over * second, over_second = over * first;
    f[i] *= over_first * under[1], f[i + 1] *= over_first * under[0];
    f[i + 2] *= over_second * under[3], f[i + 3] *= over_second * under[2];
    if (i + AT_ONCE < count) not_before(never, f[i + AT_ONCE], f[i]);
  }
}

// NaN stays NaN.
__device__ __forceinline__ float relu(float x) { return x > 0.0f || x != x ? x : 0.0f; }

// never: 0, which the compiler does not know.
template <int count> __device__ __forceinline__ void activate(float (&f)[count], int kind, u32 never) {
  if (kind == RELU) {
#pragma unroll
    for (int i = 0; i < count; i++) f[i] = relu(f[i]);
  } else if (kind == SILU) {
    activate_all<SILU>(f, never);
  } else if (kind == GELU) {
    activate_all<GELU>(f, never);
  } else if (kind == GELU_TANH) {
    activate_all<GELU_TANH>(f, never);
  }
}

struct Eight {
  float v[8];
};

// One copy for all calls: written out at each of 16 places it takes much of the compile time.
__device__ __noinline__ Eight activated_eight(Eight f, int kind) {
  activate(f.v, kind, 0);
  return f;
}
