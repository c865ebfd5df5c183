// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN's engines and by the first kernel of ours that takes them, each some runs of a graph, on memory
// of their own. The fastest is kept among the timed choices of the plan's environment (a PlanCache), which planning
// reads. An engine that gives other results than
// ours is none (two of cuDNN 9.19's did: benchmarks/results/2026-11-24-cudnn.txt). Products that cuBLASLt makes are
// timed by the algorithms that its heuristics name, beside the one that it would take.
#include "runtime/gpu/tuning.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "base/check.h"
#include "base/half.h"
#include "base/one_line.h"
#include "gpu/codegen/text_kernel.h"
#include "gpu/driver/loaded_kernel.h"
#include "gpu/driver/write_memory.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/gpu/conv_cudnn.h"
#include "ops/matmul/matmul_gpu.h"
#include "paoding/cancellation.h"
#include "plan/host_steps.h"
#include "runtime/gpu/capture.h"

namespace paoding {
namespace {

constexpr int kRunsOfAGraph = 5, kLaunches = 4;
constexpr std::size_t kMostEngines = 4;
constexpr int kMostAlgorithmsTimed = 8;
constexpr std::size_t kComparedBytes = 1 << 20;  // of a result, at its beginning and at its end
constexpr double kClearly = 0.97;                // ours shares launches, is stamped and asks whether the run has failed

void for_each_kernel(const Target& target, const std::vector<Step>& steps,
                     const std::function<void(const Step&)>& visit) {
  for (const Step& step : steps) {
    if (runs_on_host(target, step)) continue;
    if (step.kind == Step::Kind::kernel) visit(step);
    for (const auto* body : step.bodies()) for_each_kernel(target, *body, visit);
  }
}

// Numbers between -1 and 1 without an order that arithmetic could take less power for.
gpu::DeviceMemory filled(const gpu::GpuDevice& device, const Layout& layout) {
  const gpu::Driver& driver = gpu::required_driver();
  const auto element = static_cast<std::size_t>(size_bytes(layout.type.dtype));
  const std::size_t bytes = static_cast<std::size_t>(gpu::reach_of(layout)) * element;
  gpu::DeviceMemory memory(device, bytes);
  std::vector<std::byte> some(std::min<std::size_t>(bytes, 1 << 20));
  std::uint64_t state = 1;
  for (std::size_t at = 0; at + element <= some.size(); at += element) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float value = static_cast<float>(static_cast<std::int32_t>(state >> 32)) / 2147483648.0f;
    const std::uint16_t half = layout.type.dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
    std::memcpy(some.data() + at, element == 2 ? static_cast<const void*>(&half) : &value, element);
  }
  gpu::write_memory(memory.address(), some.data(), some.size());
  for (std::size_t done = some.size(); done < bytes;) {
    const std::size_t more = std::min(done, bytes - done);
    PD_CUDA(driver.cuMemcpyDtoDAsync(memory.address() + done, memory.address(), more, nullptr));
    done += more;
  }
  PD_CUDA(driver.cuCtxSynchronize());
  return memory;
}

// A call with memory of its own.
class Bench {
 public:
  Bench(const gpu::GpuDevice& device, const KernelCall& call, std::int64_t workspace_bytes, std::int64_t tickets)
      : stream_(device), start_(device, true), end_(device, true) {
    for (const auto* layouts : {&call.inputs, &call.outputs}) {
      for (const Layout& layout : *layouts) operands_.push_back(memory_.emplace_back(filled(device, layout)).pointer());
    }
    result_ = call.outputs[0].type.dtype;
    const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(std::max<std::int64_t>(count, 1)); };
    workspace_ = gpu::DeviceMemory(device, bytes(workspace_bytes));
    tickets_ = gpu::DeviceMemory(device, bytes(4 * tickets));
    PD_CUDA(driver_.cuMemsetD8Async(tickets_.address(), 0, tickets_.size_bytes(), stream_.get()));
  }

  /// The beginning and the end of a run's result; NaN where it writes nothing.
  std::vector<double> result(const PreparedKernel& kernel) {
    const gpu::DeviceMemory& memory = memory_.back();
    PD_CUDA(driver_.cuMemsetD8Async(memory.address(), 0xff, memory.size_bytes(), stream_.get()));
    run(kernel);
    std::vector<double> values;
    const std::size_t bytes = std::min(memory.size_bytes(), kComparedBytes);
    Tensor piece(result_, {static_cast<std::int64_t>(bytes) / size_bytes(result_)});
    for (const std::size_t from : {std::size_t{0}, memory.size_bytes() - bytes}) {
      PD_CUDA(driver_.cuMemcpyDtoH(piece.bytes(), memory.address() + from, bytes));
      const std::vector<double> made = piece.to_doubles();
      values.insert(values.end(), made.begin(), made.end());
    }
    return values;
  }

