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
// how many of a warpgroup's TOKENS / 64 chunks have staging room of their own.
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

// ---- work: windows of `super_tile` token tiles, inside a window the portions longest first, then its tiles. What a
// window reads of X stays in L2 while the rows of W pass by.
__device__ __forceinline__ void run_queue(const MultiplyArgs& args, Shared* shared, u32 rank, int lane) {
  int tiles = args.tiles * args.batches / CLUSTER, total = args.portions_count * tiles;  // of all thread blocks of a cluster
  Place place = {0, 1}, numbers = {0, rank == 0};
  u32 wanted = 0;
  for (;;) {
    int number = next_number(args.queue, shared, numbers, rank, lane);
    if (number >= total) break;
    int window = number / (args.portions_count * args.super_tile), base = window * args.super_tile;
    int width = min(args.super_tile, tiles - base), inside = number - window * args.portions_count * args.super_tile;
    int tile = (base + inside % width) * CLUSTER + rank;
    int4 portion = args.portions[inside / width];
    if (portion.x < 0) continue;
    int row = lane < ITEM_ROWS ? args.block_rows[portion.x * ITEM_ROWS + lane] : 0;
    stress(1);
    int batch = tile / args.tiles;
    Item item = {portion.x, portion.y, portion.z, portion.w, tile, (tile - batch * args.tiles) * TOKENS, batch, 0};
    publish_item(shared, place, wanted, item, lane, row);
  }
  Item none = {-1, 0, 0, -1, 0, 0, 0, 0};
  publish_item(shared, place, wanted, none, lane);
  if (lane == 0 && rank == 0) leave_queue(args.queue);
}

// ---- loads

__device__ __forceinline__ void load_x(const MultiplyArgs& args, const Item& item, u32 to, u32 full, int k, int lane) {
#if X_BY_TOKEN
  if (lane == 0) load_box_4d(to, &args.x, full, k, item.first, 0, 0);
#else
  if (args.boxes == 1) {
    if (lane == 0) load_box_4d(to, &args.x, full, 0, k, item.first / 64, item.batch);
  } else if (lane < TOKENS / 64) {
    load_box_4d(to + lane * (64 * DEPTH * 2), &args.x, full, item.first + lane * 64, k, 0, item.batch);
  }
#endif
}

__device__ __forceinline__ void load_stage(
    const MultiplyArgs& args, const Item& item, u32 stage, u32 full, int member, int column, int half, int lane) {
#if BLOCK == 128
  int x_from = column * 128 + half * 64;
  load_x(args, item, stage + A_BYTES, full, x_from, lane);
#if CLUSTER > 1  // each of two thread blocks loads a half of W for both
  u32 rank = cluster_rank();
  if (lane == 0)
    load_box_3d_for(stage + rank * 8192, &args.w, full, TURNED ? rank * 64 : half * 64, TURNED ? half * 64 : rank * 64, member, 3);
#elif TURNED
  if (lane < 2) load_box_3d(stage + lane * 8192, &args.w, full, lane * 64, half * 64, member);
#else
  if (lane == 0) load_box_3d(stage, &args.w, full, half * 64, 0, member);
#endif
#elif BLOCK == 64
  load_x(args, item, stage + A_BYTES, full, __shfl_sync(~0u, column, 0) * 64, lane);
#if CLUSTER > 1
  u32 rank = cluster_rank();
  if (member >= 0)
    load_box_3d_for(stage + lane * MEMBER_BYTES + rank * (MEMBER_BYTES / 2), &args.w, full, 0, rank * 32, member, 3);
#else
  if (member >= 0) load_box_3d(stage + lane * MEMBER_BYTES, &args.w, full, 0, 0, member);
#endif
#else
  int boxes = args.boxes, entry = boxes == 1 ? lane : lane / (TOKENS / 64), box = lane - entry * boxes;
  int from = __shfl_sync(~0u, column, entry & (WIDTH - 1)) * BLOCK;
  if (lane < WIDTH * boxes && from < args.cols) {
    u32 to = stage + A_BYTES + entry * X_BYTES;
    if (X_BY_TOKEN) load_box_4d(to, &args.x, full, from, item.first, 0, 0);
    else if (boxes == 1) load_box_4d(to, &args.x, full, 0, from, item.first / 64, item.batch);
    else load_box_4d(to + box * (64 * DEPTH * 2), &args.x, full, item.first + box * 64, from, 0, item.batch);
  }
  if (member < 0) return;
  u32 to = stage + lane * MEMBER_BYTES;
  // rows of 32 bytes are slow by the tensor map; a block of 16 is 512 bytes in a row
  const u16* values = args.values + (long long)member * (BLOCK * BLOCK);
  if (BLOCK == 32) load_box_3d(to, &args.w, full, 0, 0, member);
  else load_bytes(to, values, MEMBER_BYTES, full);
#endif
}

