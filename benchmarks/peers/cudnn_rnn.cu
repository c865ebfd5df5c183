// SPDX-License-Identifier: Apache-2.0
// cuDNN's recurrent layers called directly, every algorithm that takes the shape, replayed as a CUDA graph where it can
// be captured. Reads requests from stdin as protocol.py describes them. Built by benchmarks/compare where there is nvcc.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "request.h"

namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
void check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) throw std::runtime_error(std::string(what) + ": " + cudnnGetErrorString(status));
}
#define CHECK(call) check((call), #call)

// ---- buffers ----

class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 256)) {
    CHECK(cudaMalloc(&at_, bytes_));
    CHECK(cudaMemset(at_, 0, bytes_));
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(at_); }
  void* get() const { return at_; }
  // Normal numbers of this deviation; never zeros, which run faster.
  void fill(cudnnDataType_t type, float deviation) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, deviation);
    const bool is_wide = type == CUDNN_DATA_FLOAT;
    std::vector<float> wide(bytes_ / (is_wide ? 4 : 2));
    for (float& value : wide) value = normal(random);
    if (is_wide) {
      CHECK(cudaMemcpy(at_, wide.data(), bytes_ / 4 * 4, cudaMemcpyHostToDevice));
      return;
    }
    std::vector<unsigned short> narrow(wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const __half half = __float2half(wide[i]);
      const __nv_bfloat16 brain = __float2bfloat16(wide[i]);
      std::memcpy(&narrow[i], type == CUDNN_DATA_HALF ? static_cast<const void*>(&half) : &brain, 2);
    }
    CHECK(cudaMemcpy(at_, narrow.data(), narrow.size() * 2, cudaMemcpyHostToDevice));
  }

 private:
  std::size_t bytes_;
  void* at_ = nullptr;
};

// ---- a layer ----

struct Way {
  const char* name;
  cudnnRNNAlgo_t algorithm;
  cudnnMathType_t math;
};

std::vector<Way> ways(const std::string& dtype) {
  const cudnnRNNAlgo_t algorithms[] = {CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_ALGO_PERSIST_STATIC,
                                       CUDNN_RNN_ALGO_PERSIST_DYNAMIC};
  const char* const names[] = {"cuDNN", "cuDNN persistent", "cuDNN persistent, built at run time"};
  const char* const converted[] = {"cuDNN, operands converted", "cuDNN persistent, operands converted"};
  std::vector<Way> all;
  for (int i = 0; i < 3; ++i) {
    if (dtype == "f32") all.push_back({names[i], algorithms[i], CUDNN_FMA_MATH});
    if (dtype == "tf32") all.push_back({names[i], algorithms[i], CUDNN_DEFAULT_MATH});
    if (dtype == "tf32" && i < 2) all.push_back({converted[i], algorithms[i], CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION});
    if (dtype == "f16" || dtype == "bf16") all.push_back({names[i], algorithms[i], CUDNN_TENSOR_OP_MATH});
  }
  return all;
}

