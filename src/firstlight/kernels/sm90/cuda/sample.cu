// values[block] = alpha * A[its rows] @ B[its columns]^T, for the stored blocks of a pattern alone, on sm_90a.
//
// One item of work is 128 rows of A times 256 gathered columns: a step of the union list of these rows, 256 / BLOCK
// block columns wide, over a portion of the contraction. Every place of the tile is multiplied, the stored ones are
// written. B_TURNED-style layouts as in multiply.cu.
//
// Compiled with: BLOCK 16 | 32 | 64 | 128; BF16 0 | 1; BY_TOKEN 1: A is [n, rows] and B [n, cols] (BLOCK 64 and 128),
// 0: A is [batch, rows, n] and B [batch, cols, n]; TOKENS 256 (here: gathered columns); STAGES; STORE_CHUNKS 0.
#include "roles.cuh"

constexpr int HEIGHT = 128 / BLOCK;    // block rows of an item
constexpr int WIDTH = TOKENS / BLOCK;  // gathered block columns of an item

struct alignas(64) SampleArgs {
  TensorMap a, b;
  const int* columns;  // [steps * WIDTH]; cols / BLOCK rounded up: none
  const int* members;  // [steps, WIDTH, HEIGHT]; stored block, -1: none
  const int* starts;   // [groups + 1], in steps
  int* queue;
  float4* parts;
  int* arrivals;
  u16* values;
  int groups, splits, batches, depth;  // depth: stages of the contraction over n, for one of the batches
  int rows, cols;
  float alpha;
};

// The group of block rows that a step belongs to: the last one that starts at or before it.
__device__ __forceinline__ int group_of(const int* starts, int groups, int step) {
  int low = 0, high = groups;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (starts[middle] <= step) low = middle;
    else high = middle;
  }
  return low;
}

__device__ __forceinline__ void run_queue(const SampleArgs& args, Shared* shared, int lane) {
  int total = args.starts[args.groups] * args.splits, stages = args.depth * args.batches;
  Place place = {0, 1};
  u32 wanted = 0;
  for (;;) {
    int number = 0;
    if (lane == 0) number = atomicAdd(args.queue, 1);
    number = __shfl_sync(~0u, number, 0);
    if (number >= total) break;
    int step = number / args.splits, split = number - step * args.splits;
    int begin = (int)((long long)stages * split / args.splits), end = (int)((long long)stages * (split + 1) / args.splits);
    stress(1);
    Item item = {group_of(args.starts, args.groups, step), begin, end, split, step, 0, 0, 0};
    publish_item(shared, place, wanted, item, lane);
  }
  Item none = {-1, 0, 0, -1, 0, 0, 0, 0};
  publish_item(shared, place, wanted, none, lane);
  if (lane == 0) leave_queue(args.queue);
}

__device__ __forceinline__ void load_stage(
    const SampleArgs& args, const Item& item, u32 stage, u32 full, int column, int k, int lane) {
  int batch = k / args.depth, from = (k - batch * args.depth) * 64;
#if BY_TOKEN
  // a lane for every 64 columns of B; a block of 128 has two of them
  int box = column * BLOCK + lane % (BLOCK / 64) * 64;
  if (lane < 4) load_box_3d(stage + A_BYTES + lane * 8192, &args.b, full, box, from, 0);
  if (lane < 2) load_box_3d(stage + lane * 8192, &args.a, full, item.group * 128 + lane * 64, from, 0);
#else
  if (lane < WIDTH) load_box_3d(stage + A_BYTES + lane * (BLOCK * 128), &args.b, full, from, column * BLOCK, batch);
  if (lane == 0) load_box_3d(stage, &args.a, full, from, item.group * 128, batch);
#endif
}

__device__ __forceinline__ void run_loader(const SampleArgs& args, Shared* shared, u32 base, int which, int lane) {
  Place ring = {0, 0}, place = {which, 1};
  int next = which;
  for (;;) {
    Item item = next_item(shared, ring);
    forget_item(shared, ring, lane);
    if (item.group < 0) break;
    int stages = item.end - item.begin, k = next;
    int entry = BY_TOKEN ? lane * 64 / BLOCK : lane;
    int column = entry < WIDTH ? args.columns[(long long)item.tile * WIDTH + entry] : 0;
    bool told = which > 0;
    for (; k < stages; k += LOADERS) {
      want_next(shared, told, stages - k, lane);
      u32 full = shared_address(&shared->full[place.slot]);
      stress(2 + which);
      barrier_wait(shared_address(&shared->empty[place.slot]), place.parity);
      load_stage(args, item, base + place.slot * STAGE_BYTES, full, column, item.begin + k, lane);
      if (lane == 0) barrier_expect(full, STAGE_BYTES);  // what lies outside of a tensor is filled with zeros and counts
      __syncwarp();
      advance<STAGES>(place, LOADERS);
    }
    want_next(shared, told, 0, lane);
    next = k - stages;
  }
}

