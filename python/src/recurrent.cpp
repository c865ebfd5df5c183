// SPDX-License-Identifier: Apache-2.0
// The C interface of the recurrent kernels on addresses, for paoding.torch.
#include "paoding/recurrent.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "gil.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

using namespace nb::literals;
using Address = std::uintptr_t;

void check(pd_status status) {
  if (status == PD_OK) return;
  const ErrorKind kind = status == PD_ERROR_ARGUMENT      ? ErrorKind::argument
                         : status == PD_ERROR_UNSUPPORTED ? ErrorKind::unsupported
                                                          : ErrorKind::device;
  throw Error(kind, pd_last_error());
}

pd_number handle_number(const std::string& text) {
  constexpr std::pair<const char*, pd_number> known[] = {
      {"f32", PD_F32}, {"f64", PD_F64}, {"bf16", PD_BF16}, {"f16", PD_F16}};
  for (const auto& [name, number] : known) {
    if (text == name) return number;
  }
  throw Error(ErrorKind::dtype, "a recurrent layer is of f32, f64, bf16 or f16, not " + text);
}

pd_cell cell_of(const std::string& text) {
  constexpr std::pair<const char*, pd_cell> known[] = {
      {"lstm", PD_LSTM}, {"gru", PD_GRU}, {"rnn_tanh", PD_RNN_TANH}, {"rnn_relu", PD_RNN_RELU}};
  for (const auto& [name, cell] : known) {
    if (text == name) return cell;
  }
  throw Error(ErrorKind::argument, "there is no cell '" + text + "'");
}

class RecurrentPlan {
 public:
  RecurrentPlan(const std::string& cell, const std::string& dtype, const std::string& device, std::int64_t steps,
                std::int64_t batch, std::int64_t inputs, std::int64_t hidden, bool has_lengths, bool is_reverse,
                bool is_training, bool allow_tf32, bool gates_first, bool two_biases, bool is_first) {
    const pd_recurrent_layer layer{
        cell_of(cell), handle_number(dtype), device.c_str(), steps,      batch,       inputs,     hidden,
        has_lengths,   is_reverse,           is_training,    allow_tf32, gates_first, two_biases, is_first};
    check(pd_recurrent_create(&layer, &plan_));
    check(pd_recurrent_get_sizes(plan_, &sizes_));
  }
  ~RecurrentPlan() { pd_recurrent_destroy(plan_); }
  RecurrentPlan(const RecurrentPlan&) = delete;
  RecurrentPlan& operator=(const RecurrentPlan&) = delete;

  const pd_recurrent_sizes& sizes() const { return sizes_; }
  std::string text() const { return pd_recurrent_describe(plan_); }

  void forward(Address x, Address w, Address u, Address b, Address h0, Address c0, Address lengths, Address states,
               Address last_h, Address last_c, Address saved, Address cells, Address workspace, Address b_hh,
               Address stream) {
    pd_recurrent_forward_args args{};
    args.x = at(x), args.w = at(w), args.u = at(u), args.b = at(b), args.h0 = at(h0), args.c0 = at(c0);
    args.lengths = reinterpret_cast<const std::int32_t*>(lengths);
    args.states = at(states), args.last_h = at(last_h), args.last_c = at(last_c);
    args.saved = at(saved), args.saved_cells = at(cells), args.workspace = at(workspace), args.b_hh = at(b_hh);
    check(pd_recurrent_forward(plan_, &args, at(stream)));
  }

  void backward(Address x, Address w, Address u, Address h0, Address lengths, Address states, Address saved,
                Address cells, Address d_states, Address d_last_h, Address d_last_c, Address d_x, Address d_w,
                Address d_u, Address d_b, Address d_h0, Address d_c0, Address workspace, Address d_b_hh,
                Address stream) {
    pd_recurrent_backward_args args{};
    args.x = at(x), args.w = at(w), args.u = at(u), args.h0 = at(h0);
    args.lengths = reinterpret_cast<const std::int32_t*>(lengths);
    args.states = at(states), args.saved = at(saved), args.saved_cells = at(cells);
    args.d_states = at(d_states), args.d_last_h = at(d_last_h), args.d_last_c = at(d_last_c);
    args.d_x = at(d_x), args.d_w = at(d_w), args.d_u = at(d_u), args.d_b = at(d_b);
    args.d_h0 = at(d_h0), args.d_c0 = at(d_c0), args.workspace = at(workspace);
    args.d_b_hh = at(d_b_hh);
    check(pd_recurrent_backward(plan_, &args, at(stream)));
  }

 private:
  static void* at(Address address) { return reinterpret_cast<void*>(address); }
  pd_recurrent_plan* plan_ = nullptr;
  pd_recurrent_sizes sizes_{};
};

}  // namespace

void bind_recurrent(nb::module_& module) {
  const auto free = nb::call_guard<WithoutGil>();
  nb::class_<RecurrentPlan>(module, "RecurrentPlan",
                            "A recurrent layer over time on memory of the caller's: paoding/recurrent.h.")
      .def(nb::init<const std::string&, const std::string&, const std::string&, std::int64_t, std::int64_t,
                    std::int64_t, std::int64_t, bool, bool, bool, bool, bool, bool, bool>(),
           "cell"_a, "dtype"_a, "device"_a, "steps"_a, "batch"_a, "inputs"_a, "hidden"_a, "has_lengths"_a,
           "is_reverse"_a, "is_training"_a, "allow_tf32"_a, "gates_first"_a, "two_biases"_a, "is_first"_a, free)
      .def_prop_ro("forward_workspace", [](const RecurrentPlan& self) { return self.sizes().forward_workspace; })
      .def_prop_ro("backward_workspace", [](const RecurrentPlan& self) { return self.sizes().backward_workspace; })
      .def_prop_ro("saved", [](const RecurrentPlan& self) { return self.sizes().saved; })
      .def("__str__", &RecurrentPlan::text)
      .def("forward", &RecurrentPlan::forward, "x"_a, "w"_a, "u"_a, "b"_a, "h0"_a, "c0"_a, "lengths"_a, "states"_a,
           "last_h"_a, "last_c"_a, "saved"_a, "cells"_a, "workspace"_a, "b_hh"_a, "stream"_a, free,
           "Addresses; 0 is null.")
      .def("backward", &RecurrentPlan::backward, "x"_a, "w"_a, "u"_a, "h0"_a, "lengths"_a, "states"_a, "saved"_a,
           "cells"_a, "d_states"_a, "d_last_h"_a, "d_last_c"_a, "d_x"_a, "d_w"_a, "d_u"_a, "d_b"_a, "d_h0"_a, "d_c0"_a,
           "workspace"_a, "d_b_hh"_a, "stream"_a, free, "Addresses; 0 is null.");
}

}  // namespace paoding::python
