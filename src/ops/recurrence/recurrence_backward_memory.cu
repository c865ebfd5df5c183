// SPDX-License-Identifier: Apache-2.0
// Parts of what comes back through memory, each word for one reader. A team has two places for them, used in turn; the
// lowest bit of a word, a 2^24th of it, tells whether it is of this use or of the one before, as it changes with each.
// Who gives the parts of step s + 2 has had those of step s + 1 from everybody, who then had all of step s.

constexpr int kPartWords = kRows * kUnits, kPlaceWords = kTeam * kTeam * kPartWords, kExchangeBytes = 0;
constexpr int kPortions = kIsByGroups ? kTiles : 1;  // what is given while products go on

struct PartExchange {
  unsigned* places;  // two of [kTeam to][kTeam from][kRows][kUnits]
  PlaceMarks marks;
  int rank;

  PD_DEVICE PartExchange(const Shared&, void*, const Room& room, unsigned cta) : rank(rank_in_team(cta)) {
    const Index team = cta / kTeam;
    places = room.tickets + team * (2 * kPlaceWords);
    marks.told = room.tickets + (Index)kTeams * (2 * kPlaceWords) + team * 2;
  }
  PD_DEVICE void begin() {
    marks.begin();
    __syncthreads();
  }

  PD_DEVICE void wait(int) const {}
  template <class Counts>
  PD_DEVICE void take(float (&sum)[kCells], int step, const CellPlace (&place)[kCells], const Counts& counts) const {
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (counts(i)) sum[i] = take(step, place[i]);
    }
  }
  template <int kPortion> PD_DEVICE void give(const float (&sum)[kTiles][kColumnTiles][4], int step) const {
    unsigned* const place = places + step % 2 * kPlaceWords + rank * kPartWords;
    const unsigned mark = marks.of(step);
    const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 * (kTiles * 16);
#pragma unroll
    for (int i = kPortion * (kTiles * 2 / kPortions); i < (kPortion + 1) * (kTiles * 2 / kPortions); ++i) {
      const int row = first_row + i * 8;  // 8 units of one CTA
      if (row >= kHidden) break;
      unsigned* const to = place + row / kUnits * (kTeam * kPartWords) + row % kUnits + lane / 4;
#pragma unroll
      for (int k = 0; k < kColumnTiles * 2; ++k) {
        const int n = k / 2 * 8 + lane % 4 * 2 + k % 2;
        if (n < kRows) store_relaxed(to + n * kUnits, (__float_as_uint(sum[i / 2][k / 2][i % 2 * 2 + k % 2]) & ~1u) | mark);
      }
    }
    if constexpr (kPortion + 1 == kPortions) __syncthreads();  // nobody reads the factors any more
  }
  PD_DEVICE void end(int steps) const {
    __syncthreads();  // everybody has begun: their last parts have come
    if (rank == 0) marks.end(steps);
  }

 private:
  PD_DEVICE float take(int step, const CellPlace& place) const {
    constexpr int kAtOnce = kTeam < 32 ? kTeam : 32;  // asked for without waiting for one after the other
    const unsigned* const from = places + step % 2 * kPlaceWords + rank * (kTeam * kPartWords) + place.row * kUnits + place.of_cta;
    const unsigned mark = marks.of(step);
    float sum = 0;
#pragma unroll
    for (int first = 0; first < kTeam; first += kAtOnce) {
      unsigned words[kAtOnce];
      const auto ask = [&] {
        unsigned wrong = 0;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (first + i < kTeam) words[i] = load_relaxed(from + (first + i) * kPartWords);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (first + i < kTeam) wrong |= words[i] ^ mark;
        }
        return (wrong & 1) == 0;
      };
      while (!ask()) {}
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < kTeam) sum += __uint_as_float(words[i] & ~1u);
      }
    }
    return sum;
  }
};
