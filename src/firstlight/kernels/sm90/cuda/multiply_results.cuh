// A part of multiply.cu: sums become the result and leave, at once or under the next item's products.
#pragma once

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

__device__ __forceinline__ void load_strip(u32 from, u32 (&r)[4]) {
#if OUT_BY_TOKEN
  load_matrices_turned(from, r);
#else
  load_matrices(from, r);
#endif
}

// f[0], f[1], f[4], f[5] are of the lower row, the others of the one 8 further down.
__device__ __forceinline__ void finish_strip(const MultiplyArgs& args, float (&f)[8], u32 at, float low, float high) {
  u32 before[4] = {0, 0, 0, 0};
  if (args.addend && !IS_GATED) load_strip(at, before);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    float bias = i & 2 ? high : low;
    float added = number((u16)(before[i >> 1] >> (i & 1) * 16));
    f[i] = args.alpha * f[i] + args.beta * added + bias;
  }
  if (args.activation) {
    Eight all;
#pragma unroll
    for (int i = 0; i < 8; i++) all.v[i] = f[i];
    all = activated_eight(all, args.activation);
#pragma unroll
    for (int i = 0; i < 8; i++) f[i] = all.v[i];
  }
}

// Rounded results times what lies at their place.
__device__ __forceinline__ void gate_strip(u32 (&r)[4], u32 at) {
  u32 gate[4];
  load_strip(at, gate);
#pragma unroll
  for (int i = 0; i < 4; i++) r[i] = multiplied_pair(r[i], gate[i]);
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
  if (WITHOUT & WITHOUT_STORES) return;
  int x = OUT_BY_TOKEN ? row : token, y = OUT_BY_TOKEN ? token : row;
  if (args.two_windows) store_box_3d_passing(&args.y, part_of(at, from), x, y, batch);
  else store_box_3d(&args.y, part_of(at, from), x, y, batch);
}

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

// The bias of the two rows that a lane has sums of.
struct RowBias {
  float low, high;
};

__device__ __forceinline__ RowBias bias_of(const MultiplyArgs& args, const Consumer& at, int first_row) {
  int own = first_row + (at.lane >> 2);
  RowBias bias = {0.0f, 0.0f};
  if (args.bias) {
    if (own < args.rows) bias.low = number(args.bias[own]);
    if (own + 8 < args.rows) bias.high = number(args.bias[own + 8]);
  }
  return bias;
}

// By a thread that stores: its part of a chunk's place in the addend goes to where the chunk will be.
__device__ __forceinline__ void fetch_addend(
    const MultiplyArgs& args, const Consumer& at, u32 to, int row, int token, int batch) {
  u32 barrier = shared_address(&at.shared->addend[at.half]);
  barrier_expect(barrier, STORED_BYTES);
  load_box_3d(part_of(at, to), &args.c, barrier, OUT_BY_TOKEN ? row : token, OUT_BY_TOKEN ? token : row, batch);
}

__device__ __forceinline__ void wait_addend(const Consumer& at, Known& known) {
  barrier_wait(shared_address(&at.shared->addend[at.half]), known.addend());
  known.turn_addend();
}

__device__ __forceinline__ u32 room_of(const Consumer& at, int c) {
  return at.base + STAGES * STAGE_BYTES + at.half * STORE_BYTES + c % STORE_CHUNKS * CHUNK_BYTES;
}

// A result as 16 bits, in registers until the products of the next item run; then stored chunk by chunk.
struct LateChunks {
#if LATE_STORES
  u32 pairs[16 * CHUNKS];
  int row, batch;
  int place;  // the item's first token, a multiple of 256, plus the number of chunks to be stored: the last ones

