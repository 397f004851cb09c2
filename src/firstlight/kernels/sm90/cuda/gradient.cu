// Gradients of block-sparse attention on Hopper, blocks of 128. One kernel for two passes, as both have the same form:
//
//   S = F X^T   T = G Y^T   P = exp2(scale S - log_sums)   D = P (T - deltas)   first += D X   second += P Y
//
// By query blocks (KEYSIDE 0): F, G are queries and the gradient of the output, X, Y keys and values; first is dq.
// By key blocks (KEYSIDE 1): F, G are keys and values, X, Y queries and the gradient; first is dk, second dv. S and P are
// then turned, [keys, queries], and log_sums and deltas belong to columns and come with the tiles.
//
// A thread block is three warpgroups. Two consume, 64 rows of F and G each; in the third one thread loads and one takes
// items from the queue. F and G of an item lie in one of two seats, X and Y come in stages of 64 rows through a ring. When
// an item is done its results take the place of F and G and leave from there. No atomics but the queue's: sums run in the
// order of the lists, so every run gives the same bits.
//
// Compiled with KEYSIDE, HEAD 128 or 64, BF16 0 or 1, STAGES.
#define EXACT (!KEYSIDE)
#include "gradient_tiles.cuh"

constexpr int THREADS = 384;
constexpr int LOADER_REGISTERS = 40;  // 40 + 2 * 232 = 3 * 168, what a launch with 384 threads gets
constexpr int CONSUMER_REGISTERS = 232;
constexpr int SEATS = 2;
constexpr int STAGE_BYTES = 2 * TILE_BYTES;
constexpr int SEATS_AT = STAGES * STAGE_BYTES;
constexpr int VECTORS_AT = SEATS_AT + SEATS * 2 * SEAT_BYTES;
constexpr int BARRIERS_AT = VECTORS_AT + STAGES * 2 * VECTOR_BYTES;
constexpr bool EARLY = !KEYSIDE || HEAD == 64;  // T is begun with S; with two wide sums besides registers do not last

struct alignas(64) GradientArgs {
  TensorMap f, g, x, y, first, second;
  const int *starts, *columns, *masks, *order;
  const u32* bits;
  const float *log_sums, *deltas;  // [batch * heads, pitch], past the last row +inf and 0
  int* queue;
  int items, blocks, heads, group, pitch, k_len;  // heads: of F and G; group: heads of queries for one of keys
  int list_batch, list_head;       // what a batch and a head add to the number of a list's head; 0: one list for all
  int list_shared;                 // what the next query head of a group adds
  int never;                       // 0
  float scale, scale_log2;
};

struct Item {  // stages < 0: no more
  int row, head, batch, stages;
};

struct Mark {  // of a stage: row of bits, -1 for none; keys inside of the sequence; which part of its block
  int bits, keys, part, unused;
};

struct Shared {
  u64 full[STAGES], empty[STAGES], seated[SEATS], left[SEATS];
  Mark marks[STAGES];
  Item items[SEATS];
  Counter counter;
};

__device__ __forceinline__ void start_barriers(Shared* shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(shared_address(&shared->full[i]), 1);
      barrier_init(shared_address(&shared->empty[i]), WARPS);
    }
    for (int i = 0; i < SEATS; i++) {
      barrier_init(shared_address(&shared->seated[i]), 1);
      barrier_init(shared_address(&shared->left[i]), WARPS);
    }
    start_counter(shared->counter);
    barriers_ready();
  }
  __syncthreads();
}

// ---- loading, by one thread

struct Loader {
  Shared* shared;
  u32 memory;
  Place ring, seat;
};

__device__ __forceinline__ void seat_item(const GradientArgs& args, Loader& at, const Work& work, int entries) {
  u32 seated = shared_address(&at.shared->seated[at.seat.slot]);
  stress(2);
  barrier_wait(shared_address(&at.shared->left[at.seat.slot]), at.seat.parity);
  int stages = work.more ? entries * PARTS : -1;
  at.shared->items[at.seat.slot] = {work.row * BLOCK, work.head, work.batch, stages};
  if (!work.more) {
    barrier_arrive(seated);
    return;
  }
  barrier_expect(seated, 2 * SEAT_BYTES);
  u32 to = at.memory + SEATS_AT + at.seat.slot * (2 * SEAT_BYTES);
  load_rows(to, &args.f, seated, work.row * BLOCK, work.head, work.batch);
  load_rows(to + SEAT_BYTES, &args.g, seated, work.row * BLOCK, work.head, work.batch);
  advance<SEATS>(at.seat);
}

