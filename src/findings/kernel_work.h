// SPDX-License-Identifier: Apache-2.0
// Every kernel of the steps with all that is known of it: its kind, the op that launched it, the bytes and operations
// of that op, its grid. Rules about the work of GPUs read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "findings/device_limits.h"
#include "findings/kernel_form.h"
#include "findings/kernel_kind.h"
#include "findings/op_work.h"
#include "findings/steps.h"

namespace paoding::findings {

/// One call of an op that launched work of a GPU.
struct OpCall {
  SpanId op = kNone;
  std::uint32_t kernels = 0;     // without copies and fills of the driver's
  std::uint32_t products = 0;    // of them products and convolutions
  std::int64_t ns = 0;           // of all of them
  std::int64_t product_ns = 0;   // of those that compute a product or a convolution, and of their parts
  const OpWork* work = nullptr;  // never null
};

inline constexpr int kCpu = -1;  // KernelWork::device

struct KernelWork {
  SpanId span = kNone;
  std::uint32_t call = kNone;  // into KernelWorks::calls(); kNone: no op is known
  std::uint32_t step = 0;
  KernelKind kind = KernelKind::other;
  bool is_kernel = false;  // else a copy or a fill of the driver's
  Arithmetic arithmetic = {};
  int device = 0;
  std::int64_t ns = 0;
  std::int64_t ctas = 0, threads = 0;      // of the grid, of a CTA; 0: not known
  std::int64_t registers = 0, shared = 0;  // of a thread, of a CTA
  // This kernel's alone; 0: not known.
  std::int64_t bytes = 0, elements = 0;
  int element_bytes = 0;  // of most of them
  double flops = 0;
  bool is_by_grid = false;  // bytes follow from the grid and the name, rounded up to whole CTAs
};

/// The results of a function of texts, which is asked once for each text of a trace. One thread uses it at a time.
template <class F>
class OfTexts {
 public:
  using Result = std::invoke_result_t<F, std::string_view>;
  OfTexts(const profile::Trace& trace, F of) : trace_(trace), of_(std::move(of)) {}
  Result operator()(profile::StringId text) const {
    if (text >= known_.size()) known_.resize(std::max<std::size_t>(text + std::size_t{1}, 2 * known_.size()));
    std::optional<Result>& known = known_[text];
    if (!known) known = of_(trace_.text(text));
    return *known;
  }

 private:
  const profile::Trace& trace_;
  const F of_;
  mutable std::vector<std::optional<Result>> known_;
};

/// Whether a text has a word in it.
inline auto texts_with(const profile::Trace& trace, std::string_view word) {
  return OfTexts(trace, [word](std::string_view text) { return text.find(word) != std::string_view::npos; });
}
using TextsWith = decltype(texts_with(std::declval<const profile::Trace&>(), ""));

class KernelWorks {
 public:
  explicit KernelWorks(const Steps& steps);

  const Steps& steps() const { return steps_; }
  const profile::Trace& trace() const { return steps_.trace(); }
  /// In order of start.
  const std::vector<KernelWork>& all() const { return all_; }
  const std::vector<OpCall>& calls() const { return calls_; }
  /// The call of the op that launched it; one without work where none is known.
  const OpCall& call_of(const KernelWork& kernel) const {
    return kernel.call == kNone ? no_call_ : calls_[kernel.call];
  }
  profile::StringId op_text(const KernelWork& kernel) const;
  profile::StringId kernel_text(const KernelWork& kernel) const;
  std::string_view op_name(const KernelWork& kernel) const { return trace().text(op_text(kernel)); }
  std::string_view kernel_name(const KernelWork& kernel) const { return trace().text(kernel_text(kernel)); }
  /// kind_of_op() of the op.
  KernelKind op_kind(const KernelWork& kernel) const { return op_kinds_(op_text(kernel)); }
  const DeviceLimits& limits(int device) const;
  /// All steps together: on the host, or the GPUs' work where that takes longer.
  double all_steps_ns() const;
  /// Whether the kernels are those of a CPU: spans of the thread that steps.
  bool are_on_cpu() const { return are_on_cpu_; }
  /// Whether any op of the trace says its shapes, any kernel its grid.
  bool has_shapes() const { return has_shapes_; }
  bool has_grids() const { return has_grids_; }
  /// How many CTAs of a kernel a multiprocessor holds at once by threads, registers and shared memory; 0: not known.
  int ctas_of_sm(const KernelWork& kernel) const;
  /// How long such a kernel takes: on a GPU its own time, on a CPU, whose cores do other work too, the median of its
  /// site.
  std::int64_t usual_ns(const KernelWork& kernel) const;
  /// The shortest time that kernels of the trace take who hardly do anything: a tenth of them is shorter.
  std::int64_t floor_ns() const { return floor_ns_; }

 private:
  struct Known {
    KernelKind kind;
    Arithmetic arithmetic;
    int element_bytes;
    ElementwiseForm form;
  };
  const Known& known(profile::SiteId site, profile::StringId op);
  const OpWork* work_of(SpanId op, SpanId kernel);
  void add(SpanId span, FactReader& facts);
  void add_all();
  void add_ops_of_cpu();
  void share_work_of_calls();
  void find_usual();
  void find_floor();

  const Steps& steps_;
  std::vector<KernelWork> all_;
  std::vector<OpCall> calls_;
  OpCall no_call_;
  std::unordered_map<SpanId, std::uint32_t> call_of_op_;
  std::unordered_map<std::uint64_t, Known> known_;  // by site and op
  OfTexts<KernelKind (*)(std::string_view)> op_kinds_;
  std::deque<OpWork> works_;
  std::map<std::string, const OpWork*, std::less<>> work_by_text_;
  std::unordered_map<profile::SiteId, const OpWork*> work_by_site_;  // of our programs
  std::map<int, DeviceLimits> limits_;
  std::unordered_map<profile::SiteId, std::int64_t> usual_ns_;  // of a CPU's kernels
  const profile::ArgumentColumn *shapes_ = nullptr, *types_ = nullptr, *concrete_ = nullptr;
  bool are_on_cpu_ = false, has_shapes_ = false, has_grids_ = false;
  std::int64_t floor_ns_ = 0;
};

}  // namespace paoding::findings
