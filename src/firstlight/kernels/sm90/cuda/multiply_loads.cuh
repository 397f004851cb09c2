// A part of multiply.cu: the queue's warp, which takes items, and the warps that load their stages.
#pragma once

// ---- work: windows of `super_tile` token tiles, inside a window the portions longest first, then its tiles. What a
// window reads of X stays in L2 while the rows of W pass by.
struct Spot {
  int window, inside;  // inside -1: none
};

// Two windows at a time: the first half of a window's items takes turns with the second half of the last one's. X of the
// one comes from memory while that of the other is read again from L2.
__device__ __forceinline__ Spot spot_of(const MultiplyArgs& args, int number, int tiles) {
  int items = args.portions_count * args.super_tile;
  if (!args.two_windows) return {number / items, number % items};
  int first_half = args.portions_count * min(args.super_tile, tiles) / 2;
  if (number < first_half) return {0, number};
  int window = (number - first_half) / items, turn = (number - first_half) % items, early = turn & 1;
  window += early;
  int half = args.portions_count * min(args.super_tile, tiles - window * args.super_tile) / 2;
  if (early && turn / 2 >= half) return {window, -1};  // there is no further window, or it is a narrow one
  return {window, turn / 2 + (early ? 0 : half)};
}

__device__ __forceinline__ void run_queue(const MultiplyArgs& args, Shared* shared, u32 rank, int lane) {
  int tiles = args.tiles * args.batches / CLUSTER;  // of all thread blocks of a cluster
  int total = args.portions_count * tiles;
  if (args.two_windows) total += args.portions_count * min(args.super_tile, tiles) / 2;
  Place place = {0, 1}, numbers = {0, rank == 0};
  u32 wanted = 0;
  for (int number = first_number(); number < total; number = next_number(args.queue, shared, numbers, rank, lane)) {
    Spot spot = spot_of(args, number, tiles);
    if (spot.inside < 0) continue;
    int base = spot.window * args.super_tile, width = min(args.super_tile, tiles - base);
    int tile = (base + spot.inside % width) * CLUSTER + rank;
    int4 portion = args.portions[spot.inside / width];
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
#if BLOCK == 128  // W first: in a cluster another thread block waits for it too
#if CLUSTER > 1  // each of two thread blocks loads a half of W for both
  u32 rank = cluster_rank();
  if (lane == 0)
    load_box_3d_for(stage + rank * 8192, &args.w, full, TURNED ? rank * 64 : half * 64, TURNED ? half * 64 : rank * 64, member, 3);
#elif TURNED
  if (lane < 2) load_box_3d(stage + lane * 8192, &args.w, full, lane * 64, half * 64, member);
#else
  if (lane == 0) load_box_3d(stage, &args.w, full, half * 64, 0, member);
#endif
  load_x(args, item, stage + A_BYTES, full, column * 128 + half * 64, lane);
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
  if (which == 0 && lane == 0) fetch_map(&args.w), fetch_map(&args.x), fetch_map(&args.y);
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
      if (!(WITHOUT & WITHOUT_LOADS))
        load_stage(args, item, base + place.slot * STAGE_BYTES, full, now, at, half, lane);
      if (lane == 0) {
        if (BLOCK < 128) shared->present[place.slot] = present;
        barrier_expect(full, WITHOUT & WITHOUT_LOADS ? 0 : __popc(present) * MEMBER_BYTES + tiles * X_BYTES);
      }
      __syncwarp();
      advance<STAGES>(place, LOADERS);
    }
    want_next(shared, told, 0, lane);
    next = k - stages;
  }
}
