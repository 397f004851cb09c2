// What the products walk, made on the GPU from a pattern: which block rows go together, their union lists, and these in
// portions, longest first. With CLUSTER one launch: the thread blocks of one cluster go through all phases and meet between
// them. Without it, for patterns that a few multiprocessors would be too long over, a launch for each phase: eight with
// blocks of 64, two with blocks of 128. Every sum is of integers, so the lists are the same at every run, and either way.
// ../lists.py says what the lists are, and ../../pairs.py, unions.py and schedule.py say the same in torch.
#include "ptx.cuh"

#ifndef CLUSTER
#define CLUSTER 1
#endif

constexpr int ROWS = 0, COMMON = 1, WEIGHT = 2, PAIR = 3, COUNT = 4, FILL = 5, SPLIT = 6, SORT = 7;
constexpr int MOST_WORDS = 512;  // of 32 block columns each
constexpr int MOST_ROWS = 1024;  // that are paired
constexpr int THREADS = CLUSTER > 1 ? 1024 : 256, WARPS = THREADS / 32, SIDE = 32, ACROSS = SIDE + 1;
constexpr int MOST_HEIGHT = 8;  // block rows of a group
constexpr int ROUNDS = 8;  // in which all but a few find each other
constexpr int TIES = 8191, STEP = 3571;  // prime to each other: of equal partners each gets another one

struct ListsArgs {
  const void* row_starts;
  const void* columns;
  const void* blocks;  // of each entry its stored block; null: its number
  int* starts;  // [groups + 1]
  int* listed;  // [steps * width]: block columns; block_cols: none
  int* members;  // [steps, width, height]
  int* grouped;  // [groups * height]
  int4* items;  // [bound]
  int* first_slot;  // [groups]
  int* slot_counts;  // [groups]
  u32* bits;  // [groups * height, words]: the block columns of each block row
  int* table;  // [groups * height, block_cols]: where stored, which block
  u16* common;  // [count, count]: block columns that two have in common
  float* weight;  // the same, less what is usual
  int* sums;  // [3, groups * height]: of the lines of common, by level
  int* order;  // [4, groups * height]: the block rows, by level
  int* best;  // [groups * height]
  int* steps;  // [2, groups + 1]: of each group in the order of the rows and as grouped; last the columns of all
  int4* loose;  // [bound]: the portions, not sorted
  int phase, level;  // of a launch of its own; level: twos of rows that go together already
  int wide;  // 1: the pattern is of 64-bit numbers
  int entries, block_rows, block_cols, height, width, groups, levels, limit, bound;
  int plain;  // 1: the lists are the pattern itself
};

__device__ __forceinline__ int number_at(const ListsArgs& args, const void* from, int at) {
  return args.wide ? (int)((const long long*)from)[at] : ((const int*)from)[at];
}
__device__ __forceinline__ int words_of(const ListsArgs& args) { return (args.block_cols + 31) / 32; }
__device__ __forceinline__ int member_at(const ListsArgs& args, int entry) {
  return args.blocks ? number_at(args, args.blocks, entry) : entry;
}

__device__ __forceinline__ int sum_of_warp(int mine) {
#pragma unroll
  for (int by = 16; by > 0; by >>= 1) mine += __shfl_xor_sync(~0u, mine, by);
  return mine;
}

// Of a thread block of up to 1024; everyone gets the sum. room: an int for each warp.
__device__ __forceinline__ int sum_of_block(int mine, int* room) {
  mine = sum_of_warp(mine);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) room[threadIdx.x >> 5] = mine;
  __syncthreads();
  int total = 0;
  for (int i = 0; i < (int)blockDim.x / 32; i++) total += room[i];
  return total;
}

