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
  if (WITHOUT & WITHOUT_STORES) return;
  int x = OUT_BY_TOKEN ? row : token, y = OUT_BY_TOKEN ? token : row;
  if (args.two_windows) store_box_3d_passing(&args.y, part_of(at, from), x, y, batch);
  else store_box_3d(&args.y, part_of(at, from), x, y, batch);
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
  __device__ __forceinline__ void keep(const Item& item, int first_row) {
    row = first_row, batch = item.batch, place = item.first;
  }
  __device__ __forceinline__ void take(const float (&d)[ACCUMULATORS]) {
#pragma unroll
    for (int i = 0; i < 16 * CHUNKS; i++) pairs[i] = packed(d[2 * i], d[2 * i + 1]);
    place += CHUNKS;
  }
  template <int c> __device__ __forceinline__ void store(const MultiplyArgs& args, const Consumer& at) const {
    u32 room = at.base + STAGES * STAGE_BYTES + at.half * STORE_BYTES + c % STORE_CHUNKS * CHUNK_BYTES;
    if (is_storing(at)) stores_read<STORE_CHUNKS - 1>();
    meet_to_store(at);
#pragma unroll
    for (int strip = 0; strip < 4; strip++) {
      const u32* four = &pairs[(c * 4 + strip) * 4];
      u32 r[4] = {four[0], four[1], four[2], four[3]};
      store_strip(room + strip_offset(at.warp, at.lane, strip), r);
    }
    publish_shared();
    meet_to_store(at);
    if (is_storing(at)) {
      store_chunk(args, at, room, row, (place & ~7) + c * 64, batch);
      commit_stores();
    }
  }
  // The next one, if any.
  __device__ __forceinline__ void store_next(const MultiplyArgs& args, const Consumer& at) {
    int left = waiting();
    if (left == 0) return;
    if (left == 4) store<0>(args, at);
    else if (left == 3) store<1>(args, at);
    else if (left == 2) store<2>(args, at);
    else store<3>(args, at);
    place--;
  }
  __device__ __forceinline__ void store_all(const MultiplyArgs& args, const Consumer& at) {
    while (waiting()) store_next(args, at);
  }
#else
  __device__ __forceinline__ void clear() {}
  __device__ __forceinline__ void store_next(const MultiplyArgs&, const Consumer&) {}
  __device__ __forceinline__ void store_all(const MultiplyArgs&, const Consumer&) {}
#endif
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
  for (int c = 0; c < CHUNKS; c++) {
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
