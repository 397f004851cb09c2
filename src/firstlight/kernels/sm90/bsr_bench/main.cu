// A block-sparse product on its own: made, checked, timed, and held against its limits. See --help.
#include <unistd.h>

#include <chrono>

#include "product.h"

// builds.h, which the Makefile writes, lists the kernels that are linked in: X(block, bf16, tokens, linear) ...
#define X(block, bf16, tokens, linear) extern const Build BUILD_NAME(block, bf16, tokens, linear);
#include "builds.h"
#undef X
#define X(block, bf16, tokens, linear) &BUILD_NAME(block, bf16, tokens, linear),
static const Build* const ALL[] = {
#include "builds.h"
};
#undef X

// What L2 gives the multiprocessors, in bytes a clock for each of them: 10.6 TB/s at 132 multiprocessors and 1980 MHz, a
// little over the most that any product of this kernel moved on an H200 (block 64, density 0.1, bf16).
constexpr double L2_BYTES_PER_CLOCK = 10.6e12 / 132 / 1.98e9;
constexpr double FLOP_PER_CLOCK = 4096;  // of a multiprocessor's tensor cores, 16-bit operands
constexpr size_t FLUSH_BYTES = 256u << 20;

static const Build* find_build(const Options& options) {
  int tokens = options.n <= 64 ? 64 : 256;
  for (const Build* build : ALL)
    if (build->block == options.block && build->bf16 == options.bf16 && build->tokens == tokens &&
        build->linear == options.linear)
      return build;
  refuse("this program was built without the kernel for --block " + std::to_string(options.block) + " --dtype " +
         options.dtype() + " --call " + options.call() + " and " + std::to_string(options.n) +
         " tokens. Build it without BUILDS=, which takes all of them.");
}

static int attribute(cudaDeviceAttr which) {
  int value = 0;
  ok(cudaDeviceGetAttribute(&value, which, 0), "asking the GPU for an attribute");
  return value;
}

struct Events {
  cudaEvent_t begin, end;
  Events() {
    ok(cudaEventCreate(&begin), "an event");
    ok(cudaEventCreate(&end), "an event");
  }
  template <class Work> double time_ms(Work work) {
    ok(cudaEventRecord(begin), "an event");
    work();
    ok(cudaEventRecord(end), "an event");
    ok(cudaEventSynchronize(end), "the kernel");
    float found = 0;
    ok(cudaEventElapsedTime(&found, begin, end), "an event");
    return found;
  }
};

static double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

static Gpu find_gpu(unsigned char* flush) {
  cudaDeviceProp found;
  ok(cudaGetDeviceProperties(&found, 0), "asking for the GPU's name");
  Gpu gpu{found.name, found.multiProcessorCount, 1e3 * attribute(cudaDevAttrClockRate), 0};
  Events events;
  std::vector<double> times;
  for (int i = 0; i < 7; i++)
    times.push_back(events.time_ms([&] {
      ok(cudaMemcpyAsync(flush, flush + FLUSH_BYTES, FLUSH_BYTES, cudaMemcpyDeviceToDevice), "a copy");
    }));
  gpu.copy_bytes_s = 2.0 * FLUSH_BYTES / (1e-3 * median(times));
  return gpu;
}

static void require_gpu() {
  int count = 0;
  cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0)
    cannot(std::string("no GPU can be used here (") + cudaGetErrorString(code) +
           "). One of compute capability 9.0 is needed (H100, H200); `firstlight doctor` says what is missing.");
  int major = attribute(cudaDevAttrComputeCapabilityMajor), minor = attribute(cudaDevAttrComputeCapabilityMinor);
  if (major != 9 || minor != 0)
    cannot("the GPU has compute capability " + std::to_string(major) + "." + std::to_string(minor) +
           "; 9.0 alone is accepted (H100, H200), as wgmma exists nowhere else.");
}

struct Checked {
  u64 wrong, first, changed;
  double worst;
  int by_cpu, cpu_wrong;
  bool good() const { return !wrong && !changed && !cpu_wrong; }
};

// Some elements once more by the CPU, from the formula of the data: the comparing kernel is held to account too.
static int wrong_by_cpu(const Product& product, int count) {
  const Options& o = product.options;
  const Pattern& p = product.pattern;
  int wrong = 0;
  for (int i = 0; i < count; i++) {
    u64 pick = mixed(977ull * i + o.seed) % product.elements();
    int row = (int)(pick / o.n), token = (int)(pick % o.n), line = row % o.block;
    Sum sum;
    for (int entry = p.starts[row / o.block]; entry < p.starts[row / o.block + 1]; entry++)
      for (int k = 0; k < std::min(o.block, o.k - p.columns[entry] * o.block); k++) {
        u64 at = ((u64)entry * o.block + line) * o.block + k, from = ((u64)p.columns[entry] * o.block + k) * o.n + token;
        float w = number_of(stored(random_number(2ull * o.seed + 1, at) * product.scale, o.bf16), o.bf16);
        sum.add(w, number_of(stored(random_number(2ull * o.seed + 2, from), o.bf16), o.bf16));
      }
    u16 found = 0;
    u64 place = o.linear ? (u64)token * o.m + row : pick;
    ok(cudaMemcpy(&found, product.call.out + place, 2, cudaMemcpyDeviceToHost), "reading the result");
    wrong += sum.off(number_of(found, o.bf16), o.bf16) >= 1.0;
  }
  return wrong;
}

