// A part of multiply.cu: what a warpgroup does with the stages of an item, by the size of the blocks.
#pragma once

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
  __device__ __forceinline__ void hold(int& left) {  // the stage that is being multiplied; on to the next
    held = place.slot;
    advance<STAGES>(place, 1);
    left--;
  }
};

__device__ __forceinline__ int stages_of(const Item& item) { return (item.end - item.begin) * HALVES; }

#if X_BY_TOKEN
constexpr int B_TURNED = 0, B_LEADING = 16, B_STEP = 2, B_ROW = DEPTH * 2;
#else
constexpr int B_TURNED = 1, B_LEADING = DEPTH * 128, B_STEP = 128, B_ROW = 128;
#endif
constexpr int A_STEP = TURNED ? 128 : 2;

#if BLOCK >= 64
template <int add> __device__ __forceinline__ void multiply_stage(Consumer& at, float (&d)[ACCUMULATORS]) {  // add 0: the first
  u32 stage = at.base + at.place.slot * STAGE_BYTES;
  u64 a = operand<128>(stage + at.half * 8192, 8192), b = operand<B_ROW>(stage + A_BYTES, B_LEADING);
  wgmma_fence();
#if WITHOUT & WITHOUT_PRODUCTS
  for (int i = 0; i < ACCUMULATORS; i++) d[i] = 0.0f;
  return;
#endif
  wgmma_shared<TURNED, B_TURNED, add>(d, a, b);
#pragma unroll
  for (int i = 1; i < 4; i++) wgmma_shared<TURNED, B_TURNED, 1>(d, a + i * A_STEP, b + i * B_STEP);
  wgmma_commit();
}

// To the next stage in which this warpgroup has a block; false: there is none.
__device__ __forceinline__ bool find_stage(Consumer& at, int& left) {
#pragma unroll 1
  for (; left > 0; left--) {
    at.wait();
    if (BLOCK == 128 || at.shared->present[at.place.slot] >> at.half & 1) return true;
    at.let_go();  // the loaders may need that stage before this warpgroup multiplies again
    at.release(at.place.slot);
    advance<STAGES>(at.place, 1);
  }
  return false;
}

// Returns with the last products in flight.
template <class Meanwhile>
__device__ __forceinline__ void walk(
    const Item& item, Consumer& at, float (&d)[ACCUMULATORS], u32 never, Meanwhile meanwhile) {
  int left = stages_of(item);
  if (!find_stage(at, left)) {
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++) d[i] = 0.0f;
    return;
  }
  multiply_stage<0>(at, d);
  meanwhile();
  at.hold(left);
#pragma unroll 1
  while (find_stage(at, left)) {
    multiply_stage<1>(at, d);
    wgmma_wait<1>();
    at.release(at.held);
    at.hold(left);
    meanwhile();  // after the release: a stage that is held is not being loaded
  }
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
    for (int i = 0; i < BLOCK / 16; i++) seem_used(never, where, a[i]);
  }
};

template <class Meanwhile>
__device__ __forceinline__ void walk(
    const Item& item, Consumer& at, float (&d)[ACCUMULATORS], u32 never, Meanwhile) {
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) d[i] = 0.0f;
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
    for (int i = 0; i < (WITHOUT & WITHOUT_PRODUCTS ? 0 : BLOCK / 16); i++) wgmma_registers<B_TURNED>(d, now.a[i], b + i * B_STEP);
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
    long long to = ((long long)item.batch * args.rows + line) * args.out_pitch + token;
#endif
    float other = args.addend ? number(args.addend[to]) : 0.0f;
    float four[4] = {args.alpha * sum + (IS_GATED ? 0.0f : args.beta * other) + bias, 0.0f, 0.0f, 0.0f};
    activate(four, args.activation, args.never);
    args.out[to] = narrow(IS_GATED ? number(narrow(four[0])) * other : four[0]);
  }
}
#endif
