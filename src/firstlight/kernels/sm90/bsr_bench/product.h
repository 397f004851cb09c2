// One product on the GPU: its data, its lists, its tensor maps, and the launch.
#pragma once

#include "check.cuh"
#include "lists.h"
#include "maps.h"

struct Gpu {
  std::string name;
  int multiprocessors;
  double clock_hz, copy_bytes_s;  // highest clock; a copy inside memory, reading and writing counted
};

struct Traffic {
  double to_shared_bytes;  // tiles out of L2
  double memory_bytes;     // W, X and the result once each; X turned over where it is
  double issued_flop;      // with the zeros that complete 64 rows at blocks of 16 and 32, and the last tile of tokens
};

struct Product {
  Options options;
  Pattern pattern;
  const Build* build;
  Call call = {};
  u16 *source = nullptr, *columns_of_x = nullptr;  // X as the caller has it, and as [k, n] for the check
  int *row_starts = nullptr, *block_columns = nullptr;
  bool turns = false;
  Traffic traffic = {};
  float scale = 1.0f;

  u64 elements() const { return (u64)options.m * options.n; }
  double flop() const { return 2.0 * pattern.entries() * options.block * options.block * options.n; }
  void start() const {
    if (turns) ok(turn_over(source, const_cast<u16*>(call.dense), options.n, options.k, call.pitch), "turning X");
    ok(build->start(call), "the launch");
  }
};

inline void make_data(Product& made) {
  const Options& o = made.options;
  u64 count = (u64)made.pattern.entries() * o.block * o.block, dense = (u64)o.k * o.n;
  made.scale = 1.0f / sqrtf((float)std::max(1.0, o.density * o.k));
  u16* values = room<u16>(count);
  Fill weights = {2ull * o.seed + 1, made.scale, o.bf16}, tokens = {2ull * o.seed + 2, 1.0f, o.bf16};
  fill<<<1024, 256>>>(values, count, weights, 0, 0);
  made.columns_of_x = made.source = room<u16>(dense);
  fill<<<1024, 256>>>(made.columns_of_x, dense, tokens, 0, 0);
  if (o.linear) {
    made.source = room<u16>(dense);
    fill<<<1024, 256>>>(made.source, dense, tokens, (u64)o.k, (u64)o.n);
  }
  ok(cudaGetLastError(), "filling the operands");
  made.call.values = values;
  made.call.dense = made.source;
  made.call.pitch = o.n;
  made.turns = o.linear && o.block < 64;
  if (made.turns) {
    made.call.pitch = (o.n + 63) / 64 * 64;
    made.call.dense = room<u16>((u64)o.k * made.call.pitch);
  }
  made.call.out = room<u16>(made.elements());
  ok(cudaMemset(made.call.out, 0xFF, 2 * made.elements()), "poisoning the result");  // NaN: what is not written shows
}

inline void make_maps(Product& made) {
  const Options& o = made.options;
  Call& call = made.call;
  typedef cuuint64_t U;
  U b = (U)o.block, n = (U)o.n, k = (U)o.k, m = (U)o.m, pitch = (U)call.pitch;
  U stored = (U)std::max(1, made.pattern.entries());
  unsigned edge = o.block < 64 ? o.block : 64, tokens = (unsigned)made.build->tokens;
  encode_map(call.maps[0], call.values, o.bf16, {{b, b, stored}, {2 * b, 2 * b * b}, {edge, (unsigned)b, 1}});
  call.boxes = 1;
  Boxes x;
  if (o.linear && !made.turns) x = {{k, n, 1, 1}, {2 * k, 2 * k * n, 2 * k * n}, {64, tokens, 1, 1}};
  else if (pitch % 64 == 0)
    x = {{64, k, pitch / 64, 1}, {2 * pitch, 128, 2 * k * pitch}, {64, edge, tokens / 64, 1}};
  else {
    x = {{n, k, 1, 1}, {2 * n, 2 * k * n, 2 * k * n}, {64, edge, 1, 1}};
    call.boxes = (int)tokens / 64;
  }
  encode_map(call.maps[1], call.dense, o.bf16, x);
  U inner = o.linear ? m : n, outer = o.linear ? n : m;
  encode_map(call.maps[2], call.out, o.bf16, {{inner, outer, 1}, {2 * inner, 2 * m * n}, {o.linear ? edge : 64u, o.linear ? 64u : 16u, 1}});
}

inline void make_lists(Product& made, const Gpu& gpu) {
  const Options& o = made.options;
  Call& call = made.call;
  int tokens = made.build->tokens;
  Steps steps = steps_of(made.pattern, o.block);
  call.tiles = (o.n + tokens - 1) / tokens;
  Portions portions = portions_of(steps, portion_limit(steps, o.block, call.tiles, tokens, gpu.multiprocessors));
  call.columns = on_device<int>(steps.columns), call.members = on_device<int>(steps.members);
  call.starts = on_device<int>(steps.starts), call.portions = on_device<int>(portions.items);
  call.block_rows = on_device<int>(steps.rows);
  call.first_slot = on_device<int>(portions.first_slot), call.slot_counts = on_device<int>(portions.slot_counts);
  size_t sums = (size_t)portions.slots * call.tiles;
  call.parts = room<float>(sums * 128 * tokens);
  call.arrivals = room<int>(2 * sums + 1), call.queue = room<int>(2);
  ok(cudaMemset(call.arrivals, 0, sizeof(int) * (2 * sums + 1)), "clearing");
  ok(cudaMemset(call.queue, 0, 2 * sizeof(int)), "clearing");
  call.portions_count = (int)portions.items.size();
  call.two_windows = o.block == 128 && o.density < 0.2;  // the rule of sm90/multiply_plan.py
  call.super_tile = o.block == 128 && !call.two_windows ? 4 : 2;
  call.rows = o.m, call.cols = o.k, call.n = o.n;
  call.grid = (int)std::min<int64_t>((int64_t)call.portions_count * call.tiles, gpu.multiprocessors);
  double w = 2.0 * made.pattern.entries() * o.block * o.block, x = 2.0 * o.k * o.n, y = 2.0 * o.m * o.n;
  double high = o.block == 128 ? 128 : 64;
  // a tile of X for each union column, each stored block once for each tile of tokens
  made.traffic.to_shared_bytes = (double)steps.used * o.block * 2.0 * o.n + w * call.tiles;
  made.traffic.memory_bytes = w + x + y + (made.turns ? 2.0 * x : 0.0);
  made.traffic.issued_flop = 2.0 * (double)steps.halves * high * o.block * call.tiles * tokens;
}

inline Product make_product(const Options& options, const Build* build, const Gpu& gpu) {
  Product made;
  made.options = options;
  made.build = build;
  auto blocks = [&](int size) { return (size + options.block - 1) / options.block; };
  made.pattern = random_pattern(blocks(options.m), blocks(options.k), options.density, options.seed);
  made.row_starts = on_device<int>(made.pattern.starts), made.block_columns = on_device<int>(made.pattern.columns);
  make_data(made);
  make_lists(made, gpu);
  make_maps(made);
  ok(build->allow(), "allowing the kernel its shared memory");
  return made;
}
