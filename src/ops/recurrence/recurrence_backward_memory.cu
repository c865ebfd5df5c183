// SPDX-License-Identifier: Apache-2.0
// Parts of what comes back through memory, each word for one reader. A team has two places for them, used in turn; the
// lowest bit of a word, a 2^24th of it, tells whether it is of this use or of the one before, as it changes with each.
// Who gives the parts of step s + 2 has had those of step s + 1 from everybody, who then had all of step s.
// The more rows, the more the parts are. So kNeighbours CTAs with numbers side by side tell each other the gradients of their
// gates, and each multiplies all of these for a share of the units: parts are that many fewer and longer. The gradients go
// the same way as parts do. (A CTA gets its parts from one of each kNeighbours, who had the gradients of all of them, who had
// all parts of the step before.)

constexpr int kPartWords = kRows * kUnits, kExchangeBytes = 0;
constexpr int kGivers = kTeam / kNeighbours;  // of parts to a CTA; and CTAs that one gives to
constexpr int kGateWords = kPartWords * kGates;
constexpr int kPlaceWords = kTeam * (kGivers * kPartWords + (kNeighbours > 1 ? kGateWords : 0));
constexpr int kPortions = kIsByGroups ? kTiles : 1;  // what is given while products go on

struct PartExchange {
  unsigned* places;  // two of [kTeam to][kGivers from][kRows][kUnits]; behind them [kTeam from][gates / 4][kRows][4]
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

  // A gradient of a gate of this CTA's, for its neighbours.
  PD_DEVICE void give_gate(int gate, const CellPlace& place, float gradient, int step) const {
    if constexpr (kNeighbours == 1) return;
    const int element = gate * kUnits + place.of_cta;
    unsigned bits = factor_bits(__float_as_uint(gradient)) & ~1u;
    if constexpr (sizeof(Factor) == 2) bits = stored_bits<Stored>(gradient) << 16;
    store_relaxed(gates_of(rank, step) + (element / 4 * kRows + place.row) * 4 + element % 4, bits | marks.of(step));
  }
  // Those of its neighbours, into what is multiplied; for all threads.
  PD_DEVICE void take_gates(unsigned char* factors, int step) const {
    if constexpr (kNeighbours == 1) return;
    constexpr int kPieces = kGateWords / 4, kAll = (kNeighbours - 1) * kPieces, kEach = kAll / kThreads + 1;
    constexpr int kAtOnce = kEach < 4 ? kEach : 4;
    const unsigned mark = marks.of(step);
    const int own = rank % kNeighbours;
#pragma unroll 1
    for (int first = threadIdx.x; first < kAll; first += kAtOnce * kThreads) {
      uint4 pieces[kAtOnce];
      const auto ask = [&] {
        unsigned wrong = 0;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int piece = first + i * kThreads, neighbour = piece / kPieces, from = neighbour + (neighbour >= own ? 1 : 0);
          if (piece >= kAll) continue;
          pieces[i] = load_relaxed((const uint4*)gates_of(rank - own + from, step) + piece % kPieces);
          wrong |= (pieces[i].x ^ mark) | (pieces[i].y ^ mark) | (pieces[i].z ^ mark) | (pieces[i].w ^ mark);
        }
        return (wrong & 1) == 0;
      };
      while (!ask()) {}
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = first + i * kThreads, neighbour = piece / kPieces, from = neighbour + (neighbour >= own ? 1 : 0);
        if (piece >= kAll) continue;
        StateWords::store(place_of(factors + StateWords::place_in_vectors(from * kPieces + piece % kPieces)), pieces[i]);
      }
    }
  }

  PD_DEVICE void wait(int) const {}
  // Of every step, whether it counts for the cell's row or not: a word that was never looked for may be late by a use of
  // its place, and then has the mark of this one.
  PD_DEVICE void take(float (&sum)[kCells], int step, const CellPlace (&place)[kCells]) const {
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (place[i].at >= 0) sum[i] = take(step, place[i]);
    }
  }
  template <int kPortion> PD_DEVICE void give(const float (&sum)[kTiles][kColumnTiles][4], int step) const {
    unsigned* const place = places + step % 2 * kPlaceWords +
                            (rank % kNeighbours * kGivers * kGivers + rank / kNeighbours) * kPartWords;
    const unsigned mark = marks.of(step);
    const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 * (kTiles * 16);
#pragma unroll
    for (int i = kPortion * (kTiles * 2 / kPortions); i < (kPortion + 1) * (kTiles * 2 / kPortions); ++i) {
      const int row = first_row + i * 8 + (kUnits % 8 == 0 ? 0 : lane / 4);  // 8 units of one CTA, or of any
      if (first_row + i * 8 >= kGivers * kUnits) break;
      const int unit = row % kUnits + (kUnits % 8 == 0 ? lane / 4 : 0);
      unsigned* const to = place + row / kUnits * (kGivers * kPartWords) + unit;
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
  PD_DEVICE unsigned* gates_of(int from, int step) const {
    return places + step % 2 * kPlaceWords + kTeam * (kGivers * kPartWords) + from * kGateWords;
  }
  PD_DEVICE float take(int step, const CellPlace& place) const {
    constexpr int kAtOnce = kGivers < 32 ? kGivers : 32;  // asked for without waiting for one after the other
    const unsigned* const from = places + step % 2 * kPlaceWords + rank * (kGivers * kPartWords) + place.row * kUnits + place.of_cta;
    const unsigned mark = marks.of(step);
    float sum = 0;
#pragma unroll
    for (int first = 0; first < kGivers; first += kAtOnce) {
      unsigned words[kAtOnce];
      const auto ask = [&] {
        unsigned wrong = 0;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (first + i < kGivers) words[i] = load_relaxed(from + (first + i) * kPartWords);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (first + i < kGivers) wrong |= words[i] ^ mark;
        }
        return (wrong & 1) == 0;
      };
      while (!ask()) {}
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < kGivers) sum += __uint_as_float(words[i] & ~1u);
      }
    }
    return sum;
  }
};
