// SPDX-License-Identifier: Apache-2.0
// Arrays of others, by the buffer protocol or DLPack, as Tensors in the same memory.
#include "arrays.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>

#include "conversion.h"
#include "dlpack.h"
#include "elements.h"
#include "gil.h"
#include "paoding/can_hold.h"
#include "paoding/error.h"
#include "paoding/profile.h"

namespace paoding::python {
namespace {

[[noreturn]] void refuse(ErrorKind kind, const std::string& message) { throw Error(kind, message); }

// The dtype of elements in native byte order; 'l' is i64 where a long is.
std::optional<DType> dtype_of_format(const char* format, std::int64_t size) {
  if (format == nullptr) return DType::u8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  const char letter = *format;
  const bool is_signed = std::strchr("bhilq", letter) != nullptr;
  if (is_signed && size == 8) return DType::i64;
  if (is_signed && size == 4) return DType::i32;
  for (const Element& element : kElements) {
    if (element.format != nullptr && !is_signed && *element.format == letter) return element.dtype;
  }
  return std::nullopt;
}

// Given back under the GIL, whichever thread is the last to have it.
struct HeldBuffer {
  Py_buffer view;
  void operator()(std::byte* /*bytes*/) {
    const WithGil gil;
    if (gil.is_held()) PyBuffer_Release(&view);
  }
};

struct HostArray {
  StridedArray array;
  bool is_read_only = false;
};

Tensor dense_tensor(const StridedArray& array, const ArrayName& name) {
  check_dense(array.type.shape, array.strides.data(), size_bytes(array.type.dtype), name);
  return {array.type, array.memory};
}

// In memory of its own where it is not dense.
Tensor dense(const StridedArray& array, const ArrayName& name) {
  return array.is_dense() ? Tensor(array.type, array.memory) : converted(array, array.type.dtype, name);
}

// Nothing where it has no buffer, or one of a format that only its other faces can tell (bf16). With `is_any` nothing
// also for elements of no dtype.
std::optional<HostArray> from_buffer(nb::handle object, const ArrayName& name, bool is_any = false) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return std::nullopt;
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw nb::python_error();  // an interrupt
    PyErr_Clear();
    return std::nullopt;
  }
  const std::shared_ptr<std::byte> memory(static_cast<std::byte*>(view.buf), HeldBuffer{view});
  const std::optional<DType> dtype = dtype_of_format(view.format, view.itemsize);
  if (!dtype || size_bytes(*dtype) != view.itemsize) {
    if (is_any) return std::nullopt;
    const std::string format = view.format == nullptr ? "B" : view.format;
    refuse(ErrorKind::dtype, name.text() + ": its elements, of format '" + format + "', are of no dtype");
  }
  if (view.ndim > Shape::kMaxRank) refuse(ErrorKind::shape, name.text() + ": has more than 8 axes");
  std::int64_t extents[Shape::kMaxRank] = {};
  std::copy_n(view.shape, view.ndim, extents);
  const Shape shape(std::span<const std::int64_t>(extents, static_cast<std::size_t>(view.ndim)));
  HostArray made{{{*dtype, shape}, {}, memory}, view.readonly != 0};
  if (view.strides != nullptr) {
    std::copy_n(view.strides, view.ndim, made.array.strides.begin());
  } else {
    made.array.strides = dense_strides(shape);
    for (std::int64_t& stride : made.array.strides) stride *= view.itemsize;
  }
  return made;
}

std::optional<HostArray> from_dlpack(nb::handle object, const ArrayName& name) {
  if (!nb::hasattr(object, "__dlpack__")) return std::nullopt;
  const DlpackArray array = take_dlpack(object, std::nullopt, name);
  if (array.device.device_type != nb::device::cpu::value && array.device.device_type != nb::device::cuda_host::value) {
    refuse(ErrorKind::argument, name.text() + ": it is not in the host's memory\nhint: tensor.cpu()");
  }
  static std::byte nothing[1];
  auto* bytes = static_cast<std::byte*>(array.memory.get());
  HostArray made{{array.type, array.strides, {array.memory, bytes == nullptr ? nothing : bytes}}, array.is_read_only};
  for (std::int64_t& stride : made.array.strides) stride *= size_bytes(array.type.dtype);
  return made;
}