// A block row as bits, and which stored block is where.
__device__ __forceinline__ void take_row(const ListsArgs& args, int row) {
  __shared__ u32 own[MOST_WORDS];
  int words = words_of(args), lines = args.groups * args.height;
  for (int i = threadIdx.x; i < words; i += THREADS) own[i] = 0;
  __syncthreads();
  if (row < args.block_rows) {
    int end = min(args.entries, number_at(args, args.row_starts, row + 1));
    for (int i = number_at(args, args.row_starts, row) + threadIdx.x; i < end; i += THREADS) {
      int column = number_at(args, args.columns, i);
      if ((u32)column >= (u32)args.block_cols) continue;
      atomicOr(&own[column >> 5], 1u << (column & 31));
      args.table[(long long)row * args.block_cols + column] = member_at(args, i);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < words; i += THREADS) args.bits[row * words + i] = own[i];
  if (threadIdx.x == 0) {
    args.order[row] = row;
    for (int i = 0; i < args.levels; i++) args.sums[i * lines + row] = 0;
    if (row == 0) args.steps[args.groups] = args.steps[2 * args.groups + 1] = 0;
  }
}

// 32 columns of all rows that go together as line `line`; none past the last line.
__device__ __forceinline__ u32 cover(const ListsArgs& args, int level, int line, int count, int word) {
  int words = words_of(args);
  if (line >= count || word >= words) return 0;
  const int* own = args.order + level * args.groups * args.height + (line << level);
  u32 any = 0;
  for (int i = 0; i < 1 << level; i++) any |= args.bits[own[i] * words + word];
  return any;
}

// What 32 lines from `first` on have in common with 32 from `other` on.
__device__ __forceinline__ void find_common(const ListsArgs& args, int level, int first, int other) {
  __shared__ u32 left[SIDE][ACROSS], right[SIDE][ACROSS];
  int count = args.groups * args.height >> level, words = words_of(args);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int found[SIDE / WARPS] = {};
  for (int from = 0; from < words; from += SIDE) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SIDE / WARPS; i++) {
      left[warp + i * WARPS][lane] = cover(args, level, first + warp + i * WARPS, count, from + lane);
      right[warp + i * WARPS][lane] = cover(args, level, other + warp + i * WARPS, count, from + lane);
    }
    __syncthreads();
    for (int word = 0; word < SIDE; word++) {
      u32 mine = right[lane][word];
#pragma unroll
      for (int i = 0; i < SIDE / WARPS; i++) found[i] += __popc(left[warp + i * WARPS][word] & mine);
    }
  }
#pragma unroll
  for (int i = 0; i < SIDE / WARPS; i++) {
    int line = first + warp + i * WARPS, total = sum_of_warp(found[i]);
    if (line >= count) continue;
    if (other + lane < count) args.common[line * count + other + lane] = (u16)found[i];
    if (lane == 0) atomicAdd(&args.sums[level * args.groups * args.height + line], total);
  }
}

struct Best {
  float weight;
  int line;  // -1: none
  __device__ __forceinline__ void meet(float its, int other) {
    if (other >= 0 && (line < 0 || its > weight || (its == weight && other < line))) weight = its, line = other;
  }
  __device__ __forceinline__ void of_warp() {
#pragma unroll
    for (int by = 16; by > 0; by >>= 1) {
      float its = __shfl_xor_sync(~0u, weight, by);
      int other = __shfl_xor_sync(~0u, line, by);
      meet(its, other);
    }
  }
};

// What a line has in common with all others is taken off, else a long one is everybody's best. A warp has a line.
__device__ __forceinline__ void weigh(const ListsArgs& args, int level, int block) {
  int count = args.groups * args.height >> level, lane = threadIdx.x & 31;
  int line = block * WARPS + (threadIdx.x >> 5);
  if (line >= count) return;
  const int* sums = args.sums + level * args.groups * args.height;
  float usual = (float)sums[line] / count;
  Best best = {0.0f, -1};
  for (int i = lane; i < count; i += 32) {
    float tie = (float)((line + i) * STEP % TIES) / (2 * TIES);
    float weight = args.common[line * count + i] - usual - (float)sums[i] / count + tie + (i == (line ^ 1) ? 0.5f : 0.0f);
    args.weight[line * count + i] = weight;
    if (i != line) best.meet(weight, i);
  }
  best.of_warp();
  if (lane == 0) args.best[line] = best.line;
}

