// SPDX-License-Identifier: Apache-2.0
// The model behind `paoding serve`, as the server asks it: text and images by a task, tensors by a model file of one's
// own.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "cli/serve/http_server.h"
#include "cli/serve/request_batches.h"
#include "paoding/model.h"

namespace paoding::cli {

struct ServingOptions {
  BatchOptions batches;
  CompileOptions compile;
  int executors = 1, threads = 1;  // threads of each executor
};

class ServedModel {
 public:
  virtual ~ServedModel() = default;
  /// Answers a request whose path is one of the model's, now or later; false when it is none.
  virtual bool take(const HttpRequest& request, const HttpReply& reply) = 0;
  /// "there are /predict, /metrics and /health".
  virtual std::string_view paths() const = 0;
  virtual std::string_view name() const = 0;
  virtual BatchCounts counts() const = 0;
  /// Answers the requests that wait, and takes no more.
  virtual void finish() = 0;
};

/// The model of a file that names a task. Errors: as models::Served.
std::unique_ptr<ServedModel> text_model(ModelFile file, const std::string& path, const ServingOptions& options);
/// The model of any other file. `name` stands in /v2; "": the file's model, or its name without its ending. Errors: as
/// Model; (file) an entry point without a signature.
std::unique_ptr<ServedModel> tensor_model(ModelFile file, const std::string& path, std::string name,
                                          const ServingOptions& options);

/// Whether the request's method is one of these; otherwise answers 405.
bool allows(const HttpRequest& request, const HttpReply& reply, std::initializer_list<std::string_view> methods);

/// 400, 500 or 503 of a request that was not answered.
template <class Result>
HttpAnswer problem_of(const Result& result) {
  using Kind = typename Result::Kind;
  return http_problem(result.kind == Kind::wrong ? 400 : result.kind == Kind::failed ? 500 : 503, result.problem);
}

inline constexpr const char* kTooMany = "too many requests are waiting, or the server ends";

}  // namespace paoding::cli
