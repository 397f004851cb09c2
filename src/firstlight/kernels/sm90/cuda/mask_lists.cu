// The kept blocks of a mask as lists, by query block or by key block, in one launch: the thread blocks of one cluster count,
// meet, and write. ../../block_attention/lists.py says what the lists are, and makes the same ones in torch.
#include "ptx.cuh"

constexpr int THREADS = 1024, WARPS = THREADS / 32;
constexpr int PARTIAL = 1;  // a block that is seen in part; 0: not at all

struct MaskListsArgs {
  const void* kinds;  // bytes [heads, query blocks, key blocks]
  const int* which;  // the same: of a partial block its row of bits; null: there are none
  int* starts;  // [lists + 1]
  int* columns;  // [most]
  int* masks;  // [most]
  int* order;  // [lists]: the lists of each head, longest first
  int* counts;  // [lists]
  int lists, of_head;  // in all and of a head
  int blocks;  // that a list may hold
  int turned;  // 1: by key block
  int most;  // entries that there is room for
  int never;
};

__device__ __forceinline__ int sum_of_warp(int mine) {
#pragma unroll
  for (int by = 16; by > 0; by >>= 1) mine += __shfl_xor_sync(~0u, mine, by);
  return mine;
}

// Exclusive, over the thread block; total: of all. room: an int for each warp.
__device__ __forceinline__ int sum_before(int mine, int* room, int& total) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, to_here = mine;
#pragma unroll
  for (int by = 1; by < 32; by <<= 1) {
    int lower = __shfl_up_sync(~0u, to_here, by);
    if (lane >= by) to_here += lower;
  }
  __syncthreads();
  if (lane == 31) room[warp] = to_here;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int i = 0; i < WARPS; i++) {
    if (i < warp) before += room[i];
    total += room[i];
  }
  return before + to_here - mine;
}

// Where block `block` of a list lies in kinds and in which.
__device__ __forceinline__ long long place_of(const MaskListsArgs& args, int list, int block) {
  if (!args.turned) return (long long)list * args.blocks + block;
  int head = list / args.of_head;
  return ((long long)head * args.blocks + block) * args.of_head + (list - head * args.of_head);
}

__device__ __forceinline__ int kind_at(const MaskListsArgs& args, int list, int block) {
  return ((const unsigned char*)args.kinds)[place_of(args, list, block)];
}

__device__ __forceinline__ void count_blocks(const MaskListsArgs& args, int list, int lane) {
  int used = 0;
  for (int i = lane; i < args.blocks; i += 32) used += kind_at(args, list, i) != 0;
  used = sum_of_warp(used);
  if (lane == 0) args.counts[list] = used;
}

// How many lists of its head are longer, or as long and earlier.
__device__ __forceinline__ void rank(const MaskListsArgs& args, int list, int lane) {
  int first = list / args.of_head * args.of_head, mine = list - first, length = args.counts[list], before = 0;
  for (int i = lane; i < args.of_head; i += 32) {
    int other = args.counts[first + i];
    before += other > length || (other == length && i < mine);
  }
  before = sum_of_warp(before);
  if (lane == 0) args.order[first + before] = mine;
}

// A bound that is too low must not write elsewhere.
__device__ __forceinline__ void fill(const MaskListsArgs& args, int list, int lane) {
  int to = args.starts[list];
  for (int from = 0; from < args.blocks; from += 32) {
    int block = from + lane, kind = block < args.blocks ? kind_at(args, list, block) : 0;
    u32 used = __ballot_sync(~0u, kind != 0);
    int place = to + __popc(used & ((1u << lane) - 1));
    if (kind != 0 && place < args.most) {
      args.columns[place] = block;
      args.masks[place] = kind == PARTIAL && args.which ? args.which[place_of(args, list, block)] : -1;
    }
    to += __popc(used);
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
    mask_lists(const __grid_constant__ MaskListsArgs args) {
  __shared__ int room[WARPS];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, each = (args.lists + CLUSTER - 1) / CLUSTER;
  int first = (int)cluster_rank() * each, end = min(args.lists, first + each);  // its own lists; none where first is past all
  for (int list = first + warp; list < end; list += WARPS) count_blocks(args, list, lane);
  meet_cluster();
  int before = 0, total;
  for (int i = threadIdx.x; i < min(first, args.lists); i += THREADS) before += args.counts[i];
  sum_before(before, room, total);
  before = total;
  for (int from = first; from < end; from += THREADS) {
    int list = from + threadIdx.x, length = list < end ? args.counts[list] : 0;
    int begin = before + sum_before(length, room, total);
    if (list < end) args.starts[list] = min(begin, args.most);
    if (list < end && list == args.lists - 1) args.starts[list + 1] = min(begin + length, args.most);
    before += total;
  }
  __syncthreads();
  for (int list = first + warp; list < end; list += WARPS) {
    rank(args, list, lane);
    fill(args, list, lane);
  }
}
