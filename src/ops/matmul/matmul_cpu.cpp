// SPDX-License-Identifier: Apache-2.0
// matmul on the CPU: which implementation when, and oneDNN's for f32 and bf16.
#include "ops/matmul/matmul_cpu.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "base/cancel_poll.h"
#include "base/check.h"
#include "base/product.h"
#include "cpu/onednn.h"
#include "cpu/parallel.h"
#include "ops/all_kernels.h"
#include "ops/matmul/matmul_shape.h"

namespace paoding {
namespace {

using Dims = std::vector<std::int64_t>;

constexpr std::size_t kMostBatchAxes = 4;  // of one primitive

// Executing a primitive allocates in oneDNN 2.6.3, which makes a hash map of the arguments, a node each. (Counted: the
// number of arguments plus two, whatever the scratchpad mode.)
class OneDnnMatmul : public PreparedKernel {
 public:
  /// `packed`: how b lies, when not in the strides of `shape`.
  explicit OneDnnMatmul(const MatmulShape& shape, const dnnl::memory::desc* packed = nullptr) {
    is_serial_ = is_serial_product(shape.products());
    const SerialScope serial(is_serial_);
    split_batch(shape);

    const auto a = operand(shape, shape.a, shape.m, shape.k, 0),
               b = packed != nullptr ? sequence_.memory(*packed, OneDnnSequence::operand(1))
                                     : operand(shape, shape.b, shape.k, shape.n, 1);
    bool is_transposed = false;
    std::int64_t ld = 0;
    const bool is_direct = blas_layout(shape.c, shape.m, shape.n, &ld, &is_transposed) && !is_transposed;
    const std::size_t result = sequence_.memory(desc(shape, shape.c, shape.m, shape.n), OneDnnSequence::operand(2));
    std::size_t c = result;
    if (!is_direct) {
      const auto dense = dense_desc(shape, shape.c, shape.m, shape.n);
      c = sequence_.memory(dense, sequence_.scratch(dense.get_size()));
    }
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc made({sequence_.desc(a), sequence_.desc(b), sequence_.desc(c)}, attr,
                                            onednn_engine());
    std::vector<std::pair<int, std::size_t>> arguments = {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}};
    if (const auto pad = made.scratchpad_desc(); pad.get_size() > 0) {
      arguments.emplace_back(DNNL_ARG_SCRATCHPAD, sequence_.memory(pad, sequence_.scratch(pad.get_size())));
    }
    is_reference_ = std::string_view(made.impl_info_str()).starts_with("ref");
    sequence_.add(dnnl::matmul(made), std::move(arguments));
    if (c != result) sequence_.add_reorder(c, result);
  }

  std::int64_t scratch_bytes() const override { return sequence_.scratch_bytes(); }
  /// Whether oneDNN has nothing but naive loops for it.
  bool is_reference() const { return is_reference_; }

  void run(const KernelRun& run) const override {
    const SerialScope serial(is_serial_);
    const CancelPoll poll;
    for (std::int64_t turn = 0; turn < turns_; ++turn) {
      poll();
      void* moved[] = {run.operands[0], run.operands[1], run.operands[2]};
      std::int64_t rest = turn;
      for (const OuterAxis& axis : outer_) {
        for (std::size_t i = 0; i < 3; ++i) {
          moved[i] = static_cast<char*>(moved[i]) + rest % axis.extent * axis.strides[i];
        }
        rest /= axis.extent;
      }
      sequence_.run(moved, run.scratch);
    }
  }

 private:
  struct OuterAxis {
    std::int64_t extent;
    std::array<std::int64_t, 3> strides;  // of a, b, c, in bytes
  };

  // Axes over which neither a nor b moves, and those that are too many, are turns of a loop.
  void split_batch(const MatmulShape& shape) {
    for (std::size_t i = shape.batch.size(); i-- > 0;) {
      const bool is_shared = shape.a.batch_strides[i] == 0 && shape.b.batch_strides[i] == 0;
      if (!is_shared && inner_.size() < kMostBatchAxes) {
        inner_.insert(inner_.begin(), i);
        continue;
      }
      const std::int64_t size = size_bytes(shape.dtype), result = size_bytes(shape.result_dtype);
      outer_.push_back(
          {shape.batch[i],
           {shape.a.batch_strides[i] * size, shape.b.batch_strides[i] * size, shape.c.batch_strides[i] * result}});
      turns_ *= shape.batch[i];
    }
  }

  static DType dtype_of(const MatmulShape& shape, const MatmulOperand& operand) {
    return &operand == &shape.c ? shape.result_dtype : shape.dtype;
  }

