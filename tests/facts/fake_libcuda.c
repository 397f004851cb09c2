/* A libcuda.so.1 for tests: what it does is chosen by FAKE_LIBCUDA in the environment of the child process. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int behaves(const char *as) {
    const char *chosen = getenv("FAKE_LIBCUDA");
    return chosen != NULL && strcmp(chosen, as) == 0;
}

int cuDriverGetVersion(int *version) {
    if (behaves("stub")) return 34;
    *version = behaves("absurd") ? 7 : 13000;
    return 0;
}

int cuInit(unsigned flags) {
    if (behaves("hang")) sleep(60);
    if (behaves("crash")) abort();
    if (behaves("stub")) return 34;
    return behaves("803") ? 803 : 0;
}

int cuGetErrorName(int code, const char **text) {
    *text = code == 0 ? "CUDA_SUCCESS" : code == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : NULL;
    return *text == NULL;
}

int cuGetErrorString(int code, const char **text) {
    *text = code == 0 ? "no error" : code == 803 ? "system has unsupported display driver / cuda driver combination" : NULL;
    return *text == NULL;
}

int cuDeviceGetCount(int *count) { *count = behaves("none") ? 0 : 2; return 0; }

int cuDeviceGet(int *handle, int ordinal) { *handle = ordinal + 40; return 0; }

int cuDeviceGetName(char *name, int size, int handle) {
    strncpy(name, handle == 40 ? "NVIDIA H200" : "NVIDIA GeForce RTX 4090", size);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int handle) {
    if (behaves("lost") && handle == 41) return 999;
    *value = attribute == 75 ? (handle == 40 ? 9 : 8) : (handle == 40 ? 0 : 9);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int handle) { *bytes = handle == 40 ? 150754820096 : 25757220864; return 0; }
