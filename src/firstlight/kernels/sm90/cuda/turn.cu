// [rows, cols] -> [cols, pitch]: the dense operand with its tokens contiguous, for products with blocks of 16 and 32.
// Those would read rows of 32 or 64 bytes otherwise, at half the rate from L2 (4.1 to 4.5 TB/s for 32 bytes against 9.0
// to 9.2 for 128 on an H200); turning costs one more pass over X in memory. The 16-bit numbers are moved as they are.
typedef unsigned short u16;
typedef unsigned int u32;

constexpr int SIDE = 64, ACROSS = SIDE / 2 + 1;  // in pairs of numbers
constexpr int THREADS = 128;

struct TurnArgs {
  const u16* from;
  u16* to;
  int rows, cols, pitch;
};

// Where a pair lies in its row: rotated by one for every 8 rows, so that the rows of neighbouring threads lie in different banks.
__device__ __forceinline__ int rotated(int pair, int row) { return (pair + (row >> 3)) & (SIDE / 2 - 1); }

extern "C" __global__ void __launch_bounds__(THREADS) turn(const __grid_constant__ TurnArgs args) {
  __shared__ u32 tile[SIDE][ACROSS];
  long long first_row = (long long)blockIdx.y * SIDE;
  int first_col = blockIdx.x * SIDE;
  bool wide = args.cols % 8 == 0;
#pragma unroll
  for (int i = 0; i < SIDE * SIDE / 8 / THREADS; i++) {
    int place = threadIdx.x + i * THREADS, row = place / (SIDE / 8), col = place % (SIDE / 8) * 8;
    const u16* from = args.from + (first_row + row) * args.cols + first_col + col;
    bool inside = first_row + row < args.rows;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (wide) {
      if (inside && first_col + col < args.cols) v = *(const uint4*)from;
    } else if (inside) {
      u32 pair[4];
      for (int j = 0; j < 4; j++) {
        u32 low = first_col + col + 2 * j < args.cols ? from[2 * j] : 0;
        u32 high = first_col + col + 2 * j + 1 < args.cols ? from[2 * j + 1] : 0;
        pair[j] = low | high << 16;
      }
      v = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
    u32 pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 4; j++) tile[row][rotated(col / 2 + j, row)] = pairs[j];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < SIDE * SIDE / 16 / THREADS; i++) {  // 8 rows of two columns: 8 pairs in, 4 + 4 pairs out
    int place = threadIdx.x + i * THREADS, col = place / (SIDE / 8) * 2, row = place % (SIDE / 8) * 8;
    if (first_row + row >= args.pitch) continue;
    u32 low[4], high[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      u32 one = tile[row + 2 * j][rotated(col / 2, row)], other = tile[row + 2 * j + 1][rotated(col / 2, row)];
      low[j] = __byte_perm(one, other, 0x5410);
      high[j] = __byte_perm(one, other, 0x7632);
    }
    u16* to = args.to + (long long)(first_col + col) * args.pitch + first_row + row;
    if (first_col + col < args.cols) *(uint4*)to = make_uint4(low[0], low[1], low[2], low[3]);
    if (first_col + col + 1 < args.cols) *(uint4*)(to + args.pitch) = make_uint4(high[0], high[1], high[2], high[3]);
  }
}