  dnnl::memory::desc desc(const MatmulShape& shape, const MatmulOperand& operand, std::int64_t rows,
                          std::int64_t columns) const {
    Dims dims, strides;
    for (std::size_t i : inner_) {
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
    return onednn_desc(dtype_of(shape, operand), dims, strides);
  }

  // The same extents, densely.
  dnnl::memory::desc dense_desc(const MatmulShape& shape, const MatmulOperand& operand, std::int64_t rows,
                                std::int64_t columns) const {
    Dims dims = desc(shape, operand, rows, columns).dims(), strides(dims.size(), 1);
    for (std::size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
    return onednn_desc(dtype_of(shape, operand), dims, strides);
  }

  // The memory the product reads: where the operand is, or a dense copy when oneDNN would not take its strides.
  std::size_t operand(const MatmulShape& shape, const MatmulOperand& operand, std::int64_t rows, std::int64_t columns,
                      std::size_t i) {
    std::int64_t ld = 0;
    bool is_transposed = false;
    const bool is_plain = blas_layout(operand, rows, columns, &ld, &is_transposed);
    if (is_plain) return sequence_.memory(desc(shape, operand, rows, columns), OneDnnSequence::operand(i));
    const std::size_t given = sequence_.memory(strided_desc(shape, operand, rows, columns), OneDnnSequence::operand(i));
    const auto dense = dense_desc(shape, operand, rows, columns);
    const std::size_t copy = sequence_.memory(dense, sequence_.scratch(dense.get_size()));
    sequence_.add_reorder(given, copy);
    return copy;
  }

  // Exactly the operand's strides; those of extents of 1 do not matter.
  dnnl::memory::desc strided_desc(const MatmulShape& shape, const MatmulOperand& operand, std::int64_t rows,
                                  std::int64_t columns) const {
    const Dims dims = desc(shape, operand, rows, columns).dims();
    Dims strides;
    for (std::size_t i : inner_) {
      strides.push_back(operand.batch_strides[i] == 0 ? 1 : operand.batch_strides[i]);
    }
    strides.push_back(operand.row_stride);
    strides.push_back(operand.column_stride);
    // oneDNN looks at the strides of extents of 1 too: outermost, they are never in the way.
    std::int64_t span = 1;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] > 1) span = std::max(span, dims[i] * strides[i]);
    }
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 1) strides[i] = span;
    }
    return onednn_desc(shape.dtype, dims, strides);
  }

  bool is_serial_ = false, is_reference_ = false;
  std::vector<std::size_t> inner_;  // batch axes of the primitive
  std::vector<OuterAxis> outer_;    // the others, the fastest first
  std::int64_t turns_ = 1;
  OneDnnSequence sequence_;
};

// Whether an axis begins again before a faster one would have ended, as in [2, 3] with strides (7, 3): no two elements
// share memory, but oneDNN describes no such thing.
bool is_interleaved(const MatmulShape& shape, const MatmulOperand& operand, std::int64_t rows, std::int64_t columns) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, extent
  const auto add = [&](std::int64_t stride, std::int64_t extent) {
    if (stride != 0 && extent > 1) axes.emplace_back(stride, extent);
  };
  for (std::size_t i = 0; i < shape.batch.size(); ++i) add(operand.batch_strides[i], shape.batch[i]);
  add(operand.row_stride, rows);
  add(operand.column_stride, columns);
  std::ranges::sort(axes);
  for (std::size_t i = 1; i < axes.size(); ++i) {
    if (axes[i].first < axes[i - 1].first * axes[i - 1].second) return true;
  }
  return false;
}

}  // namespace

std::string onednn_size_refusal(DType dtype, const MatmulOperand& operand, std::int64_t rows, std::int64_t columns,
                                std::string_view name) {
  for (const std::int64_t extent : {rows, columns}) {
    if (extent > kMostOneDnnExtent) return fmt::format("{} has an extent of {}, 2^31 or more", name, extent);
  }
  for (const auto& [stride, extent] : {std::pair{operand.row_stride, rows}, {operand.column_stride, columns}}) {
    const std::int64_t bytes = capped_product({std::abs(stride), std::min(extent, kOneDnnRows), size_bytes(dtype)});
    if (stride != 1 && extent > 1 && bytes > kMostOneDnnBytes) {
      return fmt::format("{} has rows or columns {} elements apart, of which {} are 2^31 bytes or more", name, stride,
                         std::min(extent, kOneDnnRows));
    }
  }
  return "";
}

bool is_serial_product(std::int64_t multiplications) {
  constexpr std::int64_t kSerialProducts = 1'000'000;  // a second thread wakes up in about 6 us
  return multiplications < kSerialProducts;
}

