/* Stands in for libcuda: keeps to the driver's signatures and writes down what it was given, as JSON lines on stdout. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread CUcontext current; /* as in the real driver, a new thread has none */

CUresult cuInit(unsigned flags) { return getenv("FAKE_NO_DEVICE") ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  printf("{\"retain\": %d}\n", device);
  *context = (CUcontext)(unsigned long long)(0x7000 + device);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) { current = context; return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext *context) { *context = current; current = NULL; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { current = context; return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *context) { *context = current; return CUDA_SUCCESS; }

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  if (memcmp(image, "\177ELF", 4)) return CUDA_ERROR_INVALID_IMAGE;
  *module = (CUmodule)0x123456789abcdef0;
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  if (module != (CUmodule)0x123456789abcdef0) return CUDA_ERROR_INVALID_HANDLE;
  if (!strcmp(name, "absent")) return CUDA_ERROR_NOT_FOUND;
  *function = (CUfunction)0x0fedcba987654321;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (value > 232448) return CUDA_ERROR_INVALID_VALUE;
  printf("{\"function\": %llu, \"attribute\": %d, \"value\": %d}\n", (unsigned long long)function, attribute, value);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 168 : attribute == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES ? 16 : 1024;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) {
  *offset = 0;
  *size = 320;
  return index ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  if (config->blockDimX > 1024) return CUDA_ERROR_INVALID_VALUE;
  printf("{\"launch\": %llu, \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %u, \"stream\": %llu, "
         "\"attributes\": %u, \"misaligned\": %llu, \"arguments\": \"%.5s\", \"last\": %u}\n",
         (unsigned long long)function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
         config->blockDimY, config->blockDimZ, config->sharedMemBytes, (unsigned long long)config->hStream,
         config->numAttrs,
         (unsigned long long)params[0] % 64, (char *)params[0], ((unsigned char *)params[0])[319]);
  fflush(stdout);
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  memset(map, 0xab, sizeof *map);
  printf("{\"map\": %llu, \"type\": %d, \"misaligned\": %llu, \"sizes\": [", (unsigned long long)address, type,
         (unsigned long long)map % 64);
  for (unsigned i = 0; i < rank; i++) printf("%s%llu", i ? ", " : "", (unsigned long long)sizes[i]);
  printf("], \"strides\": [");
  for (unsigned i = 0; i + 1 < rank; i++) printf("%s%llu", i ? ", " : "", (unsigned long long)strides[i]);
  printf("], \"box\": [");
  for (unsigned i = 0; i < rank; i++) printf("%s%u", i ? ", " : "", box[i]);
  printf("], \"steps\": %u, \"interleave\": %d, \"swizzle\": %d, \"promotion\": %d, \"fill\": %d}\n", steps[rank - 1],
         interleave, swizzle, promotion, fill);
  fflush(stdout);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult result, const char **text) {
  *text = result == CUDA_ERROR_INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE" : result == CUDA_ERROR_NOT_FOUND ? "CUDA_ERROR_NOT_FOUND"
        : result == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_INVALID_VALUE";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult result, const char **text) { *text = "a stand-in's text"; return CUDA_SUCCESS; }
