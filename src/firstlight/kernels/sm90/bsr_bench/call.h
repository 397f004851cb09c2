// What the host hands to one build of the kernel. Each build fills the kernel's own struct from this, so that no second
// description of that struct exists.
#pragma once

#include <cuda_runtime.h>

struct Call {
  unsigned char maps[3][128];  // tensor maps of W, X and the result
  const int *columns, *members, *portions, *block_rows, *starts, *first_slot, *slot_counts;
  int *queue, *arrivals;
  void* parts;
  const unsigned short *values, *dense;
  unsigned short* out;
  int portions_count, tiles, super_tile, two_windows, rows, cols, n, pitch, boxes, grid;
};

struct Build {
  int block, bf16, tokens, linear;
  cudaError_t (*allow)();           // the shared memory it needs
  cudaError_t (*start)(const Call&);
};

// Names of a build: its namespace and the record that main.cu lists.
#define KERNEL_NAME_(block, bf16, tokens, linear) kernel_##block##_##bf16##_##tokens##_##linear
#define KERNEL_NAME(block, bf16, tokens, linear) KERNEL_NAME_(block, bf16, tokens, linear)
#define BUILD_NAME_(block, bf16, tokens, linear) build_##block##_##bf16##_##tokens##_##linear
#define BUILD_NAME(block, bf16, tokens, linear) BUILD_NAME_(block, bf16, tokens, linear)

// turn.cu: [n, cols] to [cols, pitch], what `linear` does first for blocks of 16 and 32
cudaError_t turn_over(const unsigned short* from, unsigned short* to, int n, int cols, int pitch);