std::string onednn_matmul_refusal(const KernelCall& call) {
  const MatmulShape shape(call);
  if (shape.is_empty()) return "an extent is 0";
  if (shape.dtype != DType::f32 && shape.dtype != DType::bf16) {
    return fmt::format("{} is not one of f32, bf16", to_string(shape.dtype));
  }
  // A matrix that repeats within itself, an expanded one: a reorder would have to read one element many times.
  for (const auto& [operand, rows, columns, name] :
       {std::tuple{&shape.a, shape.m, shape.k, "a"}, {&shape.b, shape.k, shape.n, "b"}}) {
    if ((operand->row_stride == 0 && rows > 1) || (operand->column_stride == 0 && columns > 1)) {
      return fmt::format("{} repeats one row or column", name);
    }
  }
  const auto is_backwards = [](const MatmulOperand& operand) {
    const auto is_negative = [](std::int64_t stride) { return stride < 0; };
    return operand.row_stride < 0 || operand.column_stride < 0 ||
           std::ranges::any_of(operand.batch_strides, is_negative);
  };
  for (const auto& [operand, name] : {std::pair{&shape.a, "a"}, {&shape.b, "b"}, {&shape.c, "the result"}}) {
    if (is_backwards(*operand)) return fmt::format("{} is walked over backwards", name);
  }
  for (const auto& [operand, rows, columns, name] : {std::tuple{&shape.a, shape.m, shape.k, "a"},
                                                     {&shape.b, shape.k, shape.n, "b"},
                                                     {&shape.c, shape.m, shape.n, "the result"}}) {
    if (is_interleaved(shape, *operand, rows, columns)) return fmt::format("the strides of {} interleave", name);
    const DType dtype = operand == &shape.c ? shape.result_dtype : shape.dtype;
    if (std::string why = onednn_size_refusal(dtype, *operand, rows, columns, name); !why.empty()) return why;
  }
  if (shape.dtype == DType::f32) return "";  // on every CPU
  try {
    OneDnnMatmul tried(shape);
  } catch (const dnnl::error& error) {
    return fmt::format("it has no such product here ({})", error.what());
  }
  return "";
}

std::string onednn_packed_refusal(const KernelCall& call, const dnnl::memory::desc& packed) {
  if (std::string refusal = onednn_matmul_refusal(call); !refusal.empty()) return refusal;
  try {
    return OneDnnMatmul(MatmulShape(call), &packed).is_reference() ? "oneDNN has only its reference for it" : "";
  } catch (const dnnl::error& error) {
    return fmt::format("it has no such product here ({})", error.what());
  }
}

std::unique_ptr<PreparedKernel> prepare_onednn_matmul(const MatmulShape& shape, const dnnl::memory::desc& packed) {
  return made_by_onednn("matmul_packed", [&] { return std::make_unique<OneDnnMatmul>(shape, &packed); });
}

namespace {

// A product that oneDNN declines for its layout alone is worth a copy, unless it is tiny.
std::string loops_refusal(const KernelCall& call) {
  constexpr std::int64_t kWorthCopying = 32768;  // multiplications
  const MatmulShape shape(call);
  if (shape.products() < kWorthCopying) return "";
  KernelCall dense = call;
  for (auto* layouts : {&dense.inputs, &dense.outputs}) {
    for (Layout& layout : *layouts) layout = Layout::dense(layout.type);
  }
  return onednn_matmul_refusal(dense).empty() && !onednn_matmul_refusal(call).empty()
             ? "oneDNN is faster with dense copies"
             : "";
}

}  // namespace

void register_matmul_cpu() {
  const auto add = [](const char* op, const char* name, auto refusal, auto prepare) {
    register_kernel(op, {.name = name, .device = DeviceKind::cpu, .refusal = refusal, .prepare = prepare});
  };
  add("matmul", "vector", vector_matmul_refusal, prepare_vector_matmul);
  add("matmul", "blocked", blocked_matmul_refusal, prepare_blocked_matmul);
  for (const char* op : {"matmul", "matmul_wide"}) {
    const auto prepare = [](const KernelCall& call, const Device&) -> std::unique_ptr<PreparedKernel> {
      const MatmulShape shape(call);
      if (auto sgemm = prepare_sgemm(shape)) return sgemm;
      return made_by_onednn("matmul", [&] { return std::make_unique<OneDnnMatmul>(shape); });
    };
    register_kernel(op, {.name = "onednn",
                         .device = DeviceKind::cpu,
                         .refusal = onednn_matmul_refusal,
                         .prepare = prepare,
                         .faults = Faults::possible,
                         .packs_weights = true});
  }
  add("matmul", "loops", loops_refusal, prepare_matmul_loops);
  add("matmul_wide", "loops", loops_refusal, prepare_matmul_loops);
}

}  // namespace paoding
