// SPDX-License-Identifier: Apache-2.0
// After the members' source and the constants kMembers, kMostMembers and kOperands.
struct Member {
  unsigned long long first;  // of its CTAs
  void* operands[kOperands];
  void* workspace;
  unsigned* tickets;
  alone::Sizes sizes;
};
struct Sizes {
  Member members[kMembers];
};

PD_DEVICE int member_of(const Sizes& size, unsigned cta) {
  int found = 0;
  for (int step = kMostMembers / 2; step > 0; step /= 2) {
    if (found + step < kMembers && cta >= size.members[found + step].first) found += step;
  }
  return found;
}
