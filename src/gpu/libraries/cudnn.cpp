// SPDX-License-Identifier: Apache-2.0
#include "gpu/libraries/cudnn.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace paoding::gpu {
namespace {

using cudnn::Attribute;
using cudnn::AttributeType;

constexpr std::int64_t kX = 1, kW = 2, kY = 3;  // unique ids of the tensors
constexpr std::int64_t kMostOfAMode = 10;       // engines that heuristics are asked for

struct LoadedCudnn {
  Library library;
  Cudnn table;
  std::string problem;

  LoadedCudnn() : library({"libcudnn.so.9"}), problem(library.problem()) {
    if (!library.loaded()) return;
    try {
#define PD_CUDNN_LOAD(name, result, parameters) table.name = library.symbol<result(*) parameters>(#name);
      PD_CUDNN_FUNCTIONS(PD_CUDNN_LOAD)
#undef PD_CUDNN_LOAD
    } catch (const Error& error) {
      problem = error.what();
    }
  }
};

const LoadedCudnn& loaded_cudnn() {
  static const LoadedCudnn* loaded = new LoadedCudnn();
  return *loaded;
}

const Cudnn& required_cudnn() {
  const Cudnn* table = cudnn_functions();
  if (table == nullptr) fail(ErrorKind::device, "cudnn: {}", cudnn_problem());
  return *table;
}

// The library's further message belongs to the last error of this thread.
void check_cudnn(cudnn::Status status, const char* what, ErrorKind kind = ErrorKind::unsupported) {
  if (status == cudnn::kSuccess) return;
  const Cudnn& table = required_cudnn();
  char more[512] = "";
  table.cudnnGetLastErrorString(more, sizeof(more));
  fail(kind, "{}: {}{}{}", what, table.cudnnGetErrorString(status), more[0] == '\0' ? "" : ": ", more);
}

/// A handle per GPU, kept until the process ends, and used by one thread at a time.
struct SharedHandle {
  std::mutex mutex;
  cudnn::Handle handle = nullptr;
};

SharedHandle& cudnn_handle_of(const GpuDevice& device) {
  static auto* mutex = new std::mutex();
  static auto* handles = new std::map<int, std::unique_ptr<SharedHandle>>();
  const std::lock_guard lock(*mutex);
  std::unique_ptr<SharedHandle>& shared = (*handles)[device.index()];
  if (shared == nullptr) {
    device.make_current();  // the handle belongs to the CUcontext that is current when it is made
    auto made = std::make_unique<SharedHandle>();
    check_cudnn(required_cudnn().cudnnCreate(&made->handle), "cudnnCreate");
    shared = std::move(made);
  }
  return *shared;
}

/// A descriptor of the backend's.
class Described {
 public:
  Described() = default;
  explicit Described(cudnn::DescriptorType type) {
    check_cudnn(required_cudnn().cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
  }
  ~Described() {
    if (descriptor_ != nullptr) required_cudnn().cudnnBackendDestroyDescriptor(descriptor_);
  }
  Described(Described&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Described& operator=(Described&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  template <class T>
  Described& set(Attribute which, AttributeType type, const T* values, std::int64_t count) {
    check_cudnn(required_cudnn().cudnnBackendSetAttribute(descriptor_, which, type, count, values),
                fmt::format("cudnnBackendSetAttribute {}", static_cast<int>(which)).c_str());
    return *this;
  }
  template <class T>
  Described& set(Attribute which, AttributeType type, const T& value) {
    return set(which, type, &value, 1);
  }
  template <std::size_t n>
  Described& set(Attribute which, const std::array<std::int64_t, n>& values) {
    return set(which, cudnn::kTypeInt64, values.data(), n);
  }
  Described& set(Attribute which, const Described& other) {
    return set(which, cudnn::kTypeDescriptor, other.descriptor_);
  }
  void finalize(const char* what) { check_cudnn(required_cudnn().cudnnBackendFinalize(descriptor_), what); }
  cudnn::Status try_finalize() { return required_cudnn().cudnnBackendFinalize(descriptor_); }

  /// Up to `most` values; how many there are.
  template <class T>
  std::int64_t get(Attribute which, AttributeType type, std::int64_t most, T* values) const {
    std::int64_t count = 0;
    check_cudnn(required_cudnn().cudnnBackendGetAttribute(descriptor_, which, type, most, &count, values),
                fmt::format("cudnnBackendGetAttribute {}", static_cast<int>(which)).c_str());
    return std::min(count, most);
  }
  cudnn::Descriptor get() const { return descriptor_; }

 private:
  cudnn::Descriptor descriptor_ = nullptr;
};

/// The descriptors that an attribute has, which the library fills in.
std::vector<Described> described(const Described& of, Attribute which, cudnn::DescriptorType type, std::int64_t most) {
  std::vector<Described> made;
  std::vector<cudnn::Descriptor> raw;
  for (std::int64_t i = 0; i < most; ++i) raw.push_back(made.emplace_back(type).get());
  made.resize(static_cast<std::size_t>(of.get(which, cudnn::kTypeDescriptor, most, raw.data())));
  return made;
}

cudnn::DataType data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return cudnn::kFloat;
    case DType::f16: return cudnn::kHalf;
    case DType::bf16: return cudnn::kBfloat16;
    default: fail(ErrorKind::dtype, "cudnn: {}, needed f32, f16 or bf16", to_string(dtype));
  }
}

Described tensor(const ConvolutionTensor& from, std::int64_t id) {
  Described made(cudnn::kTensor);
  made.set(cudnn::kTensorDataType, cudnn::kTypeDataType, data_type(from.dtype));
  made.set(cudnn::kTensorDimensions, from.extents).set(cudnn::kTensorStrides, from.strides);
  made.set(cudnn::kTensorUniqueId, cudnn::kTypeInt64, id);
  made.set(cudnn::kTensorAlignment, cudnn::kTypeInt64, from.alignment);
  made.finalize("cudnn: a tensor");
  return made;
}

bool is_refused(const ConvolutionSpec& spec, const Described& config) {
  const std::vector<Described> engine = described(config, cudnn::kEngineConfigEngine, cudnn::kEngine, 1);
  if (engine.empty()) return true;
  std::array<int, cudnn::kNoteCount> notes{};
  const std::int64_t count =
      engine[0].get(cudnn::kEngineNumericalNote, cudnn::kTypeNumericalNote, cudnn::kNoteCount, notes.data());
  return std::any_of(notes.begin(), notes.begin() + count, [&](int note) {
    switch (note) {
      case cudnn::kNoteTensorCore: return spec.x.dtype == DType::f32 && !spec.allow_tf32;
      case cudnn::kNoteDownConvertInputs:
      case cudnn::kNoteReducedPrecisionReduction:
      case cudnn::kNoteNondeterministic: return true;
      default: return note == cudnn::kNoteFft || (note >= cudnn::kNoteWinograd && note < cudnn::kNoteWinograd + 4);
    }
  });
}

std::string name_of(const Described& config) {
  const std::vector<Described> engine = described(config, cudnn::kEngineConfigEngine, cudnn::kEngine, 1);
  std::int64_t index = -1;
  engine.at(0).get(cudnn::kEngineGlobalIndex, cudnn::kTypeInt64, 1, &index);
  std::vector<std::pair<int, std::int64_t>> knobs;
  for (const Described& knob :
       described(config, cudnn::kEngineConfigKnobChoices, cudnn::kKnobChoice, cudnn::kKnobTypes)) {
    int type = 0;
    std::int64_t value = 0;
    knob.get(cudnn::kKnobChoiceType, cudnn::kTypeKnobType, 1, &type);
    knob.get(cudnn::kKnobChoiceValue, cudnn::kTypeInt64, 1, &value);
    knobs.emplace_back(type, value);
  }
  std::ranges::sort(knobs);
  std::string name = std::to_string(index);
  for (const auto& [type, value] : knobs) name += fmt::format(" k{}={}", type, value);
  return name;
}

std::string to_string(const ConvolutionTensor& tensor) {
  return fmt::format("{}[{}] by {} at {}", paoding::to_string(tensor.dtype), fmt::join(tensor.extents, ","),
                     fmt::join(tensor.strides, ","), tensor.alignment);
}

}  // namespace

const Cudnn* cudnn_functions() {
  const LoadedCudnn& loaded = loaded_cudnn();
  return loaded.problem.empty() ? &loaded.table : nullptr;
}

const std::string& cudnn_problem() { return loaded_cudnn().problem; }

const Library& cudnn_library() { return loaded_cudnn().library; }

std::string to_string(const ConvolutionSpec& spec) {
  using Result = ConvolutionSpec::Result;
  return fmt::format("convolution for {}: x {}, w {}, y {}, stride {}, dilation {}, padding {} and {}{}",
                     spec.result == Result::y   ? "y"
                     : spec.result == Result::x ? "x"
                                                : "w",
                     to_string(spec.x), to_string(spec.w), to_string(spec.y), fmt::join(spec.strides, ","),
                     fmt::join(spec.dilations, ","), fmt::join(spec.before, ","), fmt::join(spec.after, ","),
                     spec.allow_tf32 ? ", TF32" : "");
}

// ---- engines ----

struct ConvolutionEngines::Found {
  const GpuDevice* device = nullptr;
  SharedHandle* shared = nullptr;
  ConvolutionSpec spec;
  std::vector<Described>
      parts;  // of the graph: cuDNN does not say that an object may outlive the descriptors it was made of
  Described graph;
  std::vector<Described> configs;
  std::vector<std::string> names;  // of each engine

