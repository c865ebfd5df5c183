// SPDX-License-Identifier: Apache-2.0
// minimize() with its optimizers and learning rates.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings.h"
#include "calls.h"
#include "gil.h"
#include "paoding/error.h"
#include "paoding/optimizer.h"
#include "paoding/program.h"

namespace paoding::python {
namespace {

using namespace nb::literals;

struct OptimizerHandle {
  Optimizer optimizer;
};
struct StepHandle {  // TrainingStep
  ValueHandle loss;
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
    return call_python([&] {
      const nb::object made = given(wrap(step));
      return input_of(made, step, nullptr, "learning_rate");
    });
  });
}

StepHandle trained(const ValueHandle& loss, const OptimizerHandle& optimizer, const std::vector<nb::object>& groups,
                   const std::vector<std::string>& frozen, int accumulate, double clip_norm, bool skip_nonfinite,
                   const std::optional<LossScale>& loss_scale, bool master_weights, double average_decay,
                   bool data_parallel, const nb::object& loss_weight, const std::string& name) {
  MinimizeOptions options;
  options.name = name;
  for (const nb::object& group : groups) {
    if (nb::isinstance<ParameterGroup>(group)) {
      options.groups.push_back(nb::cast<ParameterGroup&>(group));
    } else {
      std::pair<std::vector<std::string>, OptimizerHandle> pair;
      if (!nb::try_cast(group, pair)) {
        throw nb::type_error(("minimize: a group is " + text_of(nb::repr(group)) +
                              ", needed is a ParameterGroup, or a list of names and an optimizer")
                                 .c_str());
      }
      options.groups.push_back({pair.first, pair.second.optimizer});
    }
  }
  options.frozen = frozen;
  options.accumulate = accumulate;
  options.clip_norm = clip_norm;
  options.skip_nonfinite = skip_nonfinite;
  options.loss_scale = loss_scale;
  options.master_weights = master_weights;
  options.average_decay = average_decay;
  options.data_parallel = data_parallel;
  if (!loss_weight.is_none()) options.loss_weight = input_of(loss_weight, loss, nullptr, "loss_weight");
  const TrainingStep step = minimize(loss, optimizer.optimizer, options);
  return {wrap(step.loss),
          wrap(step.parameters),
          wrap(step.gradients),
          wrap_if_any(step.gradient_norm),
          wrap_if_any(step.learning_rate),
          wrap_if_any(step.loss_scale),
          wrap_if_any(step.is_overflow)};
}

void bind_group(nb::module_& module) {
  nb::class_<ParameterGroup>(module, "ParameterGroup", "Parameters that are updated in another way than the rest.")
      .def(
          "__init__",
          [](ParameterGroup* self, const std::vector<std::string>& names,
             const std::optional<OptimizerHandle>& optimizer, std::optional<int> rank, double rate_factor,
             std::optional<double> weight_decay, bool frozen) {
            ParameterGroup group;
            group.names = names;
            if (optimizer) group.optimizer = optimizer->optimizer;
            group.rank = rank;
            group.rate_factor = rate_factor;
            group.weight_decay = weight_decay;
            group.frozen = frozen;
            new (self) ParameterGroup(group);
          },
          "names"_a = nb::tuple(), nb::kw_only(), "optimizer"_a = nb::none(), "rank"_a = nb::none(),
          "rate_factor"_a = 1.0, "weight_decay"_a = nb::none(), "frozen"_a = false,
          nb::sig(
              "def __init__(self, names: collections.abc.Sequence[str] = (), *, optimizer: Optimizer | None = None, "
              "rank: int | None = None, rate_factor: float = 1, weight_decay: float | None = None, frozen: bool = "
              "False) -> None"),
          "Those that a glob of `names` fits and that have the rank; what is left out, all fit.");
}