// Those that are each other's best go together; whose best is taken looks again. One thread block.
__device__ __forceinline__ void pair_up(const ListsArgs& args, int level) {
  __shared__ int best[MOST_ROWS], partner[MOST_ROWS], rank[MOST_ROWS], leading[32], alone[32];
  int lines = args.groups * args.height, count = lines >> level;
  int line = threadIdx.x, lane = line & 31, warp = line >> 5;
  best[line] = line < count ? args.best[line] : -1;
  partner[line] = -1;
  for (int round = 0; round < ROUNDS; round++) {
    __syncthreads();
    for (int i = warp; round > 0 && i < count; i += 32) {
      if (partner[i] >= 0 || best[i] < 0 || partner[best[i]] < 0) continue;
      Best found = {0.0f, -1};
      for (int j = lane; j < count; j += 32)
        if (j != i && partner[j] < 0) found.meet(args.weight[i * count + j], j);
      found.of_warp();
      __syncwarp();
      if (lane == 0) best[i] = found.line;
    }
    __syncthreads();
    int mine = best[line];
    bool found = partner[line] < 0 && mine >= 0 && best[mine] == line;
    __syncthreads();
    if (found) partner[line] = mine;
  }
  // partners side by side, in the order of the first of each two; behind them those without one
  int other = partner[line];
  bool leads = other > line, lone = line < count && other < 0;
  u32 before = (1u << lane) - 1, led = __ballot_sync(~0u, leads), left = __ballot_sync(~0u, lone);
  if (lane == 0) leading[warp] = __popc(led), alone[warp] = __popc(left);
  __syncthreads();
  int pairs = 0, place = __popc(led & before), last = __popc(left & before);
  for (int i = 0; i < 32; i++) {
    pairs += leading[i];
    if (i < warp) place += leading[i], last += alone[i];
  }
  rank[line] = place;
  __syncthreads();
  if (line >= count) return;
  place = lone ? 2 * pairs + last : 2 * rank[min(line, other)] + (line > other);
  const int* from = args.order + level * lines + (line << level);
  int* to = args.order + (level + 1) * lines + (place << level);
  for (int i = 0; i < 1 << level; i++) to[i] = from[i];
}

// The block rows of a group: in their order, or as they found each other.
__device__ __forceinline__ int row_of(const ListsArgs& args, int place, bool as_grouped) {
  return as_grouped ? args.order[args.levels * args.groups * args.height + place] : place;
}

__device__ __forceinline__ u32 union_of(const ListsArgs& args, int group, int word, bool as_grouped) {
  u32 any = 0;
  for (int i = 0; i < args.height; i++)
    any |= args.bits[row_of(args, group * args.height + i, as_grouped) * words_of(args) + word];
  return any;
}

__device__ __forceinline__ void count_steps(const ListsArgs& args, int group) {
  __shared__ int room[32];
  for (int which = 0; which <= (args.levels > 0); which++) {
    int columns = 0;
    for (int i = threadIdx.x; i < words_of(args); i += THREADS) columns += __popc(union_of(args, group, i, which));
    columns = sum_of_block(columns, room);
    if (threadIdx.x) continue;
    args.steps[which * (args.groups + 1) + group] = (columns + args.width - 1) / args.width;
    atomicAdd(&args.steps[which * (args.groups + 1) + args.groups], columns);
  }
}

__device__ __forceinline__ void fill_lists(const ListsArgs& args, int group) {
  __shared__ u32 all[MOST_WORDS];
  __shared__ int earlier[MOST_WORDS], rows[MOST_HEIGHT], room[32];
  int words = words_of(args), height = args.height;
  // neighbours stay together where that is as good
  bool as_grouped = args.levels > 0 && args.steps[2 * args.groups + 1] < args.steps[args.groups];
  const int* steps = args.steps + (as_grouped ? args.groups + 1 : 0);
  int begin = 0;
  for (int i = threadIdx.x; i < group; i += THREADS) begin += steps[i];
  begin = sum_of_block(begin, room);
  if (threadIdx.x < height) {
    int place = group * height + threadIdx.x, row = row_of(args, place, as_grouped);
    rows[threadIdx.x] = row;
    args.grouped[place] = row;
  }
  if (threadIdx.x == 0) args.starts[group] = begin;
  if (threadIdx.x == 0 && group == args.groups - 1) args.starts[args.groups] = begin + steps[group];
  for (int i = threadIdx.x; i < words; i += THREADS) all[i] = union_of(args, group, i, as_grouped);
  __syncthreads();
  int lane = threadIdx.x & 31, columns = 0;
  if (threadIdx.x < 32)
    for (int from = 0; from < words; from += 32) {
      int mine = from + lane < words ? __popc(all[from + lane]) : 0, to_here = mine;
#pragma unroll
      for (int by = 1; by < 32; by <<= 1) {
        int lower = __shfl_up_sync(~0u, to_here, by);
        if (lane >= by) to_here += lower;
      }
      if (from + lane < words) earlier[from + lane] = columns + to_here - mine;
      columns += __shfl_sync(~0u, to_here, 31);
    }
  if (threadIdx.x == 0) room[0] = columns;
  __syncthreads();
  columns = room[0];
  long long first = (long long)begin * args.width;
  for (int i = threadIdx.x; i < args.block_cols; i += THREADS) {
    u32 word = all[i >> 5], bit = 1u << (i & 31);
    if (!(word & bit)) continue;
    long long place = first + earlier[i >> 5] + __popc(word & (bit - 1));
    args.listed[place] = i;
    for (int j = 0; j < height; j++) {
      bool stored = args.bits[rows[j] * words + (i >> 5)] & bit;
      args.members[place * height + j] = stored ? args.table[(long long)rows[j] * args.block_cols + i] : -1;
    }
  }
  for (int i = columns + threadIdx.x; i < steps[group] * args.width; i += THREADS) {
    args.listed[first + i] = args.block_cols;
    for (int j = 0; j < height; j++) args.members[(first + i) * height + j] = -1;
  }
}

