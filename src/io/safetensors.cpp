// SPDX-License-Identifier: Apache-2.0
// Reading safetensors. A file is hostile until checked: the whole layout is checked against the file's size before
// memory for tensors is taken, so a small file cannot ask for much.
#include "io/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "paoding/io.h"
#include "text/printable.h"

namespace paoding {
namespace safetensors {

std::string_view dtype_name(DType dtype) {
  for (const DTypeName& row : kDTypeNames) {
    if (row.dtype == dtype) return row.name;
  }
  PD_ASSERT(false, "a dtype without a safetensors name");
  return {};
}

std::string shown(std::string_view text) {
  constexpr std::size_t kMaxShown = 120;
  const bool is_cut = text.size() > kMaxShown;
  if (is_cut) {
    std::size_t length = kMaxShown;
    // Not in the middle of a character: bytes 10xxxxxx continue one.
    while (length > kMaxShown - 4 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
    text = text.substr(0, length);
  }
  return printable(text, "") + (is_cut ? "..." : "");
}

void check_text(std::string_view file, std::string_view what, std::string_view text) {
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    fail(ErrorKind::file, "{}: {} '{}' is not valid UTF-8", file, what, shown(text));
  }
}

std::int64_t first_bad_bool(const Tensor& tensor) {
  if (tensor.dtype() != DType::boolean) return -1;
  const std::byte* begin = tensor.bytes();
  const std::byte* end = begin + tensor.size_bytes();
  const std::byte* bad = std::find_if(begin, end, [](std::byte b) { return b > std::byte{1}; });
  return bad == end ? -1 : bad - begin;
}

namespace {

namespace dom = simdjson::dom;

/// Fills `to` with the file's bytes from `offset` on, all of which lie inside the file's size.
using ReadAt = std::function<void(std::uint64_t offset, std::byte* to, std::size_t size_bytes)>;

/// One tensor of the header.
struct Entry {
  std::string name;
  Type type;
  std::uint64_t begin = 0;  // offsets in the body
  std::uint64_t end = 0;
};

struct Header {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

std::string shown(const dom::element& value) { return safetensors::shown(std::string_view(simdjson::minify(value))); }
using safetensors::shown;  // declared out there, hidden by the overload

template <class... Args>
[[noreturn]] void fail_tensor(std::string_view file, std::string_view tensor, fmt::format_string<Args...> format,
                              Args&&... args) {
  fail(ErrorKind::file, "{}: tensor '{}': {}", file, shown(tensor), fmt::format(format, std::forward<Args>(args)...));
}

/// The result of make(); its errors about a shape without such a size, or a type, name the file.
template <class Make>
auto of_tensor(std::string_view file, std::string_view tensor, Make make) {
  try {
    return make();
  } catch (const Error& error) {
    fail_tensor(file, tensor, "{}", error.what());
  }
}

DType read_dtype(std::string_view file, std::string_view tensor, const dom::element& value) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) fail_tensor(file, tensor, "dtype is {}, must be a string", shown(value));
  std::string supported;
  for (const DTypeName& row : kDTypeNames) {
    if (row.name == text) return row.dtype;
    supported += supported.empty() ? "" : " ";
    supported += row.name;
  }
  fail_tensor(file, tensor, "dtype '{}' is not supported, must be one of {}", shown(text), supported);
}

Shape read_shape(std::string_view file, std::string_view tensor, const dom::element& value) {
  dom::array axes;
  if (value.get(axes) != simdjson::SUCCESS) fail_tensor(file, tensor, "shape is {}, must be an array", shown(value));
  std::vector<std::int64_t> extents;
  std::int64_t product = 1;
  for (dom::element axis : axes) {
    if (extents.size() == Shape::kMaxRank) {
      fail_tensor(file, tensor, "shape {} has more than {} axes", shown(value), Shape::kMaxRank);
    }
    std::int64_t extent = 0;
    if (axis.get(extent) != simdjson::SUCCESS || extent < 0) {
      fail_tensor(file, tensor, "shape {}: extent {} of axis {} must be an integer from 0 to 2^63 - 1", shown(value),
                  shown(axis), extents.size());
    }
    if (extent > 0 && product > kMaxElements / extent) {
      fail_tensor(file, tensor, "shape {} overflows: more than 2^59 elements", shown(value));
    }
    product *= std::max<std::int64_t>(extent, 1);
    extents.push_back(extent);
  }
  return of_tensor(file, tensor, [&] { return Shape(std::span<const std::int64_t>(extents)); });
}

std::pair<std::uint64_t, std::uint64_t> read_offsets(std::string_view file, std::string_view tensor,
                                                     const dom::element& value) {
  dom::array pair;
  if (value.get(pair) == simdjson::SUCCESS && pair.size() == 2) {
    std::uint64_t begin = 0, end = 0;
    if (pair.at(0).get(begin) == simdjson::SUCCESS && pair.at(1).get(end) == simdjson::SUCCESS && begin <= end) {
      return {begin, end};
    }
  }
  fail_tensor(file, tensor, "data_offsets is {}, must be [begin, end] with 0 <= begin <= end", shown(value));
}

Entry read_entry(std::string_view file, std::string_view name, const dom::element& value) {
  dom::object fields;
  if (value.get(fields) != simdjson::SUCCESS) {
    fail_tensor(file, name, "is {}, must be an object with dtype, shape and data_offsets", shown(value));
  }
  std::optional<dom::element> dtype, shape, offsets;
  for (dom::key_value_pair field : fields) {
    std::optional<dom::element>* place = field.key == "dtype"          ? &dtype
                                         : field.key == "shape"        ? &shape
                                         : field.key == "data_offsets" ? &offsets
                                                                       : nullptr;
    if (place == nullptr) continue;  // as the reference implementation does
    if (place->has_value()) fail_tensor(file, name, "has '{}' twice", field.key);
    *place = field.value;
  }
  if (!dtype) fail_tensor(file, name, "has no dtype");
  if (!shape) fail_tensor(file, name, "has no shape");
  if (!offsets) fail_tensor(file, name, "has no data_offsets");

  Entry entry{std::string(name), {read_dtype(file, name, *dtype), read_shape(file, name, *shape)}};
  std::tie(entry.begin, entry.end) = read_offsets(file, name, *offsets);
  const auto needed = of_tensor(file, name, [&] { return static_cast<std::uint64_t>(size_bytes(entry.type)); });
  if (entry.end - entry.begin != needed) {
    fail_tensor(file, name, "data_offsets [{}, {}] hold {} bytes, but {} of shape {} is {} bytes", entry.begin,
                entry.end, entry.end - entry.begin, dtype_name(entry.type.dtype), to_string(entry.type.shape), needed);
  }
  return entry;
}

std::map<std::string, std::string> read_metadata(std::string_view file, const dom::element& value) {
  dom::object fields;
  if (value.get(fields) != simdjson::SUCCESS) {
    fail(ErrorKind::file, "{}: {} is {}, must be an object", file, kMetadataKey, shown(value));
  }
  std::map<std::string, std::string> metadata;
  for (dom::key_value_pair field : fields) {
    check_text(file, "metadata key", field.key);
    std::string_view text;
    if (field.value.get(text) != simdjson::SUCCESS) {
      fail(ErrorKind::file, "{}: metadata '{}' is {}, must be a string", file, shown(field.key), shown(field.value));
    }
    check_text(file, "metadata", text);
    if (!metadata.emplace(field.key, text).second) {
      fail(ErrorKind::file, "{}: metadata '{}' is there twice", file, shown(field.key));
    }
  }
  return metadata;
}

/// `json` has SIMDJSON_PADDING more bytes than `length`.
Header read_header(std::string_view file, const std::vector<char>& json, std::size_t length) {
  // The format asks for it; JSON alone would allow white space first.
  if (length == 0 || json[0] != '{') {
    fail(ErrorKind::file, "{}: the header of {} bytes starts with '{}', must be a JSON object", file, length,
         shown(std::string_view(json.data(), std::min<std::size_t>(length, 1))));
  }
  dom::parser parser;
  dom::element root;
  if (auto code = parser.parse(json.data(), length, false).get(root); code != simdjson::SUCCESS) {
    fail(ErrorKind::file, "{}: the header of {} bytes is not valid JSON: {}", file, length,
         simdjson::error_message(code));
  }
  dom::object object;
  if (root.get(object) != simdjson::SUCCESS) fail(ErrorKind::file, "{}: the header is not a JSON object", file);

  Header header;
  bool has_metadata = false;
  for (dom::key_value_pair field : object) {
    if (field.key == kMetadataKey) {
      if (has_metadata) fail(ErrorKind::file, "{}: the header has {} twice", file, kMetadataKey);
      has_metadata = true;
      header.metadata = read_metadata(file, field.value);
    } else {
      check_text(file, "tensor name", field.key);
      header.entries.push_back(read_entry(file, field.key, field.value));
    }
  }
  return header;
}

/// Names differ, and the tensors fill the body from its first byte to its last, each byte once.
void check_layout(std::string_view file, std::vector<Entry>* entries, std::uint64_t body_bytes) {
  std::sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  auto twice = std::adjacent_find(entries->begin(), entries->end(),
                                  [](const Entry& a, const Entry& b) { return a.name == b.name; });
  if (twice != entries->end()) fail_tensor(file, twice->name, "is there twice");

  std::stable_sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t filled = 0;
  std::string_view before = "start of the body";
  for (const Entry& entry : *entries) {
    if (entry.end > body_bytes) {
      fail_tensor(file, entry.name, "data_offsets [{}, {}] reach past the end of the body, which has {} bytes",
                  entry.begin, entry.end, body_bytes);
    }
    if (entry.begin < filled) {
      fail_tensor(file, entry.name, "data_offsets [{}, {}] overlap those of tensor '{}', which end at {}", entry.begin,
                  entry.end, shown(before), filled);
    }
    if (entry.begin > filled) {
      fail_tensor(file, entry.name, "data_offsets [{}, {}] leave a hole: bytes {} to {} belong to no tensor",
                  entry.begin, entry.end, filled, entry.begin);
    }
    filled = entry.end;
    before = entry.name;
  }
  if (filled != body_bytes) {
    fail(ErrorKind::file, "{}: the body has {} bytes, the tensors end at {}: {} trailing bytes", file, body_bytes,
         filled, body_bytes - filled);
  }
}

SafetensorsFile read_checked(std::string_view file, std::uint64_t file_bytes, const ReadAt& read_at) {
  if (file_bytes < kLengthBytes) {
    fail(ErrorKind::file, "{}: has {} bytes, a safetensors file has at least {}", file, file_bytes, kLengthBytes);
  }
  std::uint64_t length = 0;
  read_at(0, reinterpret_cast<std::byte*>(&length), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    fail(ErrorKind::file, "{}: header length {} is over the limit of {}: not a safetensors file", file, length,
         kMaxHeaderBytes);
  }
  if (length > file_bytes - kLengthBytes) {
    fail(ErrorKind::file, "{}: truncated: header length {}, but the file has only {} bytes after it", file, length,
         file_bytes - kLengthBytes);
  }
  std::vector<char> json(length + simdjson::SIMDJSON_PADDING);
  read_at(kLengthBytes, reinterpret_cast<std::byte*>(json.data()), length);
  Header header = read_header(file, json, length);
  const std::uint64_t body = kLengthBytes + length;
  check_layout(file, &header.entries, file_bytes - body);

  SafetensorsFile result{{}, std::move(header.metadata)};
  // Each tensor gets memory of its own rather than a part of one buffer: it is then aligned whatever its offset is,
  // and keeping one does not keep the file.
  for (Entry& entry : header.entries) {
    Tensor tensor(entry.type);
    read_at(body + entry.begin, tensor.bytes(), static_cast<std::size_t>(entry.end - entry.begin));
    if (std::int64_t bad = first_bad_bool(tensor); bad >= 0) {
      fail_tensor(file, entry.name, "BOOL element {} is {}, must be 0 or 1", bad,
                  std::to_integer<int>(tensor.bytes()[bad]));
    }
    result.tensors.emplace(std::move(entry.name), std::move(tensor));
  }
  return result;
}

SafetensorsFile read_or_out_of_memory(std::string_view file, std::uint64_t file_bytes, const ReadAt& read_at) {
  try {
    return read_checked(file, file_bytes, read_at);
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::file, "{}: not enough memory to load its {} bytes", file, file_bytes);
  }
}

}  // namespace

SafetensorsFile read(const files::InputFile& file) {
  return read_or_out_of_memory(
      file.name(), file.size_bytes(),
      [&](std::uint64_t offset, std::byte* to, std::size_t size_bytes) { file.read_at(offset, to, size_bytes); });
}

}  // namespace safetensors

SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  return safetensors::read_or_out_of_memory(name, bytes.size(),
                                            [&](std::uint64_t offset, std::byte* to, std::size_t size_bytes) {
                                              if (size_bytes > 0) std::memcpy(to, bytes.data() + offset, size_bytes);
                                            });
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  return safetensors::read(files::InputFile(path));
}

std::map<std::string, Tensor> load_safetensors(const std::filesystem::path& path) {
  return read_safetensors(path).tensors;
}

}  // namespace paoding