__device__ __forceinline__ void run_loader(const MultiplyArgs& args, Shared* shared, u32 base, int which, int lane) {
  Place ring = {0, 0}, place = {which, 1};
  int next = which;  // the stage of the coming item that is this warp's first
  for (;;) {
    Item item = next_item(shared, ring);
    forget_item(shared, ring, lane);
    if (item.group < 0) break;
    int stages = (item.end - item.begin) * HALVES, k = next;
    int member = -1, column = 0;
    if (k < stages) {
      int step = item.begin + k / HALVES;
      if (lane < MEMBERS) member = args.members[(long long)step * MEMBERS + lane];
      if (lane < WIDTH) column = args.columns[(long long)step * WIDTH + lane];
    }
    bool told = which > 0;
    for (; k < stages; k += LOADERS) {
      want_next(shared, told, stages - k, lane);
      int now = member, at = column, half = k % HALVES;
      if (k + LOADERS < stages) {  // the next step's entry is on its way while this stage is filled
        int step = item.begin + (k + LOADERS) / HALVES;
        if (lane < MEMBERS) member = args.members[(long long)step * MEMBERS + lane];
        if (lane < WIDTH) column = args.columns[(long long)step * WIDTH + lane];
      }
      u32 present = __ballot_sync(~0u, lane < MEMBERS && now >= 0);
      int tiles = __popc(__ballot_sync(~0u, lane < WIDTH && at * BLOCK < args.cols));
#if BLOCK == 128
      now = __shfl_sync(~0u, now, 0);
      at = __shfl_sync(~0u, at, 0);
#endif
      u32 full = shared_address(&shared->full[place.slot]);
      stress(2 + which);
      barrier_wait(shared_address(&shared->empty[place.slot]), place.parity);
      // the copies first, every clock between an empty stage and its copies is lost; bytes may arrive before they are
      // announced, the phase ends with the announcement at the earliest
      load_stage(args, item, base + place.slot * STAGE_BYTES, full, now, at, half, lane);
      if (lane == 0) {
        if (BLOCK < 128) shared->present[place.slot] = present;
        barrier_expect(full, __popc(present) * MEMBER_BYTES + tiles * X_BYTES);
      }
      __syncwarp();
      advance<STAGES>(place, LOADERS);
    }
    want_next(shared, told, 0, lane);
    next = k - stages;
  }
}

// ---- products

struct Consumer {
  Shared* shared;
  u32 base;
  int half, warp, lane;  // which 64 rows; warp and lane inside the warpgroup
  Place place;
  int held;  // a stage that wgmma may still read, or -1

  // The first of this warp's 16 rows; before the item is forgotten.
  __device__ __forceinline__ int first_row(const Item& item, int slot) const {
    if (BLOCK == 128) return item.group * 128 + half * 64 + warp * 16;
    int in_group = half * 64 + warp * 16;
    return shared->rows[slot][in_group / BLOCK] * BLOCK + in_group % BLOCK;
  }
  __device__ __forceinline__ void wait() {
    stress(8 + half);
    barrier_wait(shared_address(&shared->full[place.slot]), place.parity);
  }
  __device__ __forceinline__ void release(int slot) {
    __syncwarp();
#if CLUSTER > 1
    if (slot >= 0 && lane < CLUSTER) barrier_arrive_in(shared_address(&shared->empty[slot]), lane);
#else
    if (slot >= 0 && lane == 0) barrier_arrive(shared_address(&shared->empty[slot]));
#endif
  }
  __device__ __forceinline__ void let_go() {  // of the stage that is held, once all products are done
    wgmma_wait<0>();
    release(held);
    held = -1;
  }
};