const char* numpy_name(DType dtype) {
  constexpr const char* names[] = {"float64", "float32", "float16", "float32", "int64", "int32", "uint8", "bool"};
  return names[static_cast<std::size_t>(dtype)];
}

// Numbers of a list, none of which has another value than it is written with.
Tensor exactly(const Tensor& made, DType wanted, const ArrayName& name) {
  if (made.dtype() == wanted) return made;
  const std::vector<double> values = made.to_doubles();
  const std::int64_t* whole = made.dtype() == DType::i64 ? made.data<std::int64_t>() : nullptr;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (can_hold(wanted, values[i])) continue;
    const nb::object value = whole != nullptr ? nb::object(nb::int_(whole[i])) : nb::object(nb::float_(values[i]));
    refuse(ErrorKind::dtype, name.text() + (made.shape().rank() == 0 ? "" : ": its element " + std::to_string(i)) +
                                 " is " + text_of(nb::repr(value)) + ", which " + std::string(to_string(wanted)) +
                                 " cannot hold");
  }
  return Tensor::from(wanted, made.shape(), values);
}

// An array of NumPy's whose elements are numbers of no dtype (i16, u32, of another byte order, Python's), as one whose
// are.
nb::object of_known_numbers(nb::object array, nb::handle given, const ArrayName& name) {
  if (nb::cast<std::string>(array.attr("dtype").attr("kind")) == "O") {  // of pandas, with columns of several dtypes
    array = nb::module_::import_("numpy").attr("asarray")(array.attr("tolist")());
  }
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  const int size = nb::cast<int>(array.attr("dtype").attr("itemsize"));
  if (kind == "u" && size == 8) {
    if (nb::cast<std::int64_t>(array.attr("size")) > 0 && nb::cast<double>(nb::float_(array.attr("max")())) >= 0x1p63) {
      refuse(ErrorKind::dtype, name.text() + ": has integers from 2^63 on, which no dtype holds");
    }
    return array.attr("astype")("int64");
  }
  if (kind == "b" || (kind == "u" && size == 1)) return array;
  if (kind == "i" || kind == "u") return array.attr("astype")(size == 4 && kind == "i" ? "int32" : "int64");
  if (kind == "f") return array.attr("astype")(size == 2 ? "float16" : size == 4 ? "float32" : "float64");
  refuse(ErrorKind::dtype, name.text() + ": " + type_name_of(given) + " has elements of NumPy's " +
                               printed(array.attr("dtype")) + ", which are of no dtype\nhint: array.astype(..)");
}

// Lists and numbers.
Tensor of_list(nb::handle object, std::optional<DType> wanted, const ArrayName& name) {
  const bool is_float_wanted = wanted && is_float(*wanted);
  nb::object array;
  try {
    const nb::object asarray = nb::module_::import_("numpy").attr("asarray");
    array = is_float_wanted ? asarray(object, numpy_name(*wanted)) : asarray(object);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) throw;
    refuse(ErrorKind::dtype, name.text() + ": " + type_name_of(object) + " is no array, nor a list of numbers (" +
                                 text_of(nb::str(error.value())) + ")");
  }
  if (is_float_wanted) {
    const Tensor made = dense(from_buffer(array, name)->array, name);
    return *wanted == DType::bf16 ? Tensor::from(DType::bf16, made.shape(), made.to_doubles()) : made;
  }
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  if (kind == "u" && nb::cast<int>(array.attr("dtype").attr("itemsize")) == 8) {
    refuse(ErrorKind::dtype, name.text() + ": has integers from 2^63 on, which no dtype holds");
  }
  if (kind == "O") {
    refuse(ErrorKind::dtype, name.text() + ": " + type_name_of(object) + " is no array, nor a list of numbers");
  }
  const bool is_empty = nb::cast<std::int64_t>(array.attr("size")) == 0;  // of f64, as no number says otherwise
  if (is_empty && wanted) array = array.attr("astype")(numpy_name(*wanted));
  const std::optional<HostArray> made = from_buffer(array, name);
  if (!made) refuse(ErrorKind::dtype, name.text() + ": its elements are of no dtype");
  const Tensor numbers = dense(made->array, name);
  return wanted ? exactly(numbers, *wanted, name) : numbers;
}