void bind_other_optimizers(nb::module_& module) {
#define PD_RATE "(learning_rate: float | LearningRate | collections.abc.Callable[[Value], Value] = "
  module.def(
      "RmsProp",
      [](nb::object rate, double decay, double epsilon, double weight_decay, double momentum, bool centered) {
        return OptimizerHandle{RmsProp{rate_of(std::move(rate)), decay, epsilon, weight_decay, momentum, centered}};
      },
      "learning_rate"_a = 0.01, "decay"_a = 0.99, "epsilon"_a = 1e-8, "weight_decay"_a = 0.0, "momentum"_a = 0.0,
      "centered"_a = false,
      nb::sig("def RmsProp" PD_RATE
              "0.01, decay: float = 0.99, epsilon: float = 1e-8, weight_decay: float = 0, momentum: float = 0, "
              "centered: bool = False) -> Optimizer"),
      "As torch.optim.RMSprop: p -= rate g / (sqrt(v) + epsilon), v the running mean of g^2.");
  module.def(
      "Lion",
      [](nb::object rate, double beta1, double beta2, double weight_decay) {
        return OptimizerHandle{Lion{rate_of(std::move(rate)), beta1, beta2, weight_decay}};
      },
      "learning_rate"_a = 1e-4, "beta1"_a = 0.9, "beta2"_a = 0.99, "weight_decay"_a = 0.0,
      nb::sig("def Lion" PD_RATE
              "1e-4, beta1: float = 0.9, beta2: float = 0.99, weight_decay: float = 0) -> Optimizer"),
      "The sign of a mean of gradients (Chen et al. 2023).");
  module.def(
      "Lamb",
      [](nb::object rate, double beta1, double beta2, double epsilon, double weight_decay) {
        return OptimizerHandle{Lamb{rate_of(std::move(rate)), beta1, beta2, epsilon, weight_decay}};
      },
      "learning_rate"_a = 1e-3, "beta1"_a = 0.9, "beta2"_a = 0.999, "epsilon"_a = 1e-6, "weight_decay"_a = 0.0,
      nb::sig("def Lamb" PD_RATE "1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-6, weight_decay: "
              "float = 0) -> Optimizer"),
      "Adam's step, as long as the parameter (You et al. 2020).");
  module.def(
      "Adafactor",
      [](nb::object rate, double beta2_decay, double epsilon2, double clip, double weight_decay) {
        return OptimizerHandle{Adafactor{rate_of(std::move(rate)), beta2_decay, epsilon2, clip, weight_decay}};
      },
      "learning_rate"_a = 0.01, "beta2_decay"_a = -0.8, "epsilon2"_a = 1e-3, "clip"_a = 1.0, "weight_decay"_a = 0.0,
      nb::sig("def Adafactor" PD_RATE "0.01, beta2_decay: float = -0.8, epsilon2: float = 1e-3, clip: float = 1, "
              "weight_decay: float = 0) -> Optimizer"),
      "Mean squares of matrices are kept as those of rows times those of columns (Shazeer, Stern 2018), as PyTorch has "
      "it.");
}

// Adam and AdamW: the decay is all they differ in.
template <class Kind>
void bind_adam(nb::module_& module, const char* name, double weight_decay, const char* sig, const char* doc) {
  module.def(
      name,
      [](nb::object rate, double beta1, double beta2, double epsilon, double decay) {
        return OptimizerHandle{Kind{rate_of(std::move(rate)), beta1, beta2, epsilon, decay}};
      },
      "learning_rate"_a = 1e-3, "beta1"_a = 0.9, "beta2"_a = 0.999, "epsilon"_a = 1e-8, "weight_decay"_a = weight_decay,
      nb::sig(sig), doc);
}

}  // namespace

