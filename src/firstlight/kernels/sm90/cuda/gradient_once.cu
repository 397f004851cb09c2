// Gradients of block-sparse attention on Hopper in one pass by key blocks, five products where gradient.cu issues seven:
//
//   S = K Q^T   T = V G^T   P = exp2(scale S - log_sums)   D = P (T - deltas)   dk += D Q   dv += P G   dq += D^T K
//
// S, T, P and D are turned, [keys, queries]. A thread block is three warpgroups. Two consume, 64 keys each; D meets in
// shared memory, where each of the two multiplies it with half of K's columns. What a stage of 64 queries adds to dq goes to
// shared memory and from there, by the copy engine, to sums in float32 in memory, laid out as the threads hold them;
// gradient_rows.cu makes dq of them.
//
// The same bits in every run: the key blocks add to the sums of a stage in ascending order, each when its turn has come
// (`ranks` says which it is, `turns` how many have been). The queue hands key blocks out in that order too, so that who
// waits, waits for a thread block that runs, and the first one of all waits for nobody. Which way lists are walked and how many
// heads are handed out side by side decides how long turns are waited for. Who is first does not add but stores:
// nothing needs to be zeroed but the turns.
//
// Compiled with HEAD 128, BF16 0 or 1, STAGES, DEPTH (how many stages of sums may be on their way).
#define KEYSIDE 1
#define EXACT 1
#include "gradient_tiles.cuh"

constexpr int THREADS = 384;
constexpr int LOADER_REGISTERS = 40;  // 40 + 2 * 232 = 3 * 168, what a launch with 384 threads gets
constexpr int CONSUMER_REGISTERS = 232;
constexpr int STAGE_BYTES = 2 * TILE_BYTES;
constexpr int SEAT_AT = STAGES * STAGE_BYTES;          // K, behind it V
constexpr int DIFFERENCES_AT = SEAT_AT + 2 * SEAT_BYTES;  // D of two stages, [keys, queries]
constexpr int DIFFERENCES_BYTES = BLOCK * 128;
constexpr int SUMS_AT = DIFFERENCES_AT + 2 * DIFFERENCES_BYTES;
constexpr int SUMS_BYTES = WIDE * HEAD * 4;
constexpr int VECTORS_AT = SUMS_AT + DEPTH * SUMS_BYTES;
constexpr int BARRIERS_AT = VECTORS_AT + STAGES * 2 * VECTOR_BYTES;
constexpr int MARKS = 8;                               // marks outlive their stage: what it adds may still be on its way
constexpr int SUMS = WIDE * HEAD / 256;                // registers of a thread
static_assert(STAGES + 2 * DEPTH < MARKS && DEPTH <= 2 && HEAD == 128, "");

struct alignas(64) GradientOnceArgs {
  TensorMap k, v, q, g;
  const int *starts, *columns, *masks;  // lists by key block
  const int* ranks;                // [heads of lists, query blocks, key blocks]: how many key blocks of a query block come before
  const u32* bits;
  const float *log_sums, *deltas;  // [batch * heads, pitch], past the last row +inf and 0
  float* sums;                     // [batch * heads, query blocks, PARTS][SUMS_BYTES]
  int* turns;                      // one for each of the sums: how many have added to it
  u16 *dk, *dv;
  int* queue;
  u64 dk_batch, dk_head, dk_row, dv_batch, dv_head, dv_row;  // strides
  int items, blocks, heads, group, pitch, k_len;  // heads: of keys; group: heads of queries for one of keys
  int list_batch, list_head;       // what a batch and a head add to the number of a list's head; 0: one list for all
  int list_shared;                 // what the next query head of a group adds
  int q_blocks;
  int abreast;                     // heads that are handed out side by side
  int upward;                      // 1: lists are walked from their beginning
  int never;                       // 0
  float scale, scale_log2;
};

struct Item {  // stages < 0: no more
  int row, head, batch, stages;
};

struct Mark {  // of a stage: row of bits, -1 for none; which part of its block; which sums it adds to, -1: no more; its turn
  int bits, part, sums, rank;
};

struct Shared {
  u64 full[STAGES], empty[STAGES], seated, left, made[DEPTH], gone[DEPTH];
  Mark marks[MARKS];
  Item item;
  Counter counter;
};

