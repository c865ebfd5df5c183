// SPDX-License-Identifier: Apache-2.0
// Extents with names, their buckets, graph text that declares some, and tensors that are padded to a bucket.
#include "paoding/extents.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>

#include "arrays.h"
#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "paoding/error.h"
#include "paoding/graph_text.h"

namespace paoding::python {
namespace {

using namespace nb::literals;

// Python has indices besides int: NumPy's integers.
std::int64_t whole_of(nb::handle object, const std::string& name) {
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  std::int64_t size = 0;
  if (index.is_valid() && nb::try_cast(index, size)) return size;
  PyErr_Clear();
  throw Error(ErrorKind::argument, name + " is " + text_of(nb::repr(object)) + ", needed is an integer");
}

Sizes sizes_of(const nb::kwargs& given) {
  std::vector<Sizes::Entry> entries;
  for (auto [key, value] : given) {
    const std::string name = name_of(key, "the name of an extent");
    entries.push_back({name, whole_of(value, name)});
  }
  return Sizes(std::move(entries));
}

nb::dict dict_of_sizes(const Extents& extents, const Extents::Key& key) {
  nb::dict sizes;
  for (std::size_t i = 0; i < key.size(); ++i) sizes[extents.specs()[i].name.c_str()] = key[i];
  return sizes;
}

std::size_t position_of(const Extents& extents, const std::string& name) {
  const int at = extents.index_of(name);
  if (at >= 0) return static_cast<std::size_t>(at);
  throw Error(ErrorKind::argument, "there is no extent '" + name + "'; the extents are: " + extents.text());
}

// None, (minimum, maximum), (minimum, maximum, buckets), or buckets.
ExtentSpec spec_of(const std::string& name, nb::handle given) {
  ExtentSpec spec{name};
  if (given.is_none()) return spec;
  if (nb::isinstance<Buckets>(given)) {
    spec.buckets = nb::cast<Buckets>(given);
    return spec;
  }
  const bool is_tuple = nb::isinstance<nb::tuple>(given) || nb::isinstance<nb::list>(given);
  const std::size_t count = is_tuple ? nb::len(given) : 0;
  if (count != 2 && count != 3) {
    throw Error(ErrorKind::argument, "extents: " + name + " is " + text_of(nb::repr(given)) +
                                         ", needed is (minimum, maximum), (minimum, maximum, buckets), buckets or "
                                         "None");
  }
  spec.minimum = whole_of(given[0], "the minimum of " + name);
  spec.maximum = given[1].is_none() ? ExtentSpec::kNoMaximum : whole_of(given[1], "the maximum of " + name);
  if (count == 3 && !given[2].is_none() && !nb::try_cast(given[2], spec.buckets)) {
    throw Error(ErrorKind::argument, "extents: the buckets of " + name + " are " + text_of(nb::repr(given[2])) +
                                         ", needed is pd.multiples_of(n), pd.powers_of_two(), pd.bucket_sizes(list) "
                                         "or pd.buckets_by(function)");
  }
  return spec;
}

Extents extents_of(nb::handle given) {
  std::vector<ExtentSpec> specs;
  for (nb::handle key : given) {
    const std::string name = name_of(key, "the name of an extent");
    specs.push_back(spec_of(name, given[key]));
  }
  return Extents(std::move(specs));
}

// Along each axis as many elements are copied as both have.
void copy_common(const std::byte* from, const Shape& from_shape, std::byte* to, const Shape& to_shape, int axis,
                 std::int64_t element) {
  const std::int64_t count = std::min(from_shape[axis], to_shape[axis]);
  if (axis + 1 == from_shape.rank()) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count * element));
    return;
  }
  std::int64_t from_step = element, to_step = element;
  for (int inner = axis + 1; inner < from_shape.rank(); ++inner) {
    from_step *= from_shape[inner];
    to_step *= to_shape[inner];
  }
  for (std::int64_t i = 0; i < count; ++i) {
    copy_common(from + i * from_step, from_shape, to + i * to_step, to_shape, axis + 1, element);
  }
}

// The array with another extent along each axis: cut at the end, or followed by `fill`.
Tensor resized(nb::object array, nb::object dtype, nb::object shape, double fill, const std::string& name,
               bool strict) {
  const ArrayName given{"input", name};
  const Tensor from = dtype.is_none() ? tensor_of(array, std::nullopt, given)
                                      : feed_of(array, dtype_of(dtype), nullptr, given, strict, nullptr);
  const Shape to_shape = shape_of(shape);
  if (from.shape().rank() != to_shape.rank()) {
    throw Error(ErrorKind::shape, "input '" + name + "' is " + to_string(from.type()) + ", needed are " +
                                      std::to_string(to_shape.rank()) + " axes");
  }
  if (from.shape() == to_shape) return from;
  Tensor to(from.dtype(), to_shape);
  if (to.size_bytes() == 0) return to;
  const std::int64_t element = size_bytes(from.dtype());
  bool is_longer = false;
  for (int axis = 0; axis < to_shape.rank(); ++axis) is_longer = is_longer || to_shape[axis] > from.shape()[axis];
  if (is_longer) {
    const Tensor one = Tensor::from(from.dtype(), {}, std::vector<double>{fill});
    for (std::int64_t at = 0; at < to.size_bytes(); at += element) {
      std::memcpy(to.bytes() + at, one.bytes(), static_cast<std::size_t>(element));
    }
  }
  copy_common(from.bytes(), from.shape(), to.bytes(), to_shape, 0, element);
  return to;
}

