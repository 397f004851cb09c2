// Prints what lists.h of bsr_bench makes of a random pattern, one list a line.
#include <cstdio>
#include <cstdlib>

#include "lists.h"

static void print(const std::vector<int>& list) {
  for (int number : list) printf("%d ", number);
  printf("\n");
}

int main(int, char** words) {
  int rows = atoi(words[1]), cols = atoi(words[2]), block = atoi(words[4]), limit = atoi(words[5]);
  Pattern pattern = random_pattern(rows, cols, atof(words[3]), 7);
  Steps steps = steps_of(pattern, block);
  Portions portions = portions_of(steps, limit);
  print(pattern.starts);
  print(pattern.columns);
  print(steps.starts);
  print(steps.columns);
  print(steps.members);
  for (const Portion& item : portions.items) printf("%d %d %d %d ", item.group, item.begin, item.end, item.slot);
  printf("\n");
  print(portions.first_slot);
  print(portions.slot_counts);
  printf("%d\n", portion_limit(steps, block, atoi(words[6]), atoi(words[7]), 132));
}
