/* A libnvidia-ml.so.1 for tests. FAKE_NVML chooses what it does:
 * good (two GPUs, the first an H200, the second with MIG), lost (the second GPU is gone), vanishing (it goes while it is
 * asked), jetson (every number is "not supported"), mismatch / notloaded / unknown (nvmlInit fails), hang (nvmlInit never returns), crash, noisy
 * (prints on stdout as NVIDIA's stub does), guest (the second GPU is a virtual one without a licence, confidential computing is on), many (an absurd number of GPUs), slow (each GPU takes half a second). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { int index; int is_mig; } device;
static device gpus[2] = {{0, 0}, {1, 0}};
static device mig = {1, 1};

static int mode_is(const char *name) {
    const char *mode = getenv("FAKE_NVML");
    return mode != NULL && strcmp(mode, name) == 0;
}

static int put(char *out, const char *text, unsigned size) {
    snprintf(out, size, "%s", text);
    return 0;
}

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, LOST = 15 };

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (mode_is("noisy")) printf("WARNING: this is a stub\n");
    if (mode_is("crash")) abort();
    while (mode_is("hang")) sleep(1);
    return mode_is("mismatch") ? 18 : mode_is("notloaded") ? 9 : mode_is("unknown") ? 999 : OK;
}

const char *nvmlErrorString(int code) {
    return code == 18 ? "Driver/library version mismatch" : code == 9 ? "Driver Not Loaded" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) { return put(out, "580.159.04", size); }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { return put(out, "13.580.159.04", size); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = 13000; return OK; }
int nvmlDeviceGetCount_v2(unsigned *out) { *out = mode_is("many") ? 4000000000u : 2; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **out) {
    if (mode_is("slow")) usleep(500000);
    if (index > 1) return NOT_FOUND;
    *out = &gpus[index];
    return mode_is("lost") && index == 1 ? LOST : OK;
}

/* The names stay on a Jetson; every number is refused. */
#define NUMBER(name, value) \
    int name(device *gpu, unsigned *out) { (void)gpu; if (mode_is("jetson")) return NOT_SUPPORTED; *out = (value); return OK; }
#define PAIR(name, first, second) \
    int name(device *gpu, unsigned *a, unsigned *b) { \
        (void)gpu; if (mode_is("jetson")) return NOT_SUPPORTED; *a = (first); *b = (second); return OK; }
#define CLOCK(name, sm, memory) \
    int name(device *gpu, unsigned kind, unsigned *out) { \
        (void)gpu; if (mode_is("jetson")) return NOT_SUPPORTED; *out = kind == 1 ? (sm) : (memory); return OK; }

int nvmlDeviceGetName(device *gpu, char *out, unsigned size) {
    if (mode_is("jetson")) return put(out, "NVIDIA Thor", size);
    return put(out, gpu->is_mig ? "NVIDIA H200 MIG 1g.18gb" : "NVIDIA H200", size);
}
int nvmlDeviceGetUUID(device *gpu, char *out, unsigned size) {
    if (gpu->is_mig) return put(out, "MIG-00000000-0000-0000-0000-00000000000a", size);
    return put(out, gpu->index ? "GPU-00000000-0000-0000-0000-000000000001" : "GPU-00000000-0000-0000-0000-000000000000", size);
}
NUMBER(nvmlDeviceGetBrand, 14)
NUMBER(nvmlDeviceGetArchitecture, 9)
PAIR(nvmlDeviceGetCudaComputeCapability, 9, 0)

typedef struct { unsigned long long total, free, used; } memory;
int nvmlDeviceGetMemoryInfo(device *gpu, memory *out) {
    if (mode_is("jetson")) return NOT_SUPPORTED;
    out->total = gpu->is_mig ? 17179869184ull : 150754820096ull;
    return OK;
}

typedef struct { char legacy[16]; unsigned domain, bus, slot, device_id, subsystem_id; char bus_id[32]; } pci;
int nvmlDeviceGetPciInfo_v3(device *gpu, pci *out) {
    if (mode_is("jetson")) return NOT_SUPPORTED;
    out->device_id = 0x233510de;
    return put(out->bus_id, gpu->index ? "00000000:2A:00.0" : "00000000:18:00.0", sizeof out->bus_id);
}

