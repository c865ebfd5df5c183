// SPDX-License-Identifier: Apache-2.0
// The Open Inference Protocol, version 2 (KServe's and Triton's /v2): tensors by name as JSON, or as bytes behind it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/serve/http_message.h"
#include "paoding/model.h"

namespace paoding::cli {

struct InferRequest {
  struct Output {
    std::string name;
    bool is_binary = false;
  };
  std::string id;
  std::map<std::string, Tensor> feeds;
  std::vector<Output> outputs;  // that are answered, in this order
};

/// The protocol's word for a dtype: "FP32".
std::string_view datatype_of(DType dtype);

/// The request in a body that may be anything. Every input of the signature is there, with its dtype and rank and the
/// extents that do not vary. Error (argument) with words for the client.
InferRequest infer_request_of(const HttpRequest& request, const ModelSignature& signature);
HttpAnswer infer_answer(std::string_view model, const InferRequest& request,
                        const std::map<std::string, Tensor>& results);

/// {"name": .., "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}], ..}.
std::string metadata_json(std::string_view model, const ModelSignature& signature);

/// The plain form: {"inputs": {"x": [[1, 2]]}}, or the bytes of the only input, answered by {"outputs": {..}}, or the
/// bytes of the only result. Errors: as infer_request_of.
std::map<std::string, Tensor> plain_feeds_of(const HttpRequest& request, const ModelSignature& signature);
HttpAnswer plain_answer(bool as_bytes, const std::map<std::string, Tensor>& results);

/// Whether the client wants bytes: "Accept: application/octet-stream".
bool wants_bytes(const HttpRequest& request);

}  // namespace paoding::cli
