// [rows, from_pitch] -> [rows, to_pitch]: rows of 16-bit numbers made longer, filled up with zeros, or cut off. TMA reads and
// writes rows that are a multiple of 16 bytes apart, and reads slowly what does not start at a multiple of 32.
typedef unsigned short u16;
typedef unsigned int u32;

constexpr int THREADS = 256, AT_ONCE = 4;

struct PitchArgs {
  const u16* from;
  u16* to;
  int from_pitch, to_pitch;
  int there;  // numbers that a row of `from` has
  int wanted; // that a row of `to` gets; zeros from `there` on
};

extern "C" __global__ void __launch_bounds__(THREADS) pitch(const __grid_constant__ PitchArgs args) {
  const u16* from = args.from + (long long)blockIdx.x * args.from_pitch;
  u16* to = args.to + (long long)blockIdx.x * args.to_pitch;
  // pairs start where an even number of numbers precedes them in memory
  int head = (int)((unsigned long long)to >> 1 & 1), pairs = (args.wanted - head) / 2;
  if (threadIdx.x == 0 && head) to[0] = args.there > 0 ? from[0] : (u16)0;
  if (threadIdx.x == 1 && head + 2 * pairs < args.wanted) {
    int last = args.wanted - 1;
    to[last] = last < args.there ? from[last] : (u16)0;
  }
  for (int first = threadIdx.x; first < pairs; first += THREADS * AT_ONCE) {
    u32 both[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      int at = head + 2 * (first + i * THREADS);
      u32 low = at < args.there ? from[at] : 0u, high = at + 1 < args.there ? from[at + 1] : 0u;
      both[i] = low | high << 16;
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
      if (first + i * THREADS < pairs) *(u32*)(to + head + 2 * (first + i * THREADS)) = both[i];
  }
}