__device__ __forceinline__ void load_stage(
    const GradientArgs& args, Loader& at, int head, int batch, int row, int bits, int part) {
  int slot = at.ring.slot;
  u32 full = shared_address(&at.shared->full[slot]), to = at.memory + slot * STAGE_BYTES;
  stress(1);
  barrier_wait(shared_address(&at.shared->empty[slot]), at.ring.parity);
  at.shared->marks[slot] = {bits, args.k_len - row, part, 0};
  barrier_expect(full, STAGE_BYTES + (KEYSIDE ? 2 * VECTOR_BYTES : 0));
  load_rows(to, &args.x, full, row, head, batch);
  load_rows(to + TILE_BYTES, &args.y, full, row, head, batch);
  if (KEYSIDE) {
    long long from = ((long long)batch * args.heads * args.group + head) * args.pitch + row;
    u32 vectors = at.memory + VECTORS_AT + slot * (2 * VECTOR_BYTES);
    load_bytes(vectors, args.log_sums + from, VECTOR_BYTES, full);
    load_bytes(vectors + VECTOR_BYTES, args.deltas + from, VECTOR_BYTES, full);
  }
  advance<STAGES>(at.ring);
}

// Entries `begin` to `end` of a list, for the head of X and Y that it belongs to.
__device__ __forceinline__ void load_list(const GradientArgs& args, Loader& at, int head, int batch, int begin, int end) {
  if (begin == end) return;
  int column = args.columns[begin], bits = args.masks[begin];
#pragma unroll 1
  for (int entry = begin; entry < end; entry++) {
    int then = entry + 1 < end ? entry + 1 : entry;
    int next_column = args.columns[then], next_bits = args.masks[then];  // asked for before the waits
#pragma unroll 1
    for (int part = 0; part < PARTS; part++)
      load_stage(args, at, head, batch, column * BLOCK + part * WIDE, bits, part);
    column = next_column;
    bits = next_bits;
  }
}

// By key blocks an item goes through the lists of all query heads that share its keys, one after the other.
__device__ __forceinline__ void load_all(const GradientArgs& args, Loader at) {
  const int lists = KEYSIDE ? args.group : 1, apart = args.list_shared * args.blocks;
  u32 known = 0;
  for (;;) {
    Work work = take_work(at.shared->counter, known);
    const int* starts = args.starts + list_row(args, work.batch, work.head) + work.row;
    int entries = work.end - work.begin;
    for (int i = 1; work.more && i < lists; i++) entries += starts[i * apart + 1] - starts[i * apart];
    seat_item(args, at, work, entries);
    if (!work.more) break;
    int head = KEYSIDE ? work.head * args.group : work.head / args.group;
    load_list(args, at, head, work.batch, work.begin, work.end);
    for (int i = 1; i < lists; i++)
      load_list(args, at, head + i, work.batch, starts[i * apart], starts[i * apart + 1]);
  }
}

// A warp's 16 rows of a result to where its rows of F or G lay, `rows` being the warpgroup's first, and from there to memory.
__device__ __forceinline__ void put_rows(const float (&sum)[OUTPUTS], float scale, u32 rows, int warp, int lane) {
  int r = warp * 16 + (lane & 15);
#pragma unroll
  for (int j = 0; j < HEAD / 16; j++) {
    const float* f = &sum[j * 8];
    const u32 four[4] = {packed(f[0] * scale, f[1] * scale), packed(f[2] * scale, f[3] * scale),
                         packed(f[4] * scale, f[5] * scale), packed(f[6] * scale, f[7] * scale)};
    store_matrices(rows + (j >> 2) * HALF_SEAT + r * 128 + ((((j & 3) * 2 + (lane >> 4)) ^ (r & 7)) << 4), four);
  }
}

__device__ __forceinline__ void store_warp(const TensorMap* map, u32 rows, int warp, const Item& item, int row) {
#pragma unroll
  for (int h = 0; h < HALVES; h++)
    store_half(map, rows + h * HALF_SEAT + warp * 16 * 128, row + warp * 16, h, item.head, item.batch);
}

struct Consumer {
  Shared* shared;
  u32 memory;
  int half, warp, lane;
  Place ring, seat;
  int held;  // a stage that products may still read, or -1
  int owed;  // a seat whose results may still be on their way, or -1

  __device__ __forceinline__ void release() {
    if (held >= 0 && lane == 0) barrier_arrive(shared_address(&shared->empty[held]));
    held = -1;
  }
  __device__ __forceinline__ void leave_seat() {
    if (owed >= 0 && lane == 0) {
      stores_read<0>();
      barrier_arrive(shared_address(&shared->left[owed]));
    }
    owed = -1;
  }
};

