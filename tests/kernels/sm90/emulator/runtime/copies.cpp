// The copy engine: boxes between memory and swizzled shared memory. A copy happens some time after it was asked for: a
// load in one go, before its barrier's phase ends; a store reads shared memory first and writes later.
#include "block.h"

namespace emulator {

namespace {

// A swizzle moves 16-byte chunks inside its span by the number of the 128-byte row that the address lies in.
u32 swizzled(u32 address, u32 span) {
  u32 rows = span / CHUNK;  // 8, 4, 2
  return span ? address ^ (address >> 7 & (rows - 1)) << 4 : address;
}

// Calls visit(shared address of a row, address in memory, elements before the tensor, elements inside) for each row.
template <class Visit> void each_row(const Map& map, const int* at, u32 shared, Visit visit) {
  u32 rows = 1;
  for (u32 i = 1; i < map.rank; i++) rows *= map.box[i];
  long long inner = at[0], before = std::max(0ll, -inner);
  long long inside = std::min((long long)map.box[0], (long long)map.dims[0] - inner) - before;
  for (u32 row = 0; row < rows; row++) {
    u64 address = map.address;
    bool is_inside = inside > 0;
    u32 rest = row;
    for (u32 i = 1; i < map.rank; i++) {
      long long place = (long long)at[i] + rest % map.box[i];
      rest /= map.box[i];
      if (place < 0 || place >= (long long)map.dims[i]) is_inside = false;
      else address += place * map.strides[i - 1];
    }
    address += (inner + before) * map.element;
    visit(shared + row * map.box[0] * map.element, address, (u32)before, is_inside ? (u32)inside : 0);
  }
}

u32 box_bytes(const Map& map) {
  u32 bytes = map.element;
  for (u32 i = 0; i < map.rank; i++) bytes *= map.box[i];
  return bytes;
}

void move_row(Block& block, const Map& map, u32 row, unsigned char* bytes, bool into_shared) {
  u32 size = map.box[0] * map.element;
  for (u32 at = 0; at < size; at += CHUNK) {
    u32 place = swizzled(row + at, map.swizzle), count = std::min(CHUNK, size - at);
    if (into_shared) {
      memcpy(block.memory + place, bytes + at, count);
      memcpy(block.engines + place, bytes + at, count);
    } else {
      memcpy(bytes + at, block.engines + place, count);
    }
  }
}

void load(Copy& copy) {
  Block& block = *copy.block;
  if (copy.kind == Kind::load_bytes) {
    memcpy(block.memory + copy.shared, copy.from, copy.bytes);
    memcpy(block.engines + copy.shared, copy.from, copy.bytes);
    return;
  }
  std::vector<unsigned char> bytes(copy.map.box[0] * copy.map.element);
  each_row(copy.map, copy.at, copy.shared, [&](u32 row, u64 address, u32 before, u32 inside) {
    memset(bytes.data(), 0, bytes.size());
    u32 element = copy.map.element;
    if (inside) memcpy(bytes.data() + before * element, (const void*)address, inside * element);
    move_row(block, copy.map, row, bytes.data(), true);
  });
}

void read_store(Copy& copy) {
  if (copy.to) {
    copy.held.assign(copy.block->engines + copy.shared, copy.block->engines + copy.shared + copy.bytes);
    return;
  }
  copy.held.resize(box_bytes(copy.map));
  each_row(copy.map, copy.at, copy.shared, [&](u32 row, u64, u32, u32) {
    move_row(*copy.block, copy.map, row, copy.held.data() + (row - copy.shared), false);
  });
}

void write_store(Copy& copy) {
  if (copy.to) {
    for (u32 at = 0; copy.adds && at < copy.bytes; at += 4) {
      float more, there;
      memcpy(&more, copy.held.data() + at, 4);
      memcpy(&there, (char*)copy.to + at, 4);
      there += more;
      memcpy(copy.held.data() + at, &there, 4);
    }
    memcpy(copy.to, copy.held.data(), copy.bytes);
    return;
  }
  each_row(copy.map, copy.at, copy.shared, [&](u32 row, u64 address, u32 before, u32 inside) {
    u32 element = copy.map.element;
    if (inside) memcpy((void*)address, copy.held.data() + (row - copy.shared) + before * element, inside * element);
  });
}

void forget(size_t number) {
  std::swap(launch->copies[number], launch->copies.back());
  launch->copies.pop_back();
}

Map map_at(const void* given, int rank, Here here) {
  Map map;
  memcpy(&map, given, sizeof(map));
  if (map.magic != MAP_MAGIC) fault("this is no tensor map", here);
  if ((int)map.rank != rank) fault(format("the tensor map has %u dimensions", map.rank), here);
  return map;
}

void start_load(std::unique_ptr<Copy> copy, u32 to, u32 barrier, Block& block, Here here) {
  copy->shared = to, copy->barrier = barrier, copy->block = &block, copy->here = here;
  if (!barrier_at(*copy->block, barrier, here).ready)
    fault("barriers_ready() did not follow the barrier's making", here);
  copy->urgency = some_urgency();
  launch->copies.push_back(std::move(copy));
  launch->counts[0]++;
  emulator_pause();
}

// For each thread block that gets it: at another moment in each.
void start_loads(const Copy& copy, u32 to, u32 barrier, u32 blocks, Here here) {
  if (!blocks) start_load(std::make_unique<Copy>(copy), to, barrier, *now().block, here);
  for (u32 rank = 0; blocks >> rank; rank++)
    if (blocks >> rank & 1) start_load(std::make_unique<Copy>(copy), to, barrier, in_cluster(rank, here), here);
}

}  // namespace

void execute(size_t number) {
  Copy& copy = *launch->copies[number];
  if (copy.kind == Kind::store) {
    if (!copy.was_read) {
      read_store(copy);
      copy.was_read = true;
      copy.group->unread--;
      copy.owner->stores.wake();
      copy.urgency = some_urgency();
      return;
    }
    write_store(copy);
    copy.group->unwritten--;
    copy.owner->stores.wake();
    forget(number);
    return;
  }
  load(copy);
  MBarrier& barrier = barrier_at(*copy.block, copy.barrier, copy.here);
  barrier.bytes -= copy.bytes;
  if (barrier.bytes <= -(1 << 20)) fault("2^20 bytes came that nobody announced", copy.here);
  settle(barrier);
  forget(number);
}

// All threads are gone: shared memory may be another's by now.
void finish_block(Block& block) {
  for (auto& warp : block.warps)
    if (!warp.flights.empty()) fault("the thread block ended without a wait for this product", warp.flights[0]->at);
  std::fill(block.seen_by_engines.begin(), block.seen_by_engines.end(), launch->fill);
  for (size_t i = launch->copies.size(); i-- > 0;) {
    Copy& copy = *launch->copies[i];
    if (copy.block != &block) continue;
    if (copy.kind != Kind::store) fault("the thread block ended before this load came", copy.here);
    if (!copy.was_read) execute(i);
    execute(i);
  }
  for (auto& [address, barrier] : block.barriers)
    if (barrier.bytes) fault("the thread block ended; " + barrier_text(block, address), {"end", "", 0});
}

}  // namespace emulator

