// Device memory, and tensor maps: how the copy engine walks a tensor. cuTensorMapEncodeTiled is asked of the driver at run
// time, so that the program needs no libcuda to start and can say what is missing.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "options.h"

[[noreturn]] inline void cannot(const std::string& why) {
  fprintf(stderr, "sparse_bsr_gemm_h100: %s\n", why.c_str());
  exit(COULD_NOT_LOOK);
}

inline void ok(cudaError_t code, const char* what) {
  if (code != cudaSuccess) cannot(std::string(what) + " failed: " + cudaGetErrorString(code) + ".");
}

template <class T> T* room(size_t count) {
  void* made = nullptr;
  size_t bytes = sizeof(T) * (count ? count : 1);
  cudaError_t code = cudaMalloc(&made, bytes);
  if (code != cudaSuccess)
    cannot("no " + std::to_string(bytes >> 20) + " MiB of GPU memory: " + cudaGetErrorString(code) +
           ". Take a smaller --m, --n or --k.");
  return (T*)made;
}

template <class T, class U> T* on_device(const std::vector<U>& from) {
  T* made = room<T>(from.size() * sizeof(U) / sizeof(T));
  ok(cudaMemcpy(made, from.data(), from.size() * sizeof(U), cudaMemcpyHostToDevice), "a copy to the GPU");
  return made;
}

typedef CUresult (*Encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                           const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

inline Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
#if CUDART_VERSION >= 12050
  ok(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status),
#else
  ok(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &status),
#endif
     "looking for cuTensorMapEncodeTiled in the driver");
  if (!found || status != cudaDriverEntryPointSuccess)
    cannot("the driver has no cuTensorMapEncodeTiled; drivers from 525 on (CUDA 12.0) do.");
  return (Encode)found;
}

struct Boxes {  // innermost first
  std::vector<cuuint64_t> dims, strides_bytes;
  std::vector<cuuint32_t> box;
};

inline void encode_map(unsigned char (&to)[128], const void* address, bool bf16, const Boxes& boxes) {
  static const Encode encode = find_encode();
  alignas(64) CUtensorMap map;
  std::vector<cuuint32_t> ones(boxes.dims.size(), 1);
  int span = (int)boxes.box[0] * 2;
  CUtensorMapSwizzle swizzle = span == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                               : span == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                            : CU_TENSOR_MAP_SWIZZLE_32B;
  CUresult code = encode(&map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                         (cuuint32_t)boxes.dims.size(), const_cast<void*>(address), boxes.dims.data(),
                         boxes.strides_bytes.data(), boxes.box.data(), ones.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) cannot("cuTensorMapEncodeTiled refused a map with code " + std::to_string((int)code) + ".");
  static_assert(sizeof map == 128, "a tensor map has 128 bytes");
  memcpy(to, &map, sizeof map);
}