// The sums of one item.
__device__ __forceinline__ void walk(
    const GradientArgs& args, Consumer& at, const Item& item, u32 seat, float (&first)[OUTPUTS], float (&second)[OUTPUTS]) {
  const int row = at.half * 64 + at.warp * 16 + (at.lane >> 2);  // in the block
  const u32 rows = seat + at.half * 64 * 128;
  Vector logs = {0.0f, 0.0f, nullptr}, deltas = logs;
  if (!KEYSIDE) {
    long long from = ((long long)item.batch * args.heads + item.head) * args.pitch + item.row + row;
    logs.row0 = args.log_sums[from], logs.row1 = args.log_sums[from + 8];
    deltas.row0 = args.deltas[from], deltas.row1 = args.deltas[from + 8];
  }
  float s[SCORES], t[SCORES];
  u32 p[PACKED], d[PACKED];
#pragma unroll
  for (int i = 0; i < PACKED; i++) p[i] = 0;
#pragma unroll 1
  for (int k = 0; k < item.stages; k++) {
    const int slot = at.ring.slot;
    const u32 x = at.memory + slot * STAGE_BYTES, y = x + TILE_BYTES;
    stress(3 + at.half);
    barrier_wait(shared_address(&at.shared->full[slot]), at.ring.parity);
    Mark mark = at.shared->marks[slot];
    mark.bits = __shfl_sync(~0u, mark.bits, 0);  // so that the compiler knows them for the same in all threads of a warp
    mark.keys = __shfl_sync(~0u, mark.keys, 0);
    advance<STAGES>(at.ring);
    wgmma_fence();
    multiply_turned(s, rows, x);
    if (EARLY) multiply_turned(t, rows + SEAT_BYTES, y);
    wgmma_wait<EARLY>();  // the scores are there, and with them all that was begun before
    if (KEYSIDE) still_needed(p, at.memory, args.never);
    at.release();
    if (k == 0) at.leave_seat();
    if (KEYSIDE) {
      const float2* vectors = (const float2*)((const unsigned char*)at.shared - BARRIERS_AT + VECTORS_AT + slot * (2 * VECTOR_BYTES));
      logs.columns = vectors + (at.lane & 3);
      deltas.columns = vectors + WIDE / 2 + (at.lane & 3);
    }
    hide(s, args, mark, row, at.lane);
    exponentials(s, p, logs, args.scale_log2);
    if (EARLY) stay_computed(s, at.memory, args.never);
    if (KEYSIDE) {
      wgmma_fence();
      if (!EARLY) multiply_turned(t, rows + SEAT_BYTES, y);
      multiply_more(second, p, y);
    }
    wgmma_wait<KEYSIDE>();  // now t
    differences(s, p, t, d, deltas);
    wgmma_fence();
    multiply_more(first, d, x);
    at.held = slot;
  }
  wgmma_wait<0>();
  at.release();
  at.leave_seat();
}

__device__ __forceinline__ void consume(const GradientArgs& args, Shared* shared, u32 memory, int half) {
  const int t = threadIdx.x & 127;
  Consumer at = {shared, memory, half, __shfl_sync(~0u, t >> 5, 0), t & 31, {0, 0}, {0, 0}, -1, -1};
  float first[OUTPUTS], second[OUTPUTS];
  for (;;) {
    barrier_wait(shared_address(&shared->seated[at.seat.slot]), at.seat.parity);
    Item item = shared->items[at.seat.slot];
    item.stages = __shfl_sync(~0u, item.stages, 0);
    if (item.stages < 0) break;
    const u32 seat = memory + SEATS_AT + at.seat.slot * (2 * SEAT_BYTES), rows = seat + half * 64 * 128;
    cleared(first);
    cleared(second);
    walk(args, at, item, seat, first, second);
    meet(1 + half);  // the other warps of this warpgroup read F and G no more
    put_rows(first, args.scale, rows, at.warp, at.lane);
    if (KEYSIDE) put_rows(second, 1.0f, rows + SEAT_BYTES, at.warp, at.lane);
    publish_shared();
    __syncwarp();
    if (at.lane == 0) {
      store_warp(&args.first, rows, at.warp, item, item.row + half * 64);
      if (KEYSIDE) store_warp(&args.second, rows + SEAT_BYTES, at.warp, item, item.row + half * 64);
      commit_stores();
    }
    at.owed = at.seat.slot;
    advance<SEATS>(at.seat);
  }
  if (at.lane == 0) stores_done();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) gradient(const __grid_constant__ GradientArgs args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared* shared = (Shared*)(memory + BARRIERS_AT);
  start_barriers(shared);
  const int group = __shfl_sync(~0u, threadIdx.x >> 7, 0), warp = __shfl_sync(~0u, (threadIdx.x >> 5) & 3, 0);
  if (group == 2) {
    give_registers<LOADER_REGISTERS>();
    if (warp == 0 && (threadIdx.x & 31) == 0) load_all(args, {shared, shared_address(memory), {0, 1}, {0, 1}});
    if (warp == 1 && (threadIdx.x & 31) == 0) run_queue<true>(args, shared->counter, 1);
    return;
  }
  take_registers<CONSUMER_REGISTERS>();
  consume(args, shared, shared_address(memory), group);
}
