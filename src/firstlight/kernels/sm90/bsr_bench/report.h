// What a run found, as text or as one JSON object. Included by main.cu behind the types it prints.
#pragma once

struct Run {
  const Product& product;
  const Gpu& gpu;
  const Checked& checked;
  const Timed& timed;
  Limits limits;

  double tflops(double ms) const { return product.flop() / ms * 1e-9; }
  double density() const {
    double places = (double)product.pattern.block_rows * product.pattern.block_cols;
    return product.pattern.entries() / places;
  }
};

inline void print_time(const Run& run, const char* name, const std::vector<double>& times, const char* how) {
  if (times.empty()) return;
  double ms = median(times);
  printf("%-10s%.4f ms   %.0f TFLOP/s on stored blocks   %.0f %% of the limit   (median of %zu, %.4f to %.4f; %s)\n", name,
         ms, run.tflops(ms), 100 * run.limits.most() / ms, times.size(), *std::min_element(times.begin(), times.end()),
         *std::max_element(times.begin(), times.end()), how);
}

inline void print_text(const Run& run) {
  const Options& o = run.product.options;
  const Checked& c = run.checked;
  printf("%-10sW [%d, %d], %d blocks of %d (density %.4f), times %d tokens, %s %s, seed %d\n", "product", o.m, o.k,
         run.product.pattern.entries(), o.block, run.density(), o.n, o.call(), o.dtype(), o.seed);
  printf("%-10s%s, %d multiprocessors, at most %.0f MHz, copies at %.2f TB/s\n", "GPU", run.gpu.name.c_str(),
         run.gpu.multiprocessors, 1e-6 * run.gpu.clock_hz, 1e-12 * run.gpu.copy_bytes_s);
  if (!c.good()) {
    printf("%-10s%llu of %llu elements off (first at %lld), %d of %d by the CPU, %llu changed between runs\n", "WRONG",
           c.wrong, run.product.elements(), c.wrong ? (long long)c.first : -1, c.cpu_wrong, c.by_cpu, c.changed);
    return;
  }
  printf("%-10s%llu elements within their bound (worst at %.2f of it), %d of them by the CPU too; every run the same bits\n",
         "right", run.product.elements(), c.worst, c.by_cpu);
  print_time(run, "burst", run.timed.burst_ms, "after a pause of 0.4 s, L2 flushed before each");
  print_time(run, "sustained", run.timed.sustained_ms, "ten at a time without a pause, L2 as it is");
  const Limits& l = run.limits;
  printf("%-10s%s: %.4f ms   (tensor cores %.4f, L2 %.4f, memory %.4f ms)\n", "limit", l.name(), l.most(),
         l.tensor_ms, l.l2_ms, l.memory_ms);
}

inline void print_times_json(const char* name, const std::vector<double>& times, const Run& run) {
  printf("  \"%s\": ", name);
  if (times.empty()) {
    printf("null,\n");
    return;
  }
  double ms = median(times);
  printf("{\"ms\": %.6f, \"tflops\": %.3f, \"of_limit\": %.4f, \"samples_ms\": [", ms, run.tflops(ms),
         run.limits.most() / ms);
  for (size_t i = 0; i < times.size(); i++) printf("%s%.6f", i ? ", " : "", times[i]);
  printf("]},\n");
}

inline void print_json(const Run& run) {
  const Product& p = run.product;
  const Options& o = p.options;
  const Checked& c = run.checked;
  printf("{\n  \"schema\": \"firstlight/bsr-bench/1\",\n");
  printf("  \"gpu\": {\"name\": \"%s\", \"multiprocessors\": %d, \"clock_mhz\": %.0f, \"copy_tb_s\": %.3f},\n",
         run.gpu.name.c_str(), run.gpu.multiprocessors, 1e-6 * run.gpu.clock_hz, 1e-12 * run.gpu.copy_bytes_s);
  printf("  \"product\": {\"call\": \"%s\", \"dtype\": \"%s\", \"m\": %d, \"k\": %d, \"n\": %d, \"block\": %d, "
         "\"stored_blocks\": %d, \"density\": %.6f, \"seed\": %d, \"tile_tokens\": %d},\n",
         o.call(), o.dtype(), o.m, o.k, o.n, o.block, p.pattern.entries(), run.density(), o.seed, p.build->tokens);
  printf("  \"check\": {\"good\": %s, \"elements\": %llu, \"wrong\": %llu, \"worst_of_bound\": %.4g, \"by_cpu\": %d, "
         "\"cpu_wrong\": %d, \"changed_between_runs\": %llu},\n",
         c.good() ? "true" : "false", p.elements(), c.wrong, c.worst, c.by_cpu, c.cpu_wrong, c.changed);
  print_times_json("burst", run.timed.burst_ms, run);
  print_times_json("sustained", run.timed.sustained_ms, run);
  printf("  \"limits\": {\"name\": \"%s\", \"ms\": %.6f, \"tensor_ms\": %.6f, \"l2_ms\": %.6f, \"memory_ms\": %.6f, "
         "\"to_shared_bytes\": %.0f, \"memory_bytes\": %.0f, \"issued_flop\": %.0f}\n}\n",
         run.limits.name(), run.limits.most(), run.limits.tensor_ms, run.limits.l2_ms, run.limits.memory_ms,
         p.traffic.to_shared_bytes, p.traffic.memory_bytes, p.traffic.issued_flop);
}
