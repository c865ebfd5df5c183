// SPDX-License-Identifier: Apache-2.0
// The Open Inference Protocol's requests and answers: right ones are read to the bit, wrong ones get their errors.
#include "cli/serve/infer_request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cli/serve/tensor_json.h"
#include "paoding/error.h"

namespace paoding::cli {
namespace {

using Dense = std::vector<double>;

ModelSignature signature() {
  return {{{"x", f32, {-1, 2}, 0}, {"mask", boolean, {2}, -1}}, {{"y", f32, {-1, 2}, 0}, {"n", i64, {-1}, 0}}, true};
}

HttpRequest json_request(std::string body) { return {"POST", "/", "application/json", std::move(body)}; }
HttpRequest with_bytes(const std::string& json, const std::string& bytes) {
  HttpRequest request{"POST", "/", "application/octet-stream", json + bytes};
  request.headers = {{"inference-header-content-length", std::to_string(json.size())}};
  return request;
}
std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes()), static_cast<std::size_t>(tensor.size_bytes())};
}
std::string error_of(const HttpRequest& request) {
  try {
    infer_request_of(request, signature());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return "no error";
}
bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

constexpr const char* kMask = R"({"name": "mask", "shape": [2], "datatype": "BOOL", "data": [true, false]})";

TEST(InferRequest, IsReadFromJsonFlatOrNested) {
  for (const char* data : {"[1, 2.5, -3, 4e-3]", "[[1, 2.5], [-3, 0.004]]"}) {
    const InferRequest read = infer_request_of(
        json_request(
            std::string(R"({"id": "7", "inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": )") +
            data + "}, " + kMask + "]}"),
        signature());
    EXPECT_EQ(read.id, "7");
    EXPECT_EQ(read.feeds.at("x").shape(), (Shape{2, 2}));
    const float wanted[] = {1, 2.5F, -3, 0.004F};
    EXPECT_EQ(std::memcmp(read.feeds.at("x").bytes(), wanted, sizeof wanted), 0);
    EXPECT_EQ(read.feeds.at("mask").to_doubles(), (Dense{1, 0}));
    ASSERT_EQ(read.outputs.size(), 2u);
    EXPECT_EQ(read.outputs[0].name, "y");
    EXPECT_FALSE(read.outputs[0].is_binary);
  }
}

TEST(InferRequest, IsReadFromBytesBehindTheJson) {
  const Tensor x = Tensor::from(f32, {3, 2}, Dense{1, 2, 3, 4, 5, 6});
  const std::string json =
      R"({"inputs": [{"name": "mask", "shape": [2], "datatype": "BOOL", "parameters": {"binary_data_size": 2}},
                     {"name": "x", "shape": [3, 2], "datatype": "FP32", "parameters": {"binary_data_size": 24}}],
          "parameters": {"binary_data_output": true, "priority": 3},
          "outputs": [{"name": "n", "parameters": {"binary_data": false}}, {"name": "y"}]})";
  const InferRequest read = infer_request_of(with_bytes(json, std::string("\0\1", 2) + bytes_of(x)), signature());
  EXPECT_EQ(read.feeds.at("x").to_doubles(), x.to_doubles());
  EXPECT_EQ(read.feeds.at("mask").to_doubles(), (Dense{0, 1}));
  ASSERT_EQ(read.outputs.size(), 2u);
  EXPECT_EQ(read.outputs[0].name, "n");
  EXPECT_FALSE(read.outputs[0].is_binary);
  EXPECT_TRUE(read.outputs[1].is_binary);
}

