// SPDX-License-Identifier: Apache-2.0
// Recurrent layers, losses, normalisation, optimizers and a small attention seq2seq against PyTorch 2.11's results in
// float64 (tests/reference/peer/record_nn.py wrote tests/reference/peer/recorded/nn.safetensors.gz).
#include "models/seq2seq.h"
#include "paoding/paoding.h"
#include "tests/support/program_check.h"
#include "tests/support/recorded.h"

namespace paoding::testing_program {
namespace {

const Tensors& recorded() {
  static const Tensors all = recorded_tensors(recorded_folder() / "nn.safetensors");
  return all;
}

const Tensor& peer_record(const std::string& name) {
  const auto it = recorded().find(name);
  if (it == recorded().end()) throw std::out_of_range("nn.safetensors has no " + name);
  return it->second;
}

Value peer_input(Graph& g, const std::string& name) {
  return g.input(name, peer_record(name).dtype(), peer_record(name).shape());
}

// Every input of the graph is a record of that name; results are compared with records named by the fetches.
void expect_records(Graph& g, const Tensors& more = {}, double tolerance = 1e-12) {
  Program program(g);
  Tensors feeds = more;
  for (const std::string& name : program.input_names()) {
    if (!feeds.contains(name)) feeds[name] = peer_record(name);
  }
  for (const auto& [name, tensor] : program.run(feeds)) {
    expect_close(name, tensor.to_doubles(), peer_record(name).to_doubles(), tolerance);
  }
}

// ---- recurrent layers ----

struct Torch {
  RecurrentKind kind;
  int layers = 1, directions = 1;
  bool has_lengths = false, has_projection = false, relu = false;
};

std::string suffix(int layer, int direction) {
  return "_l" + std::to_string(layer) + (direction == 1 ? "_reverse" : "");
}

void check_recurrent(const std::string& name, const Torch& torch) {
  SCOPED_TRACE(name);
  Graph g;
  Tensors feeds;
  const Value x = peer_input(g, name + "/x"), dy = peer_input(g, name + "/dy");
  std::vector<RecurrentParameters> parameters;
  std::vector<RecurrentWeights> expected;  // gradients, as ours
  for (int set = 0; set < torch.layers * torch.directions; ++set) {
    const std::string at = suffix(set / torch.directions, set % torch.directions);
    const auto weights = [&](const std::string& prefix) {
      const auto get = [&](const char* part) { return peer_record(prefix + part + at); };
      return from_pytorch(torch.kind, get("/weight_ih"), get("/weight_hh"), get("/bias_ih"), get("/bias_hh"),
                          torch.has_projection ? get("/weight_hr") : Tensor());
    };
    const RecurrentWeights made = weights(name);
    expected.push_back(weights(name + "/grad"));
    const auto declare = [&](const char* part, const Tensor& tensor) {
      const std::string input_name = part + at;
      feeds[input_name] = tensor;
      return g.input(input_name, f64, tensor.shape());
    };
    parameters.push_back({declare("w", made.w), declare("u", made.u), declare("b", made.b)});
    if (torch.has_projection) parameters.back().projection = declare("p", made.projection);
  }
  RecurrentOptions options{.bidirectional = torch.directions == 2, .relu = torch.relu};
  if (torch.has_lengths) options.lengths = peer_input(g, name + "/lengths");
  const auto states = [&](const std::string& of) {
    const Value all = peer_input(g, name + of);
    Values parts;
    for (std::int64_t k = 0; k < all.shape()[0]; ++k) {
      const Value part = slice(all, 0, k, k + 1);
      parts.push_back(reshape(part, all.shape().with_removed(0)));
    }
    return parts;
  };
  options.initial_h = states("/h0");
  if (torch.kind == RecurrentKind::lstm) options.initial_c = states("/c0");
  const RecurrentResult made = torch.kind == RecurrentKind::lstm  ? lstm(x, parameters, options)
                               : torch.kind == RecurrentKind::gru ? gru(x, parameters, options)
                                                                  : rnn(x, parameters, options);
  g.fetch(name + "/y", made.outputs);
  const auto stacked = [&](const Values& parts) {
    Values rows;
    for (const Value& part : parts) rows.push_back(reshape(part, part.shape().with_inserted(0, 1)));
    return concat(rows, 0);
  };
  g.fetch(name + "/h", stacked(made.last_h));
  if (torch.kind == RecurrentKind::lstm) g.fetch(name + "/c", stacked(made.last_c));
  Values wanted{x};
  for (const RecurrentParameters& p : parameters) {
    wanted.insert(wanted.end(), {p.w, p.u, p.b});
    if (p.projection.valid()) wanted.push_back(p.projection);
  }
  const Values grads = gradients(std::array{made.outputs}, wanted, std::array{dy});
  g.fetch(name + "/dx", grads[0]);
  auto all = g.clone();
  expect_records(*all, feeds);

  // Weights' gradients. A bias that is a sum has the gradient of one term: half of the loader's sum.
  for (std::size_t i = 1; i < grads.size(); ++i) g.fetch("grad" + std::to_string(i), grads[i]);
  Program program(g);
  for (const std::string& input_name : program.input_names()) {
    if (!feeds.contains(input_name)) feeds[input_name] = peer_record(input_name);
  }
  const Tensors got = program.run(feeds);
  std::size_t next = 1;
  for (const RecurrentWeights& weights : expected) {
    const auto expect_next = [&](const Tensor& tensor, std::size_t halved) {
      Dense values = tensor.to_doubles();
      for (std::size_t k = 0; k < halved; ++k) values[k] /= 2;
      const std::string grad = "grad" + std::to_string(next++);
      expect_close(grad, got.at(grad).to_doubles(), values, 1e-12);
    };
    expect_next(weights.w, 0);
    expect_next(weights.u, 0);
    const auto biases = static_cast<std::size_t>(weights.b.shape().elements());
    expect_next(weights.b, torch.kind == RecurrentKind::gru ? biases / 2 : biases);
    if (torch.has_projection) expect_next(weights.projection, 0);
  }
}

TEST(NnPeer, RecurrentLayersGiveWhatPyTorchGives) {
  check_recurrent("lstm", {.kind = RecurrentKind::lstm, .layers = 2, .directions = 2, .has_lengths = true});
  check_recurrent("lstm_projection", {.kind = RecurrentKind::lstm, .has_projection = true});
  check_recurrent("gru", {.kind = RecurrentKind::gru, .layers = 2, .directions = 2, .has_lengths = true});
  check_recurrent("rnn", {.kind = RecurrentKind::rnn});
  check_recurrent("relu", {.kind = RecurrentKind::rnn, .relu = true});
}

// ---- losses and normalisation ----

TEST(NnPeer, LossesGiveWhatPyTorchGives) {
  const auto check = [](const std::string& name, const CrossEntropyOptions& options) {
    Graph g;
    const Value logits = peer_input(g, name + "/logits"), labels = peer_input(g, name + "/labels");
    const Value loss = cross_entropy(logits, labels, options);
    g.fetch(name + "/loss", loss);
    g.fetch(name + "/grad", gradients(sum(loss), {logits})[0]);
    expect_records(g);
  };
  check("cross_entropy_mean", {});
  check("cross_entropy_sum", {.reduction = LossReduction::sum});
  check("cross_entropy_none", {.reduction = LossReduction::none});
  check("cross_entropy_smooth", {.label_smoothing = 0.1});
  const auto check_pair = [](const std::string& name, const std::function<Value(Value, Value)>& loss_of) {
    Graph g;
    const Value a = peer_input(g, name + "/a"), b = peer_input(g, name + "/b");
    const Value loss = loss_of(a, b);
    g.fetch(name + "/loss", loss);
    g.fetch(name + "/grad", gradients(loss, {a})[0]);
    expect_records(g);
  };
  check_pair("mse", [](Value a, Value b) { return mse_loss(a, b); });
  check_pair("l1", [](Value a, Value b) { return l1_loss(a, b); });
  check_pair("huber", [](Value a, Value b) { return huber_loss(a, b, 0.7); });
  check_pair("bce", [](Value a, Value b) { return binary_cross_entropy_with_logits(a, b); });
  check_pair("softmax", [](Value a, Value b) { return sum(softmax(a, 1) * b); });
  check_pair("log_softmax", [](Value a, Value b) { return sum(log_softmax(a, 0) * b); });
}

TEST(NnPeer, NormalisationGivesWhatPyTorchGives) {
  for (const std::string name : {"layer_norm", "rms_norm"}) {
    Graph g;
    const Value x = peer_input(g, name + "/x"), dy = peer_input(g, name + "/dy"),
                gamma = peer_input(g, name + "/weight");
    Values wanted{x, gamma};
    if (name == "layer_norm") wanted.push_back(peer_input(g, name + "/bias"));
    const Value y = name == "layer_norm" ? layer_norm(x, gamma, wanted[2]) : rms_norm(x, gamma);
    const Values grads = gradients(std::array{y}, wanted, std::array{dy});
    g.fetch(name + "/y", y);
    g.fetch(name + "/dx", grads[0]);
    g.fetch(name + "/grad/weight", grads[1]);
    if (wanted.size() == 3) g.fetch(name + "/grad/bias", grads[2]);
    expect_records(g);
  }
  Graph g;
  const std::string name = "batch_norm";
  const Value x = peer_input(g, name + "/x"), dy = peer_input(g, name + "/dy");
  const Value gamma = peer_input(g, name + "/weight"), beta = peer_input(g, name + "/bias");
  const Value mean = g.parameter("mean", f64, {3}), variance = g.parameter("variance", f64, {3});
  const Value y = batch_norm(x, gamma, beta, mean, variance);
  const Values grads = gradients(std::array{y}, std::array{x, gamma, beta}, std::array{dy});
  g.fetch(name + "/y", y);
  g.fetch(name + "/dx", grads[0]);
  g.fetch(name + "/grad/weight", grads[1]);
  g.fetch(name + "/grad/bias", grads[2]);
  Parameters parameters(g, Device::cpu());
  parameters.set("variance", Tensor::from(f64, {3}, Dense{1, 1, 1}));
  Program program(g, {}, &parameters);
  Tensors feeds;
  for (const std::string& in : program.input_names()) feeds[in] = peer_record(in);
  for (const auto& [fetch, tensor] : program.run(feeds)) {
    expect_close(fetch, tensor.to_doubles(), peer_record(fetch).to_doubles(), 1e-12);
  }
  expect_close("mean", parameters.get("mean").to_doubles(), peer_record(name + "/running_mean").to_doubles(), 1e-13);
  expect_close("variance", parameters.get("variance").to_doubles(), peer_record(name + "/running_var").to_doubles(),
               1e-13);

  Graph e;
  const Value rm = peer_input(e, name + "/running_mean"), rv = peer_input(e, name + "/running_var");
  e.fetch(name + "/eval", batch_norm(peer_input(e, name + "/x"), peer_input(e, name + "/weight"),
                                     peer_input(e, name + "/bias"), rm, rv, {.training = false}));
  expect_records(e);
}

// ---- optimizers ----

TEST(NnPeer, OptimizersGoWherePyTorchGoes) {
  const auto check = [](const std::string& name, const Optimizer& optimizer) {
    SCOPED_TRACE(name);
    Graph g;
    const Value p = g.parameter("p", f64, {9}, nn::value(peer_record("optimizer/" + name + "/start")));
    const Value direction = g.input("direction", f64, {9});  // the gradient of the loss below
    const Value loss = sum(p * direction);
    minimize(loss, optimizer);
    g.fetch("loss", loss);
    Parameters parameters(g, Device::cpu());
    Program program(g, {}, &parameters);
    for (int step = 0; step < 5; ++step) {
      Dense values = parameters.get("p").to_doubles();
      for (double& value : values) value = std::sin(value * 3 + step);
      program.run({{"direction", Tensor::from(f64, {9}, values)}});
    }
    expect_close("p", parameters.get("p").to_doubles(), peer_record("optimizer/" + name + "/end").to_doubles(), 1e-13);
  };
  check("sgd", Sgd{.learning_rate = 0.1, .weight_decay = 0.01});
  check("momentum", Sgd{.learning_rate = 0.1, .momentum = 0.9});
  check("nesterov", Sgd{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01});
  check("adam", Adam{.learning_rate = 0.1, .weight_decay = 0.05});
  check("adamw", AdamW{.learning_rate = 0.1, .weight_decay = 0.05});
}

// ---- a model ----

Tensor peer_transposed(const Tensor& matrix) {
  const Dense values = matrix.to_doubles();
  const std::int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  Dense result(values.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      result[static_cast<std::size_t>(c * rows + r)] = values[static_cast<std::size_t>(r * columns + c)];
    }
  }
  return Tensor::from(f64, {columns, rows}, result);
}

// Weights of the recorded model, or their gradients, by the names of ours; biases that are sums are halved for the
// latter.
Tensors g2p_weights(const std::string& prefix, bool are_gradients) {
  Tensors weights;
  const auto add_cell = [&](const std::string& ours, const std::string& theirs, const std::string& at) {
    const auto get = [&](const char* part) { return peer_record(prefix + theirs + part + at); };
    const RecurrentWeights made =
        from_pytorch(RecurrentKind::lstm, get("weight_ih"), get("weight_hh"), get("bias_ih"), get("bias_hh"));
    Dense bias = made.b.to_doubles();
    for (double& value : bias) value *= are_gradients ? 0.5 : 1;
    weights[ours + "/w"] = made.w;
    weights[ours + "/u"] = made.u;
    weights[ours + "/b"] = Tensor::from(f64, made.b.shape(), bias);
  };
  for (int layer = 0; layer < 2; ++layer) {
    const std::string n = std::to_string(layer);
    add_cell("encoder/l" + n, "enc.", "_l" + n);
    add_cell("decoder/l" + n, "cells." + n + ".", "");
  }
  weights["source/weight"] = peer_record(prefix + "es.weight");
  weights["target/weight"] = peer_record(prefix + "et.weight");
  weights["memory/weight"] = peer_transposed(peer_record(prefix + "mem.weight"));
  weights["attention/weight"] = peer_transposed(peer_record(prefix + "att.weight"));
  weights["output/weight"] = peer_transposed(peer_record(prefix + "out.weight"));
  weights["output/bias"] = peer_record(prefix + "out.bias");
  return weights;
}

TEST(NnPeer, TheG2pModelHasPyTorchsLossAndGradients) {
  Graph g;
  const Value source = g.input("source", i64, {5, 3}), target = g.input("target", i64, {5, 3});
  const models::Seq2Seq model(g, {.source_vocabulary = 7, .target_vocabulary = 9, .hidden = 6, .dtype = f64});
  const Value loss = model.loss(model.encode(source), slice(target, 0, 0, 4), slice(target, 0, 1, 5));
  const Tensors weights = g2p_weights("g2p/", false), expected = g2p_weights("g2p/grad/", true);
  Values wanted;
  std::vector<std::string> names;
  for (NodeId id : g.parameters()) {
    wanted.push_back(g.value({id, 0}));
    names.push_back(g.node(id).name.str());
  }
  ASSERT_EQ(names.size(), weights.size());
  const Values grads = gradients(std::array{loss}, wanted);
  g.fetch("loss", loss);
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch(names[i], grads[i]);
  Parameters parameters(g, Device::cpu());
  for (const auto& [name, tensor] : weights) parameters.set(name, tensor);
  Program program(g, {}, &parameters);
  Tensors got = program.run({{"source", peer_record("g2p/source")}, {"target", peer_record("g2p/target")}});
  EXPECT_NEAR(got.at("loss").to_doubles()[0], peer_record("g2p/loss").to_doubles()[0], 1e-13);
  for (const std::string& name : names) {
    expect_close(name, got.at(name).to_doubles(), expected.at(name).to_doubles(), 1e-13);
  }
}

}  // namespace
}  // namespace paoding::testing_program
