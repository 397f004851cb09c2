// Shared memory's addresses, mbarriers, named barriers, and the pool of registers.
#include "block.h"

namespace emulator {

namespace {

constexpr u64 MARK = 0xB0A71E00'00000000ull;  // stands in shared memory where an mbarrier is, so that overwriting shows

u64 mark_of(u32 address) { return MARK | address; }

}  // namespace

void require_shared(u32 address, u32 bytes, u32 alignment, Here here) {
  Block& block = *now().block;
  if (address < SHARED_START || address + bytes > block.shared_end)
    fault(format("%u bytes at %#x are not in shared memory, which ends at %#x", bytes, address, block.shared_end), here);
  if (address % alignment) fault(format("address %#x is not a multiple of %u", address, alignment), here);
}

MBarrier& barrier_at(Block& block, u32 address, Here here) {
  auto found = block.barriers.find(address);
  if (found == block.barriers.end()) fault(format("there is no mbarrier at %#x", address), here);
  u64 mark;
  memcpy(&mark, block.memory + address, sizeof(mark));
  if (mark != mark_of(address)) fault(format("the mbarrier at %#x was overwritten", address), here);
  return found->second;
}

void settle(MBarrier& barrier) {
  if (barrier.pending || barrier.bytes) return;
  barrier.phase++;
  barrier.pending = barrier.arrivals;
  barrier.waiters.wake();
}

Block& in_cluster(u32 rank, Here here) {
  u32 wanted = now().block->number / launch->cluster * launch->cluster + rank;
  for (auto& block : launch->blocks)
    if (rank < launch->cluster && block->number == wanted) return *block;
  fault(format("thread block %u of the cluster is not there, or has ended", rank), here);
}

std::string barrier_text(Block& block, u32 address) {
  MBarrier& barrier = block.barriers[address];
  return format("mbarrier at %#x in phase %u, %u of %u arrivals and %lld bytes missing", address, barrier.phase,
                barrier.pending, barrier.arrivals, barrier.bytes);
}

}  // namespace emulator

using namespace emulator;

