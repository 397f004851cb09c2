// dq of the sums that gradient_once.cu left in memory: scaled, in 16 bits, and row by row. A thread block makes 64 rows; it
// sets their turn back to 0, as the next pass wants to find it. Where nobody took a turn the rows are 0.
//
// Compiled with HEAD 128, BF16 0 or 1.
#include "ptx.cuh"

constexpr int THREADS = 256;
constexpr int WIDE = 64;
constexpr int PITCH = HEAD + 8;  // of a row in shared memory, so that rows lie in different banks
constexpr int ROOM = WIDE * PITCH;

struct alignas(64) GradientRowsArgs {
  const float* sums;
  int* turns;
  u16* dq;
  u64 batch_step, head_step, row_step;
  int heads, tiles, q_len, unused;  // tiles: of a head
  float scale;
};

extern "C" __global__ void __launch_bounds__(THREADS) gradient_rows(const __grid_constant__ GradientRowsArgs args) {
  __shared__ __align__(16) u16 rows[ROOM];
  const int tile = blockIdx.x, over_all = tile / args.tiles, first = (tile - over_all * args.tiles) * WIDE;
  const int batch = over_all / args.heads, head = over_all - batch * args.heads;
  const int t = threadIdx.x, half = t >> 7, warp = (t >> 5) & 3, lane = t & 31;
  const bool any = args.turns[tile] != 0;
  const float4* from = (const float4*)(args.sums + (long long)tile * WIDE * HEAD) + half * (WIDE * HEAD / 8) + (t & 127);
  u16* to = rows + (warp * 16 + (lane >> 2)) * PITCH + half * (HEAD / 2) + (lane & 3) * 2;
  float4 f[HEAD / 16];
#pragma unroll
  for (int j = 0; j < HEAD / 16; j++) f[j] = any ? from[j * 128] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int j = 0; j < HEAD / 16; j++) {
    *(u32*)(to + j * 8) = packed(f[j].x * args.scale, f[j].y * args.scale);
    *(u32*)(to + j * 8 + 8 * PITCH) = packed(f[j].z * args.scale, f[j].w * args.scale);
  }
  __syncthreads();
  if (t == 0) args.turns[tile] = 0;
  u16* dq = args.dq + batch * args.batch_step + head * args.head_step;
  for (int i = t; i < WIDE * HEAD / 8; i += THREADS) {
    int row = i / (HEAD / 8), column = i % (HEAD / 8) * 8;
    if (first + row < args.q_len) *(uint4*)(dq + (first + row) * args.row_step + column) = *(const uint4*)(rows + row * PITCH + column);
  }
}