constexpr int OPERAND_STEP = BY_TOKEN ? 128 : 2;

__device__ __forceinline__ void release(Shared* shared, int slot, int lane) {
  __syncwarp();
  if (slot >= 0 && lane == 0) barrier_arrive(shared_address(&shared->empty[slot]));
}

__device__ __forceinline__ void walk(
    const Item& item, Shared* shared, u32 base, int half, int lane, Place& place, float (&d)[ACCUMULATORS]) {
  int held = -1;
#pragma unroll 1
  for (int k = item.begin; k < item.end; k++) {
    stress(8 + half);
    barrier_wait(shared_address(&shared->full[place.slot]), place.parity);
    u32 stage = base + place.slot * STAGE_BYTES;
    u64 a = operand<128>(stage + half * 8192, 8192), b = operand<128>(stage + A_BYTES, 8192);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) wgmma_shared<BY_TOKEN, BY_TOKEN, 1>(d, a + i * OPERAND_STEP, b + i * OPERAND_STEP);
    wgmma_commit();
    wgmma_wait<1>();
    release(shared, held, lane);
    held = place.slot;
    advance<STAGES>(place, 1);
  }
  wgmma_wait<0>();
  release(shared, held, lane);
}

// The places of the tile that are stored: 4 bytes a lane, 16 bytes in a row of a block. What lies past the matrix is 0.
__device__ __forceinline__ void store_blocks(
    const SampleArgs& args, const Item& item, const float (&d)[ACCUMULATORS], int half, int warp, int lane) {
  int line = half * 64 + warp * 16 + (lane >> 2), block_row = line / BLOCK;  // 16 rows of a warp are in one block row
  int row = item.group * 128 + line;
  const int* members = args.members + (long long)item.tile * (WIDTH * HEIGHT) + block_row;
  const int* columns = args.columns + (long long)item.tile * WIDTH;
#pragma unroll
  for (int entry = 0; entry < WIDTH; entry++) {
    int member = members[entry * HEIGHT];
    if (member < 0) continue;
    u16* to = args.values + (long long)member * (BLOCK * BLOCK) + line % BLOCK * BLOCK + (lane & 3) * 2;
    int column = columns[entry] * BLOCK + (lane & 3) * 2;
#pragma unroll
    for (int i = 0; i < BLOCK / 8; i++) {
      const float* f = &d[(entry * (BLOCK / 8) + i) * 4];
      bool left = column + i * 8 < args.cols, right = column + i * 8 + 1 < args.cols;
      bool low = row < args.rows, high = row + 8 < args.rows;
      *(u32*)(to + i * 8) = packed(low && left ? args.alpha * f[0] : 0.0f, low && right ? args.alpha * f[1] : 0.0f);
      *(u32*)(to + 8 * BLOCK + i * 8) =
          packed(high && left ? args.alpha * f[2] : 0.0f, high && right ? args.alpha * f[3] : 0.0f);
    }
  }
}

__device__ __forceinline__ void run_consumer(const SampleArgs& args, Shared* shared, u32 base, int half) {
  int t = threadIdx.x & 127, warp = t >> 5, lane = t & 31;
  Place place = {0, 0}, ring = {0, 0};
  float d[ACCUMULATORS];
  for (;;) {
    Item item = next_item(shared, ring);
    if (item.group < 0) break;
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++) d[i] = 0.0f;
    walk(item, shared, base, half, lane, place, d);
    forget_item(shared, ring, lane);
    if (args.splits > 1) {
      long long first = ((long long)item.tile * args.splits * 2 + half) * (ACCUMULATORS / 4 * 128);
      if (!sum_of_portions(d, args.parts + first, item.slot, args.splits, 2, args.arrivals + item.tile * 2 + half, shared, half))
        continue;
    }
    store_blocks(args, item, d, half, warp, lane);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) sample(const __grid_constant__ SampleArgs args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  u32 base = shared_address(memory);
  Shared* shared = (Shared*)(memory + BARRIERS_AT);
  start_barriers(shared);
  int warpgroup = threadIdx.x >> 7, warp = (threadIdx.x >> 5) & 3, lane = threadIdx.x & 31;
  if (warpgroup == 2) {
    give_registers<LOADER_REGISTERS>();
    if (warp == 0) run_queue(args, shared, lane);
    else if (warp <= LOADERS) run_loader(args, shared, base, warp - 1, lane);
  } else {
    take_registers<CONSUMER_REGISTERS>();
    run_consumer(args, shared, base, warpgroup);
  }
}
