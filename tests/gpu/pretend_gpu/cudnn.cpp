// SPDX-License-Identifier: Apache-2.0
// The functions of cuDNN that paoding uses, over a Machine: descriptors keep their attributes, and an operation is a
// piece of work of its stream, computed in float64 from the operands' values by then. It checks the same things as the
// library: that descriptors are finished before they are used, and that they fit. In the driver's own library, which
// libcudnn.so.9 is a link to.
#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "base/half.h"
#include "gpu/libraries/cudnn_interface.h"
#include "tests/gpu/pretend_gpu/machine.h"

namespace {

using namespace paoding::gpu::cudnn;
using paoding::pretend::Machine;

constexpr Status kBadParameter = 2000, kNotSupported = 3000, kExecutionFailed = 5000;

struct Made {
  DescriptorType type;
  bool is_final = false;
  std::map<int, std::vector<std::byte>> attributes = {};
  /// An engine's configuration: its number and knob, and the notes on its engine's behaviour.
  struct Config {
    std::int64_t engine = 0, knob = 0;
    std::vector<int> notes = {};
  } config = {};
  std::shared_ptr<Made> of = {};  // of a plan, a heuristic or a graph: a copy of its parent

  template <class T>
  std::vector<T> get(int attribute) const {
    const auto found = attributes.find(attribute);
    if (found == attributes.end()) return {};
    std::vector<T> values(found->second.size() / sizeof(T));
    std::memcpy(values.data(), found->second.data(), values.size() * sizeof(T));
    return values;
  }
  template <class T>
  std::optional<T> one(int attribute) const {
    const auto values = get<T>(attribute);
    return values.size() == 1 ? std::optional<T>(values[0]) : std::nullopt;
  }
};

Made& made(Descriptor descriptor) { return *static_cast<Made*>(descriptor); }

std::size_t size_of(AttributeType type) {
  switch (type) {
    case kTypeHandle:
    case kTypeVoidPtr:
    case kTypeDescriptor:
    case kTypeInt64: return 8;
    case kTypeBoolean: return 1;
    default: return 4;
  }
}

// ---- computations ----

struct Tensor {
  int type = kFloat;
  std::vector<std::int64_t> extents, strides;
  std::int64_t id = 0;
  void* at = nullptr;

  explicit Tensor(const Made& from)
      : type(*from.one<int>(kTensorDataType)),
        extents(from.get<std::int64_t>(kTensorDimensions)),
        strides(from.get<std::int64_t>(kTensorStrides)),
        id(*from.one<std::int64_t>(kTensorUniqueId)) {}
  std::size_t place(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return static_cast<std::size_t>(n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3]);
  }
  double get(std::size_t i) const {
    if (type == kFloat) return static_cast<const float*>(at)[i];
    const std::uint16_t half = static_cast<const std::uint16_t*>(at)[i];
    return type == kHalf ? paoding::f16_to_float(half) : paoding::bf16_to_float(half);
  }
  void put(std::size_t i, double value) const {
    const auto rounded = static_cast<float>(value);
    if (type == kFloat) {
      static_cast<float*>(at)[i] = rounded;
    } else {
      static_cast<std::uint16_t*>(at)[i] =
          type == kHalf ? paoding::float_to_f16(rounded) : paoding::float_to_bf16(rounded);
    }
  }
};

struct ConvolutionCall {
  DescriptorType type;
  Tensor w, x, y;
  std::vector<std::int64_t> stride, dilation, before;