using namespace emulator;

extern "C" {

void emulator_load_box(u32 to, const void* map, u32 barrier, int rank, const int* at, u32 blocks, Here here) {
  Copy copy = {};
  copy.kind = Kind::load;
  copy.map = map_at(map, rank, here);
  std::copy(at, at + rank, copy.at);
  copy.bytes = box_bytes(copy.map);
  require_shared(to, copy.bytes, 128, here);
  start_loads(copy, to, barrier, blocks, here);
}

void emulator_load_bytes(u32 to, const void* from, u32 bytes, u32 barrier, u32 blocks, Here here) {
  require_shared(to, bytes, CHUNK, here);
  if (bytes % CHUNK || (u64)from % CHUNK) fault(format("%u bytes from %p: not multiples of 16", bytes, from), here);
  Copy copy = {};
  copy.kind = Kind::load_bytes;
  copy.from = from, copy.bytes = bytes;
  start_loads(copy, to, barrier, blocks, here);
}

// A number to another thread block's shared memory: comes when it comes, and its barrier gets 4 bytes.
void emulator_tell(u32 to, u32 what, u32 barrier, u32 rank, Here here) {
  require_shared(to, sizeof(what), sizeof(what), here);
  auto copy = std::make_unique<Copy>();
  copy->kind = Kind::load_bytes;
  copy->held.resize(sizeof(what));
  memcpy(copy->held.data(), &what, sizeof(what));
  copy->from = copy->held.data(), copy->bytes = sizeof(what);
  start_load(std::move(copy), to, barrier, in_cluster(rank, here), here);
}

static void start_store(std::unique_ptr<Copy> copy, u32 from, Here here) {
  Fiber& me = now();
  copy->kind = Kind::store;
  copy->shared = from, copy->block = me.block, copy->here = here, copy->owner = &me;
  copy->group = me.open;
  copy->urgency = draw() % 2 ? draw() | LAZY : 0;
  me.open->unread++, me.open->unwritten++;
  launch->copies.push_back(std::move(copy));
  launch->counts[1]++;
  emulator_pause();
}

void emulator_store_box(const void* map, u32 from, int rank, const int* at, Here here) {
  auto copy = std::make_unique<Copy>();
  copy->map = map_at(map, rank, here);
  std::copy(at, at + rank, copy->at);
  require_shared(from, box_bytes(copy->map), 128, here);
  start_store(std::move(copy), from, here);
}

void emulator_store_bytes(void* to, u32 from, u32 bytes, int floats_added, Here here) {
  require_shared(from, bytes, CHUNK, here);
  if (bytes % CHUNK || (u64)to % CHUNK) fault(format("%u bytes to %p: not multiples of 16", bytes, to), here);
  auto copy = std::make_unique<Copy>();
  copy->to = to, copy->bytes = bytes, copy->adds = floats_added;
  start_store(std::move(copy), from, here);
}

void emulator_commit_stores() {
  Fiber& me = now();
  me.groups.push_back(me.open);
  me.open = std::make_shared<StoreGroup>();
}

void emulator_wait_stores(int left, int until_written, Here here) {
  Fiber& me = now();
  auto waits = [&] {
    for (size_t i = 0; i + left < me.groups.size(); i++)
      if (until_written ? me.groups[i]->unwritten : me.groups[i]->unread) return true;
    return false;
  };
  emulator_pause();
  while (waits()) sleep_in(me.stores, here, format("stores, all but %d groups", left));
}
}
