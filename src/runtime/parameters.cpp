// SPDX-License-Identifier: Apache-2.0
// Parameters: made with a graph's first values, set and read by the host.
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/one_line.h"
#include "runtime/parameter_store.h"

namespace paoding {
namespace {

// The seed of one parameter: what others there are and their order must not matter. Hashing carries upwards only, and
// random ops take the lower 48 bits: the upper ones are folded in.
std::uint64_t seed_of(std::uint64_t seed, std::string_view name) {
  return fnv1a(name, kFnvStart ^ seed ^ (seed >> 48));
}

}  // namespace

Parameters::Parameters(const Graph& graph, const Device& device, const ParametersOptions& options)
    : store_(std::make_shared<Store>()) {
  store_->device = device;
  if (device.kind == DeviceKind::cuda) store_->failure = make_gpu_failure(device);
  for (NodeId id : graph.parameters()) {
    const Node& node = graph.node(id);
    const std::int64_t bytes = paoding::size_bytes(node.types[0]);
    std::unique_ptr<DeviceBuffer> buffer;
    try {
      buffer = device.kind == DeviceKind::cpu ? make_cpu_buffer(bytes) : make_gpu_buffer(bytes, device);
    } catch (const Error& error) {  // too little memory, most often
      fail(error.kind(), "parameter '{}', {}: {}", one_line(node.name.str()), to_string(node.types[0]), error.what());
    }
    store_->entries.emplace(node.name.str(), Store::Entry{node.types[0], std::move(buffer)});
    store_->order.push_back(node.name.str());
    if (const auto it = graph.initializers().find(node.name.str()); it != graph.initializers().end()) {
      set(node.name.str(), it->second(node.types[0], seed_of(options.seed, node.name.str())));
    }
  }
}

Parameters::~Parameters() = default;
Parameters::Parameters(Parameters&&) noexcept = default;
Parameters& Parameters::operator=(Parameters&&) noexcept = default;

Parameters::Store& Parameters::store() const {
  if (store_ == nullptr) fail(ErrorKind::argument, "parameters: they were moved to other Parameters; use those");
  return *store_;
}

const Device& Parameters::device() const { return store().device; }
std::vector<std::string> Parameters::names() const { return store().order; }

std::vector<ParameterInfo> Parameters::list() const {
  std::vector<ParameterInfo> all;
  for (const std::string& name : store().order) all.push_back({name, store().at(name).type});
  return all;
}

std::int64_t Parameters::elements() const {
  std::int64_t count = 0;
  for (const ParameterInfo& each : list()) count += each.elements();
  return count;
}

std::int64_t Parameters::size_bytes() const {
  std::int64_t count = 0;
  for (const ParameterInfo& each : list()) count += each.size_bytes();
  return count;
}

void Parameters::set(std::string_view name, const Tensor& tensor) {
  Store::Entry& entry = store().at(name);
  if (!(tensor.type() == entry.type)) {
    fail(tensor.dtype() == entry.type.dtype ? ErrorKind::shape : ErrorKind::dtype, "parameter '{}' is {}, not {}",
         one_line(name), to_string(entry.type), to_string(tensor.type()));
  }
  if (UnderWayHere::is_around(store_.get())) {
    fail(ErrorKind::argument, "parameter '{}' is set in a callback of a run that reads it; set it when run() is over",
         one_line(name));
  }
  const std::lock_guard writer(store_->writing);
  const std::unique_lock lock(store_->running);
  store_->finish_runs(true);
  entry.buffer->write(tensor);
  store_->shadows.outdate(name);
}

Tensor Parameters::get(std::string_view name) const {
  const Store::Entry& entry = store().at(name);
  std::shared_lock<std::shared_mutex> lock(store_->running, std::defer_lock);
  if (!UnderWayHere::is_around(store_.get())) lock.lock();  // else the run has it
  store_->finish_runs(false);
  return entry.buffer->read(entry.type);
}

}  // namespace paoding