__device__ __forceinline__ void start_barriers(Shared* shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(shared_address(&shared->full[i]), 1);
      barrier_init(shared_address(&shared->empty[i]), WARPS);
    }
    for (int i = 0; i < DEPTH; i++) {
      barrier_init(shared_address(&shared->made[i]), WARPS);
      barrier_init(shared_address(&shared->gone[i]), 1);
    }
    barrier_init(shared_address(&shared->seated), 1);
    barrier_init(shared_address(&shared->left), WARPS);
    start_counter(shared->counter);
    barriers_ready();
  }
  __syncthreads();
}

// The next key block: of some heads side by side first all first ones, then all second ones, ...
template <bool empty_ones> __device__ __forceinline__ Work next_work(const GradientOnceArgs& args) {
  Work work = {0, 0, 0, 0, 0, 0, -1, 0};
  int i = atomicAdd(args.queue, 1);
  if (i >= args.items) return work;
  int some = args.abreast * args.blocks, first = i / some * args.abreast, all = args.items / args.blocks;
  int width = min(args.abreast, all - first), rest = i % some, over_all = first + rest % width;
  work.row = rest / width;
  work.batch = over_all / args.heads;
  work.head = over_all - work.batch * args.heads;
  int list = list_row(args, work.batch, work.head) + work.row;
  work.begin = args.starts[list];
  work.end = args.starts[list + 1];
  work.more = 1;
  return work;
}

// ---- loading, by one thread

struct Loader {
  Shared* shared;
  u32 memory;
  Place ring;
  u32 left;           // parity of the seat
  int mark;           // number of the next stage
  int early, stages;  // stages that may come before the seat is taken; stages still to come of the item
};

__device__ __forceinline__ void seat_item(const GradientOnceArgs& args, Loader& at, const Work& work) {
  u32 seated = shared_address(&at.shared->seated), to = at.memory + SEAT_AT;
  stress(2);
  barrier_wait(shared_address(&at.shared->left), at.left);
  at.left ^= 1;
  at.shared->item = {work.row * BLOCK, work.head, work.batch, at.stages + STAGES - 1 - at.early};
  barrier_expect(seated, 2 * SEAT_BYTES);
  load_rows(to, &args.k, seated, work.row * BLOCK, work.head, work.batch);
  load_rows(to + SEAT_BYTES, &args.v, seated, work.row * BLOCK, work.head, work.batch);
}

__device__ __forceinline__ void load_stage(
    const GradientOnceArgs& args, Loader& at, int head, int batch, int column, Mark mark) {
  int slot = at.ring.slot, row = column * BLOCK + mark.part * WIDE, over_all = batch * args.heads * args.group + head;
  u32 full = shared_address(&at.shared->full[slot]), to = at.memory + slot * STAGE_BYTES;
  stress(1);
  barrier_wait(shared_address(&at.shared->empty[slot]), at.ring.parity);
  mark.sums = (over_all * args.q_blocks + column) * PARTS + mark.part;
  at.shared->marks[at.mark++ % MARKS] = mark;
  barrier_expect(full, STAGE_BYTES + 2 * VECTOR_BYTES);
  load_rows(to, &args.q, full, row, head, batch);
  load_rows(to + TILE_BYTES, &args.g, full, row, head, batch);
  long long from = (long long)over_all * args.pitch + row;
  u32 vectors = at.memory + VECTORS_AT + slot * (2 * VECTOR_BYTES);
  load_bytes(vectors, args.log_sums + from, VECTOR_BYTES, full);
  load_bytes(vectors + VECTOR_BYTES, args.deltas + from, VECTOR_BYTES, full);
  advance<STAGES>(at.ring);
}

