// out = activation(alpha * (W @ X) + beta * addend + bias), W block-sparse, on sm_90a.
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
#if BLOCK == 128
#define LOADER_REGISTERS 40
#endif
#ifndef LOADERS  // benchmarks/sm90_tune.py tries others
#define LOADERS (BLOCK == 128 ? 2 : 3)
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
// With blocks of 128 an item is a few stages long at low density, and the time to store its result shows: the last chunks
// are kept in registers and stored while the first products of the next item run.
#ifndef LATE_CHUNKS  // benchmarks/sm90_tune.py tries others
#define LATE_CHUNKS 3
#endif
constexpr int LATE = BLOCK == 128 && TOKENS == 256 ? LATE_CHUNKS : 0;

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
  int rows, cols, n, pitch; // pitch: elements between rows of X when it lies by column
  int boxes;                // copies per tile of X when it lies by column: 1, or one per 64 tokens
  int activation;           // 0 none, 1 relu, 2 gelu, 3 gelu by tanh, 4 silu
  int plain;                // 1: alpha 1, no addend, no bias, no activation
  u32 never;                // 0, which the compiler does not know
  float alpha, beta;
};

__device__ __forceinline__ float activated(float v, int kind) {
  if (kind == 2) return 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));
  if (kind == 3) return 0.5f * v * (1.0f + tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v)));
  if (kind == 4) return v / (1.0f + __expf(-v));
  return v;
}

struct Eight {
  float v[8];
};

// One copy for all calls: written out at each of 16 places these functions take most of the compile time.
__device__ __noinline__ Eight activated_eight(Eight f, int kind) {
#pragma unroll
  for (int i = 0; i < 8; i++) f.v[i] = activated(f.v[i], kind);
  return f;
}

#include "multiply_loads.cuh"
#include "multiply_products.cuh"
#include "multiply_results.cuh"

__device__ __forceinline__ void run_consumer(const MultiplyArgs& args, Shared* shared, u32 base, int half) {
  int t = threadIdx.x & 127;
  Consumer at = {shared, base, half, t >> 5, t & 31, {0, 0}, -1};
  Known known = {};
  float d[ACCUMULATORS];
  LateChunks late;
  late.waiting = 0;
  for (;;) {
    Place ring = known.place();
    Item item = next_item(shared, ring);
    if (item.group < 0) break;
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++) d[i] = 0.0f;
    walk(item, at, d, args.never, [&]() { if (LATE) late.store_next(args, at); });
    if (LATE)
      while (late.waiting) late.store_next(args, at);  // an item of few stages
    const int row = at.first_row(item, ring.slot);
    __syncwarp();
    forget_item(shared, ring, at.lane);
    known.next();
    if (item.slot >= 0) {
      int tiles = args.tiles * args.batches, first = args.first_slot[item.group], place = (first * tiles + item.tile) * 2 + half;
      float4* parts = args.parts + (long long)place * (ACCUMULATORS / 4 * 128);
      if (!sum_of_portions(d, parts, item.slot - first, args.slot_counts[item.group], tiles * 2, args.arrivals + place, shared, half))
        continue;
    }
#if BLOCK < 64
    float check = 0.0f;
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++) check = fmaf(d[i], 0.0f, check);
    if (any_of_warpgroup(1 + half, check != 0.0f)) {  // NaN differs from everything
      strictly(args, item, row, half, t);
      continue;
    }
#endif
    if (LATE && args.plain) {
      constexpr int at_once = CHUNKS - LATE;
      store_tile<at_once>(args, item, row, at, d, known);
#pragma unroll
      for (int i = 0; i < 16 * LATE; i++) late.packed[i] = packed(d[at_once * 32 + 2 * i], d[at_once * 32 + 2 * i + 1]);
      late.row = row - at.warp % STORING * 16, late.token = item.first + at_once * 64, late.batch = item.batch;
      late.waiting = LATE;
    } else {
      store_tile<CHUNKS>(args, item, row, at, d, known);
    }
  }
  if (LATE)
    while (late.waiting) late.store_next(args, at);
  if (is_storing(at)) stores_done();
}

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