// Elements of NumPy's whose bf16 is a type of its own (ml_dtypes).
Tensor of_ml_dtypes(nb::handle object, const ArrayName& name) {
  nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object bits = numpy.attr("ascontiguousarray")(object).attr("view")("int16").attr("view")("uint8");
  const auto extents = nb::cast<std::vector<std::int64_t>>(object.attr("shape"));
  auto keep = std::make_shared<Tensor>(dense_tensor(from_buffer(bits, name)->array, name));
  return {{DType::bf16, Shape(std::span<const std::int64_t>(extents))}, {keep, keep->bytes()}};
}

HostArray host_array_of(nb::handle object, std::optional<DType> wanted, const ArrayName& name, bool is_any = false) {
  if (auto made = from_buffer(object, name, is_any)) return *std::move(made);
  // NumPy's, whose bf16 DLPack does not know; to ask others takes them an exception to say no.
  const bool is_numpys = PyObject_CheckBuffer(object.ptr()) != 0 && nb::hasattr(object, "__array_interface__");
  if (!is_numpys) {
    if (auto made = from_dlpack(object, name)) return *std::move(made);
  }
  if (nb::isinstance<ValueHandle>(object)) {
    throw nb::type_error((name.text() +
                          " is a Value, which has elements only while a program runs; needed is an array or numbers\n"
                          "hint: fetch the value, and give what the program's run returns for it")
                             .c_str());
  }
  if (nb::hasattr(object, "dtype") && printed(object.attr("dtype")) == "bfloat16") {
    return {StridedArray::of(of_ml_dtypes(object, name))};
  }
  if (is_any && nb::hasattr(object, "__array__")) {
    const nb::object array = nb::module_::import_("numpy").attr("asarray")(object);
    return *from_buffer(of_known_numbers(array, object, name), name);
  }
  return {StridedArray::of(of_list(object, wanted, name))};
}

// The facts about the library that an array belongs to.
struct Library {
  bool is_torch = false;
  nb::object cuda = nb::none();  // of PyTorch, of CuPy

  static Library of(nb::handle object) {
    const auto module = nb::cast<std::string>(object.type().attr("__module__"));
    if (module.starts_with("torch")) return {true, nb::module_::import_("torch").attr("cuda")};
    if (module.starts_with("cupy")) return {false, nb::module_::import_("cupy").attr("cuda")};
    return {};
  }
  bool is_capturing() const { return is_torch && nb::cast<bool>(cuda.attr("is_current_stream_capturing")()); }
  // The legacy default stream where it is not known.
  void* stream(int index) const {
    if (cuda.is_none()) return nullptr;
    const nb::object handle = is_torch ? cuda.attr("current_stream")(index).attr("cuda_stream")
                                       : cuda.attr("get_current_stream")().attr("ptr");
    return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(handle));
  }
};

// An error of a library that refuses has that library's words.
DlpackArray taken_in_stream(nb::handle object, void* stream, const ArrayName& name) {
  try {
    return take_dlpack(object, stream, name);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_BufferError) && !error.matches(PyExc_ValueError) && !error.matches(PyExc_RuntimeError)) {
      throw;
    }
    refuse(ErrorKind::argument, name.text() + ": " + text_of(nb::str(error.value())));
  }
}

}  // namespace

