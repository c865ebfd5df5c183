// SPDX-License-Identifier: Apache-2.0
#include "ops/collective/ranks_kernel.h"

#include <algorithm>

#include "base/check.h"
#include "base/one_line.h"
#include "ops/collective/reduction_attr.h"
#include "paoding/communicator.h"

namespace paoding {
namespace {

std::string refusal(const KernelCall& call) {
  const auto& communicator = call.environment->communicator;
  if (communicator == nullptr) return "the program has no communicator: CompileOptions::communicator";
  if (communicator->device().kind != call.target->kind) {
    return fmt::format("the communicator ({}) works on memory of {}", communicator->name(),
                       to_string(communicator->device()));
  }
  if (asks_for_mean(call.attrs)) return "a mean is not lowered to a sum";
  const auto is_dense = [](const Layout& layout) { return layout.is_dense(); };
  if (!std::ranges::all_of(call.inputs, is_dense)) return "the input is not dense";
  return std::ranges::all_of(call.outputs, is_dense) ? "" : "the result is not dense";
}

class Collectively : public PreparedKernel {
 public:
  explicit Collectively(const KernelCall& call)
      : communicator_(call.environment->communicator),
        collective_(call.op->collective),
        type_(call.inputs[0].type),
        result_elements_(call.outputs[0].type.shape.elements()) {
    if (call.attrs.find("reduction") != nullptr) reduction_ = reduction_of(call.attrs);
    if (call.attrs.find("root") != nullptr) root_ = static_cast<int>(call.attrs.get_int("root"));
    name_ = call.op->name;
    scope_ = call.scope;
  }

  void run(const KernelRun& run) const override {
    const std::int64_t elements = type_.shape.elements();
    if (elements == 0) return;
    const void* const in = run.operands[0];
    void* const out = run.operands[1];
    try {
      switch (collective_) {
        case Collective::all_reduce:
          return communicator_->all_reduce(in, out, elements, type_.dtype, reduction_, run.stream);
        case Collective::reduce_scatter:
          return communicator_->reduce_scatter(in, out, result_elements_, type_.dtype, reduction_, run.stream);
        case Collective::all_gather: return communicator_->all_gather(in, out, elements, type_.dtype, run.stream);
        case Collective::broadcast: return communicator_->broadcast(in, out, elements, type_.dtype, root_, run.stream);
        default: PD_ASSERT(false, "it is lowered before it is planned");
      }
    } catch (const Error& error) {
      fail(error.kind(), "{}: {}{}", name_, error.what(), in_scope(scope_));
    }
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  Collective collective_;
  Type type_;
  std::int64_t result_elements_;
  Reduction reduction_ = Reduction::sum;
  int root_ = 0;
  std::string name_, scope_;
};

}  // namespace

// A rank that is gone is met in a run on the CPU; on a GPU calls are only enqueued.
void register_ranks_kernels(DeviceKind device) {
  for (const char* op : {"all_reduce", "reduce_scatter", "all_gather", "broadcast"}) {
    register_kernel(op, {.name = "ranks",
                         .device = device,
                         .refusal = refusal,
                         .prepare = [](const KernelCall& call, const Device&) -> Preparation {
                           return std::make_unique<Collectively>(call);
                         },
                         .faults = device == DeviceKind::cpu ? Faults::possible : Faults::none});
  }
}

void register_collectives_cpu() { register_ranks_kernels(DeviceKind::cpu); }

}  // namespace paoding
