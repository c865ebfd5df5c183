// SPDX-License-Identifier: Apache-2.0
// Writing safetensors.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/safetensors.h"
#include "paoding/io.h"

namespace paoding {
namespace safetensors {
namespace {

void check_tensor(const std::string& file, const std::string& name, const Tensor& tensor) {
  check_text(file, "tensor name", name);
  if (name == kMetadataKey) {
    fail(ErrorKind::file, "{}: tensor '{}': the format keeps this name for the metadata", file, name);
  }
  if (tensor.size_bytes() > 0 && tensor.bytes() == nullptr) {
    fail(ErrorKind::file, "{}: tensor '{}': {} has no memory", file, shown(name), to_string(tensor.type()));
  }
  // A written file must load again.
  std::int64_t product = 1;
  for (const std::int64_t extent : tensor.shape().dims()) {
    if (extent > 0 && product > kMaxElements / extent) {
      fail(ErrorKind::file, "{}: tensor '{}': shape {} has more than 2^59 elements, could not be read again", file,
           shown(name), to_string(tensor.shape()));
    }
    product *= std::max<std::int64_t>(extent, 1);
  }
  if (std::int64_t bad = first_bad_bool(tensor); bad >= 0) {
    fail(ErrorKind::file, "{}: tensor '{}': bool element {} is {}, must be 0 or 1", file, shown(name), bad,
         std::to_integer<int>(tensor.bytes()[bad]));
  }
}

/// Wide elements first, then by name, so that every tensor is aligned to its elements without padding, which the
/// format forbids; readers that map the file count on it.
std::vector<const NamedTensor*> body_order(const std::map<std::string, Tensor>& tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return size_bytes(a->second.dtype()) > size_bytes(b->second.dtype());
  });
  return order;
}

std::string header_text(const std::map<std::string, Tensor>& tensors, const std::vector<const NamedTensor*>& order,
                        const std::map<std::string, std::string>& metadata) {
  std::map<std::string_view, std::int64_t> begins;
  std::int64_t offset = 0;
  for (const NamedTensor* entry : order) {
    begins[entry->first] = offset;
    offset += entry->second.size_bytes();
  }
  std::string json = "{";
  if (!metadata.empty()) {
    json += json_string(kMetadataKey);
    json += ":{";
    for (const auto& [key, text] : metadata) {
      if (json.back() != '{') json += ',';
      json += json_string(key);
      json += ':';
      json += json_string(text);
    }
    json += '}';
  }
  for (const auto& [name, tensor] : tensors) {
    if (json.size() > 1) json += ',';
    json += json_string(name);
    const std::int64_t begin = begins[name];
    json += fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", dtype_name(tensor.dtype()),
                        fmt::join(tensor.shape().dims(), ","), begin, begin + tensor.size_bytes());
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');  // the body starts aligned
  return json;
}

}  // namespace

FileLayout::FileLayout(const std::string& file, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  for (const auto& [name, tensor] : tensors) check_tensor(file, name, tensor);
  for (const auto& [key, text] : metadata) {
    check_text(file, "metadata key", key);
    check_text(file, "metadata", text);
  }
  order_ = body_order(tensors);
  header_ = header_text(tensors, order_, metadata);
  if (header_.size() > kMaxHeaderBytes) {
    fail(ErrorKind::file, "{}: the header has {} bytes, over the format's limit of {}", file, header_.size(),
         kMaxHeaderBytes);
  }
}

// The length of the header, which begins with a brace.
bool begins_file(std::string_view head) {
  std::uint64_t length = 0;
  if (head.size() <= kLengthBytes) return false;
  std::memcpy(&length, head.data(), kLengthBytes);
  return length <= kMaxHeaderBytes && head[kLengthBytes] == '{';
}

void FileLayout::write(const Write& write) const {
  const std::uint64_t length = header_.size();
  write(&length, kLengthBytes);
  write(header_.data(), header_.size());
  for (const NamedTensor* entry : order_) {
    write(entry->second.bytes(), static_cast<std::size_t>(entry->second.size_bytes()));
  }
}

}  // namespace safetensors

void save_safetensors(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const safetensors::FileLayout layout(path.string(), tensors, metadata);
  files::AtomicFile out(path, safetensors::begins_file);
  layout.write([&](const void* bytes, std::size_t size_bytes) { out.write(bytes, size_bytes); });
  out.commit();
}

}  // namespace paoding
