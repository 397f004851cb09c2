// The instructions of sm_90a that CUDA C++ has no words for, one function each. No header is included anywhere: NVRTC
// compiles these files as they are, and so does nvcc.
#pragma once

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

// A CUtensorMap: how the copy engine walks one tensor. Lives in the kernel's parameters, which the engine reads.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

#ifdef FIRSTLIGHT_STRESS  // pipeline stress: every role waits a random while now and then, so that all orders of arrival happen
__device__ __forceinline__ void stress(u32 salt) {
  u32 clock;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(clock));
  u32 mixed = (clock ^ (salt * 2654435761u) ^ (blockIdx.x * 40503u) ^ (threadIdx.x >> 5) * 977u) * 2246822519u;
  if ((mixed >> 28) == 0) asm volatile("nanosleep.u32 %0;" ::"r"((mixed >> 8) & 4095u));
}
#else
#define stress(salt)
#endif

__device__ __forceinline__ u32 shared_address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// ---- mbarriers: a phase ends when all arrivals and all announced bytes are in

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
#ifdef FIRSTLIGHT_DEBUG  // a fault in the protocol traps instead of hanging: each try waits some microseconds
  u32 done;
  int tries = 0;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    if (++tries > (1 << 20)) __trap();
  } while (!done);
#else
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}"
      ::"r"(barrier), "r"(parity) : "memory");
#endif
}

__device__ __forceinline__ void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// 128 threads of one warpgroup meet; the number is the warpgroup's own
__device__ __forceinline__ void meet(int number) { asm volatile("bar.sync %0, 128;" ::"r"(number) : "memory"); }

// two warps
__device__ __forceinline__ void meet_two(int number) { asm volatile("bar.sync %0, 64;" ::"r"(number) : "memory"); }

__device__ __forceinline__ bool any_of_warpgroup(int number, bool mine) {
  u32 result;
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 p, %2, 0;\nbar.red.or.pred q, %1, 128, p;\nselp.u32 %0, 1, 0, q;\n}"
      : "=r"(result) : "r"(number), "r"((u32)mine) : "memory");
  return result != 0;
}

// ---- the copy engine

// The engine will need this map: its first copy finds it at hand.
__device__ __forceinline__ void fetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void load_box_3d(u32 to, const TensorMap* map, u32 barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
      ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z) : "memory");
}

__device__ __forceinline__ void load_box_4d(u32 to, const TensorMap* map, u32 barrier, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
      ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

__device__ __forceinline__ void load_bytes(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

__device__ __forceinline__ void store_box_3d(const TensorMap* map, u32 from, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
      ::"l"(map), "r"(from), "r"(x), "r"(y), "r"(z) : "memory");
}

// the same, and L2 is to give up these bytes before others
__device__ __forceinline__ void store_box_3d_passing(const TensorMap* map, u32 from, int x, int y, int z) {
  asm volatile(
      "{\n.reg .b64 policy;\ncreatepolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%2, %3, %4}], [%1], policy;\n}"
      ::"l"(map), "r"(from), "r"(x), "r"(y), "r"(z) : "memory");
}

__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// at most `left` groups of stores still read shared memory
template <int left> __device__ __forceinline__ void stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(left) : "memory");
}
__device__ __forceinline__ void stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// what this thread wrote to shared memory is seen by the copy engine and the tensor cores
__device__ __forceinline__ void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- thread blocks of one cluster, which reach each other's shared memory

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// all threads of all its thread blocks
__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// at the barrier that has this address in the thread block of that rank
__device__ __forceinline__ void barrier_arrive_in(u32 barrier, u32 rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(rank) : "memory");
}

// one number into another thread block's shared memory; its barrier gets 4 bytes
__device__ __forceinline__ void tell(u32 to, u32 what, u32 barrier, u32 rank) {
  asm volatile(
      "{\n.reg .b32 there, bar;\nmapa.shared::cluster.u32 there, %0, %3;\nmapa.shared::cluster.u32 bar, %2, %3;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [there], %1, [bar];\n}"
      ::"r"(to), "r"(what), "r"(barrier), "r"(rank) : "memory");
}

// the same box to the same place in each thread block of the cluster whose bit is set; each one's barrier gets the bytes
__device__ __forceinline__ void load_box_3d_for(u32 to, const TensorMap* map, u32 barrier, int x, int y, int z, u32 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;"
      ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"((u16)blocks) : "memory");
}

// ---- 8x8 matrices between registers and shared memory

__device__ __forceinline__ void load_matrices(u32 from, u32 (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_matrices_turned(u32 from, u32 (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void store_matrices(u32 to, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
__device__ __forceinline__ void store_matrices_turned(u32 to, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

// four registers, to shared memory at `where` unless `never` is 0, as it is
__device__ __forceinline__ void seem_used(u32 never, u32 where, const u32 (&r)[4]) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.shared.v4.u32 [%1], {%2, %3, %4, %5};\n}"
               ::"r"(never), "r"(where), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

// ---- 16-bit numbers: BF16 is 1 for bfloat16, 0 for float16

__device__ __forceinline__ u32 packed(float low, float high) {
  u32 both;
#if BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#endif
  return both;
}
__device__ __forceinline__ float number(u16 bits) {
#if BF16
  return __uint_as_float((u32)bits << 16);
#else
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
  return wide;
#endif
}
__device__ __forceinline__ u16 narrow(float wide) { return (u16)packed(wide, 0.0f); }

// two products of two numbers, each rounded
__device__ __forceinline__ u32 multiplied_pair(u32 a, u32 b) {
  u32 both;
#if BF16
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
#else
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
#endif
  return both;
}

// the larger one; NaN stays NaN
__device__ __forceinline__ float larger(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

// A number that is used no earlier than another one is there: it would be the other one, were `never` not 0. Where much can
// be done at once, ptxas begins more than it has registers for.
__device__ __forceinline__ void not_before(u32 never, float& used, float there) {
  asm("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n@p mov.b32 %0, %2;\n}" : "+f"(used) : "r"(never), "f"(there));
}

// ---- special functions, to about 22 bits

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- registers of a warpgroup, and memory that other multiprocessors write

template <int count> __device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count> __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
__device__ __forceinline__ float4 load_fresh(const float4* from) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
  return v;
}