// A list from its end on, or from its beginning, for one query head. The next item is asked for with the last but one stage of the present one: not
// earlier, as others wait for its turns.
__device__ __forceinline__ void load_list(
    const GradientOnceArgs& args, Loader& at, const Work& work, int shared_by, int begin, int end) {
  if (begin == end) return;
  const int list = work.batch * args.list_batch + work.head * args.list_head + shared_by * args.list_shared;
  const int ranks = list * args.q_blocks * args.blocks + work.row;
  const int step = args.upward ? 1 : -1, last = args.upward ? end - 1 : begin;
  int entry = args.upward ? begin : end - 1, column = args.columns[entry], bits = args.masks[entry];
  int rank = args.ranks[ranks + column * args.blocks];
#pragma unroll 1
  for (;; entry += step) {
    int then = entry == last ? entry : entry + step;
    int next_column = args.columns[then], next_bits = args.masks[then];  // asked for before the waits
    int next_rank = args.ranks[ranks + next_column * args.blocks];
#pragma unroll 1
    for (int i = 0; i < PARTS; i++) {
      int part = args.upward ? i : PARTS - 1 - i;
      if (at.early == 0) seat_item(args, at, work);
      at.early--;
      load_stage(args, at, work.head * args.group + shared_by, work.batch, column, {bits, part, 0, rank});
      if (--at.stages == 1) barrier_arrive(shared_address(&at.shared->counter.taken));
    }
    if (entry == last) break;
    column = next_column, bits = next_bits, rank = next_rank;
  }
}

__device__ __forceinline__ void load_all(const GradientOnceArgs& args, Loader at) {
  const int apart = args.list_shared * args.blocks;
  u32 known = 0;
  for (;;) {
    barrier_wait(shared_address(&at.shared->counter.known), known);
    known ^= 1;
    Work work = at.shared->counter.work;
    if (!work.more) break;
    const int* starts = args.starts + list_row(args, work.batch, work.head) + work.row;
    int entries = work.end - work.begin;
    for (int i = 1; i < args.group; i++) entries += starts[i * apart + 1] - starts[i * apart];
    at.stages = entries * PARTS;
    at.early = STAGES - 1;
    if (!entries) barrier_arrive(shared_address(&at.shared->counter.taken));
    load_list(args, at, work, 0, work.begin, work.end);
    for (int i = 1; i < args.group; i++)
      load_list(args, at, work, i, starts[i * apart], starts[i * apart + 1]);
    if (at.early >= 0) seat_item(args, at, work);
  }
  barrier_wait(shared_address(&at.shared->left), at.left);
  at.shared->item = {0, 0, 0, -1};
  for (int i = 0; i < DEPTH; i++) at.shared->marks[at.mark++ % MARKS] = {-1, 0, -1, 0};
  barrier_arrive(shared_address(&at.shared->seated));
}

// ---- adding to the sums of dq, by one thread for each place of what is on its way

__device__ __forceinline__ void add_all(const GradientOnceArgs& args, Shared* shared, u32 memory, int place) {
  const u32 from = memory + SUMS_AT + place * SUMS_BYTES;
  u32 parity = 0;
  for (int i = place;; i += DEPTH) {
    barrier_wait(shared_address(&shared->made[place]), parity);
    parity ^= 1;
    Mark mark = shared->marks[i % MARKS];
    if (mark.sums < 0) break;
    int* turn = args.turns + mark.sums;
    float* to = args.sums + (long long)mark.sums * (SUMS_BYTES / 4);
    stress(5);
    wait_for_turn(turn, mark.rank);
    if (mark.rank == 0) store_bytes(to, from, SUMS_BYTES);
    else add_floats(to, from, SUMS_BYTES);
    commit_stores();
    stores_read<0>();
    barrier_arrive(shared_address(&shared->gone[place]));
    stores_done();
    end_turn(turn, mark.rank + 1);
  }
}

// ---- consuming

struct Consumer {
  Shared* shared;
  u32 memory;
  int half, warp, lane;
  Place ring, seat, sums;
  int mark;  // number of the stage
  int held;  // a stage that products may still read, or -1

  __device__ __forceinline__ void release() {
    if (held >= 0 && lane == 0) barrier_arrive(shared_address(&shared->empty[held]));
    held = -1;
  }
};

// d, 64 keys of this warpgroup by 64 queries, to shared memory; a row of keys has 128 bytes, swizzled.
__device__ __forceinline__ void put_differences(const u32 (&d)[PACKED], u32 rows, int warp, int lane) {
  int r = warp * 16 + (lane & 15);
#pragma unroll
  for (int j = 0; j < PACKED / 4; j++) {
    const u32 four[4] = {d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]};
    store_matrices(rows + r * 128 + (((j * 2 + (lane >> 4)) ^ (r & 7)) << 4), four);
  }
}

