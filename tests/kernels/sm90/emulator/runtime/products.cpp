// wgmma. Each warp's 16 rows are multiplied at some moment after its issue and before a wait covers it: operands in
// shared memory and in registers are read then. The accumulators are out of the threads' reach until that wait.
#include "block.h"

namespace emulator {

namespace {

constexpr int ROWS = 16, DEPTH = 16;  // of a warp's share

struct Descriptor {
  u32 start, leading, stride, span;  // span of the swizzle in bytes
};

Descriptor decoded(u64 bits) {
  constexpr u32 spans[] = {0, 128, 64, 32};
  auto field = [&](int at) { return (u32)(bits >> at & 0x3FFF) << 4; };
  return {field(0), field(16), field(32), spans[bits >> 62]};
}

// Where element (m or n, k) lies; k contiguous, or turned: m or n contiguous. Swizzles go by the address itself.
u32 element_at(const Descriptor& at, bool turned, int line, int k) {
  if (at.span == 0) return at.start + line / 8 * at.stride + k / 8 * at.leading + line % 8 * 16 + k % 8 * 2;
  u32 place;
  if (turned) {
    int width = (int)at.span / 2;
    place = at.start + line / width * at.leading + k / 8 * at.stride + k % 8 * at.span + line % width * 2;
  } else {
    place = at.start + line / 8 * at.stride + line % 8 * at.span + k * 2;
  }
  return place ^ (place >> 7 & (at.span / CHUNK - 1)) << 4;
}

struct Wide {
  float of[2][65536];  // float16, bfloat16
  Wide() {
    for (u32 bits = 0; bits < 65536; bits++) {
      u32 sign = (bits & 0x8000) << 16, size = bits & 0x7FFF, wide = bits << 16;
      memcpy(&of[1][bits], &wide, 4);
      if (size >= 0x7C00) wide = sign | 0x7F800000 | (size & 0x3FF) << 13;
      else wide = sign | ((size << 13) + 0x38000000);
      memcpy(&of[0][bits], &wide, 4);
      if (size < 0x400) of[0][bits] = (sign ? -1.0f : 1.0f) * (float)size * 0x1p-24f;
    }
  }
};
const Wide wide;

struct Target {
  float* to;
  int across, down;  // steps of a line and of k
};

// Lines `first` and further of an operand, DEPTH of each, 8 elements at a time.
void gather(
    Block& block, Descriptor at, bool turned, int first, int lines, const float* table, Target target, Here here) {
  for (int one = 0; one < (turned ? DEPTH : lines); one++)
    for (int two = 0; two < (turned ? lines : DEPTH); two += 8) {
      int line = turned ? two : one, k = turned ? one : two;
      u32 place = element_at(at, turned, first + line, k);
      if (place + CHUNK > block.shared_end) fault(format("an operand at %#x is not in shared memory", place), here);
      u16 eight[8];
      memcpy(eight, block.engines + place, sizeof(eight));
      float* to = target.to + line * target.across + k * target.down;
      int step = turned ? target.across : target.down;
      for (int i = 0; i < 8; i++) to[i * step] = table[eight[i]];
    }
}

// A as the lanes hold it: registers 0 and 1 of rows lane / 4 and 8 further, 2 and 3 the same 8 further in k.
void gather_registers(const Issued& issued, float* a) {
  const float* table = wide.of[issued.lanes[0].bf16];
  for (int lane = 0; lane < LANES; lane++)
    for (int i = 0; i < 4; i++) {
      const EmulatorRegister& given = issued.lanes[lane].registers[i];
      u32 both = given.at ? *given.at : given.kept;
      float* to = a + (lane / 4 + (i & 1) * 8) * DEPTH + lane % 4 * 2 + (i >> 1) * 8;
      to[0] = table[both & 0xFFFF], to[1] = table[both >> 16];
    }
}

// Calls visit(number in d, number in the flight's [16][columns]) for what one lane holds.
template <class Visit> void each_accumulator(int lane, int columns, Visit visit) {
  for (int i = 0; i < columns / 2; i++)
    visit(i, (lane / 4 + (i >> 1 & 1) * 8) * columns + (i >> 2) * 8 + lane % 4 * 2 + (i & 1));
}

bool is_poison(float number) { return !memcmp(&number, &launch->poison, sizeof(number)); }

void require_untouched(const Flight& flight, Here here) {
  for (int lane = 0; lane < LANES; lane++)
    for (int i = 0; i < flight.columns / 2; i++)
      if (!is_poison(flight.d[lane][i])) fault("accumulators were written while the tensor cores held them", here);
}

std::shared_ptr<Flight> take_off(Warp& warp, const Issued& issued) {
  const EmulatorProduct& first = issued.lanes[0];
  for (auto& flight : warp.flights)
    if (flight->d[0] == first.d && flight->columns == first.columns) {
      require_untouched(*flight, issued.at);
      return flight;
    }
  if (!warp.fenced) fault("wgmma_fence() is missing before this product", issued.at);
  auto flight = std::make_shared<Flight>();
  flight->columns = first.columns;
  flight->numbers.assign(ROWS * first.columns, 0.0f);
  for (int lane = 0; lane < LANES; lane++) {
    float* d = flight->d[lane] = issued.lanes[lane].d;
    each_accumulator(lane, first.columns, [&](int i, int place) {
      flight->numbers[place] = d[i];
      d[i] = launch->poison;
    });
  }
  warp.flights.push_back(flight);
  return flight;
}

void land(Warp& warp, size_t end, Here here) {
  for (size_t i = warp.flights.size(); i-- > 0;) {
    Flight& flight = *warp.flights[i];
    if (flight.last >= end) continue;
    require_untouched(flight, here);
    for (int lane = 0; lane < LANES; lane++)
      each_accumulator(lane, flight.columns, [&](int n, int place) { flight.d[lane][n] = flight.numbers[place]; });
    warp.flights.erase(warp.flights.begin() + i);
  }
}

void require_alike(Fiber& me, Warp& warp, const Issued& issued) {
  const EmulatorProduct& first = issued.lanes[0];
  for (const auto& lane : issued.lanes)
    if (lane.b != first.b || lane.a != first.a) fault("the lanes of a warp give different descriptors", issued.at);
  auto& known = me.block->issued_by_warpgroup[warp.number / WARPGROUP];
  size_t number = warp.issued();
  if (known.size() == number) known.emplace_back(first.a, first.b);
  else if (known[number] != std::make_pair(first.a, first.b))
    fault("the warps of a warpgroup issue different products", issued.at);
}

}  // namespace

void execute_product(Block& block, Warp& warp) {
  Issued& issued = warp.products[warp.executed - warp.dropped];
  const EmulatorProduct& first = issued.lanes[0];
  int columns = first.columns, row = warp.number % WARPGROUP * ROWS;
  const float* table = wide.of[first.bf16];
  static std::vector<float> b;
  float a[ROWS * DEPTH];
  b.resize(DEPTH * columns);
  if (first.from_registers) gather_registers(issued, a);
  else gather(block, decoded(first.a), first.a_turned, row, ROWS, table, {a, DEPTH, 1}, issued.at);
  gather(block, decoded(first.b), first.b_turned, 0, columns, table, {b.data(), 1, columns}, issued.at);
  float* d = issued.flight->numbers.data();
  if (!first.accumulate) memset(d, 0, sizeof(float) * ROWS * columns);
  for (int m = 0; m < ROWS; m++)
    for (int k = 0; k < DEPTH; k++) {
      float factor = a[m * DEPTH + k];
      for (int n = 0; n < columns; n++) d[m * columns + n] += factor * b[k * columns + n];
    }
  warp.executed++;
  block.products.wake();
  launch->counts[2]++;
  if (warp.executed == warp.issued()) {
    warp.dropped += warp.products.size();
    warp.products.clear();
  }
}

}  // namespace emulator

