// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention_form.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/kernel.h"

namespace paoding {
namespace {

// Takes optional inputs in their order.
class OptionalTypes {
 public:
  OptionalTypes(const OpCall& call, std::size_t first) : call_(call), next_(first) {}

  int take(const char* name) { return call_.attrs.get_bool(name) ? next(name) : -1; }
  int next(const char* name) {
    if (next_ >= call_.inputs.size()) call_.fail(ErrorKind::argument, fmt::format("{} is missing", name));
    return static_cast<int>(next_++);
  }
  void end() const {
    if (next_ == call_.inputs.size()) return;
    call_.fail(ErrorKind::argument,
               fmt::format("there are {} inputs, and attributes name {} of them", call_.inputs.size(), next_));
  }

 private:
  const OpCall& call_;
  std::size_t next_;
};

void check_broadcasts(const OpCall& call, int input, const char* name, const Shape& to, const char* kinds,
                      bool is_right_kind) {
  const Type& type = call.inputs[static_cast<std::size_t>(input)];
  Shape joint;
  if (is_right_kind && broadcast(type.shape, to, &joint) && joint == to) return;
  call.fail(ErrorKind::shape,
            fmt::format("{} is {}, needed is {} that broadcasts to {}", name, to_string(type), kinds, to_string(to)));
}

void check_type(const OpCall& call, std::size_t input, const Type& needed) {
  const Type& type = call.inputs[input];
  if (type == needed) return;
  call.fail(type.shape == needed.shape ? ErrorKind::dtype : ErrorKind::shape,
            fmt::format("{} is {}, needed is {}", call.op.inputs[input], to_string(type), to_string(needed)));
}

// Log-sum-exp is wide; 16 bits of it serve too.
void check_logs(const OpCall& call, std::size_t input, const char* name, const Shape& rows, const AttentionForm& form) {
  const Type& type = call.inputs[input];
  if (type.shape == rows && (type.dtype == form.wide || type.dtype == form.dtype)) return;
  call.fail(type.shape == rows ? ErrorKind::dtype : ErrorKind::shape,
            fmt::format("{} is {}, needed is {}", name, to_string(type), to_string(Type{form.wide, rows})));
}

bool have_right_shapes(const Shape& q, const Shape& k, const Shape& v) {
  const int rank = q.rank();
  if (rank < 2 || k.rank() != rank || v.rank() != rank) return false;
  if (q[rank - 1] != k[rank - 1] || k[rank - 2] != v[rank - 2]) return false;
  for (int axis = 0; axis < rank - 2; ++axis) {
    if (k[axis] != v[axis]) return false;
    const bool is_heads = axis == rank - 3;
    if (is_heads ? k[axis] == 0 ? q[axis] != 0 : q[axis] % k[axis] != 0 : q[axis] != k[axis]) return false;
  }
  return true;
}

}  // namespace

std::int64_t AttentionForm::first_key(std::int64_t t) const {
  return left < 0 ? 0 : std::clamp<std::int64_t>(t + offset - left, 0, keys);
}

std::int64_t AttentionForm::end_key(std::int64_t t) const {
  return right < 0 ? keys : std::clamp<std::int64_t>(t + offset + right + 1, 0, keys);
}

bool AttentionForm::may_be_blind() const {
  if (keys == 0 || bias >= 0 || mask >= 0 || lengths >= 0) return true;
  return queries > 0 && (first_key(0) >= end_key(0) || first_key(queries - 1) >= end_key(queries - 1));
}

AttentionForm attention_form(const OpCall& call, bool is_gradient) {
  const Type &q = call.inputs[kQ], &k = call.inputs[kK], &v = call.inputs[kV];
  if (!is_float(q.dtype) || k.dtype != q.dtype || v.dtype != q.dtype) {
    call.fail(ErrorKind::dtype, fmt::format("q is {}, k {}, v {}; needed are floats of one dtype", to_string(q.dtype),
                                            to_string(k.dtype), to_string(v.dtype)));
  }
  if (!have_right_shapes(q.shape, k.shape, v.shape)) {
    call.fail(ErrorKind::shape,
              fmt::format("queries have shape {}, keys {}, values {}; needed are [.., H, T, E], [.., K, S, E], [.., K, "
                          "S, F], where K divides H",
                          to_string(q.shape), to_string(k.shape), to_string(v.shape)));
  }
  AttentionForm form{};
  const int rank = q.shape.rank();
  form.batch = 1;
  for (int axis = 0; axis < rank - 3; ++axis) form.batch *= q.shape[axis];
  form.heads = rank > 2 ? q.shape[rank - 3] : 1;
  form.key_heads = rank > 2 ? k.shape[rank - 3] : 1;
  form.queries = q.shape[rank - 2], form.keys = k.shape[rank - 2];
  form.width = q.shape[rank - 1], form.value_width = v.shape[rank - 1];
  form.dtype = q.dtype, form.wide = compute_dtype(q.dtype);
  form.scale = call.attrs.get_float("scale");
  form.left = call.attrs.get_int("left"), form.right = call.attrs.get_int("right");
  form.offset = call.attrs.get_bool("bottom_right") ? form.keys - form.queries : 0;
  form.dropout = call.attrs.get_float("dropout"), form.stream = call.attrs.get_int("stream");
  if (!std::isfinite(form.scale)) call.fail(ErrorKind::argument, fmt::format("scale = {}", form.scale));
  if (form.left < -1 || form.right < -1) {
    call.fail(ErrorKind::argument,
              fmt::format("left = {}, right = {}; they are counts of keys, or -1 for all", form.left, form.right));
  }
  if (!(form.dropout >= 0 && form.dropout < 1)) {
    call.fail(ErrorKind::argument, fmt::format("dropout: probability = {}, needs to be in [0, 1)", form.dropout));
  }
  // A window that is wider than all there is is none; sums with positions cannot overflow then.
  const std::int64_t all = form.queries + form.keys;
  if (form.left > all) form.left = -1;
  if (form.right > all) form.right = -1;

  const Shape rows = q.shape.with_removed(rank - 1), lead = rows.with_removed(rank - 2);
  const Shape scores = q.shape.with_dim(rank - 1, form.keys);
  if (is_gradient) {
    const Type result{q.dtype, q.shape.with_dim(rank - 1, form.value_width)};
    check_type(call, kResult, result), check_type(call, kDResult, result);
    check_logs(call, kLse, "lse", rows, form);
  }
  OptionalTypes optional(call, is_gradient ? kLse + 1 : kV + 1);
  const auto dtype_of = [&](int input) { return call.inputs[static_cast<std::size_t>(input)].dtype; };
  if (is_gradient) form.dlse = optional.take("dlse");
  if (form.dlse >= 0) check_logs(call, static_cast<std::size_t>(form.dlse), "dlse", rows, form);
  form.bias = optional.take("bias");
  if (form.bias >= 0) check_broadcasts(call, form.bias, "bias", scores, "a float", is_float(dtype_of(form.bias)));
  form.mask = optional.take("mask");
  if (form.mask >= 0) check_broadcasts(call, form.mask, "mask", scores, "a bool", dtype_of(form.mask) == boolean);
  form.lengths = optional.take("lengths");
  if (form.lengths >= 0) {
    check_broadcasts(call, form.lengths, "lengths", lead, "an i32 or i64",
                     dtype_of(form.lengths) == i32 || dtype_of(form.lengths) == i64);
  }
  form.slopes = optional.take("slopes");
  if (form.slopes >= 0) check_broadcasts(call, form.slopes, "slopes", lead, "a float", is_float(dtype_of(form.slopes)));
  if (form.dropout > 0) {
    form.random = optional.next("first");
    for (const char* name : {"run", "seed"}) optional.next(name);
    for (int k = form.random; k < form.random + 3; ++k) {
      if (call.inputs[static_cast<std::size_t>(k)] == Type{i64, {}}) continue;
      call.fail(ErrorKind::dtype, fmt::format("first, run and seed of dropout are i64[], one is {}",
                                              to_string(call.inputs[static_cast<std::size_t>(k)])));
    }
  }
  optional.end();
  return form;
}

AttentionForm attention_form(const KernelCall& call, bool is_gradient) {
  std::vector<Type> types;
  for (const Layout& input : call.inputs) types.push_back(input.type);
  return attention_form(OpCall{*call.op, types, call.attrs, {}, Name(call.scope)}, is_gradient);
}

}  // namespace paoding