#if X_BY_TOKEN
constexpr int B_TURNED = 0, B_LEADING = 16, B_STEP = 2, B_ROW = DEPTH * 2;
#else
constexpr int B_TURNED = 1, B_LEADING = DEPTH * 128, B_STEP = 128, B_ROW = 128;
#endif
constexpr int A_STEP = TURNED ? 128 : 2;

#if BLOCK >= 64
__device__ __forceinline__ void multiply_stage(Consumer& at, float (&d)[ACCUMULATORS]) {
  u32 stage = at.base + at.place.slot * STAGE_BYTES;
  u64 a = operand<128>(stage + at.half * 8192, 8192), b = operand<B_ROW>(stage + A_BYTES, B_LEADING);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; i++) wgmma_shared<TURNED, B_TURNED>(d, a + i * A_STEP, b + i * B_STEP);
  wgmma_commit();
}

template <class Meanwhile>
__device__ __forceinline__ void walk(
    const Item& item, Consumer& at, float (&d)[ACCUMULATORS], u32 never, Meanwhile meanwhile) {
  int stages = (item.end - item.begin) * HALVES, k = 0;
  if (LATE && stages > 0) {  // the first product apart: it needs no zeros to add to
    at.wait();
    multiply_stage(at, d);
    meanwhile();
    at.held = at.place.slot;
    advance<STAGES>(at.place, 1);
    k = 1;
  }
#pragma unroll 1
  for (;;) {
#if BLOCK == 64
#pragma unroll 1
    for (; k < stages; k++) {  // steps in which this warpgroup has no block
      at.wait();
      if (at.shared->present[at.place.slot] >> at.half & 1) break;
      at.let_go();  // the loaders may need that stage before this warpgroup multiplies again
      at.release(at.place.slot);
      advance<STAGES>(at.place, 1);
    }
    if (k == stages) break;
#else
    if (k == stages) break;
    at.wait();
#endif
    multiply_stage(at, d);
    meanwhile();
    wgmma_wait<1>();
    at.release(at.held);
    at.held = at.place.slot;
    advance<STAGES>(at.place, 1);
    k++;
  }
  at.let_go();
}
#else
// Bit e * HEIGHT of the answer: the warpgroup has a block in entry e of the stage.
__device__ __forceinline__ u32 entries_of(u32 mine) {
  u32 any = mine | mine >> 1;
  if (BLOCK == 16) any |= any >> 2;
  return any & (BLOCK == 32 ? 0x11u : 0x01010101u);
}

// Where this lane's part of a block lies: row and 16-byte chunk of an 8x8 matrix, by ldmatrix's numbering.
__device__ __forceinline__ u32 fragment_offset(int warp, int lane) {
  int matrix = lane >> 3, row, chunk;
  if (TURNED) row = (lane & 7) + (matrix >> 1) * 8, chunk = matrix & 1;
  else row = (lane & 7) + (matrix & 1) * 8, chunk = matrix >> 1;
  if (BLOCK == 16) return row * 32 + chunk * 16;
  if (TURNED) chunk += (warp & 1) * 2;
  else row += (warp & 1) * 16;
  return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4);
}

// The blocks of one entry, as the tensor cores want them in registers. Two of these take turns: while one product runs,
// the blocks of the next are loaded.
struct Fragments {
  u32 a[BLOCK / 16][4];

  __device__ __forceinline__ void load(u32 from, u32 offset, bool stored) {
#pragma unroll
    for (int i = 0; i < BLOCK / 16; i++) {
      if (TURNED) load_matrices_turned(from + offset + i * 1024, a[i]);
      else load_matrices(from + (offset ^ (i * 32)), a[i]);
#pragma unroll
      for (int j = 0; j < 4; j++) a[i][j] = stored ? a[i][j] : 0;
    }
  }
  // The compiler takes registers for free at the next wait_group even when its count leaves the product that reads them
  // running; a use that never happens holds them until here.
  __device__ __forceinline__ void keep(u32 never, u32 where) const {
#pragma unroll
    for (int i = 0; i < BLOCK / 16; i++)
      asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.shared.v4.u32 [%1], {%2, %3, %4, %5};\n}"
                   ::"r"(never), "r"(where), "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]) : "memory");
  }
};

