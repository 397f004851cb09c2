// The command line. A complaint is one line: what was given, what is accepted.
#pragma once

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

struct Options {
  int block = 128, m = 8192, n = 8192, k = 8192, seed = 0, repeats = 15;
  double density = 0.1, sustained_s = 1.0;
  bool bf16 = false, linear = false, json = false, spoil = false;

  const char* dtype() const { return bf16 ? "bf16" : "fp16"; }
  const char* call() const { return linear ? "linear" : "matmul"; }
};

constexpr int GOOD = 0, CHECK_FAILED = 1, BAD_INPUT = 2, COULD_NOT_LOOK = 4;

inline const char* HELP =
    "Usage: sparse_bsr_gemm_h100 [options]\n"
    "\n"
    "Multiplies a random block-sparse matrix W [m, k] with a dense X, checks every element of the result against a plain\n"
    "kernel in float64, and times it: the kernels of `firstlight.kernels`, backend sm90, without Python.\n"
    "\n"
    "  --block 16|32|64|128   size of a stored block                          (128)\n"
    "  --density D            share of blocks that is stored, 0 to 1          (0.1)\n"
    "  --m M  --k K           rows and columns of W                           (8192, 8192)\n"
    "  --n N                  tokens                                          (8192)\n"
    "  --dtype fp16|bf16                                                      (fp16)\n"
    "  --call matmul|linear   Y = W X, X [k, n]; or Y = X W', X [n, k]        (matmul)\n"
    "  --seed S               of the pattern and the data                     (0)\n"
    "  --repeats R            timed runs in the burst, 1 to 10000             (15)\n"
    "  --sustained SECONDS    of runs without a pause, 0 for none, up to 60   (1)\n"
    "  --spoil                change one element of the result before the check, which then must fail\n"
    "  --json                 one JSON object instead of text\n"
    "  --help\n"
    "\n"
    "Example: sparse_bsr_gemm_h100 --block 64 --density 0.3 --dtype bf16\n"
    "\n"
    "Exit code: 0 right and timed; 1 the result is wrong; 2 bad input; 4 no GPU of compute capability 9.0 here.\n"
    "Shapes: matmul takes n in multiples of 8; linear takes m, and at blocks 64 and 128 k, in multiples of 8.\n";

[[noreturn]] inline void refuse(const std::string& complaint) {
  fprintf(stderr, "sparse_bsr_gemm_h100: %s\n", complaint.c_str());
  exit(BAD_INPUT);
}

inline long whole(const std::string& name, const std::string& text, long least, long most) {
  char* end = nullptr;
  errno = 0;
  long number = strtol(text.c_str(), &end, 10);
  if (text.empty() || *end || errno || number < least || number > most)
    refuse(name + " is '" + text + "'; accepted: a whole number from " + std::to_string(least) + " to " +
           std::to_string(most) + ".");
  return number;
}

inline double share(const std::string& name, const std::string& text, double most) {
  char* end = nullptr;
  double number = strtod(text.c_str(), &end);
  if (text.empty() || *end || !(number >= 0.0 && number <= most)) {  // NaN is refused too
    char top[32];
    snprintf(top, sizeof top, "%g", most);
    refuse(name + " is '" + text + "'; accepted: a number from 0 to " + top + ".");
  }
  return number;
}

inline bool one_of(const std::string& name, const std::string& text, const char* no, const char* yes) {
  if (text != no && text != yes) refuse(name + " is '" + text + "'; accepted: " + no + ", " + yes + ".");
  return text == yes;
}

inline void take(Options& options, const std::string& name, const std::string& text) {
  constexpr long most = 1 << 20;
  if (name == "--block") {
    options.block = (int)whole(name, text, 16, 128);
    if (options.block & (options.block - 1)) refuse("--block is '" + text + "'; accepted: 16, 32, 64, 128.");
  } else if (name == "--density") options.density = share(name, text, 1.0);
  else if (name == "--m") options.m = (int)whole(name, text, 1, most);
  else if (name == "--n") options.n = (int)whole(name, text, 1, most);
  else if (name == "--k") options.k = (int)whole(name, text, 1, most);
  else if (name == "--dtype") options.bf16 = one_of(name, text, "fp16", "bf16");
  else if (name == "--call") options.linear = one_of(name, text, "matmul", "linear");
  else if (name == "--seed") options.seed = (int)whole(name, text, 0, 1 << 30);
  else if (name == "--repeats") options.repeats = (int)whole(name, text, 1, 10000);
  else if (name == "--sustained") options.sustained_s = share(name, text, 60.0);
  else refuse("'" + name + "' is no option of this program. Run it with --help for those it has.");
}

inline void require_multiple(const char* name, int given, const Options& options) {
  if (given % 8)
    refuse(std::string(name) + " is " + std::to_string(given) + "; " + options.call() + " at block " +
           std::to_string(options.block) + " takes multiples of 8, as rows are read in units of 16 bytes.");
}

inline Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; i++) {
    std::string name = words[i], text;
    if (name == "--help" || name == "-h") {
      fputs(HELP, stdout);
      exit(GOOD);
    }
    if (name == "--json" || name == "--spoil") {
      (name == "--json" ? options.json : options.spoil) = true;
      continue;
    }
    size_t sign = name.find('=');
    if (sign != std::string::npos) text = name.substr(sign + 1), name = name.substr(0, sign);
    else if (name.rfind("--", 0) == 0 && i + 1 < count) text = words[++i];
    take(options, name, text);
  }
  long long places = ((options.m - 1LL) / options.block + 1) * ((options.k - 1LL) / options.block + 1);
  if (places > 1 << 28)
    refuse("W has " + std::to_string(places) + " places for blocks; up to 268435456 are accepted. "
           "Take larger blocks or a smaller --m or --k.");
  if (options.linear) {
    require_multiple("--m", options.m, options);
    if (options.block >= 64) require_multiple("--k", options.k, options);
  } else {
    require_multiple("--n", options.n, options);
  }
  return options;
}