class Layer {
 public:
  Layer(cudnnHandle_t handle, cudaStream_t stream, const Request& r, const Way& way)
      : handle_(handle), stream_(stream), trains_(r.trains()) {
    const cudnnDataType_t type = r.dtype == "f16"    ? CUDNN_DATA_HALF
                                 : r.dtype == "bf16" ? CUDNN_DATA_BFLOAT16
                                                     : CUDNN_DATA_FLOAT;
    const std::size_t size = type == CUDNN_DATA_FLOAT ? 4 : 2;
    const cudnnRNNMode_t mode = r.kind.starts_with("gru")   ? CUDNN_GRU
                                : r.kind.starts_with("rnn") ? CUDNN_RNN_TANH
                                                            : CUDNN_LSTM;
    CHECK(cudnnCreateDropoutDescriptor(&dropout_));
    CHECK(cudnnSetDropoutDescriptor(dropout_, handle_, 0, nullptr, 0, 1));
    CHECK(cudnnCreateRNNDescriptor(&rnn_));
    CHECK(cudnnSetRNNDescriptor_v8(rnn_, way.algorithm, mode, CUDNN_RNN_DOUBLE_BIAS,
                                   r.directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
                                   type, CUDNN_DATA_FLOAT, way.math, r.hidden, r.hidden, r.hidden, r.layers, dropout_,
                                   r.has_lengths ? CUDNN_RNN_PADDED_IO_ENABLED : 0));
    lengths_.assign(r.batch, r.steps);
    const int least = std::min(r.steps, 5);
    for (int i = 0; r.has_lengths && i < r.batch; ++i) {
      lengths_[r.batch - 1 - i] = least + (r.steps - least) * (i + 1) * (i + 1) / (r.batch * r.batch);
    }
    const auto layout =
        r.has_lengths ? CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED : CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;
    float zero = 0;
    for (const auto& [data, width] : {std::pair(&x_type_, r.hidden), std::pair(&y_type_, r.directions * r.hidden)}) {
      CHECK(cudnnCreateRNNDataDescriptor(data));
      CHECK(cudnnSetRNNDataDescriptor(*data, type, layout, r.steps, r.batch, width, lengths_.data(), &zero));
    }
    const int extents[] = {r.layers * r.directions, r.batch, r.hidden}, strides[] = {r.batch * r.hidden, r.hidden, 1};
    CHECK(cudnnCreateTensorDescriptor(&h_type_));
    CHECK(cudnnSetTensorNdDescriptor(h_type_, type, 3, extents, strides));
    if (way.algorithm == CUDNN_RNN_ALGO_PERSIST_DYNAMIC) CHECK(cudnnBuildRNNDynamic(handle_, rnn_, r.batch));
    mode_ = trains_ ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE;
    CHECK(cudnnGetRNNTempSpaceSizes(handle_, rnn_, mode_, x_type_, &workspace_bytes_, &reserve_bytes_));
    CHECK(cudnnGetRNNWeightSpaceSize(handle_, rnn_, &weight_bytes_));
    const std::size_t of_x = std::size_t(r.steps) * r.batch * r.hidden * size, of_y = r.directions * of_x;
    for (const std::size_t count : {of_x, of_y, of_x, of_y, weight_bytes_, weight_bytes_, workspace_bytes_,
                                    reserve_bytes_, std::size_t(r.batch) * 4}) {
      buffers_.push_back(std::make_unique<Buffer>(count));
    }
    buffers_[kX]->fill(type, 1);
    buffers_[kDy]->fill(type, 1);
    buffers_[kWeights]->fill(type, 1 / std::sqrt(float(r.hidden)));
    CHECK(cudaMemcpy(at(kLengths), lengths_.data(), lengths_.size() * 4, cudaMemcpyHostToDevice));
  }
  ~Layer() {
    cudaStreamSynchronize(stream_);
    if (rnn_) cudnnDestroyRNNDescriptor(rnn_);
    if (dropout_) cudnnDestroyDropoutDescriptor(dropout_);
    if (x_type_) cudnnDestroyRNNDataDescriptor(x_type_);
    if (y_type_) cudnnDestroyRNNDataDescriptor(y_type_);
    if (h_type_) cudnnDestroyTensorDescriptor(h_type_);
  }

  // Forward, and in training the gradients of data and weights.
  void run() {
    const auto* lengths = static_cast<const int*>(at(kLengths));
    CHECK(cudnnRNNForward(handle_, rnn_, mode_, lengths, x_type_, at(kX), y_type_, at(kY), h_type_, nullptr, nullptr,
                          h_type_, nullptr, nullptr, weight_bytes_, at(kWeights), workspace_bytes_, at(kWorkspace),
                          reserve_bytes_, at(kReserve)));
    if (!trains_) return;
    CHECK(cudnnRNNBackwardData_v8(handle_, rnn_, lengths, y_type_, at(kY), at(kDy), x_type_, at(kDx), h_type_, nullptr,
                                  nullptr, nullptr, h_type_, nullptr, nullptr, nullptr, weight_bytes_, at(kWeights),
                                  workspace_bytes_, at(kWorkspace), reserve_bytes_, at(kReserve)));
    CHECK(cudaMemsetAsync(at(kDweights), 0, weight_bytes_, stream_));
    CHECK(cudnnRNNBackwardWeights_v8(handle_, rnn_, CUDNN_WGRAD_MODE_ADD, lengths, x_type_, at(kX), h_type_, nullptr,
                                     y_type_, at(kY), weight_bytes_, at(kDweights), workspace_bytes_, at(kWorkspace),
                                     reserve_bytes_, at(kReserve)));
  }