template <class Meanwhile>
__device__ __forceinline__ void walk(
    const Item& item, Consumer& at, float (&d)[ACCUMULATORS], u32 never, Meanwhile meanwhile) {
  int stages = item.end - item.begin, k = 0;
  int row = BLOCK == 16 ? at.warp : at.warp >> 1;  // this warp's block row among the warpgroup's
  u32 offset = (at.half * SLAB + row) * MEMBER_BYTES + fragment_offset(at.warp, at.lane);
  u32 left = 0, mine = 0;
  auto find = [&]() {  // to the next entry with a block, over stages without one
#pragma unroll 1
    while (left == 0 && k < stages) {
      at.wait();
      mine = at.shared->present[at.place.slot] >> (at.half * SLAB);
      left = entries_of(mine);
      if (left == 0) {
        at.let_go();  // the loaders may need that stage before this warpgroup multiplies again
        at.release(at.place.slot);
        advance<STAGES>(at.place, 1);
        k++;
      }
    }
  };
  auto multiply_entry = [&](Fragments& now, const Fragments& before) {
    int entry = (__ffs(left) - 1) / HEIGHT;
    left &= left - 1;
    u32 stage = at.base + at.place.slot * STAGE_BYTES;
    now.load(stage + entry * (HEIGHT * MEMBER_BYTES), offset, mine >> (entry * HEIGHT + row) & 1);
    u64 b = operand<B_ROW>(stage + A_BYTES + entry * X_BYTES, B_LEADING);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < BLOCK / 16; i++) wgmma_registers<B_TURNED>(d, now.a[i], b + i * B_STEP);
    wgmma_commit();
    wgmma_wait<1>();
    before.keep(never, at.base);
    at.release(at.held);
    at.held = -1;
    if (left == 0) {
      at.held = at.place.slot;
      advance<STAGES>(at.place, 1);
      k++;
    }
  };
  Fragments even = {}, odd = {};
#pragma unroll 1
  for (;;) {
    find();
    if (left == 0) break;
    multiply_entry(even, odd);
    find();
    if (left == 0) break;
    multiply_entry(odd, even);
  }
  at.let_go();
  even.keep(never, at.base);
  odd.keep(never, at.base);
}

// A row that has no block in a column must not see that column, and zero times infinity is NaN: where the sum is not
// finite the warpgroup computes its tile again, one stored block after the other. Slow, and rare.
__device__ __forceinline__ void strictly(const MultiplyArgs& args, const Item& item, int first_row, int half, int t) {
  int row = t >> 1, line = first_row + row % 16, block_row = half * SLAB + row / BLOCK;
  if (line >= args.rows) return;
  float bias = args.bias ? number(args.bias[line]) : 0.0f;
#pragma unroll 1
  for (int token = item.first + (t & 1); token < min(item.first + TOKENS, args.n); token += 2) {
    float sum = 0.0f;
#pragma unroll 1
    for (int step = args.starts[item.group] * WIDTH; step < args.starts[item.group + 1] * WIDTH; step++) {
      int member = args.members[(long long)step * HEIGHT + block_row];
      if (member < 0) continue;
      int column = args.columns[step] * BLOCK;
      const u16* w = args.values + (long long)member * (BLOCK * BLOCK);
#pragma unroll 1
      for (int k = 0; k < min(BLOCK, args.cols - column); k++) {
#if X_BY_TOKEN
        u16 x = args.dense[(long long)token * args.cols + column + k];
#else
        u16 x = args.dense[((long long)item.batch * args.cols + column + k) * args.pitch + token];
#endif
        sum += number(w[TURNED ? k * BLOCK + row % BLOCK : row % BLOCK * BLOCK + k]) * number(x);
      }
    }
#if OUT_BY_TOKEN
    long long to = (long long)token * args.rows + line;
#else
    long long to = ((long long)item.batch * args.rows + line) * args.n + token;
#endif
    sum = args.alpha * sum + (args.addend ? args.beta * number(args.addend[to]) : 0.0f) + bias;
    if (args.activation == 1) sum = sum > 0.0f || sum != sum ? sum : 0.0f;
    args.out[to] = narrow(activated(sum, args.activation));
  }
}
#endif

