// What the block-sparse kernels share: who does what in a thread block, and how portions of one sum are put together.
//
// A thread block is three warpgroups. Two consume: each holds 64 rows x TOKENS of the result in registers and feeds the
// tensor cores. The third keeps them fed: its warp 0 takes work items from a queue one item ahead, warps 1 to 3 take
// turns at filling the stages of a ring in shared memory. Filling one stage costs a warp a list entry from L2 and up to
// 36 copy instructions, more time than the tensor cores need for a stage of small blocks; three warps hide it, and two
// with blocks of 128.
#pragma once

#include "wgmma.cuh"

constexpr int THREADS = 384;
#ifndef LOADERS
#define LOADERS 3
#endif
#ifndef CLUSTER  // thread blocks that work on the same rows side by side and share what they load of W: 1 or 2
#define CLUSTER 1
#endif
constexpr int CONSUMER_WARPS = 8;
constexpr int RING = 2;                // items known at once, in slots of shared memory
// The next item is taken when the loaders have this many stages of the present one left: late, so that all thread blocks
// work on the same window of X while it is in L2, and early enough to hide the queue's latency.
#ifndef LEAD
#define LEAD 6
#endif
#ifndef LOADER_REGISTERS
#define LOADER_REGISTERS 56
#endif
constexpr int CONSUMER_REGISTERS = (3 * 168 - LOADER_REGISTERS) / 2;  // a launch with 384 threads gets 168 for each
constexpr int A_BYTES = 128 * 64 * 2;  // one stage holds 128 rows x 64 of A and 64 x TOKENS of B
constexpr int B_BYTES = TOKENS * 64 * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int CHUNK_BYTES = 64 * 64 * 2;  // the result leaves a warpgroup in chunks of 64 rows x 64 tokens
constexpr int CHUNKS = TOKENS / 64;
constexpr int STORE_BYTES = STORE_CHUNKS * CHUNK_BYTES;  // of one warpgroup
constexpr int BARRIERS_AT = STAGES * STAGE_BYTES + 2 * STORE_BYTES;

// One work item as the roles of a thread block see it. group -1: no more.
struct Item {
  int group, begin, end, slot;
  int tile, first, batch, unused;
};
#ifndef ADDEND_ARRIVALS  // threads of a warpgroup that load what is added
#define ADDEND_ARRIVALS 1
#endif
#ifndef ITEM_ROWS  // block rows of an item that lie anywhere
#define ITEM_ROWS 0
#endif

// Behind the stages and the staging of results.
struct Shared {
  u64 full[STAGES], empty[STAGES], known[RING], forgotten[RING], wanted, addend[2];
  u64 told[RING], taken[RING];  // of numbers, in the second thread block of a cluster and in the first
  int numbers[RING];
  u32 present[STAGES];
  int is_last[2];
  Item items[RING];
  int rows[RING][ITEM_ROWS > 0 ? ITEM_ROWS : 1];
};

struct Place {  // where a role is in a ring: slot and parity of its barrier
  int slot;
  u32 parity;
};

template <int size> __device__ __forceinline__ void advance(Place& place, int by) {
  place.slot += by;
  if (place.slot >= size) {
    place.slot -= size;
    place.parity ^= 1;
  }
}

__device__ __forceinline__ void start_barriers(Shared* shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(shared_address(&shared->full[i]), 1);
      // one arrival per warp: a warp that lags behind the others may still read the stage
      barrier_init(shared_address(&shared->empty[i]), CONSUMER_WARPS * CLUSTER);
    }
    for (int i = 0; i < RING; i++) {
      barrier_init(shared_address(&shared->known[i]), 1);
      barrier_init(shared_address(&shared->forgotten[i]), CONSUMER_WARPS + LOADERS);
      barrier_init(shared_address(&shared->told[i]), 1);
      barrier_init(shared_address(&shared->taken[i]), 1);
    }
    barrier_init(shared_address(&shared->wanted), 1);
    for (int i = 0; i < 2; i++) barrier_init(shared_address(&shared->addend[i]), ADDEND_ARRIVALS);
    barriers_ready();
  }
  if (CLUSTER > 1) meet_cluster();
  else __syncthreads();
}

// A thread block's first item, or a cluster's, has its own number: nothing waits for the queue.
__device__ __forceinline__ int first_number() { return blockIdx.x / CLUSTER; }

