// A box of x by TMA into shared memory, TIMES wgmma on it, the sums out.
#include "small.cuh"

extern "C" __global__ void __launch_bounds__(128) one_wgmma(const __grid_constant__ SmallArgs args) {
  __shared__ alignas(1024) char tile[64 * 128];
  __shared__ alignas(8) unsigned long long arrived;
  unsigned bar = place_in_shared(&arrived), to = place_in_shared(tile);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(64 * 128) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(&args.x), "r"(bar), "r"(0), "r"(0) : "memory");
  }
  __syncthreads();
  asm volatile("{\n.reg .pred P;\nL_%=:\nmbarrier.try_wait.parity.shared::cta.b64 P, [%0], 0;\n@!P bra L_%=;\n}" ::"r"(bar) : "memory");
  float sums[4] = {0, 0, 0, 0};
  fence();
#pragma unroll
  for (int i = 0; i < TIMES; i++) wgmma(sums, described(to) + 2 * i, described(to) + 2 * i);
  commit();
  wait();
  for (int i = 0; i < 4; i++) args.out[threadIdx.x * 4 + i] = sums[i] * args.count;
}
