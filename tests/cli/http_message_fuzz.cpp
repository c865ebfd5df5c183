// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever the bytes are, HttpReader makes the same requests, and the same refusal, of them at once
// and of them piece by piece. The first byte says how large the pieces are.
#include <cstdint>
#include <string>

#include "cli/serve/http_message.h"

namespace {

std::string read_as(const std::string& bytes, std::size_t piece) {
  using paoding::cli::HttpReader;
  HttpReader reader(300);
  std::string waiting, said;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    waiting += bytes.substr(at, piece);
    for (auto state = reader.read(&waiting); state != HttpReader::State::unfinished; state = reader.read(&waiting)) {
      if (state == HttpReader::State::refused) return said + std::to_string(reader.status()) + reader.problem();
      const auto& request = reader.request();
      if (request.body.size() > 300 || request.path.empty()) __builtin_trap();
      said += request.method + '\0' + request.path + '\0' + request.content_type + '\0' + request.body + '\0';
    }
  }
  return said;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  if (size_bytes == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(bytes) + 1, size_bytes - 1);
  if (read_as(text, text.size() + 1) != read_as(text, 1 + bytes[0] % 50)) __builtin_trap();
  return 0;
}
