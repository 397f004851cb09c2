// Block-sparse attention, forward, for Hopper: out = softmax(scale Q K^T) V over the key blocks that a list names for each
// block of queries, and the logarithm of each row's sum of exponentials.
//
// A thread block is three warpgroups. Two consume, 64 query rows each; the third keeps them fed: for each engine one thread
// fills a ring of tiles in shared memory, and one takes items from the queue, as its latency would hold up the copies. With
// blocks of 128 both consumers work on the two halves of one query block and share its tiles: one engine. With blocks of 64
// each is an engine of its own, with its own lists and rings, as two lists have few blocks in common.
//
// The tiles of successive items form one stream, so that a short list drains no pipeline. One step: issue the scores of the
// next tile (perhaps of the next item), finish or scale the output, issue output += P V of the present tile, and do the
// softmax of the next one while that runs. Tiles lie in the ring in the order of use: K0 K1 V0 K2 V1 ... A finished output
// goes to a staging of its own, one for each warp so that none waits for another, and leaves under the next products.
//
// Compiled with BLOCK 128 or 64, HEAD 128 or 64, BF16 0 or 1, SLOTS (tiles in an engine's ring) and SEATS (its query tiles).
#include "attention_tiles.cuh"

constexpr int THREADS = 384;
constexpr int LOADER_REGISTERS = 40;  // 40 + 2 * 232 = 3 * 168, what a launch with 384 threads gets
constexpr int CONSUMER_REGISTERS = 232;
// With a head dimension of 64 the exponentials take as long as the products. Left alone, two warpgroups that share tiles do
// both at the same time; in turns one has the special functions while the other one's products run.
#ifndef TURNS
#define TURNS (ENGINES == 1 && HEAD == 64)
#endif
constexpr int TURN = 3;             // barriers 3 and 4
constexpr int WARPS = 8 / ENGINES;  // that consume from one engine's rings
constexpr int QUERIES_AT = ENGINES * SLOTS * TILE_BYTES;
constexpr int STAGING_AT = QUERIES_AT + ENGINES * SEATS * QUERY_BYTES;
constexpr int BARRIERS_AT = STAGING_AT + 8 * STAGING_BYTES;

struct alignas(64) AttentionArgs {
  TensorMap q, k, v, o;
  const int *starts, *columns, *masks, *order;
  const u32* bits;
  u16* out;
  float* lse;
  int* queue;
  u64 out_batch, out_head, out_row;  // strides of out in elements
  int items, blocks, heads, group, q_len, k_len;
  int list_batch, list_head;         // what a batch and a head add to the number of a list's head; 0: one list for all
  int never;                         // 0
  float scale_log2;
};

struct Item {  // count 0: no more
  int row, head, batch, count;
};

struct Mark {  // which keys of a tile are seen: row of bits, -1 for all; keys inside of the sequence
  int bits, keys;
};

struct Shared {  // behind tiles, queries and staging
  u64 full[ENGINES][SLOTS], empty[ENGINES][SLOTS], seated[ENGINES][SEATS], left[ENGINES][SEATS];
  Mark marks[ENGINES][SLOTS];
  Item items[ENGINES][SEATS];
  Counter counters[ENGINES];
};

__device__ __forceinline__ void start_barriers(Shared* shared) {
  if (threadIdx.x == 0) {
    for (int engine = 0; engine < ENGINES; engine++) {
      for (int i = 0; i < SLOTS; i++) {
        barrier_init(shared_address(&shared->full[engine][i]), 1);
        barrier_init(shared_address(&shared->empty[engine][i]), WARPS);
      }
      for (int i = 0; i < SEATS; i++) {
        barrier_init(shared_address(&shared->seated[engine][i]), 1);
        barrier_init(shared_address(&shared->left[engine][i]), WARPS);
      }
      start_counter(shared->counters[engine]);
    }
    barriers_ready();
  }
  __syncthreads();
}

// ---- loading

struct Loader {
  Shared* shared;
  u32 tiles, queries;
  int engine;
  Place ring, seat;
  u32 known;  // parity
};

