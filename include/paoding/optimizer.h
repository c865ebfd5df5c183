// SPDX-License-Identifier: Apache-2.0
// Training: minimize() adds the gradients of a loss and the update of every parameter to the graph. The updates are
// graph ops that assign at the end of a run, one kernel per parameter, in place.
//
// The state of an optimizer is parameters too, so checkpoints and Parameters hold it by these names:
//   optimizer/step       i64: updates made
//   optimizer/skipped    i64: updates skipped because the loss or a gradient was non-finite
//   optimizer/micro      i64: runs since the last update, with accumulation
//   optimizer/loss_scale f32: the factor of the loss, with a loss scale
//   optimizer/overflows  i64: updates skipped because a gradient overflowed, which lowered the loss scale
//   optimizer/unscaled   i64: updates made since the loss scale was changed
//   sgd/momentum/<p>     the running sum of gradients of parameter <p>, with momentum
//   adam/m/<p>, adam/v/<p>   running means of the gradient and its square; lamb/.. and rmsprop/.. likewise
//   lion/m/<p>           the running mean of the gradient
//   adafactor/row/<p>, adafactor/column/<p>, adafactor/v/<p>  running means of its square over columns, rows; of all
//   average/<p>          the running mean of the parameter, with average_decay
//   gradient/<p>         the sum of gradients since the last update, with accumulation
//   master/<p>           the f32 value of an f16 or bf16 parameter, with master weights
// All of them are f32 where the parameter is f16 or bf16, else of its dtype.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

/// A learning rate: a number, or a formula of the number of updates made so far (f64 scalar, 0 at first) that gives an
/// f64 scalar. Any thread may read it; its formula is called by the thread that builds the graph.
class LearningRate {
 public:
  using Formula = std::function<Value(const Value& step)>;
  /// Error (argument) unless the rate is finite and at least 0; so of the rates of the schedules below.
  LearningRate(double rate);  // NOLINT: meant to be implicit
  template <class F>
  requires std::is_invocable_r_v<Value, F, const Value&> LearningRate(F formula)
      : formula_(std::move(formula)) {}  // NOLINT: meant to be implicit
  Value at(const Value& step) const { return formula_(step); }

 private:
  Formula formula_;
};

/// From 0 (exactly rate / steps at the first update) to `rate` in `steps` updates, then `rate`.
LearningRate linear_warmup(double rate, std::int64_t steps);
/// rate at first, `last` after `steps` updates and from then on, half a cosine in between (Loshchilov, Hutter 2017);
/// the first `warmup` updates rise to it in a line.
LearningRate cosine_decay(double rate, std::int64_t steps, double last = 0, std::int64_t warmup = 0);
/// rate * factor^(step / every), the division rounded down.
LearningRate step_decay(double rate, std::int64_t every, double factor);
/// rate * min((step + 1) / warmup, sqrt(warmup / (step + 1))): the greatest is `rate` (Vaswani et al. 2017).
LearningRate inverse_square_root(double rate, std::int64_t warmup);