// The number of the next item. In a cluster the first thread block takes it and tells the second.
__device__ __forceinline__ int next_number(int* queue, Shared* shared, Place& place, u32 rank, int lane) {
  int number = 0;
  if (CLUSTER == 1 || rank == 0) {
    if (lane == 0) number = gridDim.x / CLUSTER + atomicAdd(queue, 1);
    number = __shfl_sync(~0u, number, 0);
    if (CLUSTER == 1) return number;
    barrier_wait(shared_address(&shared->taken[place.slot]), place.parity);
    if (lane == 0)
      tell(shared_address(&shared->numbers[place.slot]), number, shared_address(&shared->told[place.slot]), 1);
  } else {
    if (lane == 0) barrier_expect(shared_address(&shared->told[place.slot]), 4);
    barrier_wait(shared_address(&shared->told[place.slot]), place.parity);
    number = shared->numbers[place.slot];
    __syncwarp();
    if (lane == 0) barrier_arrive_in(shared_address(&shared->taken[place.slot]), 0);
  }
  advance<RING>(place, 1);
  return number;
}

// The queue: warp 0 of the third warpgroup publishes an item for the others, then waits until the next one is wanted.
// row: of the first ITEM_ROWS lanes a block row each.
__device__ __forceinline__ void publish_item(
    Shared* shared, Place& place, u32& wanted, const Item& item, int lane, int row = 0) {
  barrier_wait(shared_address(&shared->forgotten[place.slot]), place.parity);
  if (lane < ITEM_ROWS) shared->rows[place.slot][lane] = row;
  __syncwarp();
  if (lane == 0) {
    shared->items[place.slot] = item;
    barrier_arrive(shared_address(&shared->known[place.slot]));
  }
  __syncwarp();
  advance<RING>(place, 1);
  if (item.group < 0) return;
  barrier_wait(shared_address(&shared->wanted), wanted);
  wanted ^= 1;
}

// By the first loader, once for each item: `left` stages of it are still to be loaded.
__device__ __forceinline__ void want_next(Shared* shared, bool& told, int left, int lane) {
  if (told || left > LEAD) return;
  if (lane == 0) barrier_arrive(shared_address(&shared->wanted));
  told = true;
}

__device__ __forceinline__ Item next_item(Shared* shared, const Place& place) {
  barrier_wait(shared_address(&shared->known[place.slot]), place.parity);
  Item item = shared->items[place.slot];
  __syncwarp();
  return item;
}

__device__ __forceinline__ void forget_item(Shared* shared, Place& place, int lane) {
  if (lane == 0) barrier_arrive(shared_address(&shared->forgotten[place.slot]));
  advance<RING>(place, 1);
}

// The last thread block to finish makes the queue ready for the next launch.
__device__ __forceinline__ void leave_queue(int* queue) {
  __threadfence();
  if (atomicAdd(queue + 1, 1) == (int)gridDim.x / CLUSTER - 1) {
    queue[0] = 0;
    queue[1] = 0;
    __threadfence();
  }
}

constexpr int PARTS_AT_ONCE = TOKENS == 64 ? 4 : 1;  // on their way from memory: a narrow tile has registers for four

// A sum in `count` portions: each warpgroup leaves its part in memory; the one that comes last adds all parts in the
// order of their slots, so the result does not depend on who that was. Returns whether this one was it.
__device__ __forceinline__ bool sum_of_portions(
    float (&d)[ACCUMULATORS], float4* parts, int own, int count, int stride, int* arrivals, Shared* shared, int half) {
  int t = threadIdx.x & 127;
  float4* mine = parts + (long long)own * stride * (ACCUMULATORS / 4 * 128) + t;
#pragma unroll
  for (int i = 0; i < ACCUMULATORS / 4; i++)
    mine[i * 128] = make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
  __threadfence();
  meet(1 + half);
  if (t == 0) {
    bool last = atomicAdd(arrivals, 1) == count - 1;
    if (last) *arrivals = 0;
    shared->is_last[half] = last;
    __threadfence();
  }
  meet(1 + half);
  if (!shared->is_last[half]) return false;
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) d[i] = 0.0f;
#pragma unroll PARTS_AT_ONCE
  for (int part = 0; part < count; part++) {
    const float4* from = parts + (long long)part * stride * (ACCUMULATORS / 4 * 128) + t;
#pragma unroll
    for (int i = 0; i < ACCUMULATORS / 4; i++) {
      float4 v = load_fresh(from + i * 128);
      d[4 * i] += v.x, d[4 * i + 1] += v.y, d[4 * i + 2] += v.z, d[4 * i + 3] += v.w;
    }
  }
  return true;
}
