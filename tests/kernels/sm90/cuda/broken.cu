#include "small.cuh"

extern "C" __global__ void broken(const __grid_constant__ SmallArgs args) { args.out[0] = not_declared; }
