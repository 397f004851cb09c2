/* A stand-in for libcuda.so.1: what cuInit does is in the file "answer" beside the library: 0, 803, 804, hang or crash. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef CUDA
#define CUDA 13000
#endif

static int answer(void) {
    Dl_info here;
    char path[4096], word[32] = "0";
    if (!dladdr((void *)answer, &here)) return 999;
    snprintf(path, sizeof path, "%s", here.dli_fname);
    char *slash = strrchr(path, '/');
    if (slash == NULL) return 999;
    strcpy(slash, "/answer");
    FILE *file = fopen(path, "r");
    if (file != NULL) { if (fscanf(file, "%31s", word) != 1) word[0] = 0; fclose(file); }
    if (strcmp(word, "hang") == 0) sleep(600);
    if (strcmp(word, "crash") == 0) abort();
    return atoi(word);
}

int cuDriverGetVersion(int *version) { *version = CUDA; return 0; }
int cuInit(unsigned flags) { (void)flags; return answer(); }
int cuGetErrorName(int code, const char **text) { *text = code == 0 ? "CUDA_SUCCESS" : "CUDA_ERROR_STAND_IN"; return 0; }
int cuGetErrorString(int code, const char **text) { *text = code == 0 ? "no error" : "stand-in error"; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *handle, int ordinal) { *handle = ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int handle) { (void)handle; snprintf(name, size, "NVIDIA H100 80GB HBM3"); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int handle) { (void)handle; *value = attribute == 75 ? 9 : 0; return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int handle) { (void)handle; *bytes = 85520809984; return 0; }
