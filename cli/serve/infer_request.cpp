// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/infer_request.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/one_line.h"
#include "cli/serve/media_type.h"
#include "cli/serve/tensor_json.h"
#include "io/json_text.h"

namespace paoding::cli {

namespace dom = simdjson::dom;

namespace {

constexpr std::string_view kHeaderLength = "Inference-Header-Content-Length";
constexpr const char* kBytes = "application/octet-stream";

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::argument, what); }

// The members of an object by name; two of one name, and names that are none of these, are errors: a member that is
// ignored would be an answer to another question.
class Members {
 public:
  Members(const std::string& of, const dom::element& value, std::initializer_list<std::string_view> names) : of_(of) {
    dom::object members;
    if (value.get(members) != simdjson::SUCCESS) refuse(fmt::format("{} is no JSON object", of));
    for (const auto& [key, member] : members) {
      if (std::find(names.begin(), names.end(), key) == names.end()) {
        refuse(fmt::format("{} has the member \"{}\"; there are {}", of, one_line(key), fmt::join(names, ", ")));
      }
      if (!members_.emplace(key, member).second) refuse(fmt::format("{} has more than one \"{}\"", of, key));
    }
  }
  const dom::element* find(std::string_view name) const {
    const auto found = members_.find(name);
    return found == members_.end() ? nullptr : &found->second;
  }
  const dom::element& at(std::string_view name) const {
    const dom::element* found = find(name);
    if (found == nullptr) refuse(fmt::format("{} has no \"{}\"", of_, name));
    return *found;
  }
  std::string text_at(std::string_view name) const {
    std::string_view text;
    if (at(name).get(text) != simdjson::SUCCESS) refuse(fmt::format("\"{}\" of {} is no text", name, of_));
    return std::string(text);
  }
  dom::array list_at(std::string_view name) const {
    dom::array items;
    if (at(name).get(items) != simdjson::SUCCESS) refuse(fmt::format("\"{}\" of {} is no list", name, of_));
    return items;
  }

 private:
  const std::string of_;
  std::map<std::string_view, dom::element> members_;
};

// A parameter of the protocol; other parameters are for other servers.
template <class T>
std::optional<T> parameter(const Members& members, const std::string& of, std::string_view name) {
  const dom::element* parameters = members.find("parameters");
  if (parameters == nullptr) return std::nullopt;
  dom::object all;
  if (parameters->get(all) != simdjson::SUCCESS) refuse(fmt::format("\"parameters\" of {} are no JSON object", of));
  dom::element found;
  if (all.at_key(name).get(found) != simdjson::SUCCESS) return std::nullopt;
  T value{};
  if (found.get(value) != simdjson::SUCCESS) {
    refuse(fmt::format("\"{}\" of {} is no {}", name, of, std::is_same_v<T, bool> ? "true or false" : "whole number"));
  }
  return value;
}

void refuse_parameter(const Members& members, const std::string& of, std::string_view name, const char* why) {
  const dom::element* parameters = members.find("parameters");
  dom::object all;
  if (parameters == nullptr || parameters->get(all) != simdjson::SUCCESS) return;
  if (all.at_key(name).error() == simdjson::SUCCESS) refuse(fmt::format("\"{}\" of {}: {}", name, of, why));
}

dom::element parsed(dom::parser* parser, std::string_view text) {
  dom::element root;
  const auto problem = parser->parse(text.data(), text.size()).get(root);
  if (problem != simdjson::SUCCESS) refuse(fmt::format("the body is no JSON: {}", simdjson::error_message(problem)));
  return root;
}