TEST(InferRequest, AnswersCarryTheSameBits) {
  InferRequest request;
  request.id = "a";
  request.outputs = {{"n", false}, {"y", true}};
  const Tensor y = Tensor::from(f32, {1, 2}, Dense{0.1, -0.0}), n = Tensor::from(i64, {1}, Dense{5});
  const HttpAnswer answer = infer_answer("m", request, {{"y", y}, {"n", n}});
  const std::string json = R"({"model_name":"m","model_version":"1","id":"a","outputs":[)"
                           R"({"name":"n","datatype":"INT64","shape":[1],"data":[5]},)"
                           R"({"name":"y","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]})";
  EXPECT_EQ(answer.body, json + bytes_of(y));
  EXPECT_EQ(answer.headers, "Inference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n");
  EXPECT_EQ(answer.content_type, "application/octet-stream");
  request.outputs = {{"y", false}};
  EXPECT_TRUE(has(infer_answer("m", request, {{"y", y}, {"n", n}}).body, R"("data":[0.1,-0.0])"));
  EXPECT_TRUE(has(metadata_json("m", signature()), R"({"name":"x","datatype":"FP32","shape":[-1,2]})"));
}

TEST(InferRequest, WrongOnesAreSaidSo) {
  const auto of = [](const std::string& x) { return json_request("{\"inputs\": [" + x + ", " + kMask + "]}"); };
  const auto x = [](const char* shape, const char* rest) {
    return std::string(R"({"name": "x", "datatype": "FP32", "shape": )") + shape + ", " + rest + "}";
  };
  const std::vector<std::pair<HttpRequest, const char*>> cases{
      {json_request(""), "the body is no JSON"},
      {json_request("[1]"), "the request is no JSON object"},
      {json_request("{}"), "the request has no \"inputs\""},
      {json_request(R"({"inputs": 3})"), "\"inputs\" of the request is no list"},
      {json_request(R"({"inputs": [], "ouputs": []})"), "has the member \"ouputs\"; there are id, parameters, inputs"},
      {json_request(R"({"inputs": [], "inputs": []})"), "more than one \"inputs\""},
      {json_request(R"({"inputs": []})"), "no value is given for: x, mask"},
      {json_request(R"({"inputs": [7]})"), "an input is no JSON object"},
      {of(R"({"name": "z", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]})"), "no input 'z'; there are: x, mask"},
      {of(R"({"name": "x", "shape": [1, 2], "datatype": "INT64", "data": [1, 2]})"), "'x' is INT64; needed is FP32"},
      {of(x("[1, 3]", "\"data\": [1, 2, 3]")), "'x' has the shape [1,3]; needed is [-1,2], where -1 varies"},
      {of(x("[2]", "\"data\": [1, 2]")), "'x' has the shape [2]; needed is [-1,2]"},
      {of(x("[-1, 2]", "\"data\": [1, 2]")), "the shape of 'x' has something that is no extent"},
      {of(x("[1.5, 2]", "\"data\": [1, 2]")), "the shape of 'x' has something that is no extent"},
      {of(x("[1,1,1,1,1,1,1,1,1]", "\"data\": [1, 2]")), "the shape of 'x' has more than 8 extents"},
      {of(x("[9223372036854775807, 2]", "\"data\": [1, 2]")), "the shape of 'x': "},
      {of(x("[4611686018427387903, 1]", "\"data\": [1, 2]")), "the shape of 'x': "},
      {of(x("[1000000000000, 2]", "\"data\": [1, 2]")), "its data has 2 elements; its shape [1000000000000, 2] has"},
      {of(x("[2, 2]", "\"data\": [1, 2, 3]")), "its data has 3 elements; its shape [2, 2] has 4"},
      {of(x("[2, 2]", "\"data\": [[1, 2], [3]]")), "not all lists of axis 1 have 2 elements"},
      {of(x("[2, 2]", "\"data\": [[1, 2], 3]")), "not all lists of axis 1 have 2 elements"},
      {of(x("[2, 2]", "\"data\": [[1, 2, 3, 4]]")), "its data has the shape [1, 4]; it says [2, 2]"},
      {of(x("[1, 2]", "\"data\": [[[[[[[[[1]]]]]]]]]")), "its lists are more than 8 deep"},
      {of(x("[1, 2]", "\"data\": [1, \"2\"]")), "\"2\" is no number"},
      {of(x("[1, 2]", "\"data\": [1, null]")), "null is no number"},
      {of(x("[1, 2]", "\"data\": [1, 1e39]")), "1e+39 is beyond the range of f32"},
      {of(x("[1, 2]", "\"data\": [1, 2], \"parameters\": {\"binary_data_size\": 8}")), "'x' needs either \"data\", or"},
      {of(x("[1, 2]", "\"parameters\": {}")), "'x' needs either \"data\", or"},
      {of(x("[1, 2]", "\"parameters\": {\"binary_data_size\": 8}")), "'x' has 8 bytes; 0 are left"},
      {of(x("[1, 2]", "\"parameters\": {\"binary_data_size\": -8}")), "'x' has -8 bytes"},
      {of(x("[1, 2]", "\"parameters\": {\"binary_data_size\": \"8\"}")),
       "\"binary_data_size\" of 'x' is no whole number"},
      {of(x("[1, 2]", "\"parameters\": {\"shared_memory_region\": \"r\"}")), "memory is not shared with clients"},
      {of(x("[1, 2]", "\"data\": [1, 2]}, ") + x("[1, 2]", "\"data\": [1, 2]")), "is no JSON"},
      {of(x("[1, 2]", "\"data\": [1, 2]") + ", " + x("[1, 2]", "\"data\": [1, 2]")), "'x' is there more than once"},
  };
  for (const auto& [request, words] : cases) {
    const std::string said = error_of(request);
    EXPECT_TRUE(has(said, words)) << said << "\n  " << request.body << "\n  " << words;
  }
  const std::string good = R"({"inputs": [)" + x("[1, 2]", "\"data\": [1, 2]") + ", " + kMask + "]";
  for (const auto& [rest, words] : std::vector<std::pair<const char*, const char*>>{
           {R"(, "outputs": [{"name": "z"}]})", "there is no output 'z'; there are: y, n"},
           {R"(, "outputs": [{"name": "y"}, {"name": "y"}]})", "'y' is asked for more than once"},
           {R"(, "outputs": [{"name": "y", "parameters": {"classification": 2}}]})",
            "results are answered as they are"},
           {R"(, "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]})", "is no true or false"},
           {R"(, "id": 3})", "\"id\" of the request is no text"},
           {R"(, "parameters": []})", "\"parameters\" of the request are no JSON object"}}) {
    EXPECT_TRUE(has(error_of(json_request(good + rest)), words)) << error_of(json_request(good + rest));
  }
  EXPECT_EQ(error_of(json_request(good + "}")), "no error");
  HttpRequest request = with_bytes(good + "}", "abc");
  EXPECT_EQ(error_of(request), "3 bytes are left behind the inputs");
  for (const auto& [length, words] :
       std::vector<std::pair<const char*, const char*>>{{"0", "is 0: the names"},
                                                        {"x", "no whole number"},
                                                        {"-1", "no whole number"},
                                                        {"999999", "the body has"},
                                                        {"99999999999999999999999", "no whole number"}}) {
    request.headers[0].second = length;
    EXPECT_TRUE(has(error_of(request), words)) << error_of(request);
  }
  request.headers.push_back(request.headers[0]);
  EXPECT_TRUE(has(error_of(request), "is there more than once"));
  const std::string two =
      R"({"inputs": [{"name": "mask", "shape": [2], "datatype": "BOOL", "parameters": {"binary_data_size": 2}}]})";
  EXPECT_TRUE(has(error_of(with_bytes(two, "\x01\x02")), "'mask' has a byte that is neither 0 nor 1"));
  EXPECT_TRUE(has(error_of(with_bytes(two, "\x01")), "'mask' has 2 bytes; 1 are left"));
}