using namespace emulator;

extern "C" {

void emulator_fence_products(Here here) {
  together(~0u, here, [&](auto*) { warp_of(now()).fenced = true; });
}

void emulator_multiply(const EmulatorProduct* product, Here here) {
  Fiber& me = now();
  me.given = product;
  together(~0u, here, [&](std::unique_ptr<Fiber>* lanes) {
    Warp& warp = warp_of(me);
    Issued issued;
    for (int lane = 0; lane < LANES; lane++) issued.lanes[lane] = *(const EmulatorProduct*)lanes[lane]->given;
    issued.at = here;
    issued.urgency = some_urgency();
    require_alike(me, warp, issued);
    issued.flight = take_off(warp, issued);
    issued.flight->last = warp.issued();
    issued.flight->at = here;
    warp.products.push_back(std::move(issued));
    me.block->products.wake();
  });
}

void emulator_commit_products(Here here) {
  together(~0u, here, [&](auto*) { warp_of(now()).group_ends.push_back(warp_of(now()).issued()); });
}

// The four warps' shares must all be done: one thread then speaks for the warpgroup.
void emulator_wait_products(int left, Here here) {
  together(~0u, here, [](auto*) {});
  Fiber& me = now();
  Block& block = *me.block;
  Warp& warp = warp_of(me);
  if (warp.group_ends.size() > (size_t)left) {
    size_t end = warp.group_ends[warp.group_ends.size() - 1 - left], first = warp.number / WARPGROUP * WARPGROUP;
    auto waits = [&] {
      for (size_t w = first; w < first + WARPGROUP; w++)
        if (block.warps[w].executed < end) return true;
      return false;
    };
    while (waits()) sleep_in(block.products, here, format("products of warps %zu to %zu", first, first + 3));
    together(~0u, here, [&](auto*) { land(warp, end, here); });
  }
  together(~0u, here, [&](auto*) { warp.fenced = false; });
}
}