const ModelTensor& known(const std::vector<ModelTensor>& tensors, const std::string& name, const char* what) {
  const auto found = std::ranges::find(tensors, name, &ModelTensor::name);
  if (found != tensors.end()) return *found;
  std::vector<std::string> names;
  for (const ModelTensor& each : tensors) names.push_back(each.name);
  refuse(fmt::format("there is no {} '{}'; there are: {}", what, one_line(name), one_line(names)));
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

void check_shape(const ModelTensor& input, const Shape& shape) {
  bool fits = shape.rank() == std::ssize(input.shape);
  for (int axis = 0; fits && axis < shape.rank(); ++axis) {
    const std::int64_t wanted = input.shape[static_cast<std::size_t>(axis)];
    fits = wanted == shape[axis] || wanted < 0 || axis == input.batch_axis;
  }
  if (fits) return;
  refuse(fmt::format("'{}' has the shape {}; needed is {}{}", one_line(input.name),
                     shape_text({shape.begin(), shape.end()}), shape_text(input.shape),
                     std::ranges::find(input.shape, -1) == input.shape.end() ? "" : ", where -1 varies"));
}

Shape shape_of(const std::string& name, const dom::array& extents) {
  std::vector<std::int64_t> read;
  for (const dom::element extent : extents) {
    std::int64_t number = 0;
    if (extent.get(number) != simdjson::SUCCESS || number < 0) {
      refuse(fmt::format("the shape of '{}' has something that is no extent", one_line(name)));
    }
    read.push_back(number);
    if (std::ssize(read) > Shape::kMaxRank) {
      refuse(fmt::format("the shape of '{}' has more than {} extents", one_line(name), Shape::kMaxRank));
    }
  }
  try {
    return Shape(read);
  } catch (const Error& error) {
    refuse(fmt::format("the shape of '{}': {}", one_line(name), error.what()));
  }
}

Tensor of_bytes(const std::string& name, const Type& type, std::string_view bytes) {
  const std::int64_t needed = type.shape.elements() * size_bytes(type.dtype);
  if (needed != std::ssize(bytes)) {
    refuse(fmt::format("'{}' has {} bytes; {} of {} are {}", one_line(name), bytes.size(), to_string(type.shape),
                       to_string(type.dtype), needed));
  }
  Tensor tensor(type);
  if (!bytes.empty()) std::memcpy(tensor.bytes(), bytes.data(), bytes.size());
  if (type.dtype == boolean) {
    const auto* flags = reinterpret_cast<const std::uint8_t*>(tensor.bytes());
    if (std::any_of(flags, flags + bytes.size(), [](std::uint8_t flag) { return flag > 1; })) {
      refuse(fmt::format("'{}' has a byte that is neither 0 nor 1, of BOOL", one_line(name)));
    }
  }
  return tensor;
}

// The length of the JSON, behind which the tensors' bytes are.
std::size_t json_length(const HttpRequest& request) {
  const std::string given = request.header(kHeaderLength);
  if (given.empty()) return request.body.size();
  std::size_t length = 0;
  const auto read = std::from_chars(given.data(), given.data() + given.size(), length);
  if (read.ec != std::errc() || read.ptr != given.data() + given.size()) {
    refuse(fmt::format("{} is '{}', no whole number", kHeaderLength, one_line(given)));
  }
  if (length > request.body.size()) {
    refuse(fmt::format("{} is {}; the body has {} bytes", kHeaderLength, length, request.body.size()));
  }
  if (length == 0) refuse(fmt::format("{} is 0: the names and shapes of inputs are in its JSON", kHeaderLength));
  return length;
}

void check_all_given(const std::map<std::string, Tensor>& feeds, const ModelSignature& signature) {
  std::vector<std::string> missing;
  for (const ModelTensor& input : signature.inputs) {
    if (!feeds.contains(input.name)) missing.push_back(input.name);
  }
  if (!missing.empty()) refuse(fmt::format("no value is given for: {}", one_line(missing)));
}

std::string_view bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes()), static_cast<std::size_t>(tensor.size_bytes())};
}

}  // namespace

std::string_view datatype_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return "FP64";
    case DType::f32: return "FP32";
    case DType::f16: return "FP16";
    case DType::bf16: return "BF16";
    case DType::i64: return "INT64";
    case DType::i32: return "INT32";
    case DType::u8: return "UINT8";
    case DType::boolean: return "BOOL";
  }
  return "";
}

