// SPDX-License-Identifier: Apache-2.0
// minimize() with its optimizers and learning rates.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings.h"
#include "calls.h"
#include "paoding/error.h"
#include "paoding/optimizer.h"

namespace paoding::python {
namespace {

using namespace nb::literals;

struct OptimizerHandle {
  Optimizer optimizer;
};
struct StepHandle {  // TrainingStep
  std::vector<ValueHandle> parameters, gradients;
  MaybeValue gradient_norm, learning_rate, loss_scale, is_overflow;
};

// A number, a schedule, or a function of the number of updates made.
LearningRate rate_of(nb::object given) {
  if (nb::isinstance<LearningRate>(given)) return nb::cast<LearningRate&>(given);
  if (is_number(given)) return number_of(given).real();
  if (PyCallable_Check(given.ptr()) == 0)
    throw nb::type_error("learning_rate: needed is a number, a schedule or a function");
  return LearningRate([given](const Value& step) -> Value {
    const nb::object made = given(nb::cast(wrap(step)));
    return input_of(made, step, nullptr, "learning_rate");
  });
}

StepHandle trained(const ValueHandle& loss, const OptimizerHandle& optimizer,
                   const std::vector<std::pair<std::vector<std::string>, OptimizerHandle>>& groups,
                   const std::vector<std::string>& frozen, int accumulate, double clip_norm, bool skip_nonfinite,
                   const std::optional<LossScale>& loss_scale, bool master_weights) {
  MinimizeOptions options;
  for (const auto& [names, own] : groups) options.groups.push_back({names, own.optimizer});
  options.frozen = frozen;
  options.accumulate = accumulate;
  options.clip_norm = clip_norm;
  options.skip_nonfinite = skip_nonfinite;
  options.loss_scale = loss_scale;
  options.master_weights = master_weights;
  const TrainingStep step = minimize(loss, optimizer.optimizer, options);
  return {wrap(step.parameters),           wrap(step.gradients),         wrap_if_any(step.gradient_norm),
          wrap_if_any(step.learning_rate), wrap_if_any(step.loss_scale), wrap_if_any(step.is_overflow)};
}

// Adam and AdamW: the decay is all they differ in.
template <class Kind>
void bind_adam(nb::module_& module, const char* name, double weight_decay, const char* sig) {
  module.def(
      name,
      [](nb::object rate, double beta1, double beta2, double epsilon, double decay) {
        return OptimizerHandle{Kind{rate_of(std::move(rate)), beta1, beta2, epsilon, decay}};
      },
      "learning_rate"_a = 1e-3, "beta1"_a = 0.9, "beta2"_a = 0.999, "epsilon"_a = 1e-8, "weight_decay"_a = weight_decay,
      nb::sig(sig));
}

}  // namespace

void bind_training(nb::module_& module) {
  nb::class_<LearningRate>(module, "LearningRate", "A formula of the number of updates made.");
  module.def("linear_warmup", &linear_warmup, "rate"_a, "steps"_a);
  module.def("cosine_decay", &cosine_decay, "rate"_a, "steps"_a, "last"_a = 0.0, "warmup"_a = 0);
  module.def("step_decay", &step_decay, "rate"_a, "every"_a, "factor"_a);
  module.def("inverse_square_root", &inverse_square_root, "rate"_a, "warmup"_a);
  nb::class_<OptimizerHandle>(module, "Optimizer", "How minimize() updates parameters: Sgd, Adam, AdamW.");
#define PD_RATE "(learning_rate: float | LearningRate | collections.abc.Callable[[Value], Value] = "
  module.def(
      "Sgd",
      [](nb::object rate, double momentum, bool nesterov, double weight_decay) {
        return OptimizerHandle{Sgd{.learning_rate = rate_of(std::move(rate)),
                                   .momentum = momentum,
                                   .nesterov = nesterov,
                                   .weight_decay = weight_decay}};
      },
      "learning_rate"_a = 0.01, "momentum"_a = 0.0, "nesterov"_a = false, "weight_decay"_a = 0.0,
      nb::sig("def Sgd" PD_RATE
              "0.01, momentum: float = 0, nesterov: bool = False, weight_decay: float = 0) -> Optimizer"));
  bind_adam<Adam>(module, "Adam", 0,
                  "def Adam" PD_RATE
                  "1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0) -> "
                  "Optimizer");
  bind_adam<AdamW>(module, "AdamW", 0.01,
                   "def AdamW" PD_RATE
                   "1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.01) "
                   "-> Optimizer");
  nb::class_<LossScale>(module, "LossScale", "The factor that keeps gradients within f16.")
      .def(
          "__init__",
          [](LossScale* self, double initial, double growth, double backoff, std::int64_t interval, double least,
             double most) { new (self) LossScale{initial, growth, backoff, interval, least, most}; },
          "initial"_a = 65536.0, "growth"_a = 2.0, "backoff"_a = 0.5, "interval"_a = 2000, "least"_a = 1.0,
          "most"_a = 16'777'216.0);
  nb::class_<StepHandle>(module, "TrainingStep", "What training knows about a run.")
      .def_ro("parameters", &StepHandle::parameters, "The trained ones.")
      .def_ro("gradients", &StepHandle::gradients, "Of the loss, in the same order.")
      .def_ro("gradient_norm", &StepHandle::gradient_norm, "Where clipping or skipping needs it.")
      .def_ro("learning_rate", &StepHandle::learning_rate)
      .def_ro("loss_scale", &StepHandle::loss_scale)
      .def_ro("is_overflow", &StepHandle::is_overflow);
  module.def("minimize", &trained, "loss"_a, "optimizer"_a, nb::kw_only(), "groups"_a = nb::list(),
             "frozen"_a = nb::list(), "accumulate"_a = 1, "clip_norm"_a = 0.0, "skip_nonfinite"_a = false,
             "loss_scale"_a = nb::none(), "master_weights"_a = false,
             nb::sig("def minimize(loss: Value, optimizer: Optimizer, *, groups: "
                     "collections.abc.Sequence[tuple[collections.abc.Sequence[str], Optimizer]] = (), "
                     "frozen: collections.abc.Sequence[str] = (), accumulate: int = 1, clip_norm: float = 0, "
                     "skip_nonfinite: bool = False, "
                     "loss_scale: LossScale | None = None, master_weights: bool = False) -> TrainingStep"),
             "Adds to the loss's graph its gradients and the update of every parameter.");
}

}  // namespace paoding::python
