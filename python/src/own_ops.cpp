// SPDX-License-Identifier: Apache-2.0
// Ops that a program in Python registers: formulas of scalars, and compositions with a gradient and a CUDA kernel of
// their own. The library calls the functions of Python when a graph is built, differentiated or compiled, on any
// thread. Users see paoding/own_ops.py.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "calls.h"
#include "gil.h"
#include "paoding/autodiff.h"
#include "paoding/cuda_op.h"
#include "paoding/error.h"
#include "paoding/op.h"
#include "scalars.h"

namespace paoding::python {
namespace {

using namespace nb::literals;

/// A function of Python that the op table has as long as the process: it is never freed.
class PythonFunction {
 public:
  explicit PythonFunction(nb::object function) : held_(new nb::object(std::move(function))) {}
  bool is_there() const { return !held_->is_none(); }
  template <class... Arguments>
  nb::object operator()(Arguments&&... arguments) const {
    return (*held_)(std::forward<Arguments>(arguments)...);
  }

 private:
  nb::object* held_;
};

// The kind of an attribute is that of its default.
AttrValue attr_of_default(const std::string& op, const std::string& name, nb::handle given) {
  if (PyBool_Check(given.ptr()) != 0) return nb::cast<bool>(given);
  if (PyLong_Check(given.ptr()) != 0) return nb::cast<std::int64_t>(given);
  if (PyFloat_Check(given.ptr()) != 0) return nb::cast<double>(given);
  if (PyUnicode_Check(given.ptr()) != 0) return name_of(given, op + ": " + name);
  std::vector<std::int64_t> whole;
  if (nb::try_cast(given, whole) && !whole.empty()) return whole;
  std::vector<double> real;
  if (nb::try_cast(given, real)) return real;
  throw Error(ErrorKind::argument, op + ": '" + name + "' has the default " + text_of(nb::repr(given)) +
                                       ", needed is a bool, an int, a float, a str or a list of numbers");
}

nb::dict keywords_of(const Attrs& attrs) {
  nb::dict made;
  for (const auto& [name, value] : attrs.entries()) {
    std::visit(
        [&, key = name.c_str()](const auto& held) {
          using Held = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<Held, std::vector<std::int64_t>> || std::is_same_v<Held, std::vector<double>>) {
            made[key] = nb::tuple(nb::cast(held));
          } else {
            made[key] = nb::cast(held);
          }
        },
        value);
  }
  return made;
}

OpDef own_op(const std::string& name, const std::string& summary, OpKind kind, const std::vector<std::string>& inputs,
             const nb::dict& defaults) {
  OpDef op;
  op.name = name;
  op.summary = summary;
  op.kind = kind;
  op.inputs = inputs;
  for (auto [key, value] : defaults) {
    const std::string attr = name_of(key, name + ": the name of an attribute");
    op.attrs.push_back({.name = attr, .example = attr_of_default(name, attr, value)});
  }
  return op;
}

// Checks the Values that a function of Python gives back for a graph that the library is writing.
Values given_back(const std::string& op, const char* what, const nb::object& made, Graph& home, std::size_t wanted) {
  Values values;
  const nb::object list =
      nb::isinstance<nb::tuple>(made) || nb::isinstance<nb::list>(made) ? made : nb::object(nb::make_tuple(made));
  for (nb::handle each : list) {
    if (each.is_none()) {
      values.emplace_back();
    } else if (nb::isinstance<ValueHandle>(each)) {
      const Value value = nb::cast<ValueHandle&>(each);
      if (&value.graph() != &home && !value.graph().encloses(home)) {
        throw Error(ErrorKind::argument, op + ": " + what +
                                             " uses a Value from outside of the function\n"
                                             "hint: give it to the function as an argument");
      }
      values.push_back(value);
    } else {
      throw Error(ErrorKind::argument, op + ": " + what + " gave " + text_of(nb::repr(each)) +
                                           ", needed are Values, or None for no gradient");
    }
  }
  if (wanted > 0 && values.size() != wanted) {
    throw Error(ErrorKind::argument, op + ": " + what + " gave " + std::to_string(values.size()) +
                                         " values, needed are " + std::to_string(wanted) + ", one for each input");
  }
  return values;
}

nb::list maybe_handles(const Values& values) {
  nb::list made;
  for (const Value& value : values) {
    value.valid() ? made.append(wrap(value)) : made.append(nb::none());
  }
  return made;
}

Formula formula_of(const std::string& name, PythonFunction function, std::size_t count) {
  return [=](std::span<const Scalar> in, const Attrs& attrs) -> Scalar {
    const WithGil gil;
    return call_python([&] {
      nb::list arguments;
      for (std::size_t i = 0; i < count; ++i) arguments.append(nb::cast(in[i]));
      const nb::object made = function(*arguments, **keywords_of(attrs));
      if (nb::isinstance<Scalar>(made)) return nb::cast<Scalar>(made);
      if (is_number(made)) return in[0].constant(number_of(made).real());
      throw Error(ErrorKind::argument, name + ": its formula gave " + text_of(nb::repr(made)) +
                                           ", needed is what it computes of its arguments");
    });
  };
}

std::function<Values(const GradCall&)> gradient_rule_of(const std::string& name, PythonFunction function) {
  return [=](const GradCall& call) {
    const WithGil gil;
    return call_python([&] {
      const BodyFrame frame(&call.graph);
      const std::size_t inputs = call.node.inputs.size(), outputs = call.node.types.size();
      const Values in(call.inputs.begin(), call.inputs.begin() + static_cast<std::ptrdiff_t>(inputs));
      const Values out(call.outputs.begin(), call.outputs.begin() + static_cast<std::ptrdiff_t>(outputs));
      const Values grads(call.grads.begin(), call.grads.begin() + static_cast<std::ptrdiff_t>(outputs));
      const nb::object made =
          function(maybe_handles(in), maybe_handles(out), maybe_handles(grads), keywords_of(call.node.attrs));
      Values values = given_back(name, "its gradient", made, call.graph, inputs);
      for (std::size_t i = 0; i < inputs; ++i) {
        if (!values[i].valid() || values[i].shape() == in[i].shape()) continue;
        Shape both;
        if (broadcast(values[i].shape(), in[i].shape(), &both) && both == values[i].shape())
          continue;  // summed by the driver
        throw Error(ErrorKind::shape, name + ": its gradient for input " + std::to_string(i) + " is " +
                                          to_string(values[i].type()) + ", the input is " + to_string(in[i].type()));
      }
      return values;
    });
  };
}

CudaLaunch launch_of(const std::string& name, const PythonFunction& function, const CudaCall& call) {
  const WithGil gil;
  return call_python([&] {
    const auto types = [](const std::vector<Type>& all) {
      nb::list made;
      for (const Type& type : all) made.append(nb::make_tuple(type.dtype, tuple_of(type.shape)));
      return made;
    };
    const nb::object made = function(types(call.inputs), types(call.outputs), keywords_of(call.attrs));
    const nb::dict launch = dict_of(made, name + ": its launch");
    CudaLaunch result;
    for (auto [key, value] : launch) {
      const std::string field = name_of(key, name + ": a part of its launch");
      if (field == "call") {
        result.call = name_of(value, name + ": call");
      } else if (field == "sizes") {
        for (auto [size, number] : dict_of(value, name + ": sizes"))
          result.sizes.emplace_back(name_of(size, name + ": a size"), nb::cast<std::int64_t>(number));
      } else if (field == "ctas") {
        result.ctas = nb::cast<std::int64_t>(value);
      } else if (field == "threads") {
        result.threads = nb::cast<int>(value);
      } else if (field == "shared_bytes") {
        result.shared_bytes = nb::cast<std::int64_t>(value);
      } else {
        throw Error(ErrorKind::argument,
                    name + ": its launch has '" + field + "'; it has call, sizes, ctas, threads and shared_bytes");
      }
    }
    return result;
  });
}

void register_own_formula(const std::string& name, const std::string& summary, const std::vector<std::string>& inputs,
                          const nb::dict& defaults, nb::object function, nb::object gradient) {
  OpDef op = own_op(name, summary, OpKind::formula, inputs, defaults);
  op.formula = formula_of(name, PythonFunction(std::move(function)), inputs.size());
  const PythonFunction rule(std::move(gradient));
  if (rule.is_there()) op.gradient = gradient_rule_of(name, rule);
  register_op(std::move(op));
}

void register_own_composition(const std::string& name, const std::string& summary,
                              const std::vector<std::string>& inputs, const nb::dict& defaults, nb::object function,
                              nb::object gradient) {
  OpDef op = own_op(name, summary, OpKind::composed, inputs, defaults);
  const PythonFunction compose(std::move(function)), rule(std::move(gradient));
  op.compose = [=, count = inputs.size()](std::span<const Value> in, const Attrs& attrs) -> Values {
    const WithGil gil;
    return call_python([&] {
      Graph& home = in[0].graph();
      const BodyFrame frame(&home);
      const Values given(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(count));
      const std::size_t before = home.parameters().size();
      const nb::list arguments = maybe_handles(given);
      const nb::object made = compose(*arguments, **keywords_of(attrs));
      if (home.parameters().size() != before) {
        throw Error(ErrorKind::argument, name +
                                             ": the function declares parameters, which an op cannot have\n"
                                             "hint: make the layer outside, and give its weights as arguments");
      }
      return given_back(name, "the function", made, home, 0);
    });
  };
  op.gradient = gradient_rule_of(name, rule);
  register_op(std::move(op));
}

void register_own_kernel(const std::string& op, const std::string& file, int line, const std::string& source,
                         nb::object launch) {
  const PythonFunction function(std::move(launch));
  register_cuda_kernel(op, {.name = op, .text = CudaText(file, line, source), .launch = [=](const CudaCall& call) {
                              return launch_of(op, function, call);
                            }});
}

}  // namespace

