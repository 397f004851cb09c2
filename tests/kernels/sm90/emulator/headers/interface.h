// What the emulated headers ask of the emulator; runtime/*.cpp answers. Every call says where in the kernel it stands.
#pragma once

#include <stddef.h>

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

struct EmulatorHere {
  const char* what;
  const char* file;
  int line;
};

// Last parameters of an emulated function: the line that calls it, without the caller's doing.
#define CALLED_FROM const char* file = __builtin_FILE(), int line = __builtin_LINE()
#define HERE \
  EmulatorHere { __func__, file, line }

struct EmulatorIndex {
  u32 x, y, z;
};

// What a fiber is, for the kernel's eyes; the one that runs now.
struct EmulatorThread {
  EmulatorIndex thread, block, grid, threads;
};
extern "C" EmulatorThread* emulator_now;

// A register operand: read when the product runs, as the tensor cores do. What has no name is kept as it is.
struct EmulatorRegister {
  const u32* at;
  u32 kept;
  EmulatorRegister() : at(nullptr), kept(0) {}
  EmulatorRegister(const u32& named) : at(&named), kept(0) {}
  EmulatorRegister(u32&& nameless) : at(nullptr), kept(nameless) {}
};

// One wgmma as one thread asks for it.
struct EmulatorProduct {
  float* d;
  int columns;  // N; N / 2 numbers in d
  int accumulate, a_turned, b_turned, bf16;
  u64 a, b;                     // descriptors
  int from_registers;           // 1: A is `registers`
  EmulatorRegister registers[4];
};

enum EmulatorShuffle { EMULATOR_FROM, EMULATOR_XOR, EMULATOR_UP, EMULATOR_DOWN };

extern "C" {
void emulator_fault(const char* complaint, EmulatorHere here);
void emulator_pause();  // another thread may go first
void emulator_step_aside();  // another thread goes first

unsigned char* emulator_dynamic_shared();
void* emulator_static_shared(const char* declaration, size_t bytes, size_t alignment);
u32 emulator_shared_address(const void* pointer, EmulatorHere here);

void emulator_barrier_init(u32 barrier, u32 arrivals, EmulatorHere here);
void emulator_barriers_ready();
void emulator_barrier_arrive(u32 barrier, u32 bytes, EmulatorHere here);
void emulator_barrier_wait(u32 barrier, u32 parity, EmulatorHere here);
int emulator_meet(int number, int threads, int mine, EmulatorHere here);  // whether any of them said so
void emulator_arrive(int number, int threads, EmulatorHere here);         // and go on
void emulator_registers(int count, int more, EmulatorHere here);

u32 emulator_cluster_rank();
void emulator_meet_cluster(EmulatorHere here);
void emulator_barrier_arrive_in(u32 barrier, u32 rank, EmulatorHere here);
void emulator_tell(u32 to, u32 what, u32 barrier, u32 rank, EmulatorHere here);

void emulator_wait_for_turn(const int* turn, int mine, EmulatorHere here);
void emulator_end_turn(int* turn, int next);

u64 emulator_shuffle(u32 mask, u64 value, int lane, int kind, int width, EmulatorHere here);
u32 emulator_ballot(u32 mask, int mine, EmulatorHere here);
void emulator_load_matrices(u32 from, u32* r, int count, int turned, EmulatorHere here);
void emulator_store_matrices(u32 to, const u32* r, int count, int turned, EmulatorHere here);

void emulator_store_four(u32 to, const float* four, EmulatorHere here);

// blocks: a bit for each thread block of the cluster that gets it; 0: the one that asks
void emulator_load_box(u32 to, const void* map, u32 barrier, int rank, const int* at, u32 blocks, EmulatorHere here);
void emulator_load_bytes(u32 to, const void* from, u32 bytes, u32 barrier, u32 blocks, EmulatorHere here);
void emulator_store_box(const void* map, u32 from, int rank, const int* at, EmulatorHere here);
void emulator_store_bytes(void* to, u32 from, u32 bytes, int floats_added, EmulatorHere here);
void emulator_commit_stores();
void emulator_wait_stores(int left, int until_written, EmulatorHere here);
void emulator_publish_shared();

void emulator_fence_products(EmulatorHere here);
void emulator_multiply(const EmulatorProduct* product, EmulatorHere here);
void emulator_commit_products(EmulatorHere here);
void emulator_wait_products(int left, EmulatorHere here);
}
