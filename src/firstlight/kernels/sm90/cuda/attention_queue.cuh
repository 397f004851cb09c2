// What attention.cu and gradient.cu share: places in a ring, and the queue that hands out items. An item is one block of
// rows of one head, with the list of blocks that it goes through.
#pragma once

#include "attention_ptx.cuh"

#define INFINITE __int_as_float(0x7f800000)

struct Place {  // where a role is in a ring: slot and parity of its barrier
  int slot;
  u32 parity;
};

template <int size> __device__ __forceinline__ void advance(Place& place) {
  if (++place.slot == size) {
    place.slot = 0;
    place.parity ^= 1;
  }
}

struct Work {  // of one item: its list, and column and row of bits of the first entry; more 0: there is none
  int batch, head, row, begin, end, column, bits, more;
};

template <class Args> __device__ __forceinline__ int list_row(const Args& args, int batch, int head) {
  return (batch * args.list_batch + head * args.list_head) * args.blocks;
}

// The next item, one with an empty list only where asked for: heads one after the other, so that what they read stays in
// L2, the longest list of a head first.
template <bool empty_ones, class Args> __device__ __forceinline__ Work next_work(const Args& args) {
  Work work = {0, 0, 0, 0, 0, 0, -1, 1};
  for (;;) {
    int i = atomicAdd(args.queue, 1);
    if (i >= args.items) return {0, 0, 0, 0, 0, 0, 0, 0};
    int over_all = i / args.blocks;
    work.batch = over_all / args.heads;
    work.head = over_all - work.batch * args.heads;
    int first = list_row(args, work.batch, work.head);
    work.row = args.order[first + i - over_all * args.blocks];
    work.begin = args.starts[first + work.row];
    work.end = args.starts[first + work.row + 1];
    if (work.begin < work.end) {
      work.column = args.columns[work.begin];
      work.bits = args.masks[work.begin];
      return work;
    }
    if (empty_ones) return work;
  }
}

struct Counter {  // one item on its way from the queue to the loader
  u64 known, taken;
  Work work;
};

__device__ __forceinline__ void start_counter(Counter& counter) {
  barrier_init(shared_address(&counter.known), 1);
  barrier_init(shared_address(&counter.taken), 1);
}

// By one thread for each counter. An item is taken when the one before goes to the loader, no earlier: others may be idle.
template <bool empty_ones, class Args>
__device__ __forceinline__ void run_queue(const Args& args, Counter& counter, int counters) {
  u32 parity = 1;
  for (int more = 1; more; parity ^= 1) {
    barrier_wait(shared_address(&counter.taken), parity);
    Work work = next_work<empty_ones>(args);
    counter.work = work;
    barrier_arrive(shared_address(&counter.known));
    more = work.more;
  }
  // the last thread to finish makes the queue ready for the next launch
  __threadfence();
  if (atomicAdd(args.queue + 1, 1) == (int)gridDim.x * counters - 1) {
    args.queue[0] = 0;
    args.queue[1] = 0;
  }
}

__device__ __forceinline__ Work take_work(Counter& counter, u32& parity) {
  barrier_wait(shared_address(&counter.known), parity);
  parity ^= 1;
  Work work = counter.work;
  barrier_arrive(shared_address(&counter.taken));
  return work;
}
