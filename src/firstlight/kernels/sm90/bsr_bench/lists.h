// A random pattern and what the kernel walks for it: union lists of 128 rows each, cut into portions. The library
// computes the same lists on the GPU; here they are made by the host in the plainest way.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

struct Pattern {  // CSR over blocks
  int block_rows, block_cols;
  std::vector<int> starts, columns;

  int entries() const { return (int)columns.size(); }
};

inline uint64_t mixed(uint64_t x) {  // splitmix64's finisher: every bit of x reaches every bit of the result
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Exactly round(density * places) blocks, each choice of places as likely as any other.
inline Pattern random_pattern(int block_rows, int block_cols, double density, int seed) {
  Pattern made{block_rows, block_cols, {0}, {}};
  int64_t left = (int64_t)block_rows * block_cols, wanted = (int64_t)(density * (double)left + 0.5);
  uint64_t number = mixed(1000003ull * (uint64_t)seed + 17);
  for (int row = 0; row < block_rows; row++) {
    for (int column = 0; column < block_cols; column++, left--) {
      number = mixed(number);
      if ((double)(number >> 11) * 0x1p-53 * (double)left < (double)wanted) made.columns.push_back(column), wanted--;
    }
    made.starts.push_back(made.entries());
  }
  return made;
}

struct Steps {
  int height, width;                         // block rows of a group, union columns of a step
  std::vector<int> starts, columns, members;  // as multiply.cu has them
  std::vector<int> rows;                      // block rows of the groups: here in their order
  int64_t used = 0;                           // union columns without the filling
  int64_t halves = 0;                         // of these, times the halves of 64 rows that have a block there

  int groups() const { return (int)starts.size() - 1; }
  int count() const { return starts.back(); }
};

inline Steps steps_of(const Pattern& pattern, int block) {
  Steps made{128 / block, std::max(1, 64 / block), {0}, {}, {}};
  std::vector<int> table((size_t)pattern.block_cols * made.height);
  for (int first = 0; first < pattern.block_rows; first += made.height) {
    std::fill(table.begin(), table.end(), -1);
    for (int row = first; row < std::min(first + made.height, pattern.block_rows); row++)
      for (int entry = pattern.starts[row]; entry < pattern.starts[row + 1]; entry++)
        table[(size_t)pattern.columns[entry] * made.height + (row - first)] = entry;
    for (int column = 0; column < pattern.block_cols; column++) {
      const int* members = &table[(size_t)column * made.height];
      if (std::all_of(members, members + made.height, [](int member) { return member < 0; })) continue;
      made.columns.push_back(column);
      made.members.insert(made.members.end(), members, members + made.height);
      made.used++;
      int half = std::max(1, made.height / 2);
      for (int row = 0; row < made.height; row += half)
        made.halves += std::any_of(members + row, members + row + half, [](int member) { return member >= 0; });
    }
    while (made.columns.size() % made.width) {  // whole steps, filled up with a column that X does not have
      made.columns.push_back(pattern.block_cols);
      made.members.insert(made.members.end(), made.height, -1);
    }
    made.starts.push_back((int)(made.columns.size() / made.width));
    for (int row = first; row < first + made.height; row++) made.rows.push_back(row);
  }
  return made;
}

struct Portion {
  int group, begin, end, slot;
};

struct Portions {
  std::vector<Portion> items;  // longest first
  std::vector<int> first_slot, slot_counts;
  int slots = 0;
};

inline Portions portions_of(const Steps& steps, int limit) {
  Portions made;
  for (int group = 0; group < steps.groups(); group++) {
    int64_t begin = steps.starts[group], length = steps.starts[group + 1] - begin;
    int count = (int)std::max<int64_t>(1, (length + limit - 1) / limit);
    made.first_slot.push_back(made.slots);
    made.slot_counts.push_back(count > 1 ? count : 0);
    for (int i = 0; i < count; i++)
      made.items.push_back({group, (int)(begin + i * length / count), (int)(begin + (i + 1) * length / count),
                            count > 1 ? made.slots + i : -1});
    if (count > 1) made.slots += count;
  }
  std::stable_sort(made.items.begin(), made.items.end(), [](const Portion& a, const Portion& b) {
    return a.end - a.begin > b.end - b.begin;
  });
  return made;
}

// Steps above which a group is cut: the rule of sm90/lists.py. Too few tiles to fill the GPU: one portion for each
// multiprocessor, if they are long enough; else only groups much longer than the others.
inline int portion_limit(const Steps& steps, int block, int tiles, int tokens, int multiprocessors) {
  int64_t count = std::max(1, steps.count()), groups = std::max(1, steps.groups()), per_step = block == 128 ? 2 : 1;
  auto over = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  int64_t mean = over(count, groups), stages = mean * per_step, each = multiprocessors / (groups * tiles);
  int64_t limit = std::max({3 * mean / 2 + 1, over(count * tiles, 3 * multiprocessors), mean + 24 / per_step});
  if (each >= 2 && stages >= (block >= 64 ? 48 : block == 32 ? 32 : 20))
    limit = std::max(over(mean, each), 2 * (int64_t)std::sqrt((double)stages) / per_step);
  while (limit < count && (int64_t)portions_of(steps, (int)limit).slots * tiles * 128 * tokens * 4 > (64 << 20))
    limit += 1 + limit / 4;
  return (int)limit;
}
