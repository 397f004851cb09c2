// More live values than the registers it is allowed.
#include "small.cuh"

extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const __grid_constant__ SmallArgs args) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; i++) v[i] = args.out[i * 1024 + threadIdx.x];
  for (int k = 0; k < args.count; k++) {
#pragma unroll
    for (int i = 0; i < 96; i++) v[i] = v[i] * v[(i * 7 + 5) % 96] + 1.0f;
  }
#pragma unroll
  for (int i = 0; i < 96; i++) args.out[i * 1024 + threadIdx.x] = v[i];
}