  __device__ __forceinline__ int waiting() const { return place & 7; }
  // Nothing waits: up to here the compiler need not keep registers for it.
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 16 * CHUNKS; i++) pairs[i] = 0;
    place = 0;
  }
  // Of a chunk, what it is multiplied by: fetched one chunk ahead, once all that store together have the one before.
  __device__ __forceinline__ void fetch_gate(const MultiplyArgs& args, const Consumer& at, int c) const {
    if (!is_storing(at)) return;
    stores_read<STORE_CHUNKS - 1>();
    fetch_addend(args, at, room_of(at, c), row, (place & ~7) + c * 64, batch);
  }
  __device__ __forceinline__ void keep(const MultiplyArgs& args, const Consumer& at, const Item& item, int first_row) {
    row = first_row, batch = item.batch, place = item.first;
    if (IS_GATED) fetch_gate(args, at, 0);
  }
  __device__ __forceinline__ void take(const MultiplyArgs& args, float (&d)[ACCUMULATORS], const RowBias& bias) {
    if (!args.plain) {
#pragma unroll
      for (int i = 0; i < ACCUMULATORS; i++) d[i] = fmaf(args.alpha, d[i], i & 2 ? bias.high : bias.low);
      activate(d, args.activation, args.never);
    }
#pragma unroll
    for (int i = 0; i < 16 * CHUNKS; i++) pairs[i] = packed(d[2 * i], d[2 * i + 1]);
    place += CHUNKS;
  }
  template <int c>
  __device__ __forceinline__ void store(const MultiplyArgs& args, const Consumer& at, Known& known) const {
    u32 room = room_of(at, c);
    if (IS_GATED) {
      wait_addend(at, known);
    } else {
      if (is_storing(at)) stores_read<STORE_CHUNKS - 1>();
      meet_to_store(at);
    }
#pragma unroll
    for (int strip = 0; strip < 4; strip++) {
      const u32* four = &pairs[(c * 4 + strip) * 4];
      u32 r[4] = {four[0], four[1], four[2], four[3]}, to = room + strip_offset(at.warp, at.lane, strip);
      if (IS_GATED) gate_strip(r, to);
      store_strip(to, r);
    }
    publish_shared();
    meet_to_store(at);
    if (is_storing(at)) {
      store_chunk(args, at, room, row, (place & ~7) + c * 64, batch);
      commit_stores();
    }
    if (IS_GATED && c + 1 < CHUNKS) fetch_gate(args, at, c + 1);
  }
  // The next one, if any.
  __device__ __forceinline__ void store_next(const MultiplyArgs& args, const Consumer& at, Known& known) {
    int left = waiting();
    if (left == 0) return;
    if (left == 4) store<0>(args, at, known);
    else if (left == 3) store<1>(args, at, known);
    else if (left == 2) store<2>(args, at, known);
    else store<3>(args, at, known);
    place--;
  }
  __device__ __forceinline__ void store_all(const MultiplyArgs& args, const Consumer& at, Known& known) {
    while (waiting()) store_next(args, at, known);
  }
#else
  __device__ __forceinline__ void clear() {}
  __device__ __forceinline__ void store_next(const MultiplyArgs&, const Consumer&, Known&) {}
  __device__ __forceinline__ void store_all(const MultiplyArgs&, const Consumer&, Known&) {}
#endif
};

__device__ __forceinline__ void store_tile(
    const MultiplyArgs& args, const Item& item, int first_row, Consumer& at, const float (&d)[ACCUMULATORS],
    Known& known) {
  int row = first_row - at.warp % STORING * 16;
  RowBias bias = bias_of(args, at, first_row);
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    u32 chunk = room_of(at, c);
    if (c == 0 || STORE_CHUNKS < CHUNKS) {  // what left this room before has been read
      if (is_storing(at)) stores_read<STORE_CHUNKS < CHUNKS ? STORE_CHUNKS - 1 : 0>();
      meet_to_store(at);
    }
    if (args.addend) {
      if (is_storing(at)) fetch_addend(args, at, chunk, row, item.first + c * 64, item.batch);
      wait_addend(at, known);
    }
#pragma unroll
    for (int strip = 0; strip < 4; strip++) {
      float f[8];
#pragma unroll
      for (int i = 0; i < 8; i++) f[i] = d[(c * 8 + strip * 2) * 4 + i];
      u32 to = chunk + strip_offset(at.warp, at.lane, strip);
      if (!args.plain) finish_strip(args, f, to, bias.low, bias.high);
      u32 r[4] = {packed(f[0], f[1]), packed(f[2], f[3]), packed(f[4], f[5]), packed(f[6], f[7])};
      if (IS_GATED) gate_strip(r, to);
      store_strip(to, r);
    }
    if (c == CHUNKS - 1 || STORE_CHUNKS < CHUNKS) {
      publish_shared();
      meet_to_store(at);
      if (is_storing(at)) {
#pragma unroll
        for (int i = STORE_CHUNKS < CHUNKS ? c : 0; i <= c; i++)
          store_chunk(args, at, room_of(at, i), row, item.first + i * 64, item.batch);
        commit_stores();
      }
    }
  }
}
