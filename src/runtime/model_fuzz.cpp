// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever bytes a model file has, it is read or Error says why not; and with the checksum that its
// content would have, so that the code after the check is reached too, it becomes a model whose inputs can be asked
// for, or an Error. Bytes that change nothing of a file are read back as they were written.
// Build and run: make fuzz
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "paoding/error.h"
#include "paoding/io.h"
#include "paoding/model.h"

namespace {

using namespace paoding;

// The same content without its seal, as save_model() would have been given it.
ModelFile unsealed(const SafetensorsFile& read) {
  ModelFile model;
  for (const auto& [key, text] : read.metadata) {
    const auto rest = [&key = key](std::size_t count) { return key.substr(count); };
    if (key == "model") model.model = text;
    if (key.starts_with("graph:")) model.graphs[rest(6)] = text;
    if (key.starts_with("option:")) model.options[rest(7)] = text;
  }
  for (const auto& [name, tensor] : read.tensors) {
    if (name.starts_with("file:")) {
      model.files[name.substr(5)] =
          std::string(reinterpret_cast<const char*>(tensor.bytes()), static_cast<std::size_t>(tensor.size_bytes()));
    } else {
      model.parameters[name] = tensor;
    }
  }
  return model;
}

void use(ModelFile file) {
  const Model model(std::move(file), {}, "fuzz");
  for (const std::string& entry : model.entries()) {
    for (const auto& inputs : model.inputs(entry)) {
      for (const auto& [name, type] : inputs) {
        if (type.shape.elements() < 0) __builtin_trap();
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  const std::span<const std::byte> all = std::as_bytes(std::span(bytes, size_bytes));
  try {
    use(parse_model_file(all, "fuzz"));
  } catch (const Error&) {
  }
  try {
    use(unsealed(parse_safetensors(all, "fuzz")));
  } catch (const Error&) {
  }
  return 0;
}
