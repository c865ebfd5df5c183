// SPDX-License-Identifier: Apache-2.0
// Arrays of other libraries as Tensors, and back, in the same memory.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "handles.h"
#include "paoding/device_tensor.h"
#include "paoding/tensor.h"

namespace paoding::python {

/// The name of an array in errors: "input 'x'", made only for them.
struct ArrayName {
  const char* what;
  std::string_view name = {};
  std::string text() const { return name.empty() ? what : std::string(what) + " '" + std::string(name) + "'"; }
};

/// A Tensor on the memory of an object with the buffer protocol (NumPy) or DLPack (PyTorch, JAX ..), which it keeps
/// alive; a Tensor itself; lists and numbers by way of NumPy, of `wanted` where one is. Error (argument) for memory
/// that is not dense or not the host's, (dtype) for elements of no dtype, and for numbers of a list that no element of
/// `wanted` is (1.7 of an i64); TypeError for a Value. `is_read_only`: whether nobody may write there.
Tensor tensor_of(nb::handle object, std::optional<DType> wanted, const ArrayName& name, bool* is_read_only = nullptr);

/// The same of any strides: elements that do not lie densely are copied.
Tensor dense_tensor_of(nb::handle object, std::optional<DType> wanted, const ArrayName& name);

/// The cost of a program's feeds that are not of the input's dtype, or do not lie densely; with the memory that they
/// were converted into last, by input, since new memory costs more than the cast.
struct Conversions {
  std::int64_t count = 0;
  std::int64_t bytes = 0;  // that were made
  double seconds = 0;
  std::map<std::string_view, std::shared_ptr<std::byte>> memory = {};
};

/// A feed for an input: a Tensor on the memory of the object where it is of `wanted` and dense, else, unless
/// `is_strict`, one that is converted (see converted() in conversion.h), of any strides and any dtype of NumPy's that
/// has numbers. `shape`: of the input, where it is known. Errors as of tensor_of and converted(), and (shape).
Tensor feed_of(nb::handle object, DType wanted, const Shape* shape, const ArrayName& name, bool is_strict,
               Conversions* conversions);

/// For an object that has DLPack and is on a GPU, which has to be `device`: a DeviceTensor on its memory, which it
/// keeps alive, and the stream that its library works in. The work that fills it comes in front of `stream`. Nothing
/// for an array in the host's memory. Errors as of tensor_of.
struct DeviceArray {
  DeviceTensor tensor;
  void* stream = nullptr;
};
std::optional<DeviceArray> device_array_of(nb::handle object, const Device& device, void* stream,
                                           const ArrayName& name);

/// "f32" or a DType.
DType dtype_of(nb::handle object);
/// A list of integers; one integer makes a list of one. Errors call it `name`.
std::vector<std::int64_t> integers_of(nb::handle object, const std::string& name);
Shape shape_of(nb::handle object);
/// An int stays one.
Number number_of(nb::handle object);
bool is_number(nb::handle object);
/// "cpu", "cuda", "cuda:1"; "best" is Device::best().
Device device_of(const std::string& text);

/// The text that Python prints for a str, for errors: surrogates, which are no text, are escaped.
std::string text_of(nb::handle object);
/// str() of an attribute, which nb::str() would take for a str that it is not.
std::string printed(const nb::object& object);
/// int, of 5.
std::string type_name_of(nb::handle object);
/// A str, unchanged. TypeError when it is none, ValueError when it has surrogates; `role`: "the name of an input".
std::string name_of(nb::handle object, const std::string& role);
/// TypeError when it is none; `needed`: "Parameters or a dict".
nb::dict dict_of(nb::handle object, const std::string& what, const char* needed = "a dict");
/// A path of any kind that open() takes. TypeError and ValueError as there: of a NUL.
std::filesystem::path path_of(nb::handle object);

nb::tuple tuple_of(const Shape& shape);

/// The elements of a tensor as an array of NumPy's in the same memory; bf16, which NumPy has not, as a copy of f32.
/// Other objects as they are.
nb::object elements_of(nb::handle object);

inline constexpr const char* kCopyOfParameter =
    "this is a copy of a parameter's value, which nobody would see change\n"
    "hint: parameters[name] = array sets the parameter; tensor.copy() is a Tensor to write to";

/// A tensor that Python may not write to, since it is a copy of a parameter's value.
struct ParameterValue : Tensor {
  explicit ParameterValue(Tensor copy) : Tensor(std::move(copy)) {}
};

void bind_tensor(nb::module_& module);
void bind_tensor_arrays(nb::class_<Tensor>& type);
void bind_device_tensor(nb::module_& module);

}  // namespace paoding::python
