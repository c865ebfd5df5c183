// SPDX-License-Identifier: Apache-2.0
// matmul on the CPU: oneDNN for f32 and bf16, plain loops for the rest (f64, f16, empty extents).
#include <algorithm>
#include <array>
#include <dnnl.hpp>

#include "base/check.h"
#include "base/half.h"
#include "cpu/parallel.h"
#include "ops/all_kernels.h"
#include "ops/matmul/matmul_shape.h"

namespace paoding {
namespace {

// ---- oneDNN ----

dnnl::engine& cpu_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

std::string onednn_refusal(const KernelCall& call) {
  const MatmulShape shape(call);
  if (shape.is_empty()) return "an extent is 0";
  if (shape.dtype != DType::f32 && shape.dtype != DType::bf16) {
    return fmt::format("{} is not one of f32, bf16", to_string(shape.dtype));
  }
  if (shape.batch.size() > 4) return "more than 4 batch axes";
  for (std::size_t i = 0; i < shape.batch.size(); ++i) {
    if (shape.a.batch_strides[i] == 0 && shape.b.batch_strides[i] == 0)
      return "a and b both broadcast over a batch axis";
  }
  std::int64_t ld;
  bool is_transposed;
  if (!blas_layout(shape.a, shape.m, shape.k, &ld, &is_transposed)) return "a has neither rows nor columns contiguous";
  if (!blas_layout(shape.b, shape.k, shape.n, &ld, &is_transposed)) return "b has neither rows nor columns contiguous";
  if (!blas_layout(shape.c, shape.m, shape.n, &ld, &is_transposed) || is_transposed) {
    return "the result's rows are not contiguous";
  }
  return "";
}

// Below this many multiplications one thread is done before a second has woken up (about 6 us).
constexpr std::int64_t kSerialProducts = 1'000'000;

class OneDnnMatmul : public PreparedKernel {
 public:
  explicit OneDnnMatmul(const MatmulShape& shape) : stream_(cpu_engine()) {
    std::int64_t products = shape.m * shape.n * shape.k;
    for (std::int64_t extent : shape.batch) products *= extent;
    is_serial_ = products < kSerialProducts;
    const SerialScope serial(is_serial_);
    const auto desc = [&](const MatmulOperand& operand, std::int64_t rows, std::int64_t columns) {
      dnnl::memory::dims dims, strides;
      for (std::size_t i = 0; i < shape.batch.size(); ++i) {
        const bool is_broadcast = operand.batch_strides[i] == 0;
        dims.push_back(is_broadcast ? 1 : shape.batch[i]);
        strides.push_back(is_broadcast ? rows * columns : operand.batch_strides[i]);
      }
      dims.insert(dims.end(), {rows, columns});
      strides.insert(strides.end(), {operand.row_stride, operand.column_stride});
      // An extent of 1 may come with any stride; oneDNN recognises plain layouts only by theirs.
      if (columns == 1) strides.back() = 1;
      if (rows == 1) strides[strides.size() - 2] = std::max(columns, operand.row_stride);
      if (columns == 1 && operand.row_stride == 1) strides.back() = rows;
      const auto type = shape.dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
      return dnnl::memory::desc(dims, type, strides);
    };
    const auto a = desc(shape.a, shape.m, shape.k), b = desc(shape.b, shape.k, shape.n),
               c = desc(shape.c, shape.m, shape.n);
    const dnnl::matmul::primitive_desc made({a, b, c}, cpu_engine());
    primitive_ = dnnl::matmul(made);
    memories_ = {dnnl::memory(a, cpu_engine(), nullptr), dnnl::memory(b, cpu_engine(), nullptr),
                 dnnl::memory(c, cpu_engine(), nullptr)};
    constexpr int kArguments[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    for (std::size_t i = 0; i < 3; ++i) arguments_[i] = {kArguments[i], memories_[i].get()};
  }

  void run(const KernelRun& run) const override {
    const SerialScope serial(is_serial_);
    // The C calls: the C++ ones make a map and a vector every time.
    for (std::size_t i = 0; i < 3; ++i) dnnl_memory_set_data_handle(arguments_[i].memory, run.operands[i]);
    dnnl_primitive_execute(primitive_.get(), stream_.get(), 3, arguments_.data());
  }

 private:
  bool is_serial_ = false;
  dnnl::stream stream_;
  dnnl::matmul primitive_;
  std::vector<dnnl::memory> memories_;
  std::array<dnnl_exec_arg_t, 3> arguments_{};  // of memories_
};

// ---- plain loops ----

// Row by row, so that the inner loop runs along contiguous rows of b where they are.
template <class Stored, class Sum, Sum (*Load)(Stored), Stored (*Store)(Sum)>
class LoopMatmul : public PreparedKernel {
 public:
  explicit LoopMatmul(MatmulShape shape) : shape_(std::move(shape)) {
    for (std::int64_t extent : shape_.batch) batches_ *= extent;
    constexpr std::int64_t kWorthThreads = 32768;  // multiplications
    if (batches_ * shape_.m * shape_.n * std::max<std::int64_t>(shape_.k, 1) >= kWorthThreads) threads_ = max_threads();
    sums_ = std::make_unique<Sum[]>(static_cast<std::size_t>(threads_) * static_cast<std::size_t>(shape_.n));
  }

