// SPDX-License-Identifier: Apache-2.0
// Convolutions by oneDNN, a few images at a time: every thread has images of its own, the same ones in every kernel of
// a program, so that the next kernel finds the results of one in the cache of the core that reads them. Windows that
// are pooled, and gradients that pools spread, never leave that cache. A gradient of weights is summed up by every
// thread for its images, then over the threads.
#include <algorithm>
#include <array>
#include <map>

#include "base/check.h"
#include "base/product.h"
#include "base/rounding.h"
#include "cpu/parallel.h"
#include "ops/conv/cpu/conv_onednn.h"
#include "ops/pool/pool_shape.h"

namespace paoding {
namespace {

constexpr std::int64_t kLine = 256;                 // pieces of scratch memory share no cache line
constexpr std::int64_t kMostWindowBytes = 1 << 20;  // of the windows of one image that are pooled: a core's own cache
constexpr std::int64_t kPieceBytes = 256 << 10;     // of the windows of the images that go together

// The least share of the threads that have work until the end: a pool of its own saves more than that.
constexpr double kLeastBusy = 0.94, kLeastBusyPooled = 0.88;

std::int64_t whole_lines(std::int64_t bytes) { return round_up(bytes, kLine); }

// The first image of a thread; that of the one after the last is the number of images.
std::int64_t first_image(std::int64_t images, int threads, int thread) { return images * thread / threads; }

Layout of_images(Layout layout, std::int64_t images) {
  layout.type.shape = layout.type.shape.with_dim(0, images);
  return layout;
}

// All windows, before they are pooled, of so many images.
Layout all_windows(const ConvShape& shape, std::int64_t images) {
  return channels_last({shape.dtype, {images, shape.outputs, shape.axes[0].outputs, shape.axes[1].outputs}});
}

std::int64_t window_bytes(const ConvShape& shape) {
  return capped_product({shape.outputs, shape.axes[0].outputs, shape.axes[1].outputs, size_bytes(shape.dtype)});
}

// The convolution of so many images; without the pool. Of windows that are pooled the image lies with its channels last
// too: it may be asked for before layouts are chosen, and there is no convolution from one to the other.
ConvShape piece_of(const ConvShape& shape, std::int64_t images) {
  ConvShape piece = shape;
  piece.batch = images;
  piece.x = shape.is_pooled ? channels_last(of_images(shape.x, images).type) : of_images(shape.x, images);
  piece.y = shape.is_pooled ? all_windows(shape, images) : of_images(shape.y, images);
  if (shape.has_added) piece.added = of_images(shape.added, images);
  if (shape.is_pooled && shape.kind != ConvKind::forward) piece.has_bias = false;
  piece.is_pooled = piece.has_index = false;
  return piece;
}

// How many images a thread works on at once, of `share` that it has.
std::int64_t piece_images(const ConvShape& shape, std::int64_t share) {
  if (!shape.is_pooled) return share;
  const std::int64_t most = std::clamp<std::int64_t>(kPieceBytes / window_bytes(shape), 1, share);
  const std::int64_t pieces = ceil_div(share, most);
  return ceil_div(share, pieces);
}

std::string refusal_of(const KernelCall& call) {
  const ConvShape shape(call);
  const std::int64_t images = shape.batch;
  const int threads = call.target->threads > 0 ? call.target->threads : max_threads();
  if (!shape.is_pooled && threads == 1) return "there is one thread";
  if (shape.is_empty()) return "an extent is 0";
  const std::int64_t most = ceil_div(images, threads);
  if (static_cast<double>(images) <
      (shape.is_pooled ? kLeastBusyPooled : kLeastBusy) * static_cast<double>(most * threads)) {
    return fmt::format("{} images are not shared out well among {} threads", images, threads);
  }
  if (shape.is_pooled) {
    if (shape.has_index && shape.index.type.dtype != DType::u8) return "an index of more than a byte";
    if (window_bytes(shape) > kMostWindowBytes) return "the windows of an image outgrow a core's cache";
  }
  if (shape.kind == ConvKind::grad_weight) {
    if (shape.w.type.dtype != DType::f32) return "sums of 16 bits";
    const std::int64_t moved = capped_product({shape.x.type.shape.elements() + shape.y.type.shape.elements()});
    if (capped_product({shape.w.type.shape.elements(), threads}) > moved / 2) {
      return "a sum of weights for every thread is more than the images are";
    }
  }
  return onednn_refusal(piece_of(shape, piece_images(shape, most)));
}

// A piece's operands as the primitives of a thread see them.
enum Place : std::size_t { kX, kW, kY, kBias, kAdded, kPooled, kIndex, kPooledHere, kIndexHere, kPlaces };

// One thread's work on so many images: converts and multiplies, around a pool of its own where there is one.
class Piece {
 public:
  Piece(const ConvShape& whole, std::int64_t images, const dnnl::memory::desc* weights) : images_(images) {
    const ConvShape shape = piece_of(whole, images);
    const ConvDescs made = make_convolution(shape, true, weights);
    weights_ = made.w, bias_ = made.bias;
    const bool is_forward = shape.kind == ConvKind::forward, is_data = shape.kind == ConvKind::grad_input;
    if (whole.is_pooled) add_pool(whole, images, is_forward);
    OneDnnSequence& all = whole.is_pooled && !is_forward ? after_ : before_;
    const std::size_t x = place(all, given_image(of_images(whole.x, images)), made.x, kX, !is_data);
    const std::size_t y = place(all, given_image(shape.y), made.y, kY, !is_forward);
    std::vector<std::pair<int, std::size_t>> arguments = {
        {is_data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x},
        {shape.kind == ConvKind::grad_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
         all.memory(made.w, OneDnnSequence::operand(kW))},
        {is_forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y}};
    if (shape.has_bias) arguments.emplace_back(DNNL_ARG_BIAS, all.memory(made.bias, OneDnnSequence::operand(kBias)));
    if (shape.has_added) {
      arguments.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
                             place(all, given_image(shape.added), made.y, kAdded, true));
    }
    if (const std::size_t bytes = made.scratchpad.get_size(); bytes > 0) {
      arguments.emplace_back(DNNL_ARG_SCRATCHPAD, all.memory(made.scratchpad, all.scratch(bytes)));
    }
    all.add(made.primitive, std::move(arguments));
    for (const auto& [sequence, inner, outer] : results_) sequence->add_reorder(inner, outer);
  }
  Piece(Piece&&) = delete;

