// out = activation(alpha * (W @ X) + beta * addend + bias), W block-sparse, on sm_90a; or, where `gated`,
// activation(alpha * (W @ X) + bias), rounded, times addend.
//
// One item of work is 128 rows of W times TOKENS columns of X; with blocks below 128 these are block rows from anywhere.
// Its list names, step by step, the block columns that any of these rows stores (the union) and which stored block each row
// has there, -1 for none. A step fills one stage of the ring (two for blocks of 128): a tile of X once, and the stored
// blocks alone. A warpgroup without a block in a step leaves it out. Blocks of 64 and 128 feed the tensor cores from shared
// memory; blocks of 16 and 32 go through registers, where a row without a block holds zeros.
//
// Compiled with: BLOCK 16 | 32 | 64 | 128; TOKENS 64 | 256; BF16 0 | 1; X_BY_TOKEN 1: X is [n, cols], 0: X is
// [batch, cols, n]; OUT_BY_TOKEN likewise; TURNED 1: each stored block is used as its transpose; STAGES; STORE_CHUNKS:
// how many of a warpgroup's TOKENS / 64 chunks have staging room of their own; CLUSTER: thread blocks that load W for each
// other, 1 or 2 (with blocks of 64 and 128).
#if BLOCK >= 64
#define LOADER_REGISTERS 40
#endif
#ifndef LOADERS  // benchmarks/matmul/sm90/tune.py tries others
#define LOADERS (BLOCK == 128 ? 2 : 3)
#endif
// benchmarks/matmul/sm90/without.py leaves out a part of what the kernel does and times the rest; the result is wrong then.
#define WITHOUT_PRODUCTS 1
#define WITHOUT_STORES 2
#define WITHOUT_LOADS 4
#ifndef WITHOUT
#define WITHOUT 0
#endif
#define ITEM_ROWS (BLOCK == 128 ? 0 : 128 / BLOCK)
// Warps that store together: by token those of one block row, up to 128 bytes of rows; by column each its own 16 rows.
#define STORING (!OUT_BY_TOKEN || BLOCK == 16 ? 1 : BLOCK == 32 ? 2 : 4)
#define ADDEND_ARRIVALS (4 / STORING)
#include "roles.cuh"

constexpr int HEIGHT = 128 / BLOCK;                      // block rows of an item
constexpr int WIDTH = BLOCK >= 64 ? 1 : 64 / BLOCK;      // union columns of a step
constexpr int MEMBERS = HEIGHT * WIDTH;                  // stored blocks of a step, at most
constexpr int HALVES = BLOCK == 128 ? 2 : 1;             // stages of a step
constexpr int DEPTH = BLOCK < 64 ? BLOCK : 64;           // of K in one tile of X
constexpr int X_BYTES = TOKENS * DEPTH * 2;
constexpr int MEMBER_BYTES = BLOCK == 128 ? A_BYTES : BLOCK * BLOCK * 2;
constexpr int SLAB = BLOCK >= 64 ? 1 : 64 / BLOCK;       // block rows of a warpgroup
// Whether the result is kept in registers as 16 bits and stored while the next item is multiplied. With small blocks memory
// sets the pace, not the time between two items, and their products need the registers.
#define LATE_STORES (BLOCK >= 64 && TOKENS == 256)

struct alignas(64) MultiplyArgs {
  TensorMap w, x, y, c;
  const int* columns;       // [steps * WIDTH]; cols / BLOCK rounded up: none
  const int* members;       // [steps, WIDTH, HEIGHT]
  const int4* portions;     // group, first step, end, slot of its part of the sum or -1; group -1: none
  const int* block_rows;    // [groups, HEIGHT], blocks below 128: which block rows a group is
  const int* starts;        // [groups + 1], in steps
  const int* first_slot;    // [groups]
  const int* slot_counts;   // [groups]
  int* queue;               // next item, finished thread blocks
  float4* parts;
  int* arrivals;
  const u16* bias;          // [rows] or null
  const u16* values;
  const u16* dense;
  const u16* addend;        // null: none
  u16* out;
  int portions_count, tiles, batches, super_tile;
  int two_windows;          // 1: two windows of token tiles take turns
  int rows, cols, n, pitch; // pitch: elements between rows of X when it lies by column
  int out_pitch;            // and of the result
  int boxes;                // copies per tile of X when it lies by column: 1, or one per 64 tokens
  int activation;           // 0 none, 1 relu, 2 gelu, 3 gelu by tanh, 4 silu
  int plain;                // 1: alpha 1, no addend, no bias, no activation
  int gated;                // 1: the result is multiplied by addend instead; by token alone
  u32 never;                // 0, which the compiler does not know
  float alpha, beta;
};

#define IS_GATED (OUT_BY_TOKEN && args.gated)  // by column nobody asks for it, and there are no registers for it
#include "multiply_activation.cuh"
#include "multiply_loads.cuh"
#include "multiply_products.cuh"
#include "multiply_results.cuh"
#include "multiply_consumer.cuh"

#if CLUSTER > 1
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#else
#define IN_CLUSTERS
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) IN_CLUSTERS multiply(const __grid_constant__ MultiplyArgs args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  u32 base = shared_address(memory);
  Shared* shared = (Shared*)(memory + BARRIERS_AT);
  start_barriers(shared);
  int warpgroup = threadIdx.x >> 7, warp = (threadIdx.x >> 5) & 3, lane = threadIdx.x & 31;
  if (warpgroup == 2) {
    give_registers<LOADER_REGISTERS>();
    if (warp == 0) run_queue(args, shared, CLUSTER > 1 ? cluster_rank() : 0, lane);
    else if (warp <= LOADERS) run_loader(args, shared, base, warp - 1, lane);
  } else {
    take_registers<CONSUMER_REGISTERS>();
    run_consumer(args, shared, base, warpgroup);
  }
  if (CLUSTER > 1) meet_cluster();  // until then the other one may load into this one's shared memory
}