 private:
  enum { kX, kY, kDx, kDy, kWeights, kDweights, kWorkspace, kReserve, kLengths };
  void* at(int buffer) const { return buffers_[buffer]->get(); }
  cudnnHandle_t handle_;
  cudaStream_t stream_;
  bool trains_;
  cudnnForwardMode_t mode_ = CUDNN_FWD_MODE_INFERENCE;
  cudnnRNNDescriptor_t rnn_ = nullptr;
  cudnnDropoutDescriptor_t dropout_ = nullptr;
  cudnnRNNDataDescriptor_t x_type_ = nullptr, y_type_ = nullptr;
  cudnnTensorDescriptor_t h_type_ = nullptr;
  std::size_t workspace_bytes_ = 0, reserve_bytes_ = 0, weight_bytes_ = 0;
  std::vector<int> lengths_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// ---- timing ----

void time_way(cudnnHandle_t handle, cudaStream_t stream, const Request& r, const Way& way) {
  Layer layer(handle, stream, r, way);
  layer.run();
  CHECK(cudaStreamSynchronize(stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t captured = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  layer.run();
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&captured, graph, 0));
  const auto replay = [&] { CHECK(cudaGraphLaunch(captured, stream)); };
  cudaEvent_t first, last;
  CHECK(cudaEventCreate(&first));
  CHECK(cudaEventCreate(&last));
  const auto between = [&](int count) {
    CHECK(cudaEventRecord(first, stream));
    for (int i = 0; i < count; ++i) replay();
    CHECK(cudaEventRecord(last, stream));
    CHECK(cudaEventSynchronize(last));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, first, last));
    return ms * 1e3 / count;
  };
  const double once = between(2);
  const int count = std::clamp(int(2000 / once), 1, 200);
  const int samples = once > 10000 || r.is_quick ? 10 : 50;
  if (!r.gpu_cache.empty()) {
    std::vector<double> times;
    for (int i = 0; i < samples; ++i) times.push_back(between(count));
    print_row(way.name, r.gpu_cache, "gpu", times);
  }
  const auto waited = [&](const std::string& name, const std::function<void()>& work) {
    std::vector<double> times;
    for (int i = 0; i < samples; ++i) {
      const double start = microseconds();
      work();
      CHECK(cudaStreamSynchronize(stream));
      times.push_back(microseconds() - start);
    }
    print_row(name, r.wall_cache, "wall", times);
  };
  if (!r.wall_cache.empty()) waited(r.wants_eager ? std::string(way.name) + ", graph" : way.name, replay);
  if (!r.wall_cache.empty() && r.wants_eager) waited(way.name, [&] { layer.run(); });
  cudaEventDestroy(first);
  cudaEventDestroy(last);
  cudaGraphExecDestroy(captured);
  cudaGraphDestroy(graph);
}

}  // namespace

int main() {
  cudaStream_t stream;
  cudnnHandle_t handle;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnSetStream(handle, stream));
  for (std::string line; std::getline(std::cin, line);) {
    const Request r = parse(line);
    const bool is_recurrent = r.kind.starts_with("lstm") || r.kind.starts_with("gru") || r.kind.starts_with("rnn");
    for (const Way& way : is_recurrent ? ways(r.dtype) : std::vector<Way>{}) {
      try {
        time_way(handle, stream, r, way);
      } catch (const std::exception& error) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        cudaStreamIsCapturing(stream, &status);
        cudaGraph_t broken = nullptr;
        if (status != cudaStreamCaptureStatusNone) cudaStreamEndCapture(stream, &broken);
        cudaGetLastError();
        print_refusal(way.name, error.what());
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  cudnnDestroy(handle);
  cudaStreamDestroy(stream);
}
