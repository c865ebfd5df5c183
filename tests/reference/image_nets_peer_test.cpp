// SPDX-License-Identifier: Apache-2.0
// A small residual and a small mobile network with random weights against PyTorch 2.11's results in float64
#include "models/image_nets.h"
#include "paoding/paoding.h"
#include "tests/support/program_check.h"
#include "tests/support/recorded.h"

namespace paoding::testing_program {
namespace {

const Tensor& image_record(const std::string& name) {
  static const Tensors all = recorded_tensors(recorded_folder() / "image_nets.safetensors");
  const auto it = all.find(name);
  if (it == all.end()) throw std::out_of_range("image_nets.safetensors has no " + name);
  return it->second;
}

Tensor as(DType dtype, const Tensor& tensor) { return Tensor::from(dtype, tensor.shape(), tensor.to_doubles()); }

Value scores_of(Graph& g, const std::string& net, DType dtype, bool training) {
  const Value x = g.input("x", dtype, image_record(net + "/x").shape());
  if (net == "resnet") {
    models::ResNetOptions options;
    options.classes = 5, options.width = 4, options.blocks = {1, 2};
    options.training = training, options.dtype = dtype;
    return models::resnet(x, options);
  }
  models::MobileNetOptions options;
  options.classes = 5, options.first = 8, options.last = 16, options.stages = {{1, 8, 1, 1}, {6, 8, 2, 2}};
  options.training = training, options.dtype = dtype;
  return models::mobile_net(x, options);
}

struct Net {
  std::string name;
  Graph graph;
  std::vector<std::string> parameters, trained;  // names; those with gradients

  Net(const std::string& net, DType dtype, bool training) : name(net) {
    const Value scores = scores_of(graph, net, dtype, training);
    Values wanted;
    for (const NodeId id : graph.parameters()) {
      parameters.push_back(graph.node(id).name.str());
      if (parameters.back().find("/running_") != std::string::npos) continue;
      trained.push_back(parameters.back());
      wanted.push_back(graph.value({id, 0}));
    }
    if (!training) {
      graph.fetch("scores", scores);
      return;
    }
    const Value loss = cross_entropy(scores, graph.input("labels", i64, {3}));
    const Values found = gradients(std::array{loss}, wanted);
    graph.fetch("loss", loss);
    for (std::size_t i = 0; i < found.size(); ++i) graph.fetch("gradient/" + trained[i], found[i]);
  }

  // Computed by this program, with the recorded weights.
  void check(const CompileOptions& options, DType dtype, double tolerance) {
    Parameters store(graph, options.device);
    for (const std::string& parameter : parameters)
      store.set(parameter, as(dtype, image_record(name + "/start/" + parameter)));
    Program program(graph, options, &store);
    Tensors feeds{{"x", as(dtype, image_record(name + "/x"))}};
    if (program.input_names().size() > 1) feeds["labels"] = image_record(name + "/labels");
    for (const auto& [fetch, tensor] : program.run(feeds)) {
      expect_close(fetch, tensor.to_doubles(), image_record(name + "/" + fetch).to_doubles(), tolerance);
    }
    if (feeds.size() == 1) return;
    for (const std::string& parameter : parameters) {
      if (parameter.find("/running_") == std::string::npos) continue;
      expect_close(parameter, store.get(parameter).to_doubles(),
                   image_record(name + "/after/" + parameter).to_doubles(), tolerance);
    }
  }
};

void check_on(const Device& device, DType dtype, double tolerance) {
  for (const std::string name : {"resnet", "mobile_net"}) {
    for (const bool training : {false, true}) {
      SCOPED_TRACE(name + (training ? " in training" : ""));
      CompileOptions options;
      options.device = device;
      Net(name, dtype, training).check(options, dtype, tolerance);
    }
  }
}

TEST(ImageNetsPeer, AreWhatPyTorchGives) {
  check_on(Device::cpu(), f64, 1e-10);
  check_on(Device::cpu(), f32, 1e-3);
}

TEST(ImageNetsPeer, AreWhatPyTorchGivesOnAGpu) {
  const Device device = Device::best();
  if (device.kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  check_on(device, f64, 1e-10);
  check_on(device, f32, 1e-3);
}

}  // namespace
}  // namespace paoding::testing_program