void bind_own_ops(nb::module_& module) {
  module.def("register_formula", &register_own_formula, "name"_a, "summary"_a, "inputs"_a, "defaults"_a, "function"_a,
             "gradient"_a = nb::none(),
             nb::sig("def register_formula(name: str, summary: str, inputs: collections.abc.Sequence[str], defaults: "
                     "dict[str, typing.Any], function: collections.abc.Callable[..., typing.Any], gradient: "
                     "collections.abc.Callable[..., typing.Any] | None = None) -> None"));
  module.def(
      "register_composition", &register_own_composition, "name"_a, "summary"_a, "inputs"_a, "defaults"_a, "function"_a,
      "gradient"_a,
      nb::sig("def register_composition(name: str, summary: str, inputs: collections.abc.Sequence[str], defaults: "
              "dict[str, typing.Any], function: collections.abc.Callable[..., typing.Any], gradient: "
              "collections.abc.Callable[..., typing.Any]) -> None"));
  module.def("register_kernel", &register_own_kernel, "op"_a, "file"_a, "line"_a, "source"_a, "launch"_a,
             nb::sig("def register_kernel(op: str, file: str, line: int, source: str, launch: "
                     "collections.abc.Callable[..., dict[str, typing.Any]]) -> None"));
}

}  // namespace paoding::python
