// SPDX-License-Identifier: Apache-2.0
// The requests of protocol.py for peers written in C++, and the rows that answer them. Only the words and numbers that
// a recurrent layer needs are looked for in the text.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

struct Request {
  std::string kind, dtype, gpu_cache, wall_cache;
  int steps = 1, batch = 1, hidden = 1, layers = 1, directions = 1;
  bool has_lengths = false, is_quick = false;
  bool wants_eager = false;  // also without a graph
  bool trains() const { return kind.find("training") != std::string::npos; }
};

inline std::string text_after(const std::string& line, const std::string& key) {
  const std::size_t at = line.find("\"" + key + "\": \"");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + key.size() + 5;
  return line.substr(begin, line.find('"', begin) - begin);
}

inline int number_after(const std::string& line, const std::string& key) {
  const std::size_t at = line.find("\"" + key + "\": ");
  return at == std::string::npos ? 1 : std::atoi(line.c_str() + at + key.size() + 4);
}

// The cache state of the row with this clock; empty when none is wanted.
inline std::string cache_of(const std::string& line, const std::string& clock) {
  for (const char* cache : {"hot", "cold"}) {
    if (line.find("{\"cache\": \"" + std::string(cache) + "\", \"clock\": \"" + clock + "\"") != std::string::npos)
      return cache;
  }
  return "";
}

// Others write JSON without the blanks that are looked for.
inline std::string spaced(const std::string& text) {
  std::string made;
  for (std::size_t i = 0; i < text.size(); ++i) {
    made += text[i];
    const bool ends_word = i > 0 && (text[i] == ':' || text[i] == ',') && i + 1 < text.size() && text[i + 1] != ' ';
    if (ends_word && (text[i - 1] == '"' || text[i + 1] == '"' || text[i] == ',')) made += ' ';
  }
  return made;
}

inline Request parse(const std::string& request) {
  const std::string line = spaced(request);
  Request r;
  r.kind = text_after(line, "kind");
  r.dtype = text_after(line, "dtype");
  r.gpu_cache = cache_of(line, "gpu");
  r.wall_cache = cache_of(line, "wall");
  r.steps = number_after(line, "steps");
  r.batch = number_after(line, "batch");
  r.hidden = number_after(line, "hidden");
  r.layers = number_after(line, "layers");
  r.directions = number_after(line, "directions");
  r.has_lengths = line.find("\"lengths\": true") != std::string::npos;
  r.is_quick = line.find("\"quick\": true") != std::string::npos;
  r.wants_eager = line.find("\"eager\": true") != std::string::npos;
  return r;
}

inline double microseconds() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline void print_row(const std::string& peer, const std::string& cache, const char* clock, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  std::printf(
      "{\"peer\": \"%s\", \"cache\": \"%s\", \"clock\": \"%s\", \"us\": %.3f, \"us_min\": %.3f, \"us_max\": %.3f, "
      "\"samples\": %zu}\n",
      peer.c_str(), cache.c_str(), clock, times[times.size() / 2], times.front(), times.back(), times.size());
}

inline void print_refusal(const std::string& peer, std::string why) {
  std::replace(why.begin(), why.end(), '"', '\'');
  std::printf("{\"peer\": \"%s\", \"why\": \"%s\"}\n", peer.c_str(), why.c_str());
}
