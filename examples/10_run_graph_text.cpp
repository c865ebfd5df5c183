// SPDX-License-Identifier: Apache-2.0
// 10_run_graph_text [FILE]: a model that is text (docs/reference/graph_text.md), read and run. The built-in text learns
// XOR, with its gradients and updates in the text; a file of yours is run once on small random inputs.
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>

#include "paoding/paoding.h"

namespace pd = paoding;

namespace {

const char* const kXor = R"(paoding graph 1
x = input f32[4,3]                       # two bits, and 1 for the bias
target = input f32[4,1]
w1 = parameter f32[3,8]
w2 = parameter f32[8,1]
h0 = matmul(x, w1)
h = tanh(h0) @"hidden"
y0 = matmul(h, w2)
y = sigmoid(y0) @"out"
wrong = sub(y, target)
squares = mul(wrong, wrong)
loss = sum(squares)
dw1, dw2 = gradients(loss) by (w1, w2)
rate = full() {value=1, dtype=f32}
step1 = mul(rate, dw1)
step2 = mul(rate, dw2)
new1 = sub(w1, step1)
new2 = sub(w2, step2)
assign w1 = new1 @"sgd"
assign w2 = new2 @"sgd"
fetch y
fetch loss
)";

std::string read_file(const char* path) {
  std::ifstream in(path);
  if (!in) throw pd::Error(pd::ErrorKind::file, std::string(path) + ": cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

// Integers stay 0: they may be positions in something.
pd::Tensor random_tensor(const pd::Type& type, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  for (double& value : values) value = pd::is_float(type.dtype) ? normal(random) : 0;
  return pd::Tensor::from(type.dtype, type.shape, values);
}

std::string text_of(const pd::Tensor& tensor) {
  std::string text = to_string(tensor.type()) + " =";
  const std::vector<double> values = tensor.to_doubles();
  for (std::size_t i = 0; i < values.size() && i < 8; ++i) text += " " + std::to_string(values[i]);
  return text + (values.size() > 8 ? " ..." : "");
}

}  // namespace

int main(int argc, char** argv) try {
  const auto g = pd::parse_graph(argc > 1 ? read_file(argv[1]) : kXor);  // errors name line and column
  const pd::Device device = pd::Device::best();
  std::mt19937_64 random(4);
  pd::Parameters parameters(*g, device);
  for (const std::string& name : parameters.names()) {
    parameters.set(name, random_tensor(g->find(name).type(), random));
  }
  pd::Program program(*g, {.device = device}, &parameters);
  std::map<std::string, pd::Tensor> feeds;
  for (int i = 0; const std::string& name : program.input_names()) {
    feeds[name] = random_tensor(program.input_type(i++), random);
  }
  int runs = 1;
  if (argc == 1) {
    feeds["x"] = pd::Tensor::from(pd::f32, {4, 3}, {0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1});
    feeds["target"] = pd::Tensor::from(pd::f32, {4, 1}, {0, 1, 1, 0});
    runs = 1000;
  }
  std::map<std::string, pd::Tensor> results;
  for (int i = 0; i < runs; ++i) results = program.run(feeds);
  std::cout << "after " << runs << " runs of " << program.report().launches << " launches on " << to_string(device)
            << ":\n";
  // Names are whatever the text says.
  for (const auto& [name, tensor] : results) std::cout << pd::printable(name) << " " << text_of(tensor) << "\n";
} catch (const pd::Error& error) {
  std::cerr << pd::printable(error.what()) << "\n";
  return 1;
}
