// A sum touched while a wgmma adds to it: ptxas then lets each wgmma end before the next (C75xx) and tells its log alone.
#include "small.cuh"

extern "C" __global__ void __launch_bounds__(128) serialised(const __grid_constant__ SmallArgs args) {
  __shared__ alignas(1024) char tile[64 * 128];
  float sums[4] = {0, 0, 0, 0};
  unsigned long long a = described(place_in_shared(tile));
#pragma unroll 1
  for (int k = 0; k < args.count; k++) {
    fence();
    wgmma(sums, a, a);
    sums[k & 1] += 1.0f;
    wgmma(sums, a + 2, a + 2);
    commit();
    wait();
  }
  for (int i = 0; i < 4; i++) args.out[threadIdx.x * 4 + i] = sums[i];
}