InferRequest infer_request_of(const HttpRequest& request, const ModelSignature& signature) {
  const std::string_view body = request.body;
  const std::size_t length = json_length(request);
  dom::parser parser;
  const Members members("the request", parsed(&parser, body.substr(0, length)),
                        {"id", "parameters", "inputs", "outputs"});
  InferRequest made;
  if (members.find("id") != nullptr) made.id = members.text_at("id");
  std::size_t at = length;
  for (const dom::element item : members.list_at("inputs")) {
    const Members input("an input", item, {"name", "shape", "datatype", "parameters", "data"});
    const std::string name = input.text_at("name"), datatype = input.text_at("datatype");
    const std::string of = "'" + one_line(name) + "'";
    const ModelTensor& wanted = known(signature.inputs, name, "input");
    if (datatype != datatype_of(wanted.dtype)) {
      refuse(fmt::format("{} is {}; needed is {}", of, one_line(datatype), datatype_of(wanted.dtype)));
    }
    const Type type{wanted.dtype, shape_of(name, input.list_at("shape"))};
    check_shape(wanted, type.shape);
    refuse_parameter(input, of, "shared_memory_region", "memory is not shared with clients");
    const auto bytes = parameter<std::int64_t>(input, of, "binary_data_size");
    if (bytes.has_value() == (input.find("data") != nullptr)) {
      refuse(fmt::format("{} needs either \"data\", or \"binary_data_size\" with its bytes behind the JSON", of));
    }
    if (bytes && (*bytes < 0 || static_cast<std::uint64_t>(*bytes) > body.size() - at)) {
      refuse(fmt::format("{} has {} bytes; {} are left behind the JSON", of, *bytes, body.size() - at));
    }
    Tensor tensor = bytes ? of_bytes(name, type, body.substr(at, static_cast<std::size_t>(*bytes)))
                          : tensor_of_json(name, input.at("data"), type);
    at += static_cast<std::size_t>(bytes.value_or(0));
    if (!made.feeds.emplace(name, std::move(tensor)).second) refuse(fmt::format("{} is there more than once", of));
  }
  if (at != body.size()) refuse(fmt::format("{} bytes are left behind the inputs", body.size() - at));
  check_all_given(made.feeds, signature);
  const bool is_binary = parameter<bool>(members, "the request", "binary_data_output").value_or(false);
  if (members.find("outputs") == nullptr) {
    for (const ModelTensor& result : signature.results) made.outputs.push_back({result.name, is_binary});
    return made;
  }
  for (const dom::element item : members.list_at("outputs")) {
    const Members output("an output", item, {"name", "parameters"});
    const std::string name = output.text_at("name"), of = "'" + one_line(name) + "'";
    known(signature.results, name, "output");
    refuse_parameter(output, of, "shared_memory_region", "memory is not shared with clients");
    refuse_parameter(output, of, "classification", "results are answered as they are");
    if (std::ranges::find(made.outputs, name, &InferRequest::Output::name) != made.outputs.end()) {
      refuse(fmt::format("the output {} is asked for more than once", of));
    }
    made.outputs.push_back({name, parameter<bool>(output, of, "binary_data").value_or(is_binary)});
  }
  return made;
}

HttpAnswer infer_answer(std::string_view model, const InferRequest& request,
                        const std::map<std::string, Tensor>& results) {
  std::vector<std::string> outputs;
  std::string bytes;
  bool has_bytes = false;
  for (const auto& [name, is_binary] : request.outputs) {
    const Tensor& tensor = results.at(name);
    JsonObject output;
    output.add("name", name).add("datatype", datatype_of(tensor.dtype()));
    output.add_json("shape", shape_text({tensor.shape().begin(), tensor.shape().end()}));
    if (is_binary) {
      output.add_json("parameters", JsonObject().add("binary_data_size", tensor.size_bytes()).text());
      bytes += bytes_of(tensor);
      has_bytes = true;
    } else {
      output.add_json("data", flat_json(tensor));
    }
    outputs.push_back(output.text());
  }
  JsonObject json;
  json.add("model_name", model).add("model_version", "1");
  if (!request.id.empty()) json.add("id", request.id);
  json.add_json("outputs", json_array(outputs));
  const std::string text = json.text();
  if (!has_bytes) return {200, "application/json", text + "\n", {}};
  return {200, kBytes, text + bytes, fmt::format("{}: {}\r\n", kHeaderLength, text.size())};
}

