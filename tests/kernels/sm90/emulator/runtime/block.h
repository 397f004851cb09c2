// What the emulator knows of a launch: thread blocks, warps, threads (fibers), barriers, copies and products under way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "interface.h"

namespace emulator {

using Here = EmulatorHere;
constexpr int LANES = 32;
constexpr int WARPGROUP = 4;          // warps
constexpr u32 SHARED_START = 1024;    // the hardware keeps the first 1024 bytes of shared memory to itself
constexpr u32 MOST_SHARED = 233472;   // 228 KiB, those included
constexpr u32 CHUNK = 16;             // bytes that every swizzle leaves together
constexpr int NAMED_BARRIERS = 16;
constexpr u32 LAZY = 1 << 24;         // what is less urgent happens where nothing else can

struct Fiber;
struct Block;

struct Waiters {
  std::vector<Fiber*> who;
  void wake();
};

struct StoreGroup {
  int unread = 0, unwritten = 0;
};

// One thread of the GPU.
struct Fiber {
  EmulatorThread seen;  // first: emulator_now points to it
  void* stack = nullptr;
  Block* block = nullptr;
  int warp = 0, lane = 0;
  bool is_done = false;
  u32 pauses = 0;  // passed in this turn
  Here at = {"start", "", 0};
  std::string waits_for;  // more on what it is blocked by
  u32 waits_at = 0;       // the mbarrier, if it is one
  u64 brought = 0, result = 0;
  int asked = 0;
  const void* given = nullptr;
  void* taken = nullptr;
  std::vector<u32> unpublished;  // chunks of shared memory, written and not yet seen by copies and tensor cores
  std::shared_ptr<StoreGroup> open = std::make_shared<StoreGroup>();
  std::vector<std::shared_ptr<StoreGroup>> groups;
  Waiters stores;
};

// A collective operation that some lanes of a warp have come to.
struct Meeting {
  u32 mask = 0, arrived = 0;
  const char* what = nullptr;
  Waiters waiters;
};

// Accumulators of one warp that the tensor cores hold: the threads' own copies are poisoned meanwhile.
struct Flight {
  float* d[LANES];
  int columns;
  size_t last;                 // number of the last product that adds to it
  Here at;                     // and where it stands
  std::vector<float> numbers;  // [16][columns]
};

struct Issued {
  EmulatorProduct lanes[LANES];
  std::shared_ptr<Flight> flight;
  Here at;
  u32 urgency;
};

struct Warp {
  int number = 0;
  u32 urgency = 0, ready = 0;  // ready: lanes that are not blocked
  int registers = 0;
  int publications = 0;
  bool fenced = false;
  std::map<u32, Meeting> meetings;  // by mask
  std::vector<Issued> products;     // those behind `executed` wait
  size_t executed = 0, dropped = 0; // dropped: how many are gone from the front of `products`
  std::vector<size_t> group_ends;
  std::vector<std::shared_ptr<Flight>> flights;
  size_t issued() const { return dropped + products.size(); }
};

struct MBarrier {
  u32 arrivals = 0, pending = 0, phase = 0;
  long long bytes = 0;  // announced, less those that came
  bool ready = false;   // for the copy engine
  Fiber* made_by = nullptr;
  Waiters waiters;
};

struct NamedBarrier {
  int threads = 0, arrived = 0, any = 0;
  Waiters waiters;
  std::vector<Fiber*> answer;
};

enum class Kind : unsigned char { load, load_bytes, store };

// A tensor map as maps.py writes it.
struct Map {
  u64 magic, address;
  u32 element, rank, swizzle, unused;
  u64 dims[5], strides[4];
  u16 box[5];
  unsigned char rest[14];
};
static_assert(sizeof(Map) == 128, "as long as a CUtensorMap");
constexpr u64 MAP_MAGIC = 0x70616D2D6C66;

struct Copy {
  Kind kind;
  Block* block;
  Map map;
  int at[5];
  u32 shared, barrier, bytes;
  const void* from;
  void* to;              // of a store without a map
  bool adds;             // floats to those that are there
  std::shared_ptr<StoreGroup> group;
  Fiber* owner;
  std::vector<unsigned char> held;  // of a store that has read shared memory and not written yet
  bool was_read = false;
  u32 urgency;
  Here here;
};

struct Block {
  EmulatorIndex index;
  u32 number = 0;  // among all of the launch; those of one cluster follow each other
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  std::vector<unsigned char> room, seen_by_engines;  // shared memory as threads see it, and as copies and products do
  std::vector<unsigned char> unpublished;            // by chunk
  unsigned char *memory = nullptr, *engines = nullptr;
  u32 shared_end = 0;
  std::map<std::string, u32> statics;
  std::map<u32, MBarrier> barriers;
  NamedBarrier named[NAMED_BARRIERS];
  int free_registers = 0;
  Waiters registers, products;
  std::vector<std::vector<std::pair<u64, u64>>> issued_by_warpgroup;  // descriptors, to compare the four warps'
  int alive = 0;  // threads
};

struct Launch {
  u64 random = 0;
  u32 threads, shared_bytes, cluster = 1;
  std::map<u32, NamedBarrier> clusters;  // that threads of a cluster meet at, by the number of its first thread block
  unsigned char fill;
  float poison;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<Copy>> copies;
  Waiters turns;  // who waits for a count in memory
  std::string fault;
  u64 counts[4] = {0, 0, 0, 0};  // loads, stores, products, turns
};

extern Launch* launch;

inline Fiber& now() { return *(Fiber*)emulator_now; }
inline Warp& warp_of(Fiber& fiber) { return fiber.block->warps[fiber.warp]; }
inline u32 draw() {  // splitmix64
  u64 mixed = launch->random += 0x9E3779B97F4A7C15ull;
  mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9ull;
  mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBull;
  return (u32)(mixed ^ mixed >> 31);
}

// Of a copy or a product: some come soon, some wait until there is nothing else to do.
inline u32 some_urgency() { return draw() % 2 ? draw() | LAZY : draw() % LAZY; }

[[noreturn]] void fault(const std::string& complaint, Here here);
std::string place(Here here);
std::string format(const char* text, ...) __attribute__((format(printf, 1, 2)));
void sleep_in(Waiters& waiters, Here here, std::string waits_for = "", u32 waits_at = 0);
void leave();  // the running fiber to the scheduler

// All lanes of the mask come together; the last one acts for all before any goes on.
template <class Act> void together(u32 mask, Here here, Act act) {
  Fiber& me = now();
  Warp& warp = warp_of(me);
  Meeting& meeting = warp.meetings[mask];
  if (!(mask >> me.lane & 1)) fault(format("lane %d is not in the mask %08x", me.lane, mask), here);
  if (meeting.arrived == 0) meeting.mask = mask, meeting.what = here.what;
  if (strcmp(meeting.what, here.what))
    fault(format("lanes of a warp are apart: %s while others are at %s", here.what, meeting.what), here);
  meeting.arrived |= 1u << me.lane;
  if (meeting.arrived != mask) {
    sleep_in(meeting.waiters, here, mask == ~0u ? "all lanes meet" : format("lanes %08x meet", mask));
    return;
  }
  me.at = here;
  meeting.arrived = 0;
  act(&me.block->fibers[me.warp * LANES]);
  meeting.waiters.wake();
  leave();  // and goes on with the others
}

void require_shared(u32 address, u32 bytes, u32 alignment, Here here);
MBarrier& barrier_at(Block& block, u32 address, Here here);
Block& in_cluster(u32 rank, Here here);  // that thread block of the running fiber's cluster
void settle(MBarrier& barrier);  // ends the phase when nothing is missing
std::string barrier_text(Block& block, u32 address);
void execute(size_t copy);       // the next part of a copy; takes it from the list at its end
void execute_product(Block& block, Warp& warp);
void finish_block(Block& block);

}  // namespace emulator