  const Tensor& result() const { return type == kOperationForward ? y : type == kOperationBackwardData ? x : w; }
  void operator()() const {
    const Tensor& to = result();
    const auto& e = to.extents;
    std::vector<double> sums(static_cast<std::size_t>(e[0] * e[1] * e[2] * e[3]));
    const auto dense = [&](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
      return static_cast<std::size_t>(((a * e[1] + b) * e[2] + c) * e[3] + d);
    };
    const std::int64_t group_channels = w.extents[1], groups = x.extents[1] / group_channels;
    const std::int64_t group_outputs = w.extents[0] / groups;
    for (std::int64_t n = 0; n < y.extents[0]; ++n) {
      for (std::int64_t o = 0; o < y.extents[1]; ++o) {
        for (std::int64_t i = 0; i < y.extents[2]; ++i) {
          for (std::int64_t j = 0; j < y.extents[3]; ++j) {
            for (std::int64_t k = 0; k < w.extents[2]; ++k) {
              const std::int64_t row = i * stride[0] + k * dilation[0] - before[0];
              for (std::int64_t l = 0; l < w.extents[3]; ++l) {
                const std::int64_t column = j * stride[1] + l * dilation[1] - before[1];
                if (row < 0 || row >= x.extents[2] || column < 0 || column >= x.extents[3]) continue;
                for (std::int64_t c = 0; c < group_channels; ++c) {
                  const std::int64_t channel = o / group_outputs * group_channels + c;
                  const std::size_t of_x = x.place(n, channel, row, column), of_w = w.place(o, c, k, l);
                  const std::size_t of_y = y.place(n, o, i, j);
                  if (type == kOperationForward) {
                    sums[dense(n, o, i, j)] += x.get(of_x) * w.get(of_w);
                  } else if (type == kOperationBackwardData) {
                    sums[dense(n, channel, row, column)] += y.get(of_y) * w.get(of_w);
                  } else {
                    sums[dense(o, c, k, l)] += x.get(of_x) * y.get(of_y);
                  }
                }
              }
            }
          }
        }
      }
    }
    for (std::int64_t a = 0; a < e[0]; ++a) {
      for (std::int64_t b = 0; b < e[1]; ++b) {
        for (std::int64_t c = 0; c < e[2]; ++c) {
          for (std::int64_t d = 0; d < e[3]; ++d) to.put(to.place(a, b, c, d), sums[dense(a, b, c, d)]);
        }
      }
    }
    Machine::get().launched("cudnn", 0);
  }
};

ConvolutionCall call_of(const Made& operation) {
  const int first = operation.type == kOperationForward        ? kForwardAlpha
                    : operation.type == kOperationBackwardData ? kBackwardDataAlpha
                                                               : kBackwardFilterAlpha;
  const Made& convolution = made(*operation.one<Descriptor>(first + 2));
  const auto tensor = [&](int i) { return Tensor(made(*operation.one<Descriptor>(first + i))); };
  return {operation.type,
          tensor(3),
          tensor(4),
          tensor(5),
          convolution.get<std::int64_t>(kConvolutionStrides),
          convolution.get<std::int64_t>(kConvolutionDilations),
          convolution.get<std::int64_t>(kConvolutionPrePaddings)};
}

// ---- engines ----

// The engines that the heuristics name, in their order: one that nobody who wants the same result twice may take, one
// that takes more memory than anybody gives, and two that work, of which the first is named twice. In f32 the first of
// the two rounds to TF32.
std::vector<Made::Config> engines(bool is_f32, HeuristicMode mode) {
  if (mode == kHeuristicFallback) return {{4, 1, {kNoteTensorCore}}, {9, 0, {}}};
  std::vector<Made::Config> all{{2, 0, {kNoteNondeterministic}}, {3, 0, {}}, {4, 1, {kNoteTensorCore}}, {7, 2, {}}};
  if (!is_f32) all.push_back({4, 1, {kNoteTensorCore}});
  return all;
}
constexpr std::int64_t kGreedy = 3;

bool has_all(const Made& of, std::initializer_list<int> attributes) {
  return std::ranges::all_of(attributes, [&](int attribute) { return of.attributes.contains(attribute); });
}