// ---- results

constexpr int STORED_BYTES = STORING * 16 * 128;  // of a chunk of 64 rows and 64 tokens, by one thread

// Where a lane's part of a 16-token strip lies in a chunk [64 rows][64 tokens], or, by token,
// [4 / STORING][64 tokens][16 * STORING rows]; swizzled over the rows' bytes.
__device__ __forceinline__ u32 strip_offset(int warp, int lane, int strip) {
  int matrix = lane >> 3;
#if OUT_BY_TOKEN
  int line = strip * 16 + (lane & 7) + (matrix >> 1) * 8, chunk = warp % STORING * 2 + (matrix & 1);
  int turn = line / (4 / STORING) % (2 * STORING);  // the number of the 128 bytes that the row lies in
  return warp / STORING * STORED_BYTES + line * (32 * STORING) + ((chunk ^ turn) << 4);
#else
  int line = warp * 16 + (lane & 7) + (matrix & 1) * 8, chunk = strip * 2 + (matrix >> 1);
  return line * 128 + ((chunk ^ (line & 7)) << 4);
#endif
}

__device__ __forceinline__ void finish_strip(const MultiplyArgs& args, float (&f)[8], u32 at, float low, float high) {
  u32 before[4] = {0, 0, 0, 0};
  if (args.addend) {
#if OUT_BY_TOKEN
    load_matrices_turned(at, before);
#else
    load_matrices(at, before);
#endif
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {  // f[0], f[1], f[4], f[5] are of the lower row, the others of the one 8 further down
    float bias = i & 2 ? high : low;
    float added = number((u16)(before[i >> 1] >> (i & 1) * 16));
    f[i] = args.alpha * f[i] + args.beta * added + bias;
    if (args.activation == 1) f[i] = f[i] > 0.0f || f[i] != f[i] ? f[i] : 0.0f;
  }
  if (args.activation > 1) {
    Eight all;
#pragma unroll
    for (int i = 0; i < 8; i++) all.v[i] = f[i];
    all = activated_eight(all, args.activation);
#pragma unroll
    for (int i = 0; i < 8; i++) f[i] = all.v[i];
  }
}

__device__ __forceinline__ void store_strip(u32 to, const u32 (&r)[4]) {
#if OUT_BY_TOKEN
  store_matrices_turned(to, r);
#else
  store_matrices(to, r);
#endif
}

__device__ __forceinline__ bool is_storing(const Consumer& at) {
  return STORING == 1 ? at.lane == 0 : threadIdx.x % (32 * STORING) == 0;
}

__device__ __forceinline__ void meet_to_store(const Consumer& at) {
  if (STORING == 1) __syncwarp();
  else if (STORING == 2) meet_two(3 + at.half * 2 + at.warp / 2);
  else meet(1 + at.half);
}

// Of a warp, its part of a chunk: what it and those that store with it fill.
__device__ __forceinline__ u32 part_of(const Consumer& at, u32 chunk) { return chunk + at.warp / STORING * STORED_BYTES; }

// row: the first that is stored together.
__device__ __forceinline__ void store_chunk(
    const MultiplyArgs& args, const Consumer& at, u32 from, int row, int token, int batch) {
  store_box_3d(&args.y, part_of(at, from), OUT_BY_TOKEN ? row : token, OUT_BY_TOKEN ? token : row, batch);
}

struct LateChunks {
  u32 packed[LATE ? 16 * LATE : 1];
  int row, token, batch;
  int waiting;  // the last ones

  template <int c> __device__ __forceinline__ void store(const MultiplyArgs& args, const Consumer& at) const {
    u32 room = at.base + STAGES * STAGE_BYTES + at.half * STORE_BYTES + (CHUNKS - LATE + c) % STORE_CHUNKS * CHUNK_BYTES;
    if (is_storing(at)) stores_read<STORE_CHUNKS - 1>();
    meet_to_store(at);
#pragma unroll
    for (int strip = 0; strip < 4; strip++) {
      const u32* four = &packed[(c * 4 + strip) * 4];
      u32 r[4] = {four[0], four[1], four[2], four[3]};
      store_strip(room + strip_offset(at.warp, at.lane, strip), r);
    }
    publish_shared();
    meet_to_store(at);
    if (is_storing(at)) {
      store_chunk(args, at, room, row, token + c * 64, batch);
      commit_stores();
    }
  }
  // The next one, if any.
  __device__ __forceinline__ void store_next(const MultiplyArgs& args, const Consumer& at) {
    if (waiting == 0) return;
    if (waiting == 1) store<LATE - 1>(args, at);
    if (LATE > 1 && waiting == 2) store<(LATE > 1 ? LATE - 2 : 0)>(args, at);
    if (LATE > 2 && waiting == 3) store<(LATE > 2 ? LATE - 3 : 0)>(args, at);
    waiting--;
  }
};

// Where in the ring of items a consumer is, and the parity of the addend's barrier. With large blocks in one register, of
// which there are none to spare; with small ones ptxas needs fewer when there are three.
struct Known {
#if BLOCK >= 64
  u32 bits;  // items taken, twice, plus the parity
  __device__ __forceinline__ Place place() const { return {(int)(bits >> 1) % RING, bits / (2 * RING) & 1}; }
  __device__ __forceinline__ void next() { bits += 2; }
  __device__ __forceinline__ u32 addend() const { return bits & 1; }
  __device__ __forceinline__ void turn_addend() { bits ^= 1; }
#else
  Place at;
  u32 parity;
  __device__ __forceinline__ Place place() const { return at; }
  __device__ __forceinline__ void next() { advance<RING>(at, 1); }
  __device__ __forceinline__ u32 addend() const { return parity; }
  __device__ __forceinline__ void turn_addend() { parity ^= 1; }
#endif
};
static_assert(RING == 2, "Known counts modulo 2");

template <int chunks>
__device__ __forceinline__ void store_tile(
    const MultiplyArgs& args, const Item& item, int first_row, Consumer& at, const float (&d)[ACCUMULATORS],
    Known& known) {
  u32 room = at.base + STAGES * STAGE_BYTES + at.half * STORE_BYTES;
  int own = first_row + (at.lane >> 2), row = first_row - at.warp % STORING * 16;
  float low = 0.0f, high = 0.0f;
  if (args.bias) {
    if (own < args.rows) low = number(args.bias[own]);
    if (own + 8 < args.rows) high = number(args.bias[own + 8]);
  }
#pragma unroll
  for (int c = 0; c < chunks; c++) {
    u32 chunk = room + (c % STORE_CHUNKS) * CHUNK_BYTES;
    int x = OUT_BY_TOKEN ? row : item.first + c * 64, y = OUT_BY_TOKEN ? item.first + c * 64 : row;
    if (c == 0 || STORE_CHUNKS < CHUNKS) {  // what left this room before has been read
      if (is_storing(at)) stores_read<STORE_CHUNKS < CHUNKS ? STORE_CHUNKS - 1 : 0>();
      meet_to_store(at);
    }
    if (args.addend) {
      u32 barrier = shared_address(&at.shared->addend[at.half]);
      if (is_storing(at)) {
        barrier_expect(barrier, STORED_BYTES);
        load_box_3d(part_of(at, chunk), &args.c, barrier, x, y, item.batch);
      }
      barrier_wait(barrier, known.addend());
      known.turn_addend();
    }
#pragma unroll
    for (int strip = 0; strip < 4; strip++) {
      float f[8];
#pragma unroll
      for (int i = 0; i < 8; i++) f[i] = d[(c * 8 + strip * 2) * 4 + i];
      u32 to = chunk + strip_offset(at.warp, at.lane, strip);
      if (!args.plain) finish_strip(args, f, to, low, high);
      u32 r[4] = {packed(f[0], f[1]), packed(f[2], f[3]), packed(f[4], f[5]), packed(f[6], f[7])};
      store_strip(to, r);
    }
    if (c == CHUNKS - 1 || STORE_CHUNKS < CHUNKS) {
      publish_shared();
      meet_to_store(at);
      if (is_storing(at)) {
#pragma unroll
        for (int i = STORE_CHUNKS < CHUNKS ? c : 0; i <= c; i++)
          store_chunk(args, at, room + (i % STORE_CHUNKS) * CHUNK_BYTES, row, item.first + i * 64, item.batch);
        commit_stores();
      }
    }
  }
}


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