std::string metadata_json(std::string_view model, const ModelSignature& signature) {
  const auto list = [](const std::vector<ModelTensor>& tensors) {
    std::vector<std::string> items;
    for (const ModelTensor& tensor : tensors) {
      std::vector<std::int64_t> shape = tensor.shape;
      if (tensor.batch_axis >= 0) shape[static_cast<std::size_t>(tensor.batch_axis)] = -1;
      items.push_back(JsonObject()
                          .add("name", tensor.name)
                          .add("datatype", datatype_of(tensor.dtype))
                          .add_json("shape", shape_text(shape))
                          .text());
    }
    return json_array(items);
  };
  return JsonObject()
             .add("name", model)
             .add_json("versions", "[\"1\"]")
             .add("platform", "paoding")
             .add_json("inputs", list(signature.inputs))
             .add_json("outputs", list(signature.results))
             .text() +
         "\n";
}

std::map<std::string, Tensor> plain_feeds_of(const HttpRequest& request, const ModelSignature& signature) {
  std::map<std::string, Tensor> feeds;
  if (is_same_word(media_type(request.content_type), kBytes)) {
    if (signature.inputs.size() != 1) {
      refuse(fmt::format("the model has {} inputs: their bytes go by /v2", signature.inputs.size()));
    }
    const ModelTensor& input = signature.inputs[0];
    std::vector<std::int64_t> extents = input.shape;
    if (input.batch_axis >= 0) extents[static_cast<std::size_t>(input.batch_axis)] = -1;
    if (std::ranges::count(extents, -1) > 1) {
      refuse(fmt::format("the shape of '{}' is {}: bytes alone do not tell it", one_line(input.name),
                         shape_text(extents)));
    }
    std::int64_t known_bytes = size_bytes(input.dtype);
    for (const std::int64_t extent : extents) known_bytes *= extent < 0 ? 1 : extent;
    for (std::int64_t& extent : extents) {
      if (extent < 0) extent = known_bytes == 0 ? 0 : std::ssize(request.body) / known_bytes;
    }
    feeds.emplace(input.name, of_bytes(input.name, {input.dtype, Shape(extents)}, request.body));
    return feeds;
  }
  dom::parser parser;
  const Members members("the request", parsed(&parser, request.body), {"inputs"});
  dom::object inputs;
  if (members.at("inputs").get(inputs) != simdjson::SUCCESS) refuse("\"inputs\" is no object of tensors by name");
  for (const auto& [key, data] : inputs) {
    const std::string name(key);
    const ModelTensor& wanted = known(signature.inputs, name, "input");
    Tensor tensor = nested_tensor_of_json(name, data, wanted.dtype);
    check_shape(wanted, tensor.shape());
    if (!feeds.emplace(name, std::move(tensor)).second) {
      refuse(fmt::format("the input '{}' is there more than once", one_line(name)));
    }
  }
  check_all_given(feeds, signature);
  return feeds;
}

HttpAnswer plain_answer(bool as_bytes, const std::map<std::string, Tensor>& results) {
  if (as_bytes) return {200, kBytes, std::string(bytes_of(results.begin()->second)), {}};
  JsonObject outputs;
  for (const auto& [name, tensor] : results) outputs.add_json(name, nested_json(tensor));
  return {200, "application/json", JsonObject().add_json("outputs", outputs.text()).text() + "\n", {}};
}

bool wants_bytes(const HttpRequest& request) { return is_same_word(media_type(request.header("Accept")), kBytes); }

}  // namespace paoding::cli