TEST(TensorJson, EveryDtypeReadsBackToTheSameBits) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8, boolean}) {
    const Dense values = dtype == boolean    ? Dense{0, 1, 1, 0, 0, 1}
                         : dtype == u8       ? Dense{0, 255, 3, 4, 5, 6}
                         : is_integer(dtype) ? Dense{0, -2147483648.0, 2147483647, 4, -5, 6}
                                             : Dense{0.1, -0.0, 1.0 / 3, 1e-7, -65504, 3};
    for (const Shape& shape : {Shape{6}, Shape{2, 3}, Shape{1, 2, 3}}) {
      const Tensor tensor = Tensor::from(dtype, shape, values);
      simdjson::dom::parser parser;
      for (const std::string& text : {flat_json(tensor), nested_json(tensor)}) {
        const Tensor read = tensor_of_json("x", parser.parse(text), {dtype, shape});
        EXPECT_EQ(bytes_of(read), bytes_of(tensor)) << text;
      }
      EXPECT_EQ(nested_tensor_of_json("x", parser.parse(nested_json(tensor)), dtype).shape(), shape);
    }
  }
  EXPECT_EQ(flat_json(Tensor::from(f32, {2}, Dense{inf, 1})), "[null,1]");
  EXPECT_EQ(nested_json(Tensor(f32, {2, 0})), "[[],[]]");
  EXPECT_EQ(nested_json(Tensor::from(f32, {}, Dense{2.5})), "2.5");
  simdjson::dom::parser parser;
  EXPECT_EQ(tensor_of_json("x", parser.parse(std::string("[9007199254740993]")), {i64, {1}}).values<std::int64_t>()[0],
            9007199254740993);
  for (const auto& [dtype, text] : std::vector<std::pair<DType, const char*>>{{u8, "256"},
                                                                              {u8, "-1"},
                                                                              {i32, "2147483648"},
                                                                              {i64, "9223372036854775808"},
                                                                              {i64, "1.5"},
                                                                              {i64, "true"},
                                                                              {boolean, "1"},
                                                                              {f16, "65520"},
                                                                              {f16, "-1e9"},
                                                                              {bf16, "3.4e38"},
                                                                              {f32, "[1]"},
                                                                              {f32, "{}"}}) {
    EXPECT_THROW(tensor_of_json("x", parser.parse("[" + std::string(text) + ",1]"), {dtype, {2}}), Error) << text;
  }
}