void bind_training(nb::module_& module) {
  nb::class_<LearningRate>(module, "LearningRate", "A formula of the number of updates made.");
  module.def("linear_warmup", &linear_warmup, "rate"_a, "steps"_a,
             "From rate / steps at the first update to `rate` in `steps` updates, then `rate`.");
  module.def("cosine_decay", &cosine_decay, "rate"_a, "steps"_a, "last"_a = 0.0, "warmup"_a = 0,
             "`rate` at first, `last` after `steps` updates, half a cosine in between; the first `warmup` rise to it "
             "in a line.");
  module.def("step_decay", &step_decay, "rate"_a, "every"_a, "factor"_a, "rate factor^(step // every).");
  module.def("inverse_square_root", &inverse_square_root, "rate"_a, "warmup"_a,
             "rate min((step + 1) / warmup, sqrt(warmup / (step + 1))) (Vaswani et al. 2017).");
  nb::class_<OptimizerHandle>(module, "Optimizer", "How minimize() updates parameters: Sgd, Adam ..");
  bind_other_optimizers(module);
  bind_group(module);
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
              "0.01, momentum: float = 0, nesterov: bool = False, weight_decay: float = 0) -> Optimizer"),
      "As torch.optim.SGD: v = momentum v + g, p -= rate v. A rate is a number, a schedule, or a function of the "
      "number of "
      "updates made.");
  bind_adam<Adam>(module, "Adam", 0,
                  "def Adam" PD_RATE
                  "1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0) -> "
                  "Optimizer",
                  "As torch.optim.Adam (Kingma, Ba 2015); weight_decay is added to the gradient.");
  bind_adam<AdamW>(
      module, "AdamW", 0.01,
      "def AdamW" PD_RATE
      "1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.01) "
      "-> Optimizer",
      "As torch.optim.AdamW: Adam, with weight_decay times the rate taken off parameters (Loshchilov, Hutter "
      "2019).");
  nb::class_<LossScale>(module, "LossScale", "The factor that keeps gradients within f16.")
      .def(
          "__init__",
          [](LossScale* self, double initial, double growth, double backoff, std::int64_t interval, double least,
             double most) { new (self) LossScale{initial, growth, backoff, interval, least, most}; },
          "initial"_a = 65536.0, "growth"_a = 2.0, "backoff"_a = 0.5, "interval"_a = 2000, "least"_a = 1.0,
          "most"_a = 16'777'216.0);
  nb::class_<StepHandle>(module, "TrainingStep", "What training knows about a run.")
      .def_ro("loss", &StepHandle::loss, "The mean of all ranks with data_parallel.")
      .def_ro("parameters", &StepHandle::parameters, "The trained ones.")
      .def_ro("gradients", &StepHandle::gradients, "Of the loss, in the same order.")
      .def_ro("gradient_norm", &StepHandle::gradient_norm, "Where clipping or skipping needs it.")
      .def_ro("learning_rate", &StepHandle::learning_rate)
      .def_ro("loss_scale", &StepHandle::loss_scale)
      .def_ro("is_overflow", &StepHandle::is_overflow);
  module.def("minimize", &trained, "loss"_a, "optimizer"_a, nb::kw_only(), "groups"_a = nb::list(),
             "frozen"_a = nb::list(), "accumulate"_a = 1, "clip_norm"_a = 0.0, "skip_nonfinite"_a = false,
             "loss_scale"_a = nb::none(), "master_weights"_a = false, "average_decay"_a = 0.0,
             "data_parallel"_a = false, "loss_weight"_a = nb::none(), "name"_a = "optimizer",
             nb::sig("def minimize(loss: Value, optimizer: Optimizer, *, groups: "
                     "collections.abc.Sequence[ParameterGroup | tuple[collections.abc.Sequence[str], Optimizer]] = (), "
                     "frozen: collections.abc.Sequence[str] = (), accumulate: int = 1, clip_norm: float = 0, "
                     "skip_nonfinite: bool = False, "
                     "loss_scale: LossScale | None = None, master_weights: bool = False, average_decay: float = 0, "
                     "data_parallel: bool = False, loss_weight: Value | None = None, "
                     "name: str = 'optimizer') -> TrainingStep"),
             "Adds to the loss's graph its gradients and the update of every parameter that it depends on and that no "
             "glob of `frozen` fits. `name`: of the optimizer's counters in the store; losses that train different "
             "parameters of one store have one each. `accumulate`: runs whose mean gradient makes an update. "
             "`clip_norm`: the most that the norm of all gradients may be. `average_decay`: keeps a running mean of "
             "every parameter, which averages_of() gives.");
  module.def(
      "averages_of", [](const Parameters& parameters) { return averages_of(parameters); }, "parameters"_a,
      "The averages that average_decay keeps, by the names of their parameters: for restore().");
}

}  // namespace paoding::python