/// p -= rate d, d = g + weight_decay p; with momentum d is m = momentum m + d, or d + momentum m with nesterov.
struct Sgd {
  LearningRate learning_rate = 0.01;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

/// m = beta1 m + (1 - beta1) d, v = beta2 v + (1 - beta2) d^2, d = g + weight_decay p;
/// p -= rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) in update t = 1, 2 .. (Kingma, Ba 2015).
struct Adam {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
};

/// Adam with the decay apart from the gradient: p -= rate weight_decay p besides (Loshchilov, Hutter 2019).
struct AdamW {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.01;
};

/// v = decay v + (1 - decay) g^2, d = g + weight_decay p in g's place; a = sqrt(v) + epsilon, `centered` sqrt(v - m^2)
/// + epsilon with m = decay m + (1 - decay) g; p -= rate g / a, with momentum b = momentum b + g / a and p -= rate b
/// (Hinton 2012; centered: Graves 2013).
struct RmsProp {
  LearningRate learning_rate = 0.01;
  double decay = 0.99, epsilon = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
};

/// p -= rate (sign(beta1 m + (1 - beta1) g) + weight_decay p), then m = beta2 m + (1 - beta2) g (Chen et al. 2023).
struct Lion {
  LearningRate learning_rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
};

/// Adam's step u = m' / (sqrt(v') + epsilon) + weight_decay p, with m' and v' as Adam corrects them, made as long as
/// the parameter: p -= rate |p| / |u| u, or p -= rate u where one of the two is 0 (You et al. 2020).
struct Lamb {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;
  double weight_decay = 0;
};

/// The mean square of gradients of a matrix is kept as that of its rows times that of its columns, so that state takes
/// next to no memory (Shazeer, Stern 2018), as PyTorch has it: with b = t^beta2_decay in update t, r += b (mean of g^2
/// over a row - r), c likewise over columns, v = r c / mean(r), of other parameters v += b (g^2 - v);
/// u = g / max(sqrt(v), epsilon1); p -= rate weight_decay p, then p -= min(rate, 1 / sqrt(t)) max(epsilon2, rms(p)) u /
/// max(1, rms(u) / clip). epsilon1 is the distance from 1 to the next number of the dtype.
struct Adafactor {
  LearningRate learning_rate = 0.01;
  double beta2_decay = -0.8;
  double epsilon2 = 1e-3;
  double clip = 1;
  double weight_decay = 0;
};

using Optimizer = std::variant<Sgd, Adam, AdamW, RmsProp, Lion, Lamb, Adafactor>;

/// Parameters that are updated in another way than the rest: those that a name fits, that have the rank, and that the
/// predicate is true of; a condition that is left out fits all.
struct ParameterGroup {
  std::vector<std::string> names = {};      // globs: '*' stands for any characters, '?' for one: "*/bias"
  std::optional<Optimizer> optimizer = {};  // the one of the rest when absent
  std::optional<int> rank = {};             // biases and norms have rank 1
  std::function<bool(const std::string& name, const Type& type)> predicate = {};
  double rate_factor = 1;                   // of the learning rate
  std::optional<double> weight_decay = {};  // in place of the optimizer's own
  bool frozen = false;                      // they stay as they are
};

/// Gradients are taken of the loss times a factor, so that those that f16 would round to 0 are kept, and divided by it
/// in f32. The factor is state of the device: an update whose gradients overflow is skipped, counts in
/// "optimizer/overflows" and lowers the factor; `interval` updates without one raise it (Micikevicius et al. 2018).
struct LossScale {
  double initial = 65536;
  double growth = 2, backoff = 0.5;     // factors that change the scale
  std::int64_t interval = 2000;         // updates
  double least = 1, most = 16'777'216;  // between which it stays
};

struct MinimizeOptions {
  /// Counters of the optimizer are "<name>/step" and the like. Where several losses are minimized with one store, each
  /// has a name of its own and trains parameters of its own, as in generative adversarial networks.
  std::string name = "optimizer";
  std::vector<ParameterGroup> groups = {};  // the first that a parameter fits has it
  std::vector<std::string> frozen = {};     // parameters that stay as they are; names as in groups
  int accumulate = 1;                       // runs (micro-batches) whose mean gradient makes one update
  double clip_norm = 0;  // gradients are scaled down to this norm, taken over all of them together; 0 is no limit
  /// An update whose gradients are not all finite, or in a run whose loss is not, leaves parameters and state unchanged
  /// and counts as skipped. A sum of squares beyond the range of f32 counts as non-finite. With accumulation the loss
  /// of every run counts. The state of random ops ("random/state") moves on in a skipped run as in any;
  /// find_nonfinite() can look for the reason.
  bool skip_nonfinite = false;
  /// With skip_nonfinite: the updates of all runs after a skipped one are skipped too, until "optimizer/skipped" is
  /// set to 0. So runs may be started before the loss of the one before has been read.
  bool stop_at_nonfinite = false;
  /// With skip_nonfinite, which it implies: gradients that are non-finite where the factor can be lowered are no
  /// "optimizer/skipped" update, and no reason to stop.
  std::optional<LossScale> loss_scale = {};
  bool master_weights = false;  // f16 and bf16 parameters are rounded from an f32 value that is kept
  /// Above 0: "average/<p>" is average_decay times itself plus (1 - average_decay) times the parameter, after every
  /// update; it starts as the parameter does. averages_of() has them, for a model that predicts (Polyak, Juditsky
  /// 1992).
  double average_decay = 0;
  /// The ranks of CompileOptions::communicator train together, each on its own part of the data (data parallel). The
  /// loss that is minimized is the mean of the ranks' losses; gradients, their norm, whether they and the loss are
  /// finite, and the loss scale are those of that mean, so that all ranks make the same updates.
  bool data_parallel = false;
  /// With data_parallel: the weight of this rank's loss in the mean, a scalar float of at least 0, such as the number
  /// of tokens that the rank's loss is the mean of. All weights together must be above 0. Absent: all ranks count the
  /// same.
  Value loss_weight = {};
};

/// The values of training in a run.
struct TrainingStep {
  Value loss;           // that is minimized: the mean over the ranks with data_parallel, else the one given
  Values parameters;    // the trained ones, in the order of the graph
  Values gradients;     // of that loss, by this run alone, in the same order
  Value gradient_norm;  // over all, before clipping; made when it is first needed by clipping or skipping, else absent
  Value learning_rate;  // of parameters in no group, f64
  // With a loss scale, else absent:
  Value loss_scale;   // that the gradients were taken with, f32
  Value is_overflow;  // bool: an update was skipped, and the scale lowered
};

/// Adds to the graph of `loss` (a scalar) the gradients and updates of every parameter that it depends on.
/// Error (argument) when no parameter is left, a name in the options fits none, a number is out of range, or the graph
/// has an optimizer of this name, or one that updates a parameter of this one's, already.
TrainingStep minimize(const Value& loss, const Optimizer& optimizer, const MinimizeOptions& options = {});

class Parameters;

/// The averages that MinimizeOptions::average_decay keeps, by the names of their parameters: for restore(). Error
/// (argument) when there are none.
std::map<std::string, Tensor> averages_of(const Parameters& parameters);

}  // namespace paoding
