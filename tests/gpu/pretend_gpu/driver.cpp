// SPDX-License-Identifier: Apache-2.0
// The driver functions that paoding uses, over a Machine. cuda.h declares and, by macro, names them.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <numeric>
#include <utility>

#include "tests/gpu/pretend_gpu/machine.h"

#pragma GCC visibility push(default)

namespace {

// 90, an H200's, or the value of PAODING_PRETEND_CAPABILITY: 70 for a V100.
int capability() {
  const char* asked = std::getenv("PAODING_PRETEND_CAPABILITY");
  return asked == nullptr ? 90 : std::atoi(asked);
}

using paoding::pretend::kGraphNodeBytes;
using paoding::pretend::Machine;

Machine& gpu() { return Machine::get(); }

// A thread has a context once it has set one, as the real driver has it.
thread_local bool has_context = false;

#define PD_ENTER(name)                                 \
  const std::lock_guard lock(gpu().mutex);             \
  if (!has_context) return CUDA_ERROR_INVALID_CONTEXT; \
  if (CUresult broken = gpu().enter(#name); broken != 0) return broken

char* pointer(CUdeviceptr at) { return reinterpret_cast<char*>(at); }

CUresult check_alive() { return gpu().broken; }

// A kernel that is launched, with its arguments as they are now.
struct DriverCall {
  CUfunction kernel;
  std::vector<std::vector<char>> arguments;
  unsigned grid, block, cluster;
  std::size_t shared;
  bool is_together;

  void operator()() const {
    std::vector<void*> at;
    for (const std::vector<char>& argument : arguments) at.push_back(const_cast<char*>(argument.data()));
    int rc = 0;
    if (is_together) {
      rc = kernel->together(at.data(), grid, block, cluster, shared, gpu().random());
    } else {
      std::vector<unsigned> order(grid);
      std::iota(order.begin(), order.end(), 0u);
      for (unsigned i = grid; i > 1; --i) std::swap(order[i - 1], order[gpu().random() % i]);
      rc = kernel->run(at.data(), grid, block, order.data());
    }
    gpu().launched(kernel->name, rc);
  }
};

CUresult launch(CUfunction kernel, const unsigned (&grid)[3], unsigned block, std::size_t shared, unsigned cluster,
                bool is_together, CUstream stream, void** arguments) {
  if (grid[1] != 1 || grid[2] != 1 || grid[0] == 0 || shared > kernel->shared_bytes) return CUDA_ERROR_INVALID_VALUE;
  // A kernel with dynamic shared memory, whose size the launch gives, may have warps that wait for TMA.
  DriverCall call{kernel, {}, grid[0], block, cluster, shared, is_together || shared > 0};
  for (std::size_t i = 0; i < kernel->sizes.size(); ++i) {
    const char* at = static_cast<const char*>(arguments[i]);
    call.arguments.emplace_back(at, at + kernel->sizes[i]);
  }
  gpu().enqueue(stream, {.work = std::move(call), .kind = Piece::Kind::kernel, .name = kernel->name});
  return CUDA_SUCCESS;
}

struct Timed {
  static std::map<CUevent, double>& at() {
    static auto* times = new std::map<CUevent, double>();
    return *times;
  }
};

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// ---- the device ----

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_ILLEGAL_ADDRESS  ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == CUDA_ERROR_LAUNCH_TIMEOUT ? "CUDA_ERROR_LAUNCH_TIMEOUT"
          : error == CUDA_ERROR_OUT_OF_MEMORY  ? "CUDA_ERROR_OUT_OF_MEMORY"
                                               : "CUDA_ERROR_OF_A_PRETEND_GPU";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "as a test wanted it", CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int index) { return *device = index, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::strncpy(name, "NVIDIA H200 (pretended)", static_cast<std::size_t>(length));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = capability() / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = capability() % 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 3201000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 6144; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) { return *bytes = gpu().memory_bytes, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  return *context = reinterpret_cast<CUcontext>(&gpu()), CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext) {
  has_context = true;
  PD_ENTER(cuCtxSetCurrent);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  if (has_context) return cuDevicePrimaryCtxRetain(context, 0);
  return *context = nullptr, CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  PD_ENTER(cuCtxSynchronize);
  return gpu().wait_until([] { return gpu().waiting() == 0; });
}

// ---- kernels: shared libraries made by the pretended NVRTC, with their size in front ----

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  PD_ENTER(cuModuleLoadData);
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, image, sizeof(bytes));
  const int file = memfd_create("kernel", 0);  // stays open: dlopen knows a library by its name, which has its number
  if (file < 0 || write(file, static_cast<const char*>(image) + sizeof(bytes), bytes) != static_cast<ssize_t>(bytes)) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  auto made = std::make_unique<CUmod_st>();
  made->library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (made->library == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  *module = made.release();
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  delete module;  // its code stays: something may still be enqueued
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  PD_ENTER(cuModuleGetFunction);
  const auto find = [&](const std::string& symbol) { return dlsym(module->library, (symbol + name).c_str()); };
  CUfunc_st& found = module->functions[name];
  found.name = name;
  found.run = reinterpret_cast<decltype(found.run)>(find("run_"));
  found.together = reinterpret_cast<decltype(found.together)>(find("together_"));
  const auto sizes = reinterpret_cast<int (*)(unsigned*)>(find("sizes_"));
  if (found.run == nullptr || sizes == nullptr) return CUDA_ERROR_NOT_FOUND;
  found.sizes.resize(256);
  found.sizes.resize(static_cast<std::size_t>(sizes(found.sizes.data())));
  *function = &found;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction kernel, CUfunction_attribute attribute, int value) {
  PD_ENTER(cuFuncSetAttribute);
  const bool is_shared = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  if (is_shared) kernel->shared_bytes = static_cast<std::size_t>(value);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
  PD_ENTER(cuFuncGetAttribute);
  *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 40 : 0;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction kernel, unsigned x, unsigned y, unsigned z, unsigned block, unsigned, unsigned,
                        unsigned shared, CUstream stream, void** arguments, void**) {
  PD_ENTER(cuLaunchKernel);
  return launch(kernel, {x, y, z}, block, shared, 1, false, stream, arguments);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction kernel, void** arguments, void**) {
  PD_ENTER(cuLaunchKernelEx);
  unsigned cluster = 1;
  bool is_together = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) cluster = attribute.value.clusterDim.x;
    is_together |= attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE || cluster > 1;
  }
  return launch(kernel, {config->gridDimX, config->gridDimY, config->gridDimZ}, config->blockDimX,
                config->sharedMemBytes, cluster, is_together, config->hStream, arguments);
}