Status finish(Made& of) {
  const auto final_of = [&](int attribute) {
    const auto found = of.one<Descriptor>(attribute);
    return found && made(*found).is_final ? &made(*found) : nullptr;
  };
  switch (of.type) {
    case kTensor:
      if (!has_all(of, {kTensorDataType, kTensorDimensions, kTensorStrides, kTensorUniqueId, kTensorAlignment})) {
        return kBadParameter;
      }
      return of.get<std::int64_t>(kTensorDimensions).size() == 4 ? kSuccess : kNotSupported;
    case kConvolution:
      return has_all(of, {kConvolutionCompType, kConvolutionMode, kConvolutionDilations, kConvolutionStrides,
                          kConvolutionPostPaddings, kConvolutionPrePaddings, kConvolutionSpatialDims})
                 ? kSuccess
                 : kBadParameter;
    case kOperationForward:
    case kOperationBackwardData:
    case kOperationBackwardFilter: {
      const int first = of.type == kOperationForward        ? kForwardAlpha
                        : of.type == kOperationBackwardData ? kBackwardDataAlpha
                                                            : kBackwardFilterAlpha;
      for (int i = 2; i < 6; ++i) {
        if (final_of(first + i) == nullptr) return kBadParameter;
      }
      const ConvolutionCall call = call_of(of);
      const bool is_last = call.x.strides[1] == 1 && call.y.strides[1] == 1 && call.w.strides[1] == 1;
      return is_last ? kSuccess : kNotSupported;
    }
    case kOperationGraph:
      if (final_of(kGraphOperations) == nullptr) return kBadParameter;
      of.of = std::make_shared<Made>(*final_of(kGraphOperations));
      return kSuccess;
    case kEngineHeuristic: return final_of(kHeuristicOperationGraph) != nullptr ? kSuccess : kBadParameter;
    case kExecutionPlan: {
      const Made* config = final_of(kPlanEngineConfig);
      if (config == nullptr || !of.attributes.contains(kPlanHandle)) return kBadParameter;
      of.of = std::make_shared<Made>(*config);
      return kSuccess;
    }
    case kVariantPack:
      return of.get<std::int64_t>(kPackUniqueIds).size() == of.get<void*>(kPackDataPointers).size() ? kSuccess
                                                                                                    : kBadParameter;
    default: return kBadParameter;
  }
}

template <class T>
Status give(std::initializer_list<T> values, std::int64_t most, std::int64_t* count, void* to) {
  *count = static_cast<std::int64_t>(values.size());
  std::copy_n(values.begin(), std::min<std::int64_t>(most, *count), static_cast<T*>(to));
  return kSuccess;
}

CUstream the_stream = nullptr;
std::string last_error;

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

std::size_t cudnnGetVersion() { return 91900; }
const char* cudnnGetErrorString(Status) { return "CUDNN_STATUS_OF_A_PRETEND_GPU"; }
void cudnnGetLastErrorString(char* text, std::size_t size) {
  const std::lock_guard lock(Machine::get().mutex);
  if (size == 0) return;
  std::strncpy(text, last_error.c_str(), size - 1);
  text[size - 1] = '\0';
}
Status cudnnCreate(Handle* handle) {
  Machine& gpu = Machine::get();
  const std::lock_guard lock(gpu.mutex);
  if (gpu.enter("cudnnCreate") != 0) return kExecutionFailed;
  *handle = reinterpret_cast<Handle>(&gpu);
  return kSuccess;
}
Status cudnnSetStream(Handle, CUstream stream) {
  const std::lock_guard lock(Machine::get().mutex);
  the_stream = stream;
  return kSuccess;
}

Status cudnnBackendCreateDescriptor(DescriptorType type, Descriptor* descriptor) {
  *descriptor = new Made{type};
  return kSuccess;
}
Status cudnnBackendDestroyDescriptor(Descriptor descriptor) {
  delete static_cast<Made*>(descriptor);
  return kSuccess;
}

Status cudnnBackendSetAttribute(Descriptor descriptor, Attribute which, AttributeType type, std::int64_t count,
                                const void* values) {
  if (made(descriptor).is_final) return kBadParameter;
  const auto* const from = static_cast<const std::byte*>(values);
  made(descriptor).attributes[which] = {from, from + static_cast<std::size_t>(count) * size_of(type)};
  return kSuccess;
}