TEST(PlainRequest, IsObjectsOfListsOrTheBytesOfTheOnlyInput) {
  const auto feeds =
      plain_feeds_of(json_request(R"({"inputs": {"x": [[1, 2], [3, 4]], "mask": [true, true]}})"), signature());
  EXPECT_EQ(feeds.at("x").shape(), (Shape{2, 2}));
  const ModelSignature one{{{"x", f32, {4, 2}, 0}}, {{"y", f32, {4, 2}, 0}}, true};
  const Tensor x = Tensor::from(f32, {3, 2}, Dense{1, 2, 3, 4, 5, 6});
  const HttpRequest raw{"POST", "/", "application/octet-stream", bytes_of(x)};
  EXPECT_EQ(plain_feeds_of(raw, one).at("x").to_doubles(), x.to_doubles());
  EXPECT_EQ(plain_answer(true, {{"y", x}}).body, bytes_of(x));
  EXPECT_EQ(plain_answer(false, {{"y", x}}).body, "{\"outputs\":{\"y\":[[1,2],[3,4],[5,6]]}}\n");
  const auto said = [](const HttpRequest& request, const ModelSignature& of) {
    try {
      plain_feeds_of(request, of);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(said({"POST", "/", "application/octet-stream", "abc"}, one), "'x' has 3 bytes; [0, 2] of f32 are 0");
  EXPECT_EQ(said(raw, signature()), "the model has 2 inputs: their bytes go by /v2");
  EXPECT_EQ(said(raw, {{{"x", f32, {-1, -1}, -1}}, {}, false}),
            "the shape of 'x' is [-1,-1]: bytes alone do not tell it");
  EXPECT_TRUE(has(said(json_request(R"({"inputs": [1]})"), one), "no object of tensors by name"));
  EXPECT_TRUE(has(said(json_request(R"({"inputs": {"x": [1, 2]}})"), one), "'x' has the shape [2]; needed is [4,2]"));
  EXPECT_TRUE(has(said(json_request(R"({"inputs": {"x": [[1, 2]], "x": [[1, 2]]}})"), one), "more than once"));
}

}  // namespace
}  // namespace paoding::cli