int nvmlDeviceGetMigMode(device *gpu, unsigned *now, unsigned *pending) {
    if (mode_is("jetson")) return NOT_SUPPORTED;
    if (mode_is("vanishing") && gpu->index == 1) return LOST;
    *now = *pending = gpu->index;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(device *gpu, unsigned *out) { (void)gpu; *out = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *gpu, unsigned index, device **out) {
    (void)gpu;
    *out = &mig;
    return index == 2 ? OK : NOT_FOUND; /* slots before and after are empty */
}

PAIR(nvmlDeviceGetEccMode, 1, 1)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, 650000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, 700000)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, 200000, 700000)
CLOCK(nvmlDeviceGetClockInfo, 345, 3201)
CLOCK(nvmlDeviceGetMaxClockInfo, 1980, 3201)
NUMBER(nvmlDeviceGetPersistenceMode, 1)
NUMBER(nvmlDeviceGetComputeMode, 0)
int nvmlDeviceGetVirtualizationMode(device *gpu, unsigned *out) {
    *out = mode_is("guest") && gpu->index == 1 ? 2 : 1;
    if (mode_is("guest")) return OK;
    return mode_is("jetson") ? NOT_SUPPORTED : NO_PERMISSION;
}
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 8)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)
int nvmlDeviceGetTemperature(device *gpu, unsigned sensor, unsigned *out) {
    (void)gpu; (void)sensor;
    *out = 31;
    return mode_is("jetson") ? NOT_SUPPORTED : OK;
}
/* Only the older of the two names, as drivers before 535 have it. */
int nvmlDeviceGetCurrentClocksThrottleReasons(device *gpu, unsigned long long *out) {
    (void)gpu;
    *out = 0x24 | 0x1000;
    return mode_is("jetson") ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetTotalEccErrors(device *gpu, unsigned kind, unsigned counter, unsigned long long *out) {
    (void)gpu;
    if (mode_is("jetson")) return NOT_SUPPORTED;
    *out = kind == 1 ? (counter == 0 ? 2 : 7) : 1000;
    return OK;
}
int nvmlDeviceGetRemappedRows(device *gpu, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed) {
    (void)gpu;
    if (mode_is("jetson")) return NOT_SUPPORTED;
    *correctable = 1; *uncorrectable = 3; *pending = 1; *failed = 0;
    return OK;
}
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, 0)

typedef struct { unsigned version; unsigned char cluster[16]; unsigned status, clique, state, health; } fabric;
int nvmlDeviceGetGpuFabricInfoV(device *gpu, fabric *out) {
    (void)gpu;
    if (mode_is("jetson")) return NOT_SUPPORTED;
    out->state = 3;
    out->status = 0;
    out->clique = 7;
    out->health = mode_is("guest") ? 0x9 : 0xa; /* two bits a field, 1 for yes: degraded bandwidth */
    return OK;
}

/* One page after many single-bit errors, three after double-bit errors. */
int nvmlDeviceGetRetiredPages(device *gpu, unsigned cause, unsigned *count, unsigned long long *pages) {
    unsigned there = cause == 0 ? 1 : 3;
    (void)gpu;
    if (!mode_is("guest")) return NOT_SUPPORTED;
    if (pages == NULL || *count < there) { *count = there; return 7; }
    for (unsigned i = 0; i < there; i++) pages[i] = 0x1000 * (i + 1);
    *count = there;
    return OK;
}

typedef struct { unsigned year; unsigned short month, day, hour, min, sec; unsigned char status; } expiry;
typedef struct { unsigned code, state; char info[128], product[128]; unsigned enabled; expiry ends; } licence;
typedef struct { int supported; unsigned count; licence each[3]; } licences;
int nvmlDeviceGetGridLicensableFeatures_v4(device *gpu, licences *out) {
    (void)gpu;
    memset(out, 0, sizeof *out);
    out->supported = 1;
    out->count = 1;
    out->each[0].state = 3;
    strcpy(out->each[0].product, "NVIDIA Virtual Compute Server");
    return OK;
}

typedef struct { unsigned environment, feature, tools; } confidential;
int nvmlSystemGetConfComputeState(confidential *out) {
    if (!mode_is("guest")) return NOT_SUPPORTED;
    out->environment = 2; out->feature = 1; out->tools = 0;
    return OK;
}
int nvmlSystemGetConfComputeGpusReadyState(unsigned *out) { *out = 0; return mode_is("guest") ? OK : NOT_SUPPORTED; }