// o = d^T k: d [keys, queries], k half of the columns.
__device__ __forceinline__ void multiply_differences(float (&o)[SUMS], u32 d, u32 k) {
  u64 a = operand<128>(d, HALF_TILE), b = operand<128>(k, HALF_SEAT);
  turned_first(o, a, b);
#pragma unroll
  for (int i = 1; i < BLOCK / 16; i++) turned_more(o, a + i * (16 * 128 >> 4), b + i * (16 * 128 >> 4));
  wgmma_commit();
}

// What a stage adds to dq to shared memory, four numbers of each thread side by side, and then to add_all. In between there
// is time to begin a product, which needs the registers.
__device__ __forceinline__ void put_sums(const Consumer& at, const float (&o)[SUMS]) {
  u32 to = at.memory + SUMS_AT + at.sums.slot * SUMS_BYTES + at.half * (SUMS_BYTES / 2) + (at.warp * 32 + at.lane) * 16;
  barrier_wait(shared_address(&at.shared->gone[at.sums.slot]), at.sums.parity);
#pragma unroll
  for (int j = 0; j < SUMS / 4; j++) store_four(to + j * 2048, o[4 * j], o[4 * j + 1], o[4 * j + 2], o[4 * j + 3]);
}

__device__ __forceinline__ void hand_over_sums(Consumer& at) {
  publish_shared();
  __syncwarp();
  if (at.lane == 0) barrier_arrive(shared_address(&at.shared->made[at.sums.slot]));
  advance<DEPTH>(at.sums);
}

// The sums of one item.
__device__ __forceinline__ void walk(
    const GradientOnceArgs& args, Consumer& at, const Item& item, float (&dk)[OUTPUTS], float (&dv)[OUTPUTS]) {
  const int row = at.half * 64 + at.warp * 16 + (at.lane >> 2);  // in the block
  const int inside = args.k_len - item.row - row;
  const u32 seat = at.memory + SEAT_AT, rows = seat + at.half * 64 * 128;
  Vector logs = {0.0f, 0.0f, nullptr}, deltas = logs;
  float s[SCORES], t[SCORES], o[SUMS];
  u32 p[PACKED], d[PACKED];
#pragma unroll
  for (int i = 0; i < PACKED; i++) d[i] = 0;
#pragma unroll 1
  for (int k = 0; k < item.stages; k++) {
    const int slot = at.ring.slot;
    const u32 q = at.memory + slot * STAGE_BYTES, g = q + TILE_BYTES;
    const u32 met = at.memory + DIFFERENCES_AT + (k & 1) * DIFFERENCES_BYTES;
    stress(3 + at.half);
    barrier_wait(shared_address(&at.shared->full[slot]), at.ring.parity);
    advance<STAGES>(at.ring);
    wgmma_wait<0>();  // what the stage before began
    at.release();
    wgmma_fence();
    multiply_turned(s, rows, q);
    if (k) put_sums(at, o);
    wgmma_fence();
    multiply_turned(t, rows + SEAT_BYTES, g);
    if (k) hand_over_sums(at);
    Mark mark = at.shared->marks[at.mark++ % MARKS];
    mark.bits = __shfl_sync(~0u, mark.bits, 0);  // so that the compiler knows them for the same in all threads of a warp
    const unsigned char* vectors = (const unsigned char*)at.shared - BARRIERS_AT + VECTORS_AT + slot * (2 * VECTOR_BYTES);
    logs.columns = (const float2*)vectors + (at.lane & 3);
    deltas.columns = logs.columns + WIDE / 2;
    wgmma_wait<1>();  // the scores
    hide(s, args, mark, row, at.lane);
    if (item.row + BLOCK > args.k_len) hide_rows(s, inside);
    exponentials(s, p, logs, args.scale_log2);
    stay_computed(s, at.memory, args.never);
    wgmma_fence();
    multiply_more(dv, p, g);
    wgmma_wait<1>();  // now t
    differences(s, p, t, d, deltas);
    put_differences(d, met + at.half * 64 * 128, at.warp, at.lane);
    wgmma_fence();
    multiply_more(dk, d, q);
    publish_shared();
    take_turn(3);  // D is there, and nobody reads that of the stage before
    wgmma_wait<1>();
    still_needed(p, at.memory, args.never);
    wgmma_fence();
    multiply_differences(o, met, seat + at.half * HALF_SEAT);
    at.held = slot;
  }
  wgmma_wait<0>();
  at.release();
  if (!item.stages) return;
  put_sums(at, o);
  hand_over_sums(at);
}