  const dnnl::memory::desc& weights() const { return weights_; }
  const dnnl::memory::desc& bias() const { return bias_; }
  std::int64_t images() const { return images_; }
  /// The size of those operands that are no operands of the kernel, but the thread's own.
  std::int64_t bytes_of(Place place) const { return own_bytes_[place]; }
  std::int64_t scratch_bytes() const { return std::max(before_.scratch_bytes(), after_.scratch_bytes()); }

  template <class Pool>
  void run(void* const* operands, void* scratch, const Pool& pool) const {
    before_.run(operands, scratch);
    pool(operands);
    after_.run(operands, scratch);
  }

 private:
  struct Result {
    OneDnnSequence* sequence;
    std::size_t inner, outer;
  };

  // The index in `sequence` of a memory that lies as wanted; converted, before or in the end, unless it is given so.
  std::size_t place(OneDnnSequence& sequence, const dnnl::memory::desc& given, const dnnl::memory::desc& wanted,
                    Place at, bool is_read) {
    const std::size_t outer = sequence.memory(given, OneDnnSequence::operand(at));
    if (given == wanted) return outer;
    const std::size_t inner = sequence.memory(wanted, sequence.scratch(wanted.get_size()));
    if (is_read) {
      sequence.add_reorder(outer, inner);
    } else {
      results_.push_back({&sequence, inner, outer});
    }
    return inner;
  }

  // Pools read and write images whose channels lie last; the windows are the thread's own.
  void add_pool(const ConvShape& whole, std::int64_t images, bool is_forward) {
    own_bytes_[kY] = images * window_bytes(whole);
    const auto convert = [&](const Layout& layout, dnnl::memory::data_type type, Place given, Place here) {
      if (is_channels_last(layout)) return;
      const Layout some = of_images(layout, images);
      const dnnl::memory::dims dims(some.type.shape.begin(), some.type.shape.end());
      const dnnl::memory::dims strides(some.strides.begin(), some.strides.begin() + 4);
      OneDnnSequence& sequence = is_forward ? after_ : before_;
      const std::size_t outer = sequence.memory({dims, type, strides}, OneDnnSequence::operand(given));
      const std::size_t inner =
          sequence.memory({dims, type, dnnl::memory::format_tag::nhwc}, OneDnnSequence::operand(here));
      sequence.add_reorder(is_forward ? inner : outer, is_forward ? outer : inner);
      own_bytes_[here] = some.type.shape.elements() * size_bytes(layout.type.dtype);
    };
    convert(whole.y, onednn_type(whole.dtype), kPooled, kPooledHere);
    if (whole.has_index) convert(whole.index, dnnl::memory::data_type::u8, kIndex, kIndexHere);
  }