static Checked check(const Product& product) {
  const Options& o = product.options;
  Reference at = {product.row_starts, product.block_columns, product.call.values, product.columns_of_x, product.call.out,
                  o.block, o.m, o.k, o.n, o.bf16, o.linear};
  Verdict found = {0, ~0ull, 0}, *verdict = room<Verdict>(1);
  ok(cudaMemcpy(verdict, &found, sizeof found, cudaMemcpyHostToDevice), "a copy to the GPU");
  compare<<<dim3((o.n + 127) / 128, std::min(o.m, 1024)), 128>>>(at, verdict);
  ok(cudaMemcpy(&found, verdict, sizeof found, cudaMemcpyDeviceToHost), "comparing");
  float worst;
  memcpy(&worst, &found.worst, 4);
  return {found.wrong, found.first, 0, worst, 64, wrong_by_cpu(product, 64)};
}

static u64 changed_since(const Product& product, const u16* before) {
  u64 found = 0, *count = room<u64>(1);
  ok(cudaMemcpy(count, &found, sizeof found, cudaMemcpyHostToDevice), "a copy to the GPU");
  differences<<<1024, 256>>>(before, product.call.out, product.elements(), count);
  ok(cudaMemcpy(&found, count, sizeof found, cudaMemcpyDeviceToHost), "comparing two runs");
  return found;
}

struct Timed {
  std::vector<double> burst_ms, sustained_ms;
};

static Timed time_product(const Product& product, unsigned char* flush) {
  Events events;
  Timed timed;
  auto once = [&] {
    ok(cudaMemsetAsync(flush, 0, FLUSH_BYTES), "flushing L2");
    return events.time_ms([&] { product.start(); });
  };
  for (int i = 0; i < 2; i++) once();
  usleep(400000);  // the clock recovers: a burst
  for (int i = 0; i < product.options.repeats; i++) timed.burst_ms.push_back(once());
  auto begin = std::chrono::steady_clock::now();
  auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  double limit = product.options.sustained_s;
  while (limit > 0 && (passed() < limit || timed.sustained_ms.empty())) {
    // ten at a time, so that the GPU never waits for the host; the first half of the time only heats it
    double ten = events.time_ms([&] { for (int i = 0; i < 10; i++) product.start(); }) / 10;
    if (passed() >= limit / 2) timed.sustained_ms.push_back(ten);
  }
  return timed;
}

struct Limits {
  double tensor_ms, l2_ms, memory_ms;
  double most() const { return std::max(tensor_ms, std::max(l2_ms, memory_ms)); }
  const char* name() const {
    return most() == l2_ms ? "L2" : most() == memory_ms ? "memory" : "tensor cores";
  }
};

static Limits limits_of(const Product& product, const Gpu& gpu) {
  double clocks = gpu.clock_hz * gpu.multiprocessors;
  const Traffic& t = product.traffic;
  return {1e3 * t.issued_flop / (clocks * FLOP_PER_CLOCK),
          1e3 * (t.to_shared_bytes + t.memory_bytes) / (clocks * L2_BYTES_PER_CLOCK),
          1e3 * t.memory_bytes / gpu.copy_bytes_s};
}

#include "report.h"

int main(int count, char** words) {
  Options options = parse(count, words);
  const Build* build = find_build(options);
  require_gpu();
  unsigned char* flush = room<unsigned char>(2 * FLUSH_BYTES);
  Gpu gpu = find_gpu(flush);
  Product product = make_product(options, build, gpu);
  product.start();
  ok(cudaDeviceSynchronize(), "the kernel");
  u16* before = room<u16>(product.elements());
  ok(cudaMemcpy(before, product.call.out, 2 * product.elements(), cudaMemcpyDeviceToDevice), "keeping the result");
  if (options.spoil) {
    u16 wrong = stored(100.0f, options.bf16);
    ok(cudaMemcpy(product.call.out + product.elements() / 2, &wrong, 2, cudaMemcpyHostToDevice), "spoiling the result");
  }
  Checked checked = check(product);
  Timed timed;
  if (checked.good()) {  // a wrong product has no time
    timed = time_product(product, flush);
    checked.changed = changed_since(product, before);
  }
  Run run{product, gpu, checked, timed, limits_of(product, gpu)};
  if (options.json) print_json(run);
  else print_text(run);
  return checked.good() ? GOOD : CHECK_FAILED;
}
