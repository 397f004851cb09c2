// Fibers and their order: which warp goes on, when copies and products happen. Everything random comes from the seed.
#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>

#include "block.h"

extern "C" {
EmulatorThread* emulator_now = nullptr;
void emulator_switch(void** save, void* to);
}

// Keeps what a function must keep and the stack pointer in *save, and goes on where `to` was left.
#if defined(__x86_64__)
asm(R"(
.text
.globl emulator_switch
.type emulator_switch, @function
emulator_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");
// behind the return the stack pointer is 8 off a multiple of 16, as after a call
constexpr int WORDS = 8, RETURN_AT = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl emulator_switch
.type emulator_switch, %function
emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
constexpr int WORDS = 20, RETURN_AT = 11;
#else
#error "the emulator's fibers know x86-64 and aarch64"
#endif

namespace emulator {

Launch* launch = nullptr;

namespace {

constexpr size_t STACK = 128 << 10, GUARD = 4096;
constexpr u64 MOST_TURNS = 400'000'000;
constexpr u32 RESIDENT = 3;  // thread blocks at once; two clusters where there are any

using Kernel = void (*)(const void*);
Kernel kernel;
const void* arguments;
void* scheduler_stack;
std::vector<unsigned char*> free_stacks;

unsigned char* take_stack() {
  if (free_stacks.empty()) {
    auto* made = (unsigned char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) abort();
    mprotect(made, GUARD, PROT_NONE);
    return made;
  }
  auto* found = free_stacks.back();
  free_stacks.pop_back();
  return found;
}

void begin() {
  kernel(arguments);
  now().is_done = true;
  warp_of(now()).ready &= ~(1u << now().lane);
  leave();
}

void* fresh_stack(unsigned char* bottom) {
  void** at = (void**)(bottom + STACK) - WORDS;
  for (int i = 0; i < WORDS; i++) at[i] = nullptr;
  at[RETURN_AT] = (void*)begin;
  return at;
}

std::vector<std::vector<unsigned char*>> stacks_of;  // by thread block

void start_block(u32 number, EmulatorIndex grid) {
  auto block = std::make_unique<Block>();
  block->number = number;
  block->index = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
  u32 size = SHARED_START + launch->shared_bytes + (48 << 10), aligned = (size + 1023) / 1024 * 1024;
  block->room.assign(aligned + 1024, launch->fill);
  block->seen_by_engines.assign(aligned, launch->fill);
  block->memory = (unsigned char*)(((uintptr_t)block->room.data() + 1023) / 1024 * 1024);
  block->engines = block->seen_by_engines.data();
  block->unpublished.assign(aligned / CHUNK, 0);
  block->shared_end = SHARED_START + launch->shared_bytes;
  u32 warps = (launch->threads + LANES - 1) / LANES;
  int registers = std::min(255u, 65536 / launch->threads) / 8 * 8;
  block->warps.resize(warps);
  block->issued_by_warpgroup.resize((warps + WARPGROUP - 1) / WARPGROUP);
  for (u32 w = 0; w < warps; w++) {
    Warp& warp = block->warps[w];
    u32 lanes = std::min(launch->threads - w * LANES, (u32)LANES);
    warp.number = w, warp.registers = registers, warp.urgency = draw();
    warp.ready = lanes == LANES ? ~0u : (1u << lanes) - 1;
  }
  std::vector<unsigned char*> stacks;
  for (u32 t = 0; t < launch->threads; t++) {
    auto fiber = std::make_unique<Fiber>();
    fiber->seen = {{t, 0, 0}, block->index, grid, {launch->threads, 1, 1}};
    fiber->block = block.get();
    fiber->warp = t / LANES, fiber->lane = t % LANES;
    stacks.push_back(take_stack());
    fiber->stack = fresh_stack(stacks.back());
    block->fibers.push_back(std::move(fiber));
  }
  block->alive = launch->threads;
  launch->blocks.push_back(std::move(block));
  stacks_of.push_back(std::move(stacks));
}

void drop_block(size_t which) {
  for (auto* stack : stacks_of[which]) free_stacks.push_back(stack);
  stacks_of.erase(stacks_of.begin() + which);
  launch->blocks.erase(launch->blocks.begin() + which);
}

u32 most_pauses;  // that a lane may pass in this turn

// Every lane of the warp that can, once, from a random one on. Lanes that go the same way stay together, as on hardware:
// they stop at the same places, and those that are woken on the way wait for the next turn.
void run_warp(Block& block, Warp& warp) {
  u32 first = draw(), ready = warp.ready;
  most_pauses = draw() % 2 ? ~0u : draw() % 12;
  for (int i = 0; i < LANES && launch->fault.empty(); i++) {
    u32 lane = (first + i) % LANES;
    if (!(ready >> lane & 1)) continue;
    Fiber& fiber = *block.fibers[warp.number * LANES + lane];
    fiber.pauses = 0;
    emulator_now = &fiber.seen;
    emulator_switch(&scheduler_stack, fiber.stack);
    emulator_now = nullptr;
    if (fiber.is_done) block.alive--;
  }
}

// Something that can happen next.
struct Choice {
  Block* block = nullptr;
  Warp* warp = nullptr;
  bool is_product = false;
  size_t copy = 0;
  u32 urgency = 0;
};

// The most urgent one mostly, so that some lag far behind; now and then any but the lazy ones.
bool choose(Choice& best) {
  bool any = draw() % 16 == 0, found = false;
  auto offer = [&](const Choice& choice) {
    Choice offered = choice;
    if (any && offered.urgency >= LAZY) offered.urgency = draw();
    if (!found || offered.urgency > best.urgency) best = offered;
    found = true;
  };
  for (auto& block : launch->blocks) {
    for (auto& warp : block->warps) {
      if (warp.ready) offer({block.get(), &warp, false, 0, warp.urgency});
      if (warp.executed < warp.issued())
        offer({block.get(), &warp, true, 0, warp.products[warp.executed - warp.dropped].urgency});
    }
  }
  for (size_t i = 0; i < launch->copies.size(); i++) offer({nullptr, nullptr, false, i, launch->copies[i]->urgency});
  return found;
}

std::string lanes_text(u32 lanes) {
  if (lanes == ~0u) return "";
  return __builtin_popcount(lanes) == 1 ? format(" lane %d", __builtin_ctz(lanes)) : format(" lanes %08x", lanes);
}

// Who waits where, warps that do so alike in one line.
void report_deadlock() {
  std::string text = "nothing can go on:";
  for (auto& block : launch->blocks) {
    std::map<std::string, std::map<int, u32>> where;
    for (auto& fiber : block->fibers) {
      if (fiber->is_done) continue;
      std::string what = place(fiber->at) + " " + fiber->at.what + ": " + fiber->waits_for;
      if (fiber->waits_at) what += barrier_text(*block, fiber->waits_at);
      where[what][fiber->warp] |= 1u << fiber->lane;
    }
    for (auto& [what, warps] : where) {
      text += format("\n  block %u,", block->index.x);
      for (auto& [warp, lanes] : warps) text += format(" warp %d", warp) + lanes_text(lanes) + ",";
      text.back() = ':';
      text += " " + what;
    }
  }
  launch->fault = text;
}

// New urgencies, for this many turns. Often one warp goes on only where nothing else can.
u32 redraw() {
  for (auto& block : launch->blocks)
    for (auto& warp : block->warps) warp.urgency = draw() | LAZY;
  if (draw() % 2) return 4u << draw() % 8;
  Block& block = *launch->blocks[draw() % launch->blocks.size()];
  block.warps[draw() % block.warps.size()].urgency = 0;
  return 64u << draw() % 6;
}

void run(EmulatorIndex grid) {
  u32 total = grid.x * grid.y * grid.z, next = 0, until_redraw = 0;
  for (u64 turn = 0; launch->fault.empty(); turn++) {
    launch->counts[3]++;
    while (launch->blocks.size() + launch->cluster <= std::max(RESIDENT, 2 * launch->cluster) && next < total)
      for (u32 rank = 0; rank < launch->cluster; rank++) start_block(next++, grid);
    if (launch->blocks.empty()) return;
    if (until_redraw-- == 0) until_redraw = redraw();
    Choice choice;
    if (!choose(choice)) {
      report_deadlock();
      return;
    }
    if (choice.block == nullptr) execute(choice.copy);
    else if (choice.is_product) execute_product(*choice.block, *choice.warp);
    else run_warp(*choice.block, *choice.warp);
    for (size_t i = 0; i < launch->blocks.size() && launch->fault.empty(); i++)
      if (launch->blocks[i]->alive == 0) {
        finish_block(*launch->blocks[i]);
        drop_block(i--);
      }
    if (turn > MOST_TURNS) launch->fault = "the kernel does not come to an end";
  }
}

}  // namespace

void Waiters::wake() {
  for (Fiber* fiber : who) warp_of(*fiber).ready |= 1u << fiber->lane;
  who.clear();
}

void leave() { emulator_switch(&now().stack, scheduler_stack); }

void sleep_in(Waiters& waiters, Here here, std::string waits_for, u32 waits_at) {
  Fiber& me = now();
  warp_of(me).ready &= ~(1u << me.lane);
  me.at = here;
  me.waits_for = std::move(waits_for);
  me.waits_at = waits_at;
  waiters.who.push_back(&me);
  leave();
}

std::string format(const char* text, ...) {
  char made[512];
  va_list given;
  va_start(given, text);
  vsnprintf(made, sizeof(made), text, given);
  va_end(given);
  return made;
}

std::string place(Here here) {
  const char* name = strrchr(here.file, '/');
  return format("%s:%d", name ? name + 1 : here.file, here.line);
}

// May be met by a fiber, or by the scheduler on behalf of a copy or a product.
void fault(const std::string& complaint, Here here) {
  std::string who;
  if (emulator_now) who = format("block %u thread %u: ", now().seen.block.x, now().seen.thread.x);
  launch->fault = place(here) + " " + here.what + ": " + who + complaint;
  if (emulator_now) {
    warp_of(now()).ready = 0;
    leave();
  }
  throw 0;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

void emulator_fault(const char* complaint, Here here) { fault(complaint, here); }

void emulator_pause() {
  if (now().pauses++ >= most_pauses) leave();
}

void emulator_step_aside() { leave(); }

// 0: done; 1: a fault, told in `complaint`. counts: loads, stores, products, turns of the scheduler.
int emulator_launch(
    void (*given)(const void*), const void* bytes, const u32* sizes, u32 seed, char* complaint, u32 room, u64* counts) {
  Launch made;
  launch = &made;
  made.random = seed;
  made.threads = sizes[3], made.shared_bytes = sizes[4], made.cluster = sizes[5];
  // what nobody has written: NaN, or finite and large, as NaN may be noticed by a kernel that then takes another way
  made.fill = seed % 2 ? 0x4D : 0xFF;
  u32 poison = seed % 2 ? 0x714D4D4Du : 0x7FC0DEADu;
  memcpy(&made.poison, &poison, sizeof(poison));
  kernel = given, arguments = bytes;
  try {
    if (sizes[0] % made.cluster) fault(format("%u thread blocks in clusters of %u", sizes[0], made.cluster), {"launch", "", 0});
    run({sizes[0], sizes[1], sizes[2]});
  } catch (int) {
  }
  while (!made.blocks.empty()) drop_block(0);
  memcpy(counts, made.counts, sizeof(made.counts));
  launch = nullptr;
  snprintf(complaint, room, "%s", made.fault.c_str());
  return made.fault.empty() ? 0 : 1;
}
}