  std::int64_t images_;
  dnnl::memory::desc weights_, bias_;
  std::array<std::int64_t, kPlaces> own_bytes_{};
  std::vector<Result> results_;
  OneDnnSequence before_, after_;
};

class ConvolutionByImages : public PreparedKernel {
 public:
  explicit ConvolutionByImages(const KernelCall& call)
      : shape_(call),
        inputs_(call.inputs.size()),
        threads_(static_cast<int>(std::min<std::int64_t>(max_threads(), shape_.batch))) {
    if (shape_.is_pooled) {
      pool_ = std::make_unique<PoolShape>(pool_call());
      pool_->hides_zero = shape_.has_relu;
    }
    make_pieces();
    lay_out();
  }

  std::int64_t scratch_bytes() const override { return thread_at_ + threads_ * thread_bytes_; }

  void run(const KernelRun& run) const override {
    auto* scratch = static_cast<char*>(run.scratch);
    if (!is_weight()) weights_.run(run.operands, scratch);
    parallel_for_threads([&](int thread) { run_thread(run.operands, scratch, thread); });
    if (!is_weight()) return;
    add_threads(scratch);
    if (shape_.has_result) weights_.run(run.operands, scratch);
    if (has_bias_sums()) add_bias_sums(run.operands, scratch);
  }

 private:
  bool is_weight() const { return shape_.kind == ConvKind::grad_weight; }
  bool is_forward() const { return shape_.kind == ConvKind::forward; }
  bool is_pool_unread() const { return !shape_.has_result && is_forward(); }
  bool has_bias_sums() const { return shape_.is_pooled && is_weight() && shape_.has_bias; }

