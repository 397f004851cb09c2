/* Stands in for libcuda: the kernels axpy and axpy_by_four of examples/user_kernels/axpy.cu, run on the processor. */
#include <stddef.h>
#include <string.h>

static const size_t widths[2][5] = {{4, 4, 8, 8, 8}, {8, 4, 8, 8, 8}};

int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)1; return 0; }
int cuCtxPushCurrent_v2(void *context) { return 0; }
int cuCtxPopCurrent_v2(void **context) { return 0; }
int cuModuleLoadData(void **module, const void *image) {
  *module = (void *)1;
  return memcmp(image, "\177ELF", 4) ? 200 : 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = !strcmp(name, "axpy") ? (void *)16 : !strcmp(name, "axpy_by_four") ? (void *)32 : NULL;
  return *function ? 0 : 500;
}
int cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
  if (index >= 5) return 1;
  *size = widths[function == (void *)32][index];
  return 0;
}
int cuGetErrorName(int code, const char **text) { *text = code == 500 ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR"; return 0; }
int cuGetErrorString(int code, const char **text) { *text = "a stand-in's text"; return 0; }
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x, unsigned y, unsigned z,
                   unsigned shared, void *stream, void **params, void **extra) {
  if (x > 1024) return 1;
  const long long n = function == (void *)32 ? 4 * *(long long *)params[0] : *(int *)params[0];
  const float a = *(float *)params[1];
  const float *left = *(float **)params[2], *right = *(float **)params[3];
  float *out = *(float **)params[4];
  for (long long i = 0; i < n; i++) out[i] = a * left[i] + right[i];
  return 0;
}
