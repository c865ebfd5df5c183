// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: bodies of /v2/models/NAME/infer and /predict. Whatever they are, they are refused by an error of
// the argument kind, or become tensors that the signature allows, which are answered. The first two bytes say how long
// the JSON in front is.
#include <cstdint>
#include <string>

#include "cli/serve/infer_request.h"
#include "paoding/error.h"

namespace {

using namespace paoding;
using namespace paoding::cli;

const ModelSignature& signature() {
  static const ModelSignature made{
      {{"x", f32, {-1, 2}, 0}, {"n", i64, {-1}, 0}, {"b", boolean, {2}, -1}}, {{"y", f16, {-1, 2}, 0}}, true};
  return made;
}

template <class Read>
void try_to(const Read& read) {
  try {
    for (const auto& [name, tensor] : read()) {
      if (tensor.size_bytes() > (1 << 20)) __builtin_trap();  // more than the body could have paid for
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::argument) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  if (size_bytes < 2) return 0;
  const std::string body(reinterpret_cast<const char*>(bytes) + 2, size_bytes - 2);
  HttpRequest request{"POST", "/", "application/json", body};
  try_to([&] { return plain_feeds_of(request, signature()); });
  const ModelSignature one{{signature().inputs[0]}, {}, true};
  request.content_type = "application/octet-stream";
  try_to([&] { return plain_feeds_of(request, one); });
  const int length = bytes[0] * 256 + bytes[1];
  if (length > 0) request.headers = {{"Inference-Header-Content-Length", std::to_string(length)}};
  try_to([&] {
    InferRequest read = infer_request_of(request, signature());
    infer_answer("m", read, {{"y", Tensor::from(f16, {1, 2}, {1, 2})}});
    return read.feeds;
  });
  return 0;
}
