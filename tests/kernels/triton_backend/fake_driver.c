/* Stands in for libcuda: writes down what a launch and a tensor map were given, as JSON lines on stdout. */
#include <cuda.h>
#include <stdio.h>
#include <string.h>

static __thread CUcontext current; /* as in the real driver, a new thread has none */
static char kinds[256]; /* one letter per kernel parameter: p address, i int32, l int64, f float, t map */

void fake_expect(const char *letters) { strncpy(kinds, letters, sizeof kinds - 1); }

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  printf("{\"grid\": %u, \"threads\": %u, \"stream\": %llu, \"params\": [", config->gridDimX, config->blockDimX,
         (unsigned long long)config->hStream);
  for (int i = 0; kinds[i]; i++) {
    if (i) printf(", ");
    switch (kinds[i]) {
    case 'p': printf("%llu", *(unsigned long long *)params[i]); break;
    case 'i': printf("%d", *(int *)params[i]); break;
    case 'l': printf("%lld", *(long long *)params[i]); break;
    case 'f': printf("%g", *(float *)params[i]); break;
    case 't': printf("%u", *(unsigned char *)params[i]); break;
    }
  }
  printf("]}\n");
  fflush(stdout);
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  memset(map, 0xab, sizeof *map);
  printf("{\"map\": %llu, \"sizes\": [%llu, %llu], \"stride\": %llu, \"box\": [%u, %u]}\n",
         (unsigned long long)address, (unsigned long long)sizes[0], (unsigned long long)sizes[1],
         (unsigned long long)strides[0], box[0], box[1]);
  fflush(stdout);
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { *context = (CUcontext)1; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { current = context; return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *context) { *context = current; return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult result, const char **text) { *text = "FAKE"; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult result, const char **text) { *text = "fake"; return CUDA_SUCCESS; }
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer) { return CUDA_ERROR_INVALID_VALUE; }