Status cudnnBackendFinalize(Descriptor descriptor) {
  Machine& gpu = Machine::get();
  const std::lock_guard lock(gpu.mutex);
  Made& of = made(descriptor);
  const CUresult entered = gpu.enter(of.type == kExecutionPlan ? "cudnnFinalizePlan" : "cudnnBackendFinalize");
  const Status status = entered != 0 ? kNotSupported : finish(of);
  last_error = status == kSuccess ? "" : "a descriptor of type " + std::to_string(of.type);
  of.is_final = status == kSuccess;
  return status;
}

Status cudnnBackendGetAttribute(Descriptor descriptor, Attribute which, AttributeType, std::int64_t most,
                                std::int64_t* count, void* to) {
  Made& of = made(descriptor);
  auto* const descriptors = static_cast<Descriptor*>(to);
  switch (which) {
    case kHeuristicResults: {
      const Made& graph = made(*of.one<Descriptor>(kHeuristicOperationGraph));
      const auto mode = *of.one<HeuristicMode>(kHeuristicMode);
      const std::vector<Made::Config> found = engines(call_of(*graph.of).x.type == kFloat, mode);
      *count = static_cast<std::int64_t>(found.size());
      for (std::size_t i = 0; i < std::min(found.size(), static_cast<std::size_t>(most)); ++i) {
        Made& config = made(descriptors[i]);
        config.config = found[i], config.of = graph.of, config.is_final = true;
      }
      return kSuccess;
    }
    case kEngineConfigEngine: {
      Made& engine = made(descriptors[0]);
      engine.config = of.config, engine.is_final = true;
      return *count = 1, kSuccess;
    }
    case kEngineConfigKnobChoices: made(descriptors[0]).config = of.config; return *count = 1, kSuccess;
    case kKnobChoiceType: return give({24}, most, count, to);
    case kKnobChoiceValue: return give({of.config.knob}, most, count, to);
    case kEngineGlobalIndex: return give({of.config.engine}, most, count, to);
    case kEngineNumericalNote:
      *count = static_cast<std::int64_t>(of.config.notes.size());
      std::copy_n(of.config.notes.begin(), std::min<std::int64_t>(most, *count), static_cast<int*>(to));
      return kSuccess;
    case kPlanWorkspaceSize:
      return give({of.of->config.engine == kGreedy ? std::int64_t{1} << 40 : std::int64_t{512}}, most, count, to);
    default: return kNotSupported;
  }
}

Status cudnnBackendExecute(Handle, Descriptor plan, Descriptor pack) {
  Machine& gpu = Machine::get();
  const std::lock_guard lock(gpu.mutex);
  if (gpu.enter("cudnnBackendExecute") != 0) return kExecutionFailed;
  if (!made(plan).is_final || !made(pack).is_final) return kBadParameter;
  ConvolutionCall call = call_of(*made(plan).of->of);
  const auto ids = made(pack).get<std::int64_t>(kPackUniqueIds);
  const auto pointers = made(pack).get<void*>(kPackDataPointers);
  for (Tensor* tensor : {&call.w, &call.x, &call.y}) {
    const auto found = std::ranges::find(ids, tensor->id);
    if (found == ids.end()) return kBadParameter;
    tensor->at = pointers[static_cast<std::size_t>(found - ids.begin())];
    if (reinterpret_cast<std::uintptr_t>(tensor->at) % 16 != 0) return kBadParameter;
  }
  void* const workspace = *made(pack).one<void*>(kPackWorkspace);
  // A piece of its workspace is spoilt, as an engine would.
  Piece piece{[call, workspace] {
    std::memset(workspace, 0xa5, 512);
    call();
  }};
  piece.kind = Piece::Kind::kernel;
  piece.name = "pretended_convolution";
  gpu.enqueue(the_stream, std::move(piece));
  return kSuccess;
}

}  // extern "C"
