// out = a * x + y, twice: one number a thread, and four numbers a thread in a loop over the grid.
// axpy.py beside this file says what they are given and what should come out: firstlight bench axpy.cu

extern "C" __global__ void axpy(int n, float a, const float* __restrict__ x, const float* __restrict__ y,
                                float* __restrict__ out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}

extern "C" __global__ void axpy_by_four(long long quads, float a, const float4* __restrict__ x,
                                        const float4* __restrict__ y, float4* __restrict__ out) {
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; i < quads; i += step) {
    const float4 u = x[i];
    const float4 v = y[i];
    out[i] = make_float4(a * u.x + v.x, a * u.y + v.y, a * u.z + v.z, a * u.w + v.w);
  }
}