extern "C" {

unsigned char* emulator_dynamic_shared() { return now().block->memory + SHARED_START; }

void* emulator_static_shared(const char* declaration, size_t bytes, size_t alignment) {
  Block& block = *now().block;
  auto found = block.statics.find(declaration);
  if (found == block.statics.end()) {
    u32 address = (u32)((block.shared_end + alignment - 1) / alignment * alignment);
    block.shared_end = address + (u32)bytes;
    Here here = {"__shared__", declaration, 0};
    if (block.shared_end > block.unpublished.size() * CHUNK || block.shared_end > MOST_SHARED)
      fault(format("%u bytes of shared memory are too many", block.shared_end - SHARED_START), here);
    found = block.statics.emplace(declaration, address).first;
  }
  return block.memory + found->second;
}

u32 emulator_shared_address(const void* pointer, Here here) {
  Block& block = *now().block;
  auto* byte = (const unsigned char*)pointer;
  if (byte < block.memory + SHARED_START || byte >= block.memory + block.shared_end)
    fault("the pointer is not to shared memory", here);
  return (u32)(byte - block.memory);
}

void emulator_barrier_init(u32 address, u32 arrivals, Here here) {
  require_shared(address, 8, 8, here);
  Block& block = *now().block;
  if (arrivals == 0 || arrivals >= 1 << 20) fault(format("%u arrivals", arrivals), here);
  MBarrier& barrier = block.barriers[address];
  if (!barrier.waiters.who.empty()) fault("an mbarrier that threads wait at is made anew", here);
  barrier = MBarrier();
  barrier.arrivals = barrier.pending = arrivals;
  barrier.made_by = &now();
  u64 mark = mark_of(address);
  memcpy(block.memory + address, &mark, sizeof(mark));
  emulator_pause();
}

void emulator_barriers_ready() {
  for (auto& [address, barrier] : now().block->barriers)
    if (barrier.made_by == &now()) barrier.ready = true;
  emulator_pause();
}

static void arrive(Block& block, u32 address, u32 bytes, Here here) {
  now().at = here;
  MBarrier& barrier = barrier_at(block, address, here);
  barrier.bytes += bytes;
  if (barrier.bytes >= 1 << 20) fault(format("%lld bytes announced; fewer than 2^20 can be", barrier.bytes), here);
  if (barrier.pending == 0) fault(barrier_text(block, address) + ": one more arrival than it counts", here);
  barrier.pending--;
  settle(barrier);
  emulator_pause();
}

// An arrival that announces bytes, or none.
void emulator_barrier_arrive(u32 address, u32 bytes, Here here) {
  emulator_pause();
  arrive(*now().block, address, bytes, here);
}

u32 emulator_cluster_rank() { return now().block->number % launch->cluster; }

void emulator_barrier_arrive_in(u32 address, u32 rank, Here here) {
  emulator_pause();
  arrive(in_cluster(rank, here), address, 0, here);
}

void emulator_meet_cluster(Here here) {
  emulator_pause();
  u32 threads = launch->threads * launch->cluster;
  NamedBarrier& barrier = launch->clusters[now().block->number / launch->cluster];
  if (++barrier.arrived < (int)threads) {
    sleep_in(barrier.waiters, here, format("the cluster, %u threads", threads));
    return;
  }
  barrier.arrived = 0;
  barrier.waiters.wake();
  leave();  // and goes on with the others
}

void emulator_barrier_wait(u32 address, u32 parity, Here here) {
  if (parity > 1) fault(format("parity is %u", parity), here);
  emulator_pause();
  Block& block = *now().block;
  MBarrier& barrier = barrier_at(block, address, here);
  while ((barrier.phase & 1) == parity) sleep_in(barrier.waiters, here, format("parity %u, ", parity), address);
  barrier_at(block, address, here);
}

// Turns of thread blocks: a count in memory.
void emulator_wait_for_turn(const int* turn, int mine, Here here) {
  emulator_pause();
  while (*turn != mine) sleep_in(launch->turns, here, format("turn %d, and %d have been", mine, *turn));
}

void emulator_end_turn(int* turn, int next) {
  emulator_pause();
  *turn = next;
  launch->turns.wake();
  emulator_pause();
}

static NamedBarrier& arrive_at(int number, int threads, Here here) {
  if (number < 0 || number >= NAMED_BARRIERS) fault(format("barrier %d; there are 16", number), here);
  emulator_pause();
  NamedBarrier& barrier = now().block->named[number];
  if (barrier.arrived && barrier.threads != threads)
    fault(format("barrier %d is met by %d threads and by %d", number, barrier.threads, threads), here);
  barrier.threads = threads;
  barrier.arrived++;
  return barrier;
}

static void complete(NamedBarrier& barrier) {
  for (Fiber* fiber : barrier.answer) fiber->result = barrier.any != 0;
  barrier.answer.clear();
  barrier.arrived = barrier.any = 0;
  barrier.waiters.wake();
}

int emulator_meet(int number, int threads, int mine, Here here) {
  NamedBarrier& barrier = arrive_at(number, threads, here);
  barrier.any |= mine;
  barrier.answer.push_back(&now());
  if (barrier.arrived < threads) {
    sleep_in(barrier.waiters, here, format("barrier %d, for %d threads", number, threads));
    return (int)now().result;
  }
  complete(barrier);
  leave();  // and goes on with the others of its warp
  return (int)now().result;
}

// Arrives and goes on.
void emulator_arrive(int number, int threads, Here here) {
  NamedBarrier& barrier = arrive_at(number, threads, here);
  if (barrier.arrived == threads) complete(barrier);
}

// setmaxnreg of one warp: what it gives goes to the thread block's pool, what it takes must be there.
void emulator_registers(int count, int more, Here here) {
  together(~0u, here, [](auto*) {});
  Fiber& me = now();
  Warp& warp = warp_of(me);
  Block& block = *me.block;
  if (count < 24 || count > 256 || count % 8)
    fault(format("%d registers; multiples of 8 from 24 to 256 are taken", count), here);
  if (warp.registers != count && (more ? count < warp.registers : count > warp.registers))
    fault(format("from %d to %d registers is the other direction", warp.registers, count), here);
  while (warp.registers < count && block.free_registers < count - warp.registers) {
    std::string what = format("%d registers a thread, %d are free", count - warp.registers, block.free_registers);
    sleep_in(block.registers, here, what);
  }
  if (warp.registers != count) {
    block.free_registers += warp.registers - count;
    warp.registers = count;
    block.registers.wake();
  }
  together(~0u, here, [](auto*) {});
}
}
