/* A libnvidia-ml.so.1 for the benchmark's tests. FAKE_NVML chooses: h200 (everything answers, the power limit and heat at
 * work), consumer (numbered fields and ECC are not supported), mig (MIG is on), busy (two processes, 40 % busy, 20 GB in use), broken (nvmlInit fails). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NOT_LOADED = 9, FUNCTION_NOT_FOUND = 13 };
static int here;

static int mode_is(const char *name) {
    const char *mode = getenv("FAKE_NVML");
    return mode != NULL && strcmp(mode, name) == 0;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return mode_is("broken") ? NOT_LOADED : OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "Driver Not Loaded"; }

int nvmlDeviceGetHandleByUUID(const char *uuid, int **out) {
    *out = &here;
    return strcmp(uuid, "GPU-00000000-0000-0000-0000-000000000001") == 0 ? OK : NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, int **out) {
    *out = &here;
    return strcmp(address, "00000000:18:00.0") == 0 ? OK : NOT_FOUND;
}
int nvmlDeviceGetClockInfo(int *gpu, unsigned kind, unsigned *out) { (void)gpu; *out = kind == 1 ? 1575 : 3201; return OK; }
int nvmlDeviceGetMaxClockInfo(int *gpu, unsigned kind, unsigned *out) { (void)gpu; *out = kind == 1 ? 1980 : 3201; return OK; }
int nvmlDeviceGetTemperature(int *gpu, unsigned sensor, unsigned *out) { (void)gpu; (void)sensor; *out = 56; return OK; }
int nvmlDeviceGetPowerUsage(int *gpu, unsigned *out) { (void)gpu; *out = 333000; return OK; }
#ifndef DRIVER_BEFORE_535
int nvmlDeviceGetCurrentClocksEventReasons(int *gpu, unsigned long long *out) {
    (void)gpu;
    *out = 0x4 | 0x40; /* two at once */
    return OK;
}
#endif
int nvmlDeviceGetCurrentClocksThrottleReasons(int *gpu, unsigned long long *out) { (void)gpu; *out = 0x20; return OK; }
int nvmlDeviceGetTotalEccErrors(int *gpu, unsigned kind, unsigned counter, unsigned long long *out) {
    (void)gpu; (void)counter;
    *out = kind == 0 ? 3 : 0;
    return mode_is("consumer") ? NOT_SUPPORTED : OK;
}

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, code;
    union { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; int si; unsigned short us; } value;
} field;

int nvmlDeviceGetFieldValues(int *gpu, int count, field *fields) {
    (void)gpu;
    for (int i = 0; i < count; i++) {
        field *f = &fields[i];
        f->code = mode_is("consumer") && f->field != 83 ? NOT_SUPPORTED : OK;
        switch (f->field) {
        case 74: f->type = 3; f->value.ull = 2879746560ull; break;
        case 83: f->type = 3; f->value.ull = 2042186; break;
        case 186: f->type = 1; f->value.ull = 0; f->value.ui = 710818; break;
        case 82: f->type = 1; f->value.ull = 0; f->value.ui = 41; break;
        case 144: f->type = 1; f->value.ull = 0; f->value.ui = 1; break;
        default: f->type = 3; f->value.ull = 0; break;
        }
    }
    return OK;
}

typedef struct { unsigned gpu, memory; } rates;
int nvmlDeviceGetUtilizationRates(int *gpu, rates *out) { (void)gpu; out->gpu = mode_is("busy") ? 40 : 0; out->memory = 0; return OK; }
typedef struct { unsigned long long total, free, used; } memory;
int nvmlDeviceGetMemoryInfo(int *gpu, memory *out) {
    (void)gpu;
    out->total = 150754820096ull;
    out->used = mode_is("busy") ? 20000000000ull : 648347648ull;
    out->free = out->total - out->used;
    return OK;
}
int nvmlDeviceGetMigMode(int *gpu, unsigned *now, unsigned *pending) { (void)gpu; *now = *pending = mode_is("mig"); return OK; }

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;
int nvmlDeviceGetComputeRunningProcesses_v3(int *gpu, unsigned *count, process *out) {
    (void)gpu;
    unsigned there = mode_is("busy") ? 2 : 0;
    int fits = *count >= there;
    *count = there;
    if (!fits) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < there; i++) out[i].pid = 4000000 + i;
    return OK;
}
