// SPDX-License-Identifier: Apache-2.0
// `paoding serve` of a model of one's own: /predict and /v2 give the model's results, requests that come together run
// together, and wrong ones get their errors.
#include <atomic>
#include <cstring>
#include <thread>

#include "io/json_text.h"
#include "paoding/graph.h"
#include "paoding/graph_text.h"
#include "paoding/model.h"
#include "paoding/ops.h"
#include "tests/cli/serving_run.h"

namespace paoding {
namespace {

// y = x @ w, of 1, 4 or 16 rows.
ModelFile product(const std::string& batch) {
  ModelFile file{.batch = batch};
  for (const std::int64_t rows : {1, 4, 16}) {
    Graph g;
    const Value x = g.input("x", f32, {rows, 2});
    g.fetch("y", matmul(x, g.parameter("w", f32, {2, 3})));
    file.graphs[graph_name("product", Sizes{{"rows", rows}})] = to_text(g);
  }
  file.parameters["w"] = Tensor::from(f32, {2, 3}, {1, 2, 3, 10, 20, 30});
  return file;
}

class ServeTensors : public ServingRun {
 protected:
  void said(const std::string& answer, const char* status, const std::string& words) const {
    EXPECT_TRUE(answer.starts_with(std::string("HTTP/1.1 ") + status) && has(answer, words)) << answer << words;
  }
  std::string post(const std::string& path, const std::string& body) const {
    return ask("POST", path, body, "application/json");
  }
};

std::string infer_body(int a, int b) {
  return R"({"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [)" + std::to_string(a) + "," +
         std::to_string(b) + "]}]}";
}

TEST_F(ServeTensors, BothFormsGiveWhatTheModelGives) {
  save_model(folder_ / "mine.pd", product("rows"));
  start("mine.pd", {});
  said(ask("GET", "/health"), "200", R"({"model":"mine"})");
  said(ask("GET", "/v2"), "200", R"("extensions":["binary_tensor_data"])");
  said(ask("GET", "/v2/health/live"), "200", R"({"live":true})");
  said(ask("GET", "/v2/health/ready"), "200", R"({"ready":true})");
  said(ask("GET", "/v2/models/mine/ready"), "200", R"({"name":"mine","ready":true})");
  said(
      ask("GET", "/v2/models/mine/versions/1"), "200",
      R"({"name":"mine","versions":["1"],"platform":"paoding","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}],)"
      R"("outputs":[{"name":"y","datatype":"FP32","shape":[-1,3]}]})");
  said(post("/predict", R"({"inputs": {"x": [[1, 0], [0, 1], [1, 1]]}})"), "200",
       R"({"outputs":{"y":[[1,2,3],[10,20,30],[11,22,33]]}})");
  said(ask("POST", "/predict", R"({"inputs": {"x": [[1, 0]]}})", "application/x-www-form-urlencoded"), "200",
       R"({"outputs":{"y":[[1,2,3]]}})");
  said(
      post("/v2/models/mine/infer", infer_body(1, 1)), "200",
      R"({"model_name":"mine","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[1,3],"data":[11,22,33]}]})");
  const float x[] = {1, 2, 3, 4};
  const std::string bytes(reinterpret_cast<const char*>(x), sizeof x);
  said(ask("POST", "/predict", bytes, "application/octet-stream"), "200",
       R"({"outputs":{"y":[[21,42,63],[43,86,129]]}})");
  const std::string raw = body_of(send_text(
      "POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: application/octet-stream\r\nContent-Type: "
      "application/octet-stream\r\nContent-Length: 16\r\n\r\n" +
      bytes));
  ASSERT_EQ(raw.size(), 6 * sizeof(float));
  float last = 0;
  std::memcpy(&last, raw.data() + 5 * sizeof last, sizeof last);
  EXPECT_EQ(last, 129);
  EXPECT_EQ(end(), 0);
}