  template <class Work>
  void parallel_for_threads(const Work& work) const {
    share_out(threads_, threads_, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t thread = begin; thread < end; ++thread) work(static_cast<int>(thread));
    });
  }

  KernelCall pool_call() const {
    using Ints = std::vector<std::int64_t>;
    const Ints pool{shape_.pool[0], shape_.pool[1]};
    KernelCall call;
    call.attrs = {{"kernel", pool}, {"stride", pool}, {"padding", Ints{0, 0, 0, 0}}, {"dilation", Ints{1, 1}}};
    const Layout windows = all_windows(shape_, shape_.batch), pooled = channels_last(shape_.y.type),
                 index = channels_last({DType::u8, shape_.y.type.shape});
    call.op = find_op(is_forward() ? "max_pool2d" : "max_pool2d_grad");
    if (is_forward()) {
      call.inputs = {windows}, call.outputs = {pooled, index};
    } else {
      call.inputs = {pooled, index}, call.outputs = {windows};
    }
    return call;
  }

  // The pieces that threads do at once, by the number of images: two numbers at most for a thread, and shares differ by
  // one. The primitives are made for one thread, and each thread has its own, since they know where their operands lie.
  void make_pieces() {
    const SerialScope serial(true);
    std::optional<dnnl::memory::desc> lies;
    pieces_.resize(static_cast<std::size_t>(threads_));
    for (int thread = 0; thread < threads_; ++thread) {
      auto& mine = pieces_[static_cast<std::size_t>(thread)];
      for_each_piece(thread, [&](std::int64_t, std::int64_t images) {
        if (mine.contains(images)) return;
        auto made = std::make_unique<Piece>(shape_, images, lies ? &*lies : nullptr);
        lies = made->weights(), bias_lies_ = made->bias();
        for (std::size_t i = 0; i < kPlaces; ++i) {
          own_bytes_[i] = std::max(own_bytes_[i], made->bytes_of(static_cast<Place>(i)));
        }
        piece_scratch_ = std::max(piece_scratch_, made->scratch_bytes());
        mine.emplace(images, std::move(made));
      });
    }
    weights_lie_ = *lies;
    // The windows' own bytes hold the pooled ones, too.
    if (is_pool_unread()) own_bytes_[kPooledHere] = own_bytes_[kY];
  }

  template <class Use>
  void for_each_piece(int thread, const Use& use) const {
    const std::int64_t begin = first_image(shape_.batch, threads_, thread);
    const std::int64_t share = first_image(shape_.batch, threads_, thread + 1) - begin;
    const std::int64_t most = share == 0 ? 1 : piece_images(shape_, share), pieces = ceil_div(share, most);
    for (std::int64_t i = 0; i < pieces; ++i) {
      const std::int64_t from = share * i / pieces, to = share * (i + 1) / pieces;
      use(begin + from, to - from);
    }
  }

  // The weights in front of all, or the sums of all threads after them; then each thread's own memory.
  void lay_out() {
    const auto weight_bytes = static_cast<std::int64_t>(weights_lie_.get_size());
    const auto given = given_weights(shape_);
    if (is_weight()) {
      sum_bytes_ = whole_lines(weight_bytes);
      own_bytes_[kW] = 2 * sum_bytes_;  // of all its images, of some
      if (has_bias_sums())
        own_bytes_[kBias] = shape_.outputs * static_cast<std::int64_t>(sizeof(double) + sizeof(float));
      const std::size_t sums = weights_.memory(weights_lie_, weights_.scratch(weights_lie_.get_size()));
      weights_.add_reorder(sums, weights_.memory(given, OneDnnSequence::operand(inputs_)));
    } else {
      const std::size_t w_at = is_forward() ? 1 : shape_.is_pooled ? 2 : 1;
      w_place_ = convert(given, weights_lie_, w_at);
      if (shape_.has_bias) bias_place_ = convert(given_bias(shape_), bias_lies_, 2);
    }
    thread_at_ = whole_lines(weights_.scratch_bytes());
    for (std::size_t i = 0; i < kPlaces; ++i) {
      own_at_[i] = thread_bytes_;
      thread_bytes_ += whole_lines(own_bytes_[i]);
    }
    piece_scratch_at_ = thread_bytes_;
    thread_bytes_ += whole_lines(piece_scratch_);
  }

  // Where an operand that all threads read lies in the end.
  OneDnnSequence::Place convert(const dnnl::memory::desc& given, const dnnl::memory::desc& wanted, std::size_t at) {
    const OneDnnSequence::Place outer = OneDnnSequence::operand(at);
    if (given == wanted) return outer;
    const OneDnnSequence::Place inner = weights_.scratch(wanted.get_size());
    weights_.add_reorder(weights_.memory(given, outer), weights_.memory(wanted, inner));
    return inner;
  }

  char* own(char* scratch, int thread, Place place) const {
    return scratch + thread_at_ + thread * thread_bytes_ + own_at_[place];
  }

  static char* image_of(void* first, const Layout& layout, std::int64_t image) {
    return static_cast<char*>(first) + image * layout.strides[0] * size_bytes(layout.type.dtype);
  }

  void run_thread(void* const* given, char* scratch, int thread) const {
    const std::size_t result = inputs_;
    const std::size_t x_at = shape_.kind == ConvKind::grad_input ? result : 0;
    const std::size_t y_at = is_forward() ? result : is_weight() ? 1 : 0;
    const std::size_t index_at = is_forward() ? result + 1 : y_at + 1;
    const auto shared = [&](const OneDnnSequence::Place& place) -> void* {
      return place.is_scratch ? scratch + place.at : given[place.at];
    };
    std::array<void*, kPlaces> operands{};
    if (!is_weight()) operands[kW] = shared(w_place_);
    if (is_forward() && shape_.has_bias) operands[kBias] = shared(bias_place_);
    auto* sums = reinterpret_cast<float*>(own(scratch, thread, kW));
    auto* bias_sums = reinterpret_cast<double*>(own(scratch, thread, kBias));
    if (has_bias_sums()) std::fill_n(bias_sums, shape_.outputs, 0.0);
    bool is_first = true;
    for_each_piece(thread, [&](std::int64_t image, std::int64_t images) {
      operands[kX] = image_of(given[x_at], shape_.x, image);
      if (shape_.has_added) operands[kAdded] = image_of(given[3], shape_.added, image);
      if (shape_.is_pooled) {
        operands[kY] = own(scratch, thread, kY);
        operands[kPooled] = is_pool_unread() ? nullptr : image_of(given[y_at], shape_.y, image);
        operands[kPooledHere] = own_bytes_[kPooledHere] > 0 ? own(scratch, thread, kPooledHere) : operands[kPooled];
        if (shape_.has_index) {
          operands[kIndex] = image_of(given[index_at], shape_.index, image);
          operands[kIndexHere] = own_bytes_[kIndexHere] > 0 ? own(scratch, thread, kIndexHere) : operands[kIndex];
        }
      } else {
        operands[kY] = image_of(given[y_at], shape_.y, image);
      }
      float* piece_sums = is_first ? sums : sums + sum_bytes_ / 4;
      if (is_weight()) operands[kW] = piece_sums;
      const Piece& piece = *pieces_[static_cast<std::size_t>(thread)].at(images);
      piece.run(operands.data(), own(scratch, thread, kX) - own_at_[kX] + piece_scratch_at_,
                [&](void* const* at) { pool(at, images, bias_sums); });
      if (is_weight() && !is_first) add(sums, piece_sums, 0, sum_bytes_ / 4);
      is_first = false;
    });
  }

  void pool(void* const* at, std::int64_t images, double* bias_sums) const {
    if (!shape_.is_pooled) return;
    if (is_forward()) {
      void* const operands[] = {at[kY], at[kPooledHere], at[kIndexHere]};
      return run_simd_pool_rows(*pool_, operands, 0, images * pool_->to.type.shape[2]);
    }
    void* const operands[] = {at[kPooledHere], at[kIndexHere], at[kY]};
    run_simd_pool_rows(*pool_, operands, 0, images * pool_->to.type.shape[2]);
    if (!has_bias_sums()) return;
    auto* some = reinterpret_cast<float*>(bias_sums + shape_.outputs);
    const Shape& pooled = shape_.y.type.shape;
    run_simd_pool_sums(shape_.dtype, at[kPooledHere], static_cast<const std::uint8_t*>(at[kIndexHere]),
                       images * pooled[2] * pooled[3], shape_.outputs, some);
    for (std::int64_t c = 0; c < shape_.outputs; ++c) bias_sums[c] += static_cast<double>(some[c]);
  }

  static void add(float* to, const float* from, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
  }

  // The sums of all threads, where the conversion reads them.
  void add_threads(char* scratch) const {
    auto* total = reinterpret_cast<float*>(scratch);
    const auto count = static_cast<std::int64_t>(weights_lie_.get_size() / 4);
    share_out(threads_for(threads_ * count * 4), count, [&](std::int64_t begin, std::int64_t end, int) {
      for (int thread = 0; thread < threads_; ++thread) {
        const auto* sums = reinterpret_cast<const float*>(own(scratch, thread, kW));
        if (thread == 0) {
          std::copy(sums + begin, sums + end, total + begin);
        } else {
          add(total, sums, begin, end);
        }
      }
    });
  }

  void add_bias_sums(void* const* operands, char* scratch) const {
    auto* result = static_cast<float*>(operands[inputs_ + 1]);
    for (std::int64_t c = 0; c < shape_.outputs; ++c) {
      double sum = 0;
      for (int thread = 0; thread < threads_; ++thread) {
        sum += reinterpret_cast<const double*>(own(scratch, thread, kBias))[c];
      }
      result[c * shape_.bias.strides[0]] = static_cast<float>(sum);
    }
  }

  ConvShape shape_;
  std::size_t inputs_;
  int threads_;
  std::unique_ptr<PoolShape> pool_;
  std::vector<std::map<std::int64_t, std::unique_ptr<Piece>>> pieces_;  // of a thread, by their images
  dnnl::memory::desc weights_lie_, bias_lies_;
  OneDnnSequence weights_;  // by all threads: how the pieces want the weights and the bias, or sums as they are wanted
  OneDnnSequence::Place w_place_, bias_place_;
  std::array<std::int64_t, kPlaces> own_bytes_{}, own_at_{};
  std::int64_t piece_scratch_ = 0, piece_scratch_at_ = 0, sum_bytes_ = 0, thread_at_ = 0, thread_bytes_ = 0;
};

}  // namespace

void register_convolution_by_images(const char* op, std::uint32_t images) {
  register_kernel(op, {.name = "onednn by images",
                       .device = DeviceKind::cpu,
                       .refusal = refusal_of,
                       .prepare = [](const KernelCall& call, const Device&) -> std::unique_ptr<PreparedKernel> {
                         return made_by_onednn(call.op->name,
                                               [&] { return std::make_unique<ConvolutionByImages>(call); });
                       },
                       .faults = Faults::possible,
                       .channels_last = images});
}

}  // namespace paoding
