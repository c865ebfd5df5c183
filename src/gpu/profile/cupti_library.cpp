// SPDX-License-Identifier: Apache-2.0
#include "gpu/profile/cupti_library.h"

namespace paoding::gpu {
namespace {

struct LoadedCupti {
  Library library;
  Cupti table;
  std::string problem;
  std::uint32_t version = 0;

#if PD_HAS_CUPTI
  // CUPTI's records are structs of the header's version, so the same major version is asked for first.
  LoadedCupti() : library({"libcupti.so.13", "libcupti.so.12"}), problem(library.problem()) {
    if (!library.loaded()) return;
    try {
#define PD_CUPTI_LOAD(name) table.name = library.symbol<decltype(&::name)>(#name);
      PD_CUPTI_FUNCTIONS(PD_CUPTI_LOAD)
#undef PD_CUPTI_LOAD
#define PD_CUPTI_LOAD(name) table.name = library.find<decltype(&::name)>(#name);
      PD_CUPTI_NODE_FUNCTIONS(PD_CUPTI_LOAD)
#undef PD_CUPTI_LOAD
    } catch (const Error& error) {
      problem = error.what();
      return;
    }
    if (table.cuptiGetVersion(&version) != CUPTI_SUCCESS) problem = library.path() + ": cuptiGetVersion fails";
  }
#else
  LoadedCupti() : problem("paoding was built without cupti.h") {}
#endif
};

const LoadedCupti& loaded_cupti() {
  static const LoadedCupti* loaded = new LoadedCupti();
  return *loaded;
}

}  // namespace

const Cupti* cupti() {
  const LoadedCupti& loaded = loaded_cupti();
  return loaded.problem.empty() ? &loaded.table : nullptr;
}

const std::string& cupti_problem() { return loaded_cupti().problem; }

const Library& cupti_library() { return loaded_cupti().library; }

std::uint32_t cupti_version() { return loaded_cupti().version; }

#if PD_HAS_CUPTI
void check(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  if (const Cupti* table = cupti()) table->cuptiGetResultString(result, &text);
  fail(ErrorKind::device, "{}: CUPTI error {}: {}", what, static_cast<int>(result), text == nullptr ? "unknown" : text);
}
#endif

}  // namespace paoding::gpu