  /// Microseconds of a run: the least of some launches of a graph of some.
  double time(const PreparedKernel& kernel) {
    const KernelRun run = this->run(kernel);  // modules that are loaded at their first run are loaded here
    Graph graph(driver_);
    PD_CUDA(driver_.cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    capture_to_end(stream_.get(), &graph.captured, [&] {
      for (int i = 0; i < kRunsOfAGraph; ++i) kernel.run(run);
    });
    PD_CUDA(driver_.cuGraphInstantiate(&graph.made, graph.captured, 0));
    double least = 0;
    for (int i = 0; i < kLaunches; ++i) {
      start_.record(stream_.get());
      PD_CUDA(driver_.cuGraphLaunch(graph.made, stream_.get()));
      end_.record(stream_.get());
      stream_.wait_idle();
      const double us = 1e3 * static_cast<double>(end_.milliseconds_since(start_)) / kRunsOfAGraph;
      least = i == 0 ? us : std::min(least, us);
    }
    return least;
  }

 private:
  struct Graph {
    explicit Graph(const gpu::Driver& of) : driver(of) {}
    ~Graph() {
      if (made != nullptr) driver.cuGraphExecDestroy(made);
      if (captured != nullptr) driver.cuGraphDestroy(captured);
    }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    const gpu::Driver& driver;
    CUgraph captured = nullptr;
    CUgraphExec made = nullptr;
  };

  KernelRun run(const PreparedKernel& kernel) {
    KernelRun run{operands_.data(), workspace_.pointer(), stream_.get()};
    run.tickets = tickets_.pointer();
    kernel.run(run);
    stream_.wait_idle();
    return run;
  }

  const gpu::Driver& driver_ = gpu::required_driver();
  gpu::Stream stream_;
  gpu::Event start_, end_;
  DType result_ = DType::f32;
  std::vector<gpu::DeviceMemory> memory_;
  std::vector<void*> operands_;
  gpu::DeviceMemory workspace_, tickets_;
};

// The first kernel of the table that is not cuDNN's, as a program would run it.
struct Own {
  const KernelImplementation* row = nullptr;
  std::unique_ptr<PreparedKernel> kernel;
  std::int64_t workspace_bytes = 0, tickets = 0;
};

Own own_kernel(const gpu::GpuDevice& device, const Step& planned) {
  const KernelCall& call = planned.call;
  const auto& rows = planned.decision->accepting;
  const auto it = std::ranges::find_if(rows, [](const KernelImplementation* row) { return row->name != kCudnnRow; });
  if (it == rows.end()) fail(ErrorKind::unsupported, "no kernel of ours takes it");
  Own own;
  own.row = *it;
  const auto load = [&](const KernelImplementation& row, const KernelCall& of) -> Preparation {
    Step step;
    step.kind = Step::Kind::kernel, step.kernel = &row, step.call = of;
    const auto text = gpu::text_of(step, *of.target);
    own.workspace_bytes = std::max(own.workspace_bytes, text->workspace_bytes), own.tickets = text->ticket_count;
    return gpu::load_text(device, text, of.inputs.size() + of.outputs.size());
  };
  if (own.row->workspace_bytes) own.workspace_bytes = own.row->workspace_bytes(call);
  std::vector<std::string> unused;
  own.kernel = prepare_kernel(*planned.decision, *own.row, call, Device::cuda(device.index()), &unused, load);
  return own;
}

// Whether two kernels' results are sums of the same products, as far as their dtype tells.
bool are_same(const KernelCall& call, const std::vector<double>& a, const std::vector<double>& b) {
  const DType dtype = call.inputs[0].type.dtype;
  const double tolerance = dtype != DType::f32 ? 2e-2 : call.allow_tf32 ? 5e-3 : 1e-3;
  double largest = 0, apart = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return false;
    if (std::isnan(a[i])) continue;
    largest = std::max(largest, std::abs(a[i]));
    apart = std::max(apart, std::abs(a[i] - b[i]));
  }
  return apart <= tolerance * largest;
}