// Exclusive, over a thread block of 1024; total: of all.
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
  for (int i = 0; i < 32; i++) {
    if (i < warp) before += room[i];
    total += room[i];
  }
  return before + to_here - mine;
}

__device__ __forceinline__ int start_of(const ListsArgs& args, int group) {
  return args.plain ? number_at(args, args.row_starts, group) : args.starts[group];
}

// The first of so many thread blocks cuts the lists into portions; where they are the pattern itself, the others copy it.
__device__ __forceinline__ void split(const ListsArgs& args, int block, int blocks) {
  if (block > 0) {
    int stride = (blocks - 1) * (int)blockDim.x, from = (block - 1) * (int)blockDim.x + threadIdx.x;
    for (int i = from; i <= args.groups; i += stride) args.starts[i] = number_at(args, args.row_starts, i);
    for (int i = from; i < args.entries; i += stride) {
      args.listed[i] = number_at(args, args.columns, i);
      args.members[i] = member_at(args, i);
    }
    return;
  }
  __shared__ int room[32];
  int items = 0, slots = 0, total;
  for (int from = 0; from < args.groups; from += blockDim.x) {
    int group = from + threadIdx.x;
    bool there = group < args.groups;
    int start = there ? start_of(args, group) : 0, length = there ? start_of(args, group + 1) - start : 0;
    int portions = there ? max(1, (length + args.limit - 1) / args.limit) : 0, parts = portions > 1 ? portions : 0;
    int first = items + sum_before(portions, room, total);
    items += total;
    int slot = slots + sum_before(parts, room, total);
    slots += total;
    if (there) args.first_slot[group] = slot, args.slot_counts[group] = parts;
    for (int i = 0; i < portions && first + i < args.bound; i++) {
      int begin = start + (int)((long long)i * length / portions), end = start + (int)((long long)(i + 1) * length / portions);
      args.loose[first + i] = make_int4(group, begin, end, parts ? slot + i : -1);
    }
  }
  for (int i = items + threadIdx.x; i < args.bound; i += blockDim.x) args.loose[i] = make_int4(-1, 0, 0, -1);
}

// Longest first, those of one length in their order: each finds how many come before it.
__device__ __forceinline__ void sort_items(const ListsArgs& args, int block) {
  __shared__ int lengths[THREADS];
  int mine = block * THREADS + threadIdx.x;
  int4 item = mine < args.bound ? args.loose[mine] : make_int4(-1, 0, 0, -1);
  int length = item.z - item.y, rank = 0;
  for (int from = 0; from < args.bound; from += THREADS) {
    int4 other = from + (int)threadIdx.x < args.bound ? args.loose[from + threadIdx.x] : make_int4(-1, 0, -1, -1);
    __syncthreads();
    lengths[threadIdx.x] = other.z - other.y;
    __syncthreads();
    for (int i = 0; i < THREADS; i++) rank += lengths[i] > length || (lengths[i] == length && from + i < mine);
  }
  if (mine < args.bound) args.items[rank] = item;
}

