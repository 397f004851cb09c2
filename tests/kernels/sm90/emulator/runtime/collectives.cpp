// What the lanes of a warp do together: shuffles, ballots, and 8x8 matrices to and from shared memory.
#include "block.h"

using namespace emulator;

extern "C" {

u64 emulator_shuffle(u32 mask, u64 value, int lane, int kind, int width, Here here) {
  Fiber& me = now();
  me.brought = value;
  me.asked = lane;
  together(mask, here, [&](std::unique_ptr<Fiber>* lanes) {
    for (int i = 0; i < LANES; i++) {
      if (!(mask >> i & 1)) continue;
      int first = i / width * width, inside = i - first, given = lanes[i]->asked, from = i;
      if (kind == EMULATOR_FROM) from = first + (given & (width - 1));
      else if (kind == EMULATOR_XOR) from = i ^ given;
      else if (kind == EMULATOR_UP) from = inside >= given ? i - given : i;
      else from = inside + given < width ? i + given : i;
      if (from >= first + width) from = i;
      if (!(mask >> from & 1)) fault(format("lane %d reads lane %d, which is not in the mask", i, from), here);
      lanes[i]->result = lanes[from]->brought;
    }
  });
  return me.result;
}

u32 emulator_ballot(u32 mask, int mine, Here here) {
  Fiber& me = now();
  me.brought = mine != 0;
  together(mask, here, [&](std::unique_ptr<Fiber>* lanes) {
    u32 found = 0;
    for (int i = 0; i < LANES; i++)
      if (mask >> i & 1) found |= (u32)lanes[i]->brought << i;
    for (int i = 0; i < LANES; i++)
      if (mask >> i & 1) lanes[i]->result = found;
  });
  return (u32)me.result;
}

// Row `lane & 7` of matrix `lane >> 3` lies where that lane says. Register i of a lane holds two elements of matrix i:
// of row lane / 4 and columns 2 * (lane % 4) and the next; turned, of that column and those rows.
void emulator_load_matrices(u32 from, u32* r, int count, int turned, Here here) {
  Fiber& me = now();
  if (me.lane < 8 * count) require_shared(from, CHUNK, CHUNK, here);
  me.brought = from;
  me.taken = r;
  together(~0u, here, [&](std::unique_ptr<Fiber>* lanes) {
    auto element = [&](int matrix, int row, int column) {
      u16 found;
      memcpy(&found, me.block->memory + (u32)lanes[8 * matrix + row]->brought + 2 * column, 2);
      return (u32)found;
    };
    for (int lane = 0; lane < LANES; lane++) {
      int one = lane / 4, two = lane % 4 * 2;
      for (int i = 0; i < count; i++) {
        u32 low = turned ? element(i, two, one) : element(i, one, two);
        u32 high = turned ? element(i, two + 1, one) : element(i, one, two + 1);
        ((u32*)lanes[lane]->taken)[i] = low | high << 16;
      }
    }
  });
}

void emulator_store_matrices(u32 to, const u32* r, int count, int turned, Here here) {
  Fiber& me = now();
  if (me.lane < 8 * count) require_shared(to, CHUNK, CHUNK, here);
  me.brought = to;
  me.given = r;
  together(~0u, here, [&](std::unique_ptr<Fiber>* lanes) {
    Block& block = *me.block;
    auto put = [&](int matrix, int row, int column, u32 bits) {
      u16 element = (u16)bits;
      memcpy(block.memory + (u32)lanes[8 * matrix + row]->brought + 2 * column, &element, 2);
    };
    for (int lane = 0; lane < LANES; lane++) {
      int one = lane / 4, two = lane % 4 * 2;
      for (int i = 0; i < count; i++) {
        u32 both = ((const u32*)lanes[lane]->given)[i];
        put(i, turned ? two : one, turned ? one : two, both);
        put(i, turned ? two + 1 : one, turned ? one : two + 1, both >> 16);
      }
    }
    for (int lane = 0; lane < 8 * count; lane++) {
      u32 chunk = (u32)lanes[lane]->brought / CHUNK;
      lanes[lane]->unpublished.push_back(chunk);
      block.unpublished[chunk] = 1;
    }
  });
}

// One thread's 16 bytes.
void emulator_store_four(u32 to, const float* four, Here here) {
  Fiber& me = now();
  require_shared(to, CHUNK, CHUNK, here);
  memcpy(me.block->memory + to, four, CHUNK);
  me.unpublished.push_back(to / CHUNK);
  me.block->unpublished[to / CHUNK] = 1;
  emulator_pause();
}

// What this thread wrote reaches the copy engine's and the tensor cores' view. stmatrix is known chunk by chunk; what
// was written through pointers is found by comparison, when all lanes of the warp have come here.
void emulator_publish_shared() {
  Fiber& me = now();
  Block& block = *me.block;
  Warp& warp = warp_of(me);
  for (u32 chunk : me.unpublished) {
    memcpy(block.engines + chunk * CHUNK, block.memory + chunk * CHUNK, CHUNK);
    block.unpublished[chunk] = 0;
  }
  me.unpublished.clear();
  if (++warp.publications % LANES == 0) {
    constexpr u32 STRETCH = 1024;
    for (u32 at = SHARED_START; at < block.shared_end; at += STRETCH) {
      u32 bytes = std::min(STRETCH, block.shared_end - at);
      if (!memcmp(block.engines + at, block.memory + at, bytes)) continue;
      for (u32 chunk = at / CHUNK; chunk < (at + bytes) / CHUNK; chunk++)
        if (!block.unpublished[chunk]) memcpy(block.engines + chunk * CHUNK, block.memory + chunk * CHUNK, CHUNK);
    }
  }
  emulator_pause();
}
}