  void run(const KernelRun& run) const override {
    const auto* a = static_cast<const Stored*>(run.operands[0]);
    const auto* b = static_cast<const Stored*>(run.operands[1]);
    auto* c = static_cast<Stored*>(run.operands[2]);
    struct State {
      const LoopMatmul* self;
      const Stored *a, *b;
      Stored* c;
    } state{this, a, b, c};
    parallel(
        threads_,
        [](int thread, void* raw) {
          const State& s = *static_cast<State*>(raw);
          const std::int64_t rows = s.self->batches_ * s.self->shape_.m;
          const std::int64_t begin = rows * thread / s.self->threads_, end = rows * (thread + 1) / s.self->threads_;
          for (std::int64_t row = begin; row < end; ++row) {
            s.self->one_row(s.a, s.b, s.c, row / s.self->shape_.m, row % s.self->shape_.m, s.self->sums_of(thread));
          }
        },
        &state);
  }

 private:
  std::int64_t batch_offset(const MatmulOperand& operand, std::int64_t batch) const {
    std::int64_t offset = 0;
    for (std::size_t i = shape_.batch.size(); i-- > 0; batch /= shape_.batch[i]) {
      offset += batch % shape_.batch[i] * operand.batch_strides[i];
    }
    return offset;
  }

  void one_row(const Stored* a, const Stored* b, Stored* c, std::int64_t batch, std::int64_t i, Sum* sums) const {
    const Stored* row = a + batch_offset(shape_.a, batch) + i * shape_.a.row_stride;
    const Stored* matrix = b + batch_offset(shape_.b, batch);
    Stored* out = c + batch_offset(shape_.c, batch) + i * shape_.c.row_stride;
    std::fill_n(sums, shape_.n, Sum{0});
    for (std::int64_t k = 0; k < shape_.k; ++k) {
      const Sum factor = Load(row[k * shape_.a.column_stride]);
      const Stored* from = matrix + k * shape_.b.row_stride;
      for (std::int64_t j = 0; j < shape_.n; ++j) sums[j] += factor * Load(from[j * shape_.b.column_stride]);
    }
    for (std::int64_t j = 0; j < shape_.n; ++j) out[j * shape_.c.column_stride] = Store(sums[j]);
  }

  Sum* sums_of(int thread) const { return sums_.get() + static_cast<std::int64_t>(thread) * shape_.n; }

  MatmulShape shape_;
  std::int64_t batches_ = 1;
  int threads_ = 1;
  std::unique_ptr<Sum[]> sums_;  // a row of sums per thread
};

template <class T>
T same(T value) {
  return value;
}

std::unique_ptr<PreparedKernel> prepare_loops(const KernelCall& call, const Device&) {
  MatmulShape shape(call);
  switch (shape.dtype) {
    case DType::f64: return std::make_unique<LoopMatmul<double, double, same, same>>(std::move(shape));
    case DType::f32: return std::make_unique<LoopMatmul<float, float, same, same>>(std::move(shape));
    case DType::f16:
      return std::make_unique<LoopMatmul<std::uint16_t, float, f16_to_float, float_to_f16>>(std::move(shape));
    case DType::bf16:
      return std::make_unique<LoopMatmul<std::uint16_t, float, bf16_to_float, float_to_bf16>>(std::move(shape));
    default: PD_ASSERT(false, "matmul takes floats only"); return nullptr;
  }
}

// What oneDNN declines for its layout alone is worth a copy, unless it is tiny.
std::string loops_refusal(const KernelCall& call) {
  constexpr std::int64_t kWorthCopying = 32768;  // multiplications
  const MatmulShape shape(call);
  if (call.outputs[0].type.shape.elements() * shape.k < kWorthCopying) return "";
  KernelCall dense = call;
  for (auto* layouts : {&dense.inputs, &dense.outputs}) {
    for (Layout& layout : *layouts) layout = Layout::dense(layout.type);
  }
  return onednn_refusal(dense).empty() && !onednn_refusal(call).empty() ? "oneDNN is faster with dense copies" : "";
}

}  // namespace

void register_matmul_cpu() {
  register_kernel("matmul", {"onednn", DeviceKind::cpu, onednn_refusal, [](const KernelCall& call, const Device&) {
                               return std::make_unique<OneDnnMatmul>(MatmulShape(call));
                             }});
  register_kernel("matmul", {"loops", DeviceKind::cpu, loops_refusal, prepare_loops});
}

}  // namespace paoding
