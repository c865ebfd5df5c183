// SPDX-License-Identifier: Apache-2.0
// DeviceTensor as Python has it: an array on a GPU, which PyTorch, JAX and CuPy read where it is.
#include "paoding/device_tensor.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "arrays.h"
#include "elements.h"
#include "interrupts.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

using MaybeDevice = std::optional<std::pair<int, int>>;

// Streams as DLPack numbers them; they are the driver's own handles too.
constexpr std::intptr_t kNotOrdered = -1, kLegacy = 1, kPerThread = 2;

nb::object on_host(const DeviceTensor& self) {
  return nb::cast(run_freely([&] { return self.to_host(); }));
}

void* stream_of(std::optional<std::intptr_t> given) {
  const std::intptr_t stream = given.value_or(kLegacy);
  if (stream == 0 || stream < kNotOrdered) {
    throw Error(ErrorKind::argument, "__dlpack__: " + std::to_string(stream) +
                                         " is no stream: 1 is the legacy default one, 2 that of the thread");
  }
  // A consumer that wants no order may read in any stream; this one says as little about it.
  return reinterpret_cast<void*>(stream == kNotOrdered ? kPerThread : stream);
}

nb::object capsule_of(nb::handle object, std::optional<std::intptr_t> stream, nb::object max_version,
                      const MaybeDevice& device, nb::object copy) {
  const auto& self = nb::cast<const DeviceTensor&>(object);
  if (device && device->first == nb::device::cpu::value) {
    return on_host(self).attr("__dlpack__")(nb::arg("max_version") = max_version);
  }
  void* const consumer = stream_of(stream);
  run_freely([&] { self.make_wait(consumer); });
  std::size_t extents[Shape::kMaxRank] = {};
  const auto rank = static_cast<std::size_t>(self.shape().rank());
  for (std::size_t axis = 0; axis < rank; ++axis) {
    extents[axis] = static_cast<std::size_t>(self.shape()[static_cast<int>(axis)]);
  }
  const nb::object array =
      nb::cast(nb::ndarray<nb::array_api>(self.address(), rank, extents, object, nullptr, dlpack_type(self.dtype()),
                                          nb::device::cuda::value, self.device().index));
  return array.attr("__dlpack__")(nb::arg("max_version") = max_version, nb::arg("dl_device") = device,
                                  nb::arg("copy") = copy);
}

// The method of the same name of the value on the host.
template <class... Options>
nb::object by_host(const DeviceTensor& self, const char* method, Options&&... options) {
  return on_host(self).attr(method)(std::forward<Options>(options)...);
}

}  // namespace

void bind_device_tensor(nb::module_& module) {
  nb::class_<DeviceTensor>(module, "DeviceTensor",
                           "A dense array in the memory of a GPU: a result that stays there. PyTorch, JAX and CuPy "
                           "read it where it is, by DLPack, after the run that makes it; programs take it as a feed.")
      .def_prop_ro("dtype", &DeviceTensor::dtype)
      .def_prop_ro(
          "shape", [](const DeviceTensor& self) { return tuple_of(self.shape()); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("ndim", [](const DeviceTensor& self) { return self.shape().rank(); })
      .def_prop_ro("size", [](const DeviceTensor& self) { return self.shape().elements(); })
      .def_prop_ro("nbytes", &DeviceTensor::size_bytes)
      .def_prop_ro("device", [](const DeviceTensor& self) { return to_string(self.device()); })
      .def("cpu", &on_host, nb::sig("def cpu(self) -> Tensor"),
           "A copy in the host's memory, once the run has made it.")
      .def(
          "numpy", [](const DeviceTensor& self) { return by_host(self, "numpy"); },
          nb::sig("def numpy(self) -> NDArray[typing.Any]"), "cpu() as a NumPy array.")
      .def(
          "item", [](const DeviceTensor& self) { return by_host(self, "item"); },
          nb::sig("def item(self) -> int | float | bool"), "Its one element. ShapeError when it has not one.")
      .def(
          "tolist", [](const DeviceTensor& self) { return by_host(self, "tolist"); },
          nb::sig("def tolist(self) -> typing.Any"))
      .def(
          "__array__",
          [](const DeviceTensor& self, nb::object dtype, nb::object copy) {
            return by_host(self, "__array__", dtype, copy);
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
          nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> NDArray[typing.Any]"))
      .def("__dlpack__", &capsule_of, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing.Any"))
      .def(
          "__dlpack_device__",
          [](const DeviceTensor& self) { return nb::make_tuple(nb::device::cuda::value, self.device().index); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__float__", [](const DeviceTensor& self) { return by_host(self, "__float__"); })
      .def("__int__", [](const DeviceTensor& self) { return by_host(self, "__int__"); })
      .def("__len__",
           [](const DeviceTensor& self) {
             if (self.shape().rank() > 0) return self.shape()[0];
             throw Error(ErrorKind::shape, "len: the tensor is a scalar");
           })
      .def("__repr__", [](const DeviceTensor& self) {
        return "DeviceTensor(" + to_string(self.type()) + " on " + to_string(self.device()) + ")";
      });
}

}  // namespace paoding::python
