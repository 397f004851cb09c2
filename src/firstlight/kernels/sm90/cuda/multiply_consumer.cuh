// A part of multiply.cu: a warpgroup's way from item to item.
#pragma once

// An item is known to this warp no more; returns the first of its 16 rows.
__device__ __forceinline__ int leave_item(const Item& item, const Consumer& at, Known& known) {
  Place ring = known.place();
  int row = at.first_row(item, ring.slot);
  __syncwarp();
  forget_item(at.shared, ring, at.lane);
  known.next();
  return row;
}

// Whether d holds a result: the sums of an item in one portion, or of all portions if this one is the last to arrive.
__device__ __forceinline__ bool is_result(
    const MultiplyArgs& args, const Item& item, int row, const Consumer& at, float (&d)[ACCUMULATORS]) {
  if (item.slot >= 0) {
    int tiles = args.tiles * args.batches, first = args.first_slot[item.group];
    int place = (first * tiles + item.tile) * 2 + at.half;
    float4* parts = args.parts + (long long)place * (ACCUMULATORS / 4 * 128);
    bool last = sum_of_portions(
        d, parts, item.slot - first, args.slot_counts[item.group], tiles * 2, args.arrivals + place, at.shared, at.half);
    if (!last) return false;
  }
#if BLOCK < 64
  float check = 0.0f;
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) check = fmaf(d[i], 0.0f, check);
  if (any_of_warpgroup(1 + at.half, check != 0.0f) && !(WITHOUT & WITHOUT_LOADS)) {  // NaN differs from everything
    strictly(args, item, row, at.half, threadIdx.x & 127);
    return false;
  }
#endif
  return true;
}

__device__ __forceinline__ void run_consumer(const MultiplyArgs& args, Shared* shared, u32 base, int half) {
  int t = threadIdx.x & 127;
  Consumer at = {shared, base, half, t >> 5, t & 31, {0, 0}, -1};
  Known known = {};
  float d[ACCUMULATORS];
  LateChunks late;
  late.clear();
  Item item = next_item(shared, known.place());
  while (item.group >= 0) {
    walk(item, at, d, args.never, [&]() { late.store_next(args, at, known); });
    late.store_all(args, at, known);  // an item of few stages
    int row = leave_item(item, at, known);
#if LATE_STORES
    if ((!args.addend || IS_GATED) && item.slot < 0) {
      late.keep(args, at, item, row - at.warp % STORING * 16);
      RowBias bias = bias_of(args, at, row);
      item = next_item(shared, known.place());  // while the last products run
      at.let_go();
      late.take(args, d, bias);
      continue;
    }
#endif
    at.let_go();
    if (is_result(args, item, row, at, d)) store_tile(args, item, row, at, d, known);
    late.clear();
    item = next_item(shared, known.place());
  }
  late.store_all(args, at, known);
  if (is_storing(at)) stores_done();
}