void bind_buckets(nb::module_& module) {
  nb::class_<Buckets>(module, "Buckets",
                      "The sizes that programs are made for: a rule from a size to its bucket, which is no smaller.");
  module.def("multiples_of", &multiples_of, "n"_a, "Buckets: the next multiple of n, at most the extent's maximum.");
  module.def("powers_of_two", &powers_of_two, "Buckets: the next of 0, 1, 2, 4 .., at most the extent's maximum.");
  module.def(
      "bucket_sizes", [](nb::object sizes) { return bucket_sizes(integers_of(sizes, "bucket_sizes: sizes")); },
      "sizes"_a, nb::sig("def bucket_sizes(sizes: collections.abc.Sequence[int]) -> Buckets"),
      "Buckets: the next of these, which ascend. A size above the last has none.");
  module.def(
      "buckets_by",
      [](nb::object function) {
        if (PyCallable_Check(function.ptr()) == 0) {
          throw Error(ErrorKind::argument, "buckets_by: " + text_of(nb::repr(function)) + " is no function");
        }
        return buckets_by([function](std::int64_t size) {
          return whole_of(function(size), "the bucket of " + std::to_string(size));
        });
      },
      "function"_a, nb::sig("def buckets_by(function: collections.abc.Callable[[int], int]) -> Buckets"),
      "Buckets: function(size), which is no smaller and within the extent's bounds.");
}

void bind_graph_text(nb::module_& module) {
  nb::class_<GraphText>(module, "GraphText",
                        "A graph's text that may declare extents: a graph at every size "
                        "(docs/reference/graph_text.md). FileError with line and column.")
      .def(
          "__init__", [](GraphText* self, const std::string& text) { new (self) GraphText(text); }, "text"_a)
      .def_prop_ro("extents", &GraphText::extents, nb::sig("def extents(self) -> Extents"))
      .def("__str__", &GraphText::text)
      .def(
          "at",
          [](const GraphText& self, const nb::kwargs& sizes) {
            return GraphHandle{std::make_shared<GraphOwner>(self.at(sizes_of(sizes)))};
          },
          nb::sig("def at(self, **sizes: int) -> Graph"), "The graph at these sizes.");
}

}  // namespace

void bind_extents(nb::module_& module) {
  bind_buckets(module);
  nb::class_<Extents>(module, "Extents", "The extents of a shape class by name, with their bounds and buckets.")
      .def(
          "__init__", [](Extents* self, nb::handle extents) { new (self) Extents(extents_of(extents)); }, "extents"_a,
          nb::sig("def __init__(self, extents: collections.abc.Mapping[str, ExtentLike]) -> None"),
          "By name: (minimum, maximum), (minimum, maximum, buckets), buckets, or None for 1 or more.")
      .def_prop_ro("names",
                   [](const Extents& self) {
                     std::vector<std::string> names;
                     for (const ExtentSpec& spec : self.specs()) names.push_back(spec.name);
                     return names;
                   })
      .def(
          "bounds",
          [](const Extents& self, const std::string& name) {
            const ExtentSpec& spec = self.specs()[position_of(self, name)];
            const bool has_end = spec.maximum != ExtentSpec::kNoMaximum;
            return nb::make_tuple(spec.minimum, has_end ? nb::object(nb::int_(spec.maximum)) : nb::none());
          },
          "name"_a, nb::sig("def bounds(self, name: str) -> tuple[int, int | None]"),
          "The minimum and the maximum; None where there is no maximum.")
      .def(
          "bucket_of",
          [](const Extents& self, const nb::kwargs& sizes) {
            return dict_of_sizes(self, self.bucket_of(sizes_of(sizes)));
          },
          nb::sig("def bucket_of(self, **sizes: int) -> dict[str, int]"),
          "The sizes of the program that runs these. ShapeError: a size that the class does not hold; ArgumentError: "
          "names that are unknown or missing.")
      .def(
          "buckets", [](const Extents& self, const std::string& name) { return self.buckets(position_of(self, name)); },
          "name"_a, "All buckets of an extent, ascending.")
      .def(
          "every_bucket",
          [](const Extents& self) {
            nb::list all;
            for (const Extents::Key& key : self.every_bucket()) all.append(dict_of_sizes(self, key));
            return all;
          },
          nb::sig("def every_bucket(self) -> list[dict[str, int]]"), "Every combination of buckets.")
      .def("__len__", [](const Extents& self) { return self.specs().size(); })
      .def(
          "__deepcopy__", [](nb::object self, nb::handle /*memo*/) { return self; }, "memo"_a,
          nb::sig("def __deepcopy__(self, memo: typing.Any) -> Extents"))  // which never changes
      .def("__repr__", [](const Extents& self) { return "Extents: " + self.text(); });
  bind_graph_text(module);
  module.def("resized", &resized, "array"_a, "dtype"_a.none(), "shape"_a, "fill"_a, "name"_a, "strict"_a = false,
             nb::sig("def resized(array: object, dtype: DType | str | None, shape: collections.abc.Sequence[int], "
                     "fill: float, name: str, strict: bool = False) -> Tensor"),
             "A tensor with other extents: cut at the end of each axis, or followed by `fill`.");
}

}  // namespace paoding::python