  void ask(cudnn::HeuristicMode mode) {
    Described heuristic(cudnn::kEngineHeuristic);
    heuristic.set(cudnn::kHeuristicOperationGraph, graph);
    heuristic.set(cudnn::kHeuristicMode, cudnn::kTypeHeuristicMode, mode);
    if (heuristic.try_finalize() != cudnn::kSuccess) return;  // it knows none
    for (Described& config : described(heuristic, cudnn::kHeuristicResults, cudnn::kEngineConfig, kMostOfAMode)) {
      if (is_refused(spec, config)) continue;
      std::string name = name_of(config);
      if (std::ranges::find(names, name) != names.end()) continue;
      names.push_back(std::move(name));
      configs.push_back(std::move(config));
    }
  }
};

ConvolutionEngines::ConvolutionEngines(const GpuDevice& device, const ConvolutionSpec& spec)
    : found_(std::make_shared<Found>()) {
  required_cudnn();
  found_->device = &device, found_->spec = spec;
  found_->shared = &cudnn_handle_of(device);
  device.make_current();
  const std::lock_guard lock(found_->shared->mutex);

  Described convolution(cudnn::kConvolution);
  convolution.set(cudnn::kConvolutionCompType, cudnn::kTypeDataType, cudnn::kFloat);
  convolution.set(cudnn::kConvolutionMode, cudnn::kTypeConvolutionMode, cudnn::kCrossCorrelation);
  convolution.set(cudnn::kConvolutionSpatialDims, cudnn::kTypeInt64, std::int64_t{2});
  convolution.set(cudnn::kConvolutionStrides, spec.strides).set(cudnn::kConvolutionDilations, spec.dilations);
  convolution.set(cudnn::kConvolutionPrePaddings, spec.before).set(cudnn::kConvolutionPostPaddings, spec.after);
  convolution.finalize("cudnn: a convolution");
  Described x = tensor(spec.x, kX), w = tensor(spec.w, kW), y = tensor(spec.y, kY);

  // An operation's attributes follow each other: alpha, beta, the convolution, w, x, y.
  using Result = ConvolutionSpec::Result;
  const auto [type, first] = spec.result == Result::y ? std::pair(cudnn::kOperationForward, cudnn::kForwardAlpha)
                             : spec.result == Result::x
                                 ? std::pair(cudnn::kOperationBackwardData, cudnn::kBackwardDataAlpha)
                                 : std::pair(cudnn::kOperationBackwardFilter, cudnn::kBackwardFilterAlpha);
  Described made(type);
  const auto attribute = [first = first](int i) { return static_cast<Attribute>(first + i); };
  made.set(attribute(0), cudnn::kTypeFloat, 1.0f).set(attribute(1), cudnn::kTypeFloat, 0.0f);
  made.set(attribute(2), convolution).set(attribute(3), w).set(attribute(4), x).set(attribute(5), y);
  made.finalize("cudnn: an operation");

  found_->graph = Described(cudnn::kOperationGraph);
  found_->graph.set(cudnn::kGraphHandle, cudnn::kTypeHandle, found_->shared->handle);
  found_->graph.set(cudnn::kGraphOperations, made);
  found_->graph.finalize("cudnn: a graph");
  for (Described* part : {&convolution, &x, &w, &y, &made}) found_->parts.push_back(std::move(*part));
  found_->ask(cudnn::kHeuristicA);
  found_->ask(cudnn::kHeuristicFallback);
  if (found_->names.empty()) fail(ErrorKind::unsupported, "cudnn: no engine for {}", to_string(spec));
}

ConvolutionEngines::~ConvolutionEngines() = default;
ConvolutionEngines::ConvolutionEngines(ConvolutionEngines&&) noexcept = default;

const std::vector<std::string>& ConvolutionEngines::names() const { return found_->names; }

// ---- one that runs ----

struct Convolution::Plan {
  std::shared_ptr<const void> made_of;
  SharedHandle* shared = nullptr;
  std::string engine;
  Described plan;
  std::size_t workspace_bytes = 0;
};

Convolution::Convolution(const ConvolutionEngines& engines, std::size_t workspace_limit_bytes,
                         const std::string& name) {
  const ConvolutionEngines::Found& found = *engines.found_;
  found.device->make_current();
  const std::lock_guard lock(found.shared->mutex);
  std::string why = name.empty() ? "" : fmt::format("it has none that is named {}", name);
  for (std::size_t i = 0; i < found.configs.size() && plan_ == nullptr; ++i) {
    if (!name.empty() && found.names[i] != name) continue;
    auto made = std::make_unique<Plan>();
    made->made_of = engines.found_, made->shared = found.shared, made->engine = found.names[i];
    try {
      made->plan = Described(cudnn::kExecutionPlan);
      made->plan.set(cudnn::kPlanHandle, cudnn::kTypeHandle, found.shared->handle);
      made->plan.set(cudnn::kPlanEngineConfig, found.configs[i]);
      made->plan.finalize("its plan");
      std::int64_t bytes = 0;
      made->plan.get(cudnn::kPlanWorkspaceSize, cudnn::kTypeInt64, 1, &bytes);
      if (bytes < 0 || static_cast<std::size_t>(bytes) > workspace_limit_bytes) {
        why = fmt::format("engine {} needs {} bytes of workspace, more than {}", made->engine, bytes,
                          workspace_limit_bytes);
        continue;
      }
      made->workspace_bytes = static_cast<std::size_t>(bytes);
    } catch (const Error& error) {
      why = fmt::format("engine {}: {}", made->engine, error.what());
      continue;
    }
    plan_ = std::move(made);
  }
  if (plan_ == nullptr) fail(ErrorKind::unsupported, "cudnn: no engine for {}: {}", to_string(found.spec), why);
}

Convolution::~Convolution() = default;
Convolution::Convolution(Convolution&&) noexcept = default;

const std::string& Convolution::engine() const { return plan_->engine; }
std::size_t Convolution::workspace_bytes() const { return plan_->workspace_bytes; }

void Convolution::run(CUstream stream, const void* x, const void* w, const void* y, void* workspace) const {
  const Cudnn& table = required_cudnn();
  const std::array<std::int64_t, 3> ids{kX, kW, kY};
  const std::array<const void*, 3> pointers{x, w, y};
  const std::lock_guard lock(plan_->shared->mutex);
  Described pack(cudnn::kVariantPack);
  pack.set(cudnn::kPackUniqueIds, ids);
  pack.set(cudnn::kPackDataPointers, cudnn::kTypeVoidPtr, pointers.data(), 3);
  pack.set(cudnn::kPackWorkspace, cudnn::kTypeVoidPtr, workspace);
  pack.finalize("cudnn: a variant pack");
  check_cudnn(table.cudnnSetStream(plan_->shared->handle, stream), "cudnnSetStream", ErrorKind::device);
  check_cudnn(table.cudnnBackendExecute(plan_->shared->handle, plan_->plan.get(), pack.get()),
              fmt::format("cudnnBackendExecute of engine {}", plan_->engine).c_str(), ErrorKind::device);
}

}  // namespace paoding::gpu