#if CLUSTER > 1
// take_row by a warp: a few thread blocks would wait for memory once for each row else.
__device__ __forceinline__ void take_row_alone(const ListsArgs& args, int row) {
  int lane = threadIdx.x & 31, words = words_of(args), lines = args.groups * args.height;
  u32* own = args.bits + row * words;
  for (int i = lane; i < words; i += 32) own[i] = 0;
  __syncwarp();
  int begin = row < args.block_rows ? number_at(args, args.row_starts, row) : 0;
  int end = row < args.block_rows ? min(args.entries, number_at(args, args.row_starts, row + 1)) : 0;
  for (int i = begin + lane; i < end; i += 32) {
    int column = number_at(args, args.columns, i);
    if ((u32)column >= (u32)args.block_cols) continue;
    atomicOr(&own[column >> 5], 1u << (column & 31));
    args.table[(long long)row * args.block_cols + column] = member_at(args, i);
  }
  if (lane == 0) {
    args.order[row] = row;
    for (int i = 0; i < args.levels; i++) args.sums[i * lines + row] = 0;
    if (row == 0) args.steps[args.groups] = args.steps[2 * args.groups + 1] = 0;
  }
}

// count_steps by a warp.
__device__ __forceinline__ void count_alone(const ListsArgs& args, int group) {
  for (int which = 0; which <= (args.levels > 0); which++) {
    int columns = 0;
    for (int i = threadIdx.x & 31; i < words_of(args); i += 32) columns += __popc(union_of(args, group, i, which));
    columns = sum_of_warp(columns);
    if (threadIdx.x & 31) continue;
    args.steps[which * (args.groups + 1) + group] = (columns + args.width - 1) / args.width;
    atomicAdd(&args.steps[which * (args.groups + 1) + args.groups], columns);
  }
}

// A thread block takes every CLUSTER-th of what a launch would have a thread block for; what they share is free again after.
#define SHARED_OUT(count, work)                                                    \
  for (int block = (int)cluster_rank(); block < (count); block += CLUSTER) {       \
    work;                                                                          \
    __syncthreads();                                                               \
  }                                                                                \
  meet_cluster()

__device__ __forceinline__ void find_pairs(const ListsArgs& args, int level) {
  int count = args.groups * args.height >> level, side = (count + SIDE - 1) / SIDE;
  SHARED_OUT(side * side, find_common(args, level, block / side * SIDE, block % side * SIDE));
  SHARED_OUT((count + WARPS - 1) / WARPS, weigh(args, level, block));
  SHARED_OUT(1, pair_up(args, level));
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
    lists(const __grid_constant__ ListsArgs args) {
  if (!args.plain) {
    int rows = args.groups * args.height, warp = (int)cluster_rank() * WARPS + (threadIdx.x >> 5);
    for (int row = warp; row < rows; row += CLUSTER * WARPS) take_row_alone(args, row);
    meet_cluster();
    for (int level = 0; level < args.levels; level++) find_pairs(args, level);
    for (int group = warp; group < args.groups; group += CLUSTER * WARPS) count_alone(args, group);
    meet_cluster();
    SHARED_OUT(args.groups, fill_lists(args, block));
  }
  if (!args.bound) return;
  if (args.plain || cluster_rank() == 0) split(args, (int)cluster_rank(), CLUSTER);
  meet_cluster();
  SHARED_OUT((args.bound + THREADS - 1) / THREADS, sort_items(args, block));
}
#else
extern "C" __global__ void __launch_bounds__(1024) lists(const __grid_constant__ ListsArgs args) {
  if (args.phase == ROWS) take_row(args, blockIdx.x);
  else if (args.phase == COMMON) find_common(args, args.level, blockIdx.y * SIDE, blockIdx.x * SIDE);
  else if (args.phase == WEIGHT) weigh(args, args.level, blockIdx.x);
  else if (args.phase == PAIR) pair_up(args, args.level);
  else if (args.phase == COUNT) count_steps(args, blockIdx.x);
  else if (args.phase == FILL) fill_lists(args, blockIdx.x);
  else if (args.phase == SPLIT) split(args, blockIdx.x, gridDim.x);
  else sort_items(args, blockIdx.x);
}
#endif
