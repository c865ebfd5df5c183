// SPDX-License-Identifier: Apache-2.0
// AMX where the CPU has none: an unknown instruction raises SIGILL, and the handler here does its work.
#pragma once

#if defined(__x86_64__)
#include <signal.h>
#include <ucontext.h>

#include <bit>
#include <cstdint>
#include <cstring>

namespace paoding::testing_program {

/// While it lives, the instructions of AMX that multiply bf16 run in every thread, each as a signal.
class PretendTiles {
 public:
  PretendTiles() {
    struct sigaction action {};
    action.sa_sigaction = on_unknown;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &before_);
  }
  ~PretendTiles() { sigaction(SIGILL, &before_, nullptr); }
  PretendTiles(const PretendTiles&) = delete;
  PretendTiles& operator=(const PretendTiles&) = delete;

 private:
  struct Unit {
    std::uint8_t config[64] = {};
    std::uint8_t tiles[8][16][64] = {};

    int rows(int tile) const { return config[48 + tile]; }
    int row_bytes(int tile) const { return config[16 + 2 * tile]; }
  };
  static Unit& unit() {
    thread_local Unit unit;
    return unit;
  }

  // An instruction with a VEX prefix of three bytes: C4, registers' high bits and map, W vvvv L pp, opcode, ModRM.
  struct Decoded {
    const std::uint8_t* next;
    int prefix, opcode, reg, rm, third;
    bool is_memory;
    std::uintptr_t address = 0;  // without the index of a tile's rows
    std::int64_t row_step = 0;
  };

  static std::uint64_t number_of(const greg_t* registers, int index) {
    constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<std::uint64_t>(registers[kOrder[index]]);
  }

  static Decoded decode(const std::uint8_t* at, const greg_t* registers) {
    const int high_index = (at[1] & 0x40) != 0 ? 0 : 8, high_base = (at[1] & 0x20) != 0 ? 0 : 8;
    const std::uint8_t modrm = at[4];
    const int mode = modrm >> 6;
    Decoded d{at + 5, at[2] & 3, at[3], modrm >> 3 & 7, modrm & 7, ~(at[2] >> 3) & 15, mode != 3};
    if (!d.is_memory) return d;
    int base = d.rm + high_base;
    bool is_relative = mode == 0 && d.rm == 5, has_base = !is_relative;
    if (d.rm == 4) {
      const std::uint8_t sib = *d.next++;
      const int index = (sib >> 3 & 7) + high_index;
      base = (sib & 7) + high_base;
      has_base = mode != 0 || (sib & 7) != 5;
      if (index != 4) d.row_step = static_cast<std::int64_t>(number_of(registers, index)) << (sib >> 6);
    }
    if (has_base) d.address = number_of(registers, base);
    if (mode == 1) {
      d.address += static_cast<std::uintptr_t>(static_cast<std::int64_t>(static_cast<std::int8_t>(*d.next++)));
    } else if (mode == 2 || !has_base) {
      std::int32_t offset;
      std::memcpy(&offset, d.next, sizeof offset);
      d.next += 4;
      d.address += static_cast<std::uintptr_t>(static_cast<std::int64_t>(offset));
    }
    if (is_relative) d.address += reinterpret_cast<std::uintptr_t>(d.next);
    return d;
  }

  static float wide(std::uint16_t half) { return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16); }

  static void multiply(Unit& u, const Decoded& d) {
    for (int row = 0; row < u.rows(d.reg); ++row) {
      for (int column = 0; column < u.row_bytes(d.reg) / 4; ++column) {
        float sum;
        std::memcpy(&sum, &u.tiles[d.reg][row][4 * column], sizeof sum);
        for (int k = 0; k < u.row_bytes(d.rm) / 4; ++k) {
          std::uint16_t a[2], b[2];
          std::memcpy(a, &u.tiles[d.rm][row][4 * k], sizeof a);
          std::memcpy(b, &u.tiles[d.third][k][4 * column], sizeof b);
          sum += wide(a[0]) * wide(b[0]) + wide(a[1]) * wide(b[1]);
        }
        std::memcpy(&u.tiles[d.reg][row][4 * column], &sum, sizeof sum);
      }
    }
  }

  // Whether it was one of them.
  static bool run(const Decoded& d) {
    enum { kNone, k66, kF3, kF2 };
    Unit& u = unit();
    auto* memory = reinterpret_cast<std::uint8_t*>(d.address);
    if (d.opcode == 0x49 && d.prefix == kF2) {
      std::memset(u.tiles[d.reg], 0, sizeof u.tiles[0]);
    } else if (d.opcode == 0x49 && d.prefix == k66) {
      std::memcpy(memory, u.config, sizeof u.config);
    } else if (d.opcode == 0x49 && d.prefix == kNone) {
      d.is_memory ? std::memcpy(u.config, memory, sizeof u.config) : std::memset(u.config, 0, sizeof u.config);
    } else if (d.opcode == 0x4b && (d.prefix == kF2 || d.prefix == kF3)) {
      for (int row = 0; row < u.rows(d.reg); ++row) {
        std::uint8_t *lies = memory + row * d.row_step, *tile = u.tiles[d.reg][row];
        const auto bytes = static_cast<std::size_t>(u.row_bytes(d.reg));
        d.prefix == kF2 ? std::memcpy(tile, lies, bytes) : std::memcpy(lies, tile, bytes);
      }
    } else if (d.opcode == 0x5c && d.prefix == kF3 && !d.is_memory) {
      multiply(u, d);
    } else {
      return false;
    }
    return true;
  }

  static void on_unknown(int, siginfo_t*, void* state) {
    greg_t* registers = static_cast<ucontext_t*>(state)->uc_mcontext.gregs;
    const auto* at = reinterpret_cast<const std::uint8_t*>(registers[REG_RIP]);
    if (at[0] == 0xc4 && (at[1] & 31) == 2) {
      const Decoded d = decode(at, registers);
      if (run(d)) {
        registers[REG_RIP] = reinterpret_cast<greg_t>(d.next);
        return;
      }
    }
    signal(SIGILL, SIG_DFL);  // another one: it ends the process when it comes again
  }

  struct sigaction before_ {};
};

}  // namespace paoding::testing_program

#endif