TEST_F(ServeTensors, RequestsThatWaitRunTogether) {
  save_model(folder_ / "mine.pd", product("rows"));
  start("mine.pd", {"--executors", "1", "--wait", "200", "--batch", "16", "--name", "other"});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < 16; ++c) {
    clients.emplace_back([&, c] {
      const std::string answer = post("/v2/models/other/infer", infer_body(c, 1));
      const std::string wanted = "[" + std::to_string(c + 10) + "," + std::to_string(2 * c + 20) + ",";
      wrong += !has(answer, wanted);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  const std::string metrics = ask("GET", "/metrics");
  EXPECT_TRUE(has(metrics, "paoding_lines_total 16\n")) << metrics;
  const std::size_t at = metrics.find("\npaoding_batches_total ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_LT(std::stoi(metrics.substr(at + std::strlen("\npaoding_batches_total "))), 8);
  EXPECT_EQ(end(), 0);
}

TEST_F(ServeTensors, WithoutABatchEachRunsAsItsGraphSays) {
  save_model(folder_ / "mine.pd", product(""));
  start("mine.pd", {});
  said(post("/predict", R"({"inputs": {"x": [[1, 0]]}})"), "200", R"([[1,2,3]])");
  said(post("/predict", R"({"inputs": {"x": [[1, 0], [0, 1]]}})"), "400", "'product' got x f32[2,2]; it takes");
  EXPECT_EQ(end(), 0);
}

TEST_F(ServeTensors, SeveralEntryPointsAreModelsOfTheirNames) {
  ModelFile file = product("rows");
  file.graphs["sum"] = "paoding graph 1\na = input i64[3]\nb = sum(a)\nfetch b\n";
  save_model(folder_ / "mine.pd", file);
  start("mine.pd", {});
  said(post("/predict/sum", R"({"inputs": {"a": [1, 2, 3]}})"), "200", R"({"outputs":{"b":6}})");
  said(post("/predict/product", R"({"inputs": {"x": [[1, 0]]}})"), "200", "[[1,2,3]]");
  said(post("/predict", "{}"), "404", "the model has the entry points product, sum: /predict/ENTRY");
  said(post("/v2/models/product/infer", infer_body(1, 1)), "200", "[11,22,33]");
  said(post("/v2/repository/index", ""), "200",
       R"([{"name":"product","version":"1","state":"READY","reason":""},{"name":"sum")");
  said(ask("GET", "/v2/models/mine"), "404", "there is no model 'mine'; there are version 1 of: product, sum");
  said(ask("GET", "/v2/models/sum/versions/2"), "404", "no model 'sum' of version '2'");
  EXPECT_EQ(end(), 0);
}

TEST_F(ServeTensors, WrongRequestsGetTheirErrors) {
  save_model(folder_ / "mine.pd", product("rows"));
  start("mine.pd", {"--most-bytes", "3000", "--queue", "20"});
  const std::string infer = "/v2/models/mine/infer";
  said(ask("GET", infer), "405", "wants POST");
  said(ask("POST", "/v2", "{}"), "405", "Allow: GET, HEAD");
  said(ask("GET", "/v2/nothing"), "404", "there are /predict, /v2 (the Open Inference Protocol)");
  said(ask("GET", "/v3"), "404", "/v2");
  said(post(infer, "{"), "400", "the body is no JSON");
  said(post(infer, "{}"), "400", "has no \\\"inputs\\\"");
  said(post(infer, std::string(2999, '[')), "400", "the body is no JSON");
  said(post(infer, std::string(3001, '[')), "413", "more than 3000 bytes");
  said(ask("POST", infer, "x", "text/plain"), "415", "needed is application/json or application/octet-stream");
  said(send_text("POST " + infer +
                 " HTTP/1.1\r\nConnection: close\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"),
       "415", "Content-Encoding: gzip is not known here");
  std::string many = "[0,0]";
  for (int i = 0; i < 20; ++i) many += ",[0,0]";
  said(post("/predict", R"({"inputs": {"x": [)" + many + "]}}"), "400", "21 rows in one request, at most 20");
  said(post("/predict", R"({"inputs": {"x": [[1, 0]], "z": 1}})"), "400", "there is no input 'z'; there are: x");
  EXPECT_EQ(shell("paoding predict mine.pd < /dev/null").code, 1);
  EXPECT_TRUE(has(shell("paoding predict mine.pd < /dev/null").err, "`paoding serve` and pd::Model run its graphs"));
  EXPECT_EQ(end(), 0);
}

TEST_F(ServeTensors, GraphsWithoutOneSignatureAreRefused) {
  ModelFile file = product("");
  file.graphs["product[rows=2]"] = "paoding graph 1\nx = input f64[2,2]\ny = sum(x)\nfetch y\n";
  save_model(folder_ / "mine.pd", file);
  const Ran ran = shell("timeout 60 " + program_.string() + " serve mine.pd --port 0");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(
      has(ran.err, "mine.pd: graph 'product[rows=16]' takes x f32[16,2], and graph 'product[rows=2]' x f64[2,2]"))
      << ran.err;
}

}  // namespace
}  // namespace paoding
