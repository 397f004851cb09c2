// One build of the product kernel, by -DBLOCK, -DBF16, -DTOKENS and -DLINEAR: the sources that the library compiles at run
// time, unchanged, with a host function around them.
#include <cstring>

#include "call.h"

#define X_BY_TOKEN (LINEAR && BLOCK >= 64)
#define OUT_BY_TOKEN LINEAR
#define TURNED 0
#if TOKENS == 256
#define STAGES 4
#define STORE_CHUNKS 2
#else
#define STAGES 8
#define STORE_CHUNKS 1
#endif

#define NAMED_(block, bf16, tokens, linear) product_##block##_##bf16##_##tokens##_##linear
#define NAMED(block, bf16, tokens, linear) NAMED_(block, bf16, tokens, linear)
#define multiply NAMED(BLOCK, BF16, TOKENS, LINEAR)  // the kernel has C linkage: every build needs another name

namespace KERNEL_NAME(BLOCK, BF16, TOKENS, LINEAR) {
#include "multiply.cu"

constexpr int SHARED_BYTES = BARRIERS_AT + 1024;
static_assert(sizeof(Shared) <= 1024, "the barriers have 1024 bytes");

cudaError_t allow() {
  return cudaFuncSetAttribute(multiply, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
}

cudaError_t start(const Call& call) {
  MultiplyArgs args = {};
  memcpy(&args.w, call.maps[0], 128);
  memcpy(&args.x, call.maps[1], 128);
  memcpy(&args.y, call.maps[2], 128);
  args.c = args.y;
  args.columns = call.columns, args.members = call.members, args.portions = (const int4*)call.portions;
  args.block_rows = call.block_rows;
  args.starts = call.starts, args.first_slot = call.first_slot, args.slot_counts = call.slot_counts;
  args.queue = call.queue, args.parts = (float4*)call.parts, args.arrivals = call.arrivals;
  args.values = call.values, args.dense = call.dense, args.out = call.out;
  args.portions_count = call.portions_count, args.tiles = call.tiles, args.batches = 1;
  args.super_tile = call.super_tile, args.two_windows = call.two_windows;
  args.rows = call.rows, args.cols = call.cols, args.n = call.n;
  args.pitch = call.pitch, args.out_pitch = call.n, args.boxes = call.boxes, args.plain = 1, args.alpha = 1.0f;
  multiply<<<call.grid, THREADS, SHARED_BYTES>>>(args);
  return cudaGetLastError();
}
}

extern const Build BUILD_NAME(BLOCK, BF16, TOKENS, LINEAR);
const Build BUILD_NAME(BLOCK, BF16, TOKENS, LINEAR) = {
    BLOCK, BF16, TOKENS, LINEAR, KERNEL_NAME(BLOCK, BF16, TOKENS, LINEAR)::allow,
    KERNEL_NAME(BLOCK, BF16, TOKENS, LINEAR)::start};