std::string time_call(const gpu::GpuDevice& device, const Step& step) {
  const KernelCall& call = step.call;
  const Own own = own_kernel(device, step);
  TimedChoice choice;
  std::vector<CudnnKernel> engines;
  std::string why;
  try {
    engines = cudnn_kernels(call, Device::cuda(device.index()), kMostEngines);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    why = error.what();
  }
  Bench bench(device, call, std::max(own.workspace_bytes, cudnn_workspace_bytes(call)), own.tickets);
  const std::vector<double> expected = bench.result(*own.kernel);
  choice.own_us = bench.time(*own.kernel);
  std::string wrong;
  for (const CudnnKernel& engine : engines) {
    CancelScope::poll();
    if (!are_same(call, expected, bench.result(*engine.kernel))) {
      wrong += fmt::format("{}{}", wrong.empty() ? "; other numbers than ours by engine " : ", ", engine.engine);
      continue;
    }
    const double us = bench.time(*engine.kernel);
    if (choice.engine.empty() || us < choice.library_us) choice.engine = engine.engine, choice.library_us = us;
  }
  choice.is_library = !choice.engine.empty() && choice.library_us < kClearly * choice.own_us;
  call.environment->timed->keep(call.timed->key, choice);
  const ConvShape shape(call);
  const std::string what = fmt::format(
      "{}: timed {}{} by {}{}, stride {}{}: ", call.op->name,
      shape.dtype == DType::f32 && call.allow_tf32 ? "TF32 " : "", to_string(shape.x.type), to_string(shape.w.type),
      shape.groups > 1 ? fmt::format(" in {} groups", shape.groups) : "", shape.axes[0].stride, in_scope(call.scope));
  if (choice.engine.empty())
    return fmt::format("{}{} {:.1f} us, cudnn declined: {}{}", what, own.row->name, choice.own_us, why, wrong);
  return fmt::format("{}cudnn {:.1f} us (engine {}), {} {:.1f} us{}", what, choice.library_us, choice.engine,
                     own.row->name, choice.own_us, wrong);
}

bool is_timed_product(const Step& step) {
  return step.kernel->name == kCublasLtRow && step.call.op->contracts && step.call.inputs[0].type.dtype != DType::f64;
}

std::string time_product(const gpu::GpuDevice& device, const KernelCall& call) {
  const auto kernels = cublaslt_kernels(call, Device::cuda(device.index()), kMostAlgorithmsTimed);
  Bench bench(device, call, cublaslt_workspace_bytes(call), 0);
  const std::vector<double> expected = bench.result(*kernels[0]);
  TimedChoice choice;
  choice.own_us = bench.time(*kernels[0]);
  std::string times;
  for (std::size_t i = 1; i < kernels.size(); ++i) {
    CancelScope::poll();
    if (!are_same(call, expected, bench.result(*kernels[i]))) {
      times += " wrong";
      continue;
    }
    const double us = bench.time(*kernels[i]);
    times += fmt::format(" {:.1f}", us);
    if (choice.engine.empty() || us < choice.library_us) choice.engine = std::to_string(i), choice.library_us = us;
  }
  choice.is_library = !choice.engine.empty() && choice.library_us < kClearly * choice.own_us;
  call.environment->timed->keep(call.timed->key, choice);
  return fmt::format("{}: timed {}{} by {}: cublaslt {:.1f} us, its algorithms{}{}", call.op->name,
                     call.inputs[0].type.dtype == DType::f32 && call.allow_tf32 ? "TF32 " : "",
                     to_string(call.inputs[0].type), to_string(call.inputs[1].type), choice.own_us, times,
                     in_scope(call.scope));
}

}  // namespace

std::vector<std::string> time_choices(const Plan& plan, const Device& device) {
  const gpu::GpuDevice& on = gpu::GpuDevice::get(device.index);
  on.make_current();
  std::vector<std::string> notes;
  std::set<std::string> seen;
  for_each_kernel(*plan.target, plan.steps, [&](const Step& step) {
    const bool is_product = is_timed_product(step);
    if (step.call.timed == nullptr || (!is_product && !has_cudnn_row(*step.call.op))) return;
    const std::string& key = step.call.timed->key;
    if (!seen.insert(key).second || step.call.environment->timed->find(key)) return;
    CancelScope::poll();
    try {
      notes.push_back(is_product ? time_product(on, step.call) : time_call(on, step));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported && error.kind() != ErrorKind::device) throw;
      notes.push_back(
          fmt::format("{}: could not be timed: {}{}", step.call.op->name, error.what(), in_scope(step.call.scope)));
    }
  });
  return notes;
}

}  // namespace paoding