__device__ __forceinline__ void load_tile(
    Loader& at, const TensorMap* map, Mark mark, int column, int head, int batch) {
  u32 full = shared_address(&at.shared->full[at.engine][at.ring.slot]);
  stress(1);
  barrier_wait(shared_address(&at.shared->empty[at.engine][at.ring.slot]), at.ring.parity);
  at.shared->marks[at.engine][at.ring.slot] = mark;
  barrier_expect(full, TILE_BYTES);
  load_rows(at.tiles + at.ring.slot * TILE_BYTES, map, full, column * KEYS, head, batch);
  advance<SLOTS>(at.ring);
}

__device__ __forceinline__ void seat_queries(Loader& at, const TensorMap* map, const Work& work) {
  u32 seated = shared_address(&at.shared->seated[at.engine][at.seat.slot]);
  stress(2);
  barrier_wait(shared_address(&at.shared->left[at.engine][at.seat.slot]), at.seat.parity);
  at.shared->items[at.engine][at.seat.slot] = {work.row * ROWS, work.head, work.batch, work.end - work.begin};
  if (!work.more) {
    barrier_arrive(seated);
    return;
  }
  barrier_expect(seated, QUERY_BYTES);
  load_rows(at.queries + at.seat.slot * QUERY_BYTES, map, seated, work.row * ROWS, work.head, work.batch);
  advance<SEATS>(at.seat);
}

// One thread for each engine.
__device__ __forceinline__ void load_all(const AttentionArgs& args, Loader at) {
  int owed = -1, owed_head = 0, owed_batch = 0;  // the tile of V that is still to come
  for (;;) {
    Work work = take_work(at.shared->counters[at.engine], at.known);
    seat_queries(at, &args.q, work);
    if (!work.more) break;
    int head = work.head / args.group, column = work.column, bits = work.bits;
#pragma unroll 1
    for (int entry = work.begin; entry < work.end; entry++) {
      int then = entry + 1 < work.end ? entry + 1 : entry;
      int next_column = args.columns[then], next_bits = args.masks[then];  // asked for before the waits
      load_tile(at, &args.k, {bits, args.k_len - column * KEYS}, column, head, work.batch);
      if (owed >= 0) load_tile(at, &args.v, {-1, 0}, owed, owed_head, owed_batch);
      owed = column;
      owed_head = head;
      owed_batch = work.batch;
      column = next_column;
      bits = next_bits;
    }
  }
  if (owed >= 0) load_tile(at, &args.v, {-1, 0}, owed, owed_head, owed_batch);
}

// ---- rows that see no key at all: output 0, logarithm -inf

__device__ __forceinline__ void clear_empty(const AttentionArgs& args, int warp, int lane) {
  for (int base = (blockIdx.x * 8 + warp) * 32; base < args.items; base += gridDim.x * 8 * 32) {
    int i = base + lane, over_all = i / args.blocks, query = i - over_all * args.blocks;
    int batch = over_all / args.heads, head = over_all - batch * args.heads;
    bool empty = false;
    if (i < args.items) {
      int row = list_row(args, batch, head) + query;
      empty = args.starts[row] == args.starts[row + 1];
    }
    for (u32 found = __ballot_sync(~0u, empty); found; found &= found - 1) {
      int from = __ffs(found) - 1, b = __shfl_sync(~0u, batch, from), h = __shfl_sync(~0u, head, from);
      int first = __shfl_sync(~0u, query, from) * BLOCK, rows = min(BLOCK, args.q_len - first);
      uint4* out = (uint4*)(args.out + b * args.out_batch + h * args.out_head + first * args.out_row);
      float* lse = args.lse + ((long long)b * args.heads + h) * args.q_len + first;
      for (int j = lane; j < rows * (HEAD / 8); j += 32)
        out[(j / (HEAD / 8)) * (args.out_row / 8) + j % (HEAD / 8)] = make_uint4(0, 0, 0, 0);
      for (int j = lane; j < rows; j += 32) lse[j] = -INFINITE;
    }
  }
}

// ---- consuming

// What a warpgroup has of the item whose output it is making, or has made.
struct Owner {
  int row, head, batch;
};

__device__ __forceinline__ Item item_at(const Shared* shared, int engine, const Place& seat) {
  Item item = shared->items[engine][seat.slot];
  item.count = __shfl_sync(~0u, item.count, 0);  // so that the compiler knows it for the same in all threads of a warp
  return item;
}

