// SPDX-License-Identifier: Apache-2.0
// oneDNN's LSTM primitive called directly, with its weights in the layout that it likes best, made before it is timed.
#pragma once

#include <dnnl.hpp>
#include <random>
#include <unordered_map>

#include "request.h"

class OneDnnLayer {
  using memory = dnnl::memory;
  using Arguments = std::unordered_map<int, memory>;
  using tag = memory::format_tag;

 public:
  explicit OneDnnLayer(const Request& r) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const auto type = r.dtype == "bf16" ? memory::data_type::bf16 : memory::data_type::f32;
    const memory::dim steps = r.steps, batch = r.batch, hidden = r.hidden;
    const memory::desc x({steps, batch, hidden}, type, tag::tnc), h({1, 1, batch, hidden}, type, tag::ldnc),
        c({1, 1, batch, hidden}, memory::data_type::f32, tag::ldnc), w({1, 1, hidden, 4, hidden}, type, tag::any),
        b({1, 1, 4, hidden}, memory::data_type::f32, tag::ldgo);
    const auto direction = dnnl::rnn_direction::unidirectional_left2right;
    const auto purpose = r.trains() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const dnnl::lstm_forward::primitive_desc forward({purpose, direction, x, h, c, w, w, b, x, h, c}, engine_);
    forward_ = dnnl::lstm_forward(forward);
    arguments_ = {{DNNL_ARG_SRC_LAYER, filled(forward.src_layer_desc(), 1)},
                  {DNNL_ARG_SRC_ITER, filled(forward.src_iter_desc(), 0)},
                  {DNNL_ARG_SRC_ITER_C, filled(forward.src_iter_c_desc(), 0)},
                  {DNNL_ARG_WEIGHTS_LAYER, weights(forward.weights_layer_desc())},
                  {DNNL_ARG_WEIGHTS_ITER, weights(forward.weights_iter_desc())},
                  {DNNL_ARG_BIAS, filled(forward.bias_desc(), 0)},
                  {DNNL_ARG_DST_LAYER, filled(forward.dst_layer_desc(), 0)},
                  {DNNL_ARG_DST_ITER, filled(forward.dst_iter_desc(), 0)},
                  {DNNL_ARG_DST_ITER_C, filled(forward.dst_iter_c_desc(), 0)}};
    if (!r.trains()) return;
    arguments_[DNNL_ARG_WORKSPACE] = memory(forward.workspace_desc(), engine_);
    const dnnl::lstm_backward::primitive_desc backward(
        {dnnl::prop_kind::backward, direction, x, h, c, w, w, b, x, h, c, x, h, c, w, w, b, x, h, c}, engine_, forward);
    backward_ = dnnl::lstm_backward(backward);
    backward_arguments_ = arguments_;
    const Arguments more{{DNNL_ARG_WEIGHTS_LAYER, weights(backward.weights_layer_desc())},
                         {DNNL_ARG_WEIGHTS_ITER, weights(backward.weights_iter_desc())},
                         {DNNL_ARG_DIFF_SRC_LAYER, filled(backward.diff_src_layer_desc(), 0)},
                         {DNNL_ARG_DIFF_SRC_ITER, filled(backward.diff_src_iter_desc(), 0)},
                         {DNNL_ARG_DIFF_SRC_ITER_C, filled(backward.diff_src_iter_c_desc(), 0)},
                         {DNNL_ARG_DIFF_WEIGHTS_LAYER, filled(backward.diff_weights_layer_desc(), 0)},
                         {DNNL_ARG_DIFF_WEIGHTS_ITER, filled(backward.diff_weights_iter_desc(), 0)},
                         {DNNL_ARG_DIFF_BIAS, filled(backward.diff_bias_desc(), 0)},
                         {DNNL_ARG_DIFF_DST_LAYER, filled(backward.diff_dst_layer_desc(), 1)},
                         {DNNL_ARG_DIFF_DST_ITER, filled(backward.diff_dst_iter_desc(), 0)},
                         {DNNL_ARG_DIFF_DST_ITER_C, filled(backward.diff_dst_iter_c_desc(), 0)}};
    for (const auto& [name, value] : more) backward_arguments_[name] = value;
  }

  // Forward, and in training the gradients of data and weights.
  void run() {
    run_forward();
    if (!backward_arguments_.empty()) run_backward();
  }
  void run_forward() {
    forward_.execute(stream_, arguments_);
    stream_.wait();
  }
  void run_backward() {
    backward_.execute(stream_, backward_arguments_);
    stream_.wait();
  }

 private:
  // Normal numbers of this deviation, in whatever layout and type.
  memory filled(const memory::desc& desc, float deviation) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 1);
    const memory::dims dims = desc.dims();
    static constexpr tag kPlain[] = {tag::undef, tag::a, tag::ab, tag::abc, tag::abcd, tag::abcde};
    memory plain(memory::desc(dims, memory::data_type::f32, kPlain[dims.size()]), engine_), made(desc, engine_);
    auto* values = static_cast<float*>(plain.get_data_handle());
    for (std::size_t i = 0; i < plain.get_desc().get_size() / sizeof(float); ++i)
      values[i] = deviation * normal(random);
    dnnl::reorder(plain, made).execute(stream_, plain, made);
    stream_.wait();
    return made;
  }
  memory weights(const memory::desc& desc) { return filled(desc, 0.5f / static_cast<float>(desc.dims()[2])); }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::lstm_forward forward_;
  dnnl::lstm_backward backward_;
  Arguments arguments_, backward_arguments_;
};