std::optional<DeviceArray> device_array_of(nb::handle object, const Device& device, void* stream,
                                           const ArrayName& name) {
  if (nb::isinstance<DeviceTensor>(object)) return DeviceArray{nb::cast<DeviceTensor&>(object), stream};
  // That it has the buffer protocol says nothing: JAX's and CuPy's arrays of a GPU have, and refuse.
  if (nb::isinstance<Tensor>(object) || !nb::hasattr(object, "__dlpack_device__")) return std::nullopt;
  std::pair<int, int> kind_and_index;
  const nb::object says = object.attr("__dlpack_device__")();
  if (!nb::try_cast(says, kind_and_index)) {
    throw nb::type_error((name.text() + ": its __dlpack_device__ gives " + text_of(nb::repr(says)) +
                          ", needed are the kind of a device and its number")
                             .c_str());
  }
  const auto [kind, index] = kind_and_index;
  if (kind == nb::device::cpu::value || kind == nb::device::cuda_host::value) return std::nullopt;
  if (kind != nb::device::cuda::value && kind != nb::device::cuda_managed::value) {
    refuse(ErrorKind::argument, name.text() + ": it is on a device of DLPack's kind " + std::to_string(kind) +
                                    ", the program on " + to_string(device));
  }
  const Device where = Device::cuda(index);
  if (!(where == device)) {
    refuse(ErrorKind::argument, name.text() + " is on " + to_string(where) + ", the program on " + to_string(device));
  }
  const Library library = Library::of(object);
  if (library.is_capturing()) {
    refuse(ErrorKind::argument, name.text() +
                                    ": a CUDA graph is being captured, which a Program's run cannot be part "
                                    "of\nhint: paoding.torch.function(graph) can");
  }
  const DlpackArray array = taken_in_stream(object, stream, name);
  check_dense(array.type.shape, array.strides.data(), 1, name);
  void* const goes_on = library.stream(index);
  return DeviceArray{DeviceTensor(array.type, where, array.memory), goes_on};
}

nb::tuple tuple_of(const Shape& shape) {
  return nb::tuple(nb::cast(std::vector<std::int64_t>(shape.begin(), shape.end())));
}

Tensor tensor_of(nb::handle object, std::optional<DType> wanted, const ArrayName& name, bool* is_read_only) {
  if (nb::isinstance<Tensor>(object)) return nb::cast<Tensor&>(object);
  const HostArray made = host_array_of(object, wanted, name);
  if (is_read_only != nullptr) *is_read_only = made.is_read_only;
  return dense_tensor(made.array, name);
}

Tensor dense_tensor_of(nb::handle object, std::optional<DType> wanted, const ArrayName& name) {
  if (nb::isinstance<Tensor>(object)) return nb::cast<Tensor&>(object);
  return dense(host_array_of(object, wanted, name).array, name);
}

Tensor feed_of(nb::handle object, DType wanted, const Shape* shape, const ArrayName& name, bool is_strict,
               Conversions* conversions) {
  const Tensor* given = nb::isinstance<Tensor>(object) ? nb::cast<Tensor*>(object) : nullptr;
  if (given != nullptr && given->dtype() == wanted) return *given;
  const HostArray made =
      given != nullptr ? HostArray{StridedArray::of(*given)} : host_array_of(object, wanted, name, !is_strict);
  const StridedArray& array = made.array;
  const bool is_dense = array.is_dense();
  if (array.type.dtype == wanted && is_dense) return {array.type, array.memory};
  if (shape != nullptr && !(array.type.shape == *shape)) {
    refuse(ErrorKind::shape, name.text() + " is " + to_string(Type{wanted, *shape}) + ", not " + to_string(array.type));
  }
  if (is_strict) {
    if (is_dense) {
      refuse(ErrorKind::dtype, name.text() + " is " + to_string(Type{wanted, array.type.shape}) + ", not " +
                                   to_string(array.type) + "\nhint: array.astype('" + numpy_name(wanted) +
                                   "'), or strict=False, which converts it");
    }
    check_dense(array.type.shape, array.strides.data(), size_bytes(array.type.dtype), name);
  }
  if (conversions == nullptr) return converted(array, wanted, name);
  const ProfileRange range("convert a feed");
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<std::byte>& memory = conversions->memory[name.name];
  const Type type{wanted, array.type.shape};
  if (memory == nullptr || memory.use_count() > 1 || shape == nullptr) {  // a run may go on that reads it
    const auto keep = std::make_shared<Tensor>(type);
    memory = {keep, keep->bytes()};
  }
  Tensor tensor(type, memory);
  convert(array, name, &tensor);
  ++conversions->count;
  conversions->bytes += tensor.size_bytes();
  conversions->seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return tensor;
}

}  // namespace paoding::python