__device__ __forceinline__ Mark mark_at(const Shared* shared, int engine, int slot) {
  Mark mark = shared->marks[engine][slot];
  mark.bits = __shfl_sync(~0u, mark.bits, 0);
  mark.keys = __shfl_sync(~0u, mark.keys, 0);
  return mark;
}

__device__ __forceinline__ void hide_by(float (&s)[SCORES], const AttentionArgs& args, Mark mark, int row, int lane) {
  if (mark.bits < 0 && mark.keys >= KEYS) return;
  const u32* bits = mark.bits < 0 ? nullptr : args.bits + ((long long)mark.bits * BLOCK + row) * WORDS;
  hide_others(s, keys_seen(bits, mark.keys, lane));
}

__device__ __forceinline__ void staging_free(int lane) {
  if (lane == 0) stores_read<0>();
  __syncwarp();
}

__device__ __forceinline__ void store_staging(const TensorMap* map, u32 staging, Owner owner, int warp_row, int lane) {
  publish_shared();
  __syncwarp();
  if (lane == 0) {
    store_rows(map, staging, owner.row + warp_row, owner.head, owner.batch);
    commit_stores();
  }
}

__device__ __forceinline__ float* lse_of(const AttentionArgs& args, Owner owner) {
  return args.lse + ((long long)owner.batch * args.heads + owner.head) * args.q_len;
}