// A warp's 16 rows of a result to memory: lanes of four exchange columns, so that each writes 16 bytes.
__device__ __forceinline__ void put_rows(const float (&sum)[OUTPUTS], float scale, u16* to, u64 step, int inside, int lane) {
#pragma unroll
  for (int high = 0; high < 2; high++)
#pragma unroll
    for (int j = 0; j < HEAD / 32; j++) {
      u32 v[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        v[i] = packed(sum[(4 * j + i) * 4 + 2 * high] * scale, sum[(4 * j + i) * 4 + 2 * high + 1] * scale);
#pragma unroll
      for (int b = 1; b < 4; b <<= 1)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          if (i & b) continue;
          const u32 other = __shfl_xor_sync(~0u, lane & b ? v[i] : v[i | b], b);
          if (lane & b) v[i] = other; else v[i | b] = other;
        }
      if (8 * high < inside) *(uint4*)(to + 8 * high * step + j * 32 + (lane & 3) * 8) = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

__device__ __forceinline__ void consume(const GradientOnceArgs& args, Shared* shared, u32 memory, int half) {
  const int t = threadIdx.x & 127;
  Consumer at = {shared, memory, half, __shfl_sync(~0u, t >> 5, 0), t & 31, {0, 0}, {0, 0}, {0, 1}, 0, -1};
  float dk[OUTPUTS], dv[OUTPUTS];
  for (;;) {
    barrier_wait(shared_address(&shared->seated), at.seat.parity);
    at.seat.parity ^= 1;
    Item item = shared->item;
    item.stages = __shfl_sync(~0u, item.stages, 0);
    if (item.stages < 0) break;
    cleared(dk);
    cleared(dv);
    walk(args, at, item, dk, dv);
    __syncwarp();
    if (at.lane == 0) barrier_arrive(shared_address(&shared->left));
    const int row = half * 64 + at.warp * 16 + (at.lane >> 2), inside = args.k_len - item.row - row;
    put_rows(dk, args.scale, args.dk + item.batch * args.dk_batch + item.head * args.dk_head + (item.row + row) * args.dk_row,
             args.dk_row, inside, at.lane);
    put_rows(dv, 1.0f, args.dv + item.batch * args.dv_batch + item.head * args.dv_head + (item.row + row) * args.dv_row,
             args.dv_row, inside, at.lane);
  }
  for (int i = 0; i < DEPTH; i++) {  // there is no more to add
    barrier_wait(shared_address(&shared->gone[at.sums.slot]), at.sums.parity);
    if (at.lane == 0) barrier_arrive(shared_address(&shared->made[at.sums.slot]));
    advance<DEPTH>(at.sums);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) gradient_once(const __grid_constant__ GradientOnceArgs args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared* shared = (Shared*)(memory + BARRIERS_AT);
  start_barriers(shared);
  const int group = __shfl_sync(~0u, threadIdx.x >> 7, 0), warp = __shfl_sync(~0u, (threadIdx.x >> 5) & 3, 0);
  if (group == 2) {
    give_registers<LOADER_REGISTERS>();
    if ((threadIdx.x & 31) == 0) {
      if (warp == 0) load_all(args, {shared, shared_address(memory), {0, 1}, 1, 0, 0, 0});
      if (warp == 1) run_queue<true>(args, shared->counter, 1);
      if (warp >= 2 && warp - 2 < DEPTH) add_all(args, shared, shared_address(memory), warp - 2);
    }
    return;
  }
  take_registers<CONSUMER_REGISTERS>();
  consume(args, shared, shared_address(memory), group);
}
