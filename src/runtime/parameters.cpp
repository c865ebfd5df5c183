// SPDX-License-Identifier: Apache-2.0
// Parameters: made with a graph's first values, set and read by the host.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/one_line.h"
#include "runtime/compile.h"
#include "runtime/parameter_store.h"

namespace paoding {
namespace {

// The seed of one parameter: other parameters and their order must not matter. Hashing carries upwards only, and
// random ops take the lower 48 bits: the upper ones are folded in.
std::uint64_t seed_of(std::uint64_t seed, std::string_view name) {
  return fnv1a(name, kFnvStart ^ seed ^ (seed >> 48));
}

}  // namespace

Parameters::Parameters(const Graph& graph, const Device& device, const ParametersOptions& options)
    : store_(std::make_shared<Store>()) {
  store_->device = device;
  store_->seed = options.seed;
  if (device.kind == DeviceKind::cuda) store_->failure = make_gpu_failure(device);
  for (NodeId id : graph.parameters()) {
    const std::string& name = graph.node(id).name.str();
    const Type& type = graph.node(id).types[0];
    store_->add(name, type, graph.role(name), {});
    if (const auto it = graph.initializers().find(name); it != graph.initializers().end()) {
      set(name, store_->first_value(it->second, name, type));
    }
  }
}

Tensor Parameters::Store::first_value(const Initializer& initial, const std::string& name, const Type& type) const {
  return initial(type, seed_of(seed, name));
}

Parameters::Store::Entry& Parameters::Store::add(const std::string& name, const Type& type, ParameterRole role,
                                                 const std::optional<Tensor>& first) {
  const std::int64_t bytes = paoding::size_bytes(type);
  Entry made{.type = type, .role = role};
  try {
    made.buffer = device.kind == DeviceKind::cpu ? make_cpu_buffer(bytes) : make_gpu_buffer(bytes, device);
  } catch (const Error& error) {  // too little memory, most often
    fail(error.kind(), "parameter '{}', {}: {}", one_line(name), to_string(type), error.what());
  }
  if (first) made.buffer->write(*first);
  const std::lock_guard lock(adding);
  const auto [it, is_new] = entries.emplace(name, std::move(made));
  if (is_new) order.push_back(name);
  return it->second;
}

Parameters::~Parameters() = default;
Parameters::Parameters(Parameters&&) noexcept = default;
Parameters& Parameters::operator=(Parameters&&) noexcept = default;

Parameters::Store& Parameters::store() const {
  if (store_ == nullptr) fail(ErrorKind::argument, "parameters: they were moved to other Parameters; use those");
  return *store_;
}

PlannedParameters Parameters::Store::find(const Plan& plan, CompiledPlan* compiled, const CompileOptions& options) {
  if (!(device == options.device)) {
    fail(ErrorKind::argument, "compile: the Parameters are on {}, the program on {}", to_string(device),
         to_string(options.device));
  }
  PlannedParameters found;
  Graph& graph = *compiled->graph;
  const auto& of_preprocessed = compiled->preprocessed.names;
  for (const auto& [name, unused] : plan.parameters) {
    if (std::ranges::find(of_preprocessed, name) != of_preprocessed.end()) {
      found.addresses.push_back(nullptr);  // below, when all that it is made of is there
      continue;
    }
    const Type& needed = graph.find(name).type();
    if (const auto of = compiled->shadows.find(name); of != compiled->shadows.end()) {
      found.shadows.push_back(&shadows.at(name, of->second, needed, device));
      found.addresses.push_back(found.shadows.back()->buffer->address());
      continue;
    }
    if (graph.role(name) == ParameterRole::random && !has(name)) {
      const Initializer& initial = graph.initializers().at(name);
      add(name, needed, ParameterRole::random, first_value(initial, name, needed));
    }
    const Entry& entry = at(name);
    if (!(entry.type == needed)) {
      fail(entry.type.dtype == needed.dtype ? ErrorKind::shape : ErrorKind::dtype,
           "compile: parameter '{}' is {} in the graph, but {} in the Parameters", one_line(name), to_string(needed),
           to_string(entry.type));
    }
    found.addresses.push_back(entry.buffer->address());
  }
  if (of_preprocessed.empty()) return found;
  found.preprocessed = &preprocess(compiled, options);
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    const std::string& name = plan.parameters[i].first;
    const bool is_preprocessed = std::ranges::find(of_preprocessed, name) != of_preprocessed.end();
    if (is_preprocessed) found.addresses[i] = found.preprocessed->buffers.at(name)->address();
  }
  return found;
}

const Device& Parameters::device() const { return store().device; }
std::vector<std::string> Parameters::names() const {
  const std::lock_guard lock(store().adding);
  return store_->order;
}

std::vector<ParameterInfo> Parameters::list() const {
  std::vector<ParameterInfo> all;
  const std::lock_guard lock(store().adding);
  for (const std::string& name : store_->order) {
    const Store::Entry& entry = store_->entries.find(name)->second;
    all.push_back({name, entry.type, entry.role});
  }
  return all;
}

namespace {

template <class Count>
std::int64_t total(const Parameters& parameters, std::optional<ParameterRole> role, Count count) {
  std::int64_t sum = 0;
  for (const ParameterInfo& each : parameters.list()) sum += !role || each.role == *role ? count(each) : 0;
  return sum;
}
std::int64_t elements_of(const ParameterInfo& info) { return info.elements(); }
std::int64_t bytes_of(const ParameterInfo& info) { return info.size_bytes(); }

}  // namespace

std::int64_t Parameters::elements() const { return total(*this, {}, elements_of); }
std::int64_t Parameters::elements(ParameterRole role) const { return total(*this, role, elements_of); }
std::int64_t Parameters::size_bytes() const { return total(*this, {}, bytes_of); }
std::int64_t Parameters::size_bytes(ParameterRole role) const { return total(*this, role, bytes_of); }

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
  ++store_->preprocessed.written;
}

Tensor Parameters::get(std::string_view name) const {
  const Store::Entry& entry = store().at(name);
  std::shared_lock<std::shared_mutex> lock(store_->running, std::defer_lock);
  if (!UnderWayHere::is_around(store_.get())) lock.lock();  // else the run has it
  store_->finish_runs(false);
  return entry.buffer->read(entry.type);
}

}  // namespace paoding