// ---- memory: the host's, full of garbage at first ----

CUresult cuMemGetInfo(std::size_t* free_bytes, std::size_t* all) {
  PD_ENTER(cuMemGetInfo);
  *free_bytes = gpu().free_bytes(), *all = gpu().memory_bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* at, std::size_t bytes) {
  PD_ENTER(cuMemAlloc);
  if (!gpu().take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, 0x7f, bytes);
  *at = reinterpret_cast<CUdeviceptr>(memory);
  gpu().allocations[*at] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr at) {  // as the driver does: not before all is done
  PD_ENTER(cuMemFree);
  gpu().run_until([] { return gpu().waiting() == 0; });
  gpu().give_back(gpu().allocations.at(at));
  gpu().allocations.erase(at);
  std::free(pointer(at));
  return CUDA_SUCCESS;
}
CUresult cuMemAllocHost(void** at, std::size_t bytes) {
  PD_ENTER(cuMemAllocHost);
  *at = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*at, 0x7f, bytes);
  gpu().pinned[static_cast<char*>(*at)] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* at) {
  PD_ENTER(cuMemFreeHost);
  gpu().run_until([] { return gpu().waiting() == 0; });
  gpu().pinned.erase(static_cast<char*>(at));
  std::free(at);
  return CUDA_SUCCESS;
}
// From pageable memory the driver has taken the bytes when the call returns; pinned memory is read when it is its turn.
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  PD_ENTER(cuMemcpyHtoDAsync);
  if (gpu().is_pinned(from)) {
    gpu().enqueue(
        stream,
        {.work = [=] { std::memcpy(pointer(to), from, bytes); }, .kind = Piece::Kind::from_host, .bytes = bytes});
  } else {
    const auto* first = static_cast<const char*>(from);
    const auto copy = [to, kept = std::vector<char>(first, first + bytes)] {
      std::memcpy(pointer(to), kept.data(), kept.size());
    };
    gpu().enqueue(stream, {.work = copy, .kind = Piece::Kind::from_host, .is_pageable = true, .bytes = bytes});
  }
  return CUDA_SUCCESS;
}
// In the default stream, behind its other work; where the driver has taken the bytes, they are stored later.
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  PD_ENTER(cuMemcpyHtoD);
  constexpr std::size_t kMostTaken = 64 << 10;
  const auto is_idle = [] { return gpu().stream(nullptr)->queue.empty(); };
  if (const CUresult result = gpu().wait_until(is_idle); result != CUDA_SUCCESS) return result;
  const auto* first = static_cast<const char*>(from);
  const auto copy = [to, kept = std::vector<char>(first, first + bytes)] {
    std::memcpy(pointer(to), kept.data(), kept.size());
  };
  gpu().enqueue(nullptr, {.work = copy});
  return bytes > kMostTaken || gpu().is_pinned(from) ? gpu().wait_until(is_idle) : CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  PD_ENTER(cuMemcpyDtoH);
  const CUresult result = gpu().wait_until([] { return gpu().stream(nullptr)->queue.empty(); });
  if (result == CUDA_SUCCESS) std::memcpy(to, pointer(from), bytes);
  return result;
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  PD_ENTER(cuMemcpyDtoHAsync);
  gpu().enqueue(stream, {.work = [=] { std::memcpy(to, pointer(from), bytes); }, .kind = Piece::Kind::to_host});
  if (gpu().is_pinned(to)) return CUDA_SUCCESS;
  return gpu().wait_until([&] { return gpu().stream(stream)->queue.empty(); });
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  PD_ENTER(cuMemcpyDtoDAsync);
  gpu().enqueue(stream,
                {.work = [=] { std::memmove(pointer(to), pointer(from), bytes); }, .kind = Piece::Kind::same_device});
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, std::size_t count, CUstream stream) {
  PD_ENTER(cuMemsetD8Async);
  gpu().enqueue(stream, {.work = [=] { std::memset(pointer(at), value, count); }, .kind = Piece::Kind::fill});
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  return *bytes = 64 << 10, CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  PD_ENTER(cuMemAddressReserve);
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr at, std::size_t bytes) {
  return munmap(pointer(at), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp*,
                     unsigned long long) {
  PD_ENTER(cuMemCreate);
  if (!gpu().take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  PD_ENTER(cuMemRelease);
  gpu().give_back(handle);
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr at, std::size_t bytes) {
  PD_ENTER(cuMemUnmap);
  gpu().run_until([] { return gpu().waiting() == 0; });
  return mprotect(pointer(at), bytes, PROT_NONE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemSetAccess(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc*, std::size_t) {
  if (mprotect(pointer(at), bytes, PROT_READ | PROT_WRITE) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::memset(pointer(at), 0x7f, bytes);
  return CUDA_SUCCESS;
}

// ---- streams, events, graphs ----

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  PD_ENTER(cuStreamCreateWithPriority);
  return *stream = gpu().make_stream(), CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  PD_ENTER(cuStreamDestroy);
  return gpu().drop_stream(stream), CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  PD_ENTER(cuStreamSynchronize);
  return gpu().wait_until([&] { return gpu().stream(stream)->queue.empty(); });
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  PD_ENTER(cuStreamWaitEvent);
  return gpu().wait_for(event, stream);
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
  PD_ENTER(cuStreamBeginCapture);
  stream->captured = new CUgraph_st();
  stream->lane = 0, stream->last = {};
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  PD_ENTER(cuStreamEndCapture);
  return gpu().end_capture(stream, graph);
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph* graph,
                                const CUgraphNode** nodes, const CUgraphEdgeData** edges, std::size_t* count) {
  PD_ENTER(cuStreamGetCaptureInfo);
  *status = stream->captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  if (graph != nullptr) *graph = stream->captured;
  if (nodes == nullptr || !stream->captured) return CUDA_SUCCESS;
  static const std::vector<CUgraphEdgeData> of_edges(16);
  *nodes = stream->last.data();
  if (edges != nullptr) *edges = of_edges.data();
  *count = stream->last.size();
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode*, const CUgraphEdgeData*,
                                     std::size_t, CUstreamCaptureMode) {
  PD_ENTER(cuStreamBeginCaptureToGraph);
  stream->lane = 0, stream->last = {};
  return stream->captured = graph, CUDA_SUCCESS;
}
// A graph has its nodes in the order of their capture, and each waits for the one in front.
CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData*, std::size_t,
                                           unsigned) {
  PD_ENTER(cuStreamUpdateCaptureDependencies);
  if (*nodes != node_handle(stream->captured->nodes.back().node)) return CUDA_ERROR_INVALID_VALUE;
  return stream->last = {*nodes}, CUDA_SUCCESS;
}
CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph, CUcontext, unsigned, unsigned) {
  PD_ENTER(cuGraphConditionalHandleCreate);
  static auto* values = new std::deque<unsigned>();  // kernels write there
  return *handle = reinterpret_cast<std::uint64_t>(&values->emplace_back(~0u)), CUDA_SUCCESS;
}
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, const CUgraphEdgeData*,
                        std::size_t count, CUgraphNodeParams* params) {
  PD_ENTER(cuGraphAddNode);
  const CUDA_CONDITIONAL_NODE_PARAMS& wanted = params->conditional;
  if (params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL || count != 1 || wanted.type == CU_GRAPH_COND_TYPE_IF ||
      std::ranges::none_of(graph->nodes, [&](const Piece& each) { return *before == node_handle(each.node); })) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Piece piece;
  piece.node = gpu().next_number();
  CUgraph_st::Condition& made = graph->conditions[piece.node];
  made.value = reinterpret_cast<const unsigned*>(wanted.handle);
  made.is_loop = wanted.type == CU_GRAPH_COND_TYPE_WHILE;
  for (unsigned i = 0; i < wanted.size; ++i) {
    made.bodies.push_back(std::make_unique<CUgraph_st>());
    made.handles.push_back(made.bodies.back().get());
  }
  params->conditional.phGraph_out = made.handles.data();
  *node = node_handle(piece.node);
  ++graph->pieces[0];
  graph->nodes.push_back(std::move(piece));
  return CUDA_SUCCESS;
}

namespace {

std::size_t count_nodes(const CUgraph_st& graph) {
  auto count = static_cast<std::size_t>(std::ranges::count_if(graph.nodes, &Piece::is_node));
  for (const auto& [node, condition] : graph.conditions) {
    for (const auto& body : condition.bodies) count += count_nodes(*body);
  }
  return count;
}

// The nodes of an executable graph, numbered in the order in which they were made, those of bodies after all others.
std::vector<Piece> cloned_nodes(const CUgraph_st& graph, std::uint32_t number, std::uint32_t* next) {
  std::vector<Piece> nodes = graph.nodes;
  std::vector<std::pair<Piece*, const CUgraph_st::Condition*>> conditional;
  for (Piece& node : nodes) {
    const auto found = graph.conditions.find(node.node);
    if (found != graph.conditions.end()) conditional.emplace_back(&node, &found->second);
    if (node.is_node()) node.node = std::uint64_t{number} << 32 | (*next)++;
    node.graph = number;
  }
  for (const auto& [node, condition] : conditional) {
    auto made = std::make_shared<Conditional>();
    made->value = condition->value;
    made->is_loop = condition->is_loop;
    for (const auto& body : condition->bodies) made->bodies.push_back(cloned_nodes(*body, number, next));
    node->conditional = std::move(made);
  }
  return nodes;
}

}  // namespace

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  PD_ENTER(cuGraphInstantiate);
  const std::size_t bytes = count_nodes(*graph) * kGraphNodeBytes;
  if (bytes > gpu().free_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto number = static_cast<std::uint32_t>(gpu().next_number());
  std::uint32_t next = 0;
  *exec = new CUgraphExec_st{cloned_nodes(*graph, number, &next), bytes, number};
  for (int i = 0; i < graph->events; ++i) (*exec)->events.push_back(gpu().make_event());
  for (std::size_t i = 1; i < graph->pieces.size(); ++i) (*exec)->streams.push_back(gpu().make_stream());
  gpu().add_graph(static_cast<std::int64_t>(bytes));
  return CUDA_SUCCESS;
}
CUresult cuGraphUpload(CUgraphExec, CUstream) { return check_alive(); }
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  PD_ENTER(cuGraphLaunch);
  if (exec->is_traced && !gpu().ran) return gpu().broken = CUDA_ERROR_LAUNCH_FAILED;
  exec->is_traced = static_cast<bool>(gpu().ran);
  const auto correlation = static_cast<std::uint32_t>(gpu().next_number());
  gpu().launch(exec, stream, correlation);
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) { return delete graph, CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  PD_ENTER(cuGraphExecDestroy);
  gpu().add_graph(-static_cast<std::int64_t>(exec->bytes));
  for (const CUstream stream : exec->streams) gpu().drop_stream(stream);
  return delete exec, CUDA_SUCCESS;
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  PD_ENTER(cuGraphGetNodes);
  std::size_t found = 0;
  for (const Piece& piece : graph->nodes) {
    if (!piece.is_node()) continue;
    if (nodes != nullptr && found < *count) nodes[found] = node_handle(piece.node);
    ++found;
  }
  return *count = found, CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
  PD_ENTER(cuEventCreate);
  return *event = gpu().make_event(), CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent event, CUstream stream) {
  PD_ENTER(cuEventRecord);
  if (gpu().stream(stream)->captured != nullptr) return gpu().record(event, stream), CUDA_SUCCESS;
  const std::uint64_t version = ++event->recorded;
  event->captured = nullptr;
  gpu().enqueue(stream, {[=] { event->done = version, Timed::at()[event] = now_ms(); }});
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  PD_ENTER(cuEventQuery);
  const bool is_busy = gpu().is_busy();
  for (int count = 0; !is_busy && count < 64 && event->done != event->recorded && gpu().run_one(); ++count) {
  }
  if (gpu().broken != CUDA_SUCCESS) return gpu().broken;
  return event->done == event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent event) {
  PD_ENTER(cuEventSynchronize);
  return gpu().wait_until([&] { return event->done == event->recorded; });
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent stop) {
  PD_ENTER(cuEventElapsedTime);
  *milliseconds = static_cast<float>(Timed::at()[stop] - Timed::at()[start]);
  return CUDA_SUCCESS;
}

#pragma GCC visibility pop