__device__ __forceinline__ void consume(const AttentionArgs& args, Shared* shared, u32 memory, int half) {
  const int t = threadIdx.x & 127, lane = t & 31;
  const int engine = ENGINES == 2 ? half : 0, offset = ENGINES == 2 ? 0 : half * 64;  // of this warpgroup in its block
  const int warp_row = (t >> 5) * 16, thread_row = warp_row + (lane >> 2);
  const u32 tiles = memory + engine * SLOTS * TILE_BYTES;
  const u32 staging = memory + STAGING_AT + (half * 4 + (t >> 5)) * STAGING_BYTES;
  const u32 queries = memory + QUERIES_AT + engine * SEATS * QUERY_BYTES;
  const bool signals = lane == 0;  // for its warp: another may still read what it gives back
  float o[OUTPUTS], s[SCORES];
  u32 p[PACKED], fresh[PACKED];
  Sums sums = no_sums(), done = no_sums();
  Scale scale = {1.0f, 1.0f};
  Place ring = {0, 0}, seat = {0, 0};
#if BLOCK == 64
  Queries q;
#define TAKE_QUERIES()                                                         \
  load_queries(q, queries + seat.slot * QUERY_BYTES, t);                       \
  __syncwarp();                                                                \
  if (lane == 0) barrier_arrive(shared_address(&shared->left[engine][seat.slot]))
#define LEAVE_QUERIES()
#define QUERIES q
#else
#define TAKE_QUERIES()
#define LEAVE_QUERIES() if (signals) barrier_arrive(shared_address(&shared->left[0][seat.slot]))
#define QUERIES (queries + seat.slot * QUERY_BYTES + half * 64 * 128)
#endif

  barrier_wait(shared_address(&shared->seated[engine][0]), 0);
  Item item = item_at(shared, engine, seat);
  int left = item.count, held = -1;
  if (left == 0) return;
  Owner owner = {item.row + offset, item.head, item.batch}, before = owner, next = owner;
  bool finishing = false, anew = false;
  TAKE_QUERIES();
  barrier_wait(shared_address(&shared->full[engine][0]), 0);
  Mark mark = mark_at(shared, engine, 0);
  wgmma_fence();
  multiply_scores(s, QUERIES, tiles);
  wgmma_wait<0>();
  if (signals) barrier_arrive(shared_address(&shared->empty[engine][0]));
  advance<SLOTS>(ring);
  hide_by(s, args, mark, offset + thread_row, lane);
  softmax_anew(s, fresh, sums, scale, args.scale_log2);
  left--;
  cleared(o);
  taken_over(p, fresh);
  if (TURNS && half == 1) pass_turn(TURN);
#pragma unroll 1
  for (;;) {
    const bool last = left == 0;  // the present tile is its item's last: the next scores are another item's
    if (last) {
      LEAVE_QUERIES();
      advance<SEATS>(seat);
      barrier_wait(shared_address(&shared->seated[engine][seat.slot]), seat.parity);
      item = item_at(shared, engine, seat);
      left = item.count;
      if (left == 0) break;
      next = {item.row + offset, item.head, item.batch};
      TAKE_QUERIES();
    }
    left--;
    const int key = ring.slot;
    stress(3);
    barrier_wait(shared_address(&shared->full[engine][key]), ring.parity);
    mark = mark_at(shared, engine, key);
    advance<SLOTS>(ring);
    if (TURNS) take_turn(TURN + half);
    wgmma_fence();
    multiply_scores(s, QUERIES, tiles + key * TILE_BYTES);  // while the last product with V still runs
    wgmma_wait<1>();                                        // now it is done
    still_needed(p, queries, args.never);
    if (held >= 0 && signals) barrier_arrive(shared_address(&shared->empty[engine][held]));
    if (finishing) {
      staging_free(lane);
      finish(o, done, args.scale_log2, staging, lane, lse_of(args, before), before.row + thread_row, args.q_len);
      cleared(o);
    } else if (anew) {
      scaled(o, scale);
    }
    taken_over(p, fresh);
    held = ring.slot;
    stress(4);
    barrier_wait(shared_address(&shared->full[engine][held]), ring.parity);
    advance<SLOTS>(ring);
    wgmma_fence();
    multiply_values(o, p, tiles + held * TILE_BYTES);
    if (TURNS) pass_turn(TURN + 1 - half);
    if (finishing) store_staging(&args.o, staging, before, warp_row, lane);
    wgmma_wait<1>();  // the scores are there
    if (signals) barrier_arrive(shared_address(&shared->empty[engine][key]));
    finishing = last;
    hide_by(s, args, mark, offset + thread_row, lane);
    if (!last && softmax_kept(s, fresh, sums, args.scale_log2)) {
      anew = false;
    } else {  // the change from item to item, too: here, and without a branch, it costs most tiles no instruction
      done = last ? sums : done;
      sums = last ? no_sums() : sums;
      before = last ? owner : before;
      owner = next;
      softmax_anew(s, fresh, sums, scale, args.scale_log2);
      anew = true;
    }
    stay_above(args.never);
  }
  if (TURNS && half == 0) take_turn(TURN);  // the last one that was passed on
  wgmma_wait<0>();
  if (finishing) {
    staging_free(lane);
    finish(o, done, args.scale_log2, staging, lane, lse_of(args, before), before.row + thread_row, args.q_len);
    store_staging(&args.o, staging, before, warp_row, lane);
    cleared(o);
  } else if (anew) {
    scaled(o, scale);
  }
  taken_over(p, fresh);
  barrier_wait(shared_address(&shared->full[engine][ring.slot]), ring.parity);
  wgmma_fence();
  multiply_values(o, p, tiles + ring.slot * TILE_BYTES);
  staging_free(lane);
  wgmma_wait<0>();
  finish(o, sums, args.scale_log2, staging, lane, lse_of(args, owner), owner.row + thread_row, args.q_len);
  store_staging(&args.o, staging, owner, warp_row, lane);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) attention(const __grid_constant__ AttentionArgs args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared* shared = (Shared*)(memory + BARRIERS_AT);
  start_barriers(shared);
  const int group = __shfl_sync(~0u, threadIdx.x >> 7, 0), warp = __shfl_sync(~0u, (threadIdx.x >> 5) & 3, 0);
  if (group == 2) {
    give_registers<LOADER_REGISTERS>();
    if ((threadIdx.x & 31) == 0 && warp < ENGINES) {
      u32 base = shared_address(memory);
      Loader at = {shared, base + warp * SLOTS * TILE_BYTES, base + QUERIES_AT + warp * SEATS * QUERY_BYTES, warp,
                   {0, 1}, {0, 1}, 0};
      load_all(args, at);
    } else if ((threadIdx.x & 31) == 0 && warp < 2 * ENGINES) {
      run_queue<false>(args, shared->counters[warp - ENGINES], ENGINES);
    }
    return;
  }
  take_registers<CONSUMER_REGISTERS>();
  clear_empty(args, group * 4 + warp, threadIdx.x & 31);
  consume(args, shared, shared_address(memory), group);
  if ((threadIdx.x & 31) == 0) stores_done();
}
