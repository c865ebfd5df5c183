// SPDX-License-Identifier: Apache-2.0
// Files are put together by hand here, so that the reader is not tested with the writer's idea of the format.
#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>

#include "paoding/error.h"
#include "paoding/io.h"
#include "tests/support/temporary_folder.h"

namespace paoding {
namespace {

namespace fs = std::filesystem;

std::string length_prefix(std::uint64_t length) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

std::string file_of(const std::string& header, const std::string& body = "") {
  return length_prefix(header.size()) + header + body;
}

SafetensorsFile parse(const std::string& file) {
  // Exactly as long as the text, so that a sanitizer sees a read past the end.
  const std::vector<char> bytes(file.begin(), file.end());
  return parse_safetensors(std::as_bytes(std::span(bytes)), "m.safetensors");
}

/// The message of the error that `file` gives.
std::string safetensors_refusal(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    return error.what();
  }
  return "no error";
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                const std::string& body = "") {
  return file_of(R"({"w":)" + entry(dtype, shape, offsets) + "}", body);
}

// ---- reading ---------------------------------------------------------------

TEST(Safetensors, ReadsEveryDTypeFromHandMadeBytes) {
  using namespace std::string_literals;
  const struct {
    const char* name;
    DType dtype;
    std::string body;
    double value;
  } rows[] = {
      {"F64", f64, "\x00\x00\x00\x00\x00\x00\x04\xC0"s, -2.5},
      {"F32", f32, "\x00\x00\x20\xC0"s, -2.5},
      {"F16", f16, "\x00\xC1"s, -2.5},
      {"BF16", bf16, "\x20\xC0"s, -2.5},
      {"I64", i64, "\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s, -2},
      {"I32", i32, "\xFE\xFF\xFF\xFF"s, -2},
      {"U8", u8, "\xFE"s, 254},
      {"BOOL", boolean, "\x01"s, 1},
  };
  for (const auto& row : rows) {
    const auto size = std::to_string(row.body.size());
    SafetensorsFile file = parse(one(row.name, "[1]", "[0," + size + "]", row.body));
    ASSERT_EQ(file.tensors.count("w"), 1u) << row.name;
    EXPECT_EQ(file.tensors["w"].type(), (Type{row.dtype, {1}})) << row.name;
    EXPECT_EQ(file.tensors["w"].to_doubles(), std::vector<double>{row.value}) << row.name;
  }
}

TEST(Safetensors, ReadsUnalignedTensorsInAnyHeaderOrderIntoAlignedMemory) {
  const std::string header = R"({"late":)" + entry("F32", "[1]", "[1,5]") +
                             R"(,"__metadata__":{"k\n":"v\u00e9"},"early":)" + entry("U8", "[1,1]", "[0,1]") +
                             R"(,"none":)" + entry("F32", "[0,3]", "[1,1]") + R"(,"scalar":)" +
                             entry("U8", "[]", "[5,6]") + "}   ";
  SafetensorsFile file = parse(file_of(header, std::string("\x07\x00\x00\x80\x3F\x09", 6)));
  EXPECT_EQ(file.tensors.size(), 4u);
  EXPECT_EQ(file.tensors["late"].to_doubles(), std::vector<double>{1.0});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.tensors["late"].bytes()) % 64, 0u);
  EXPECT_EQ(file.tensors["early"].to_doubles(), std::vector<double>{7});
  EXPECT_EQ(file.tensors["none"].shape(), (Shape{0, 3}));
  EXPECT_EQ(file.tensors["scalar"].shape(), Shape{});
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"k\n", "v\xC3\xA9"}}));
}

TEST(Safetensors, RefusesBrokenFraming) {
  EXPECT_EQ(safetensors_refusal(""), "m.safetensors: has 0 bytes, a safetensors file has at least 8");
  EXPECT_EQ(safetensors_refusal("1234567"), "m.safetensors: has 7 bytes, a safetensors file has at least 8");
  EXPECT_EQ(safetensors_refusal(length_prefix(~0ull)),
            "m.safetensors: header length 18446744073709551615 is over the limit of 100000000: not a safetensors file");
  EXPECT_EQ(safetensors_refusal(length_prefix(100'000'000) + "{}"),
            "m.safetensors: truncated: header length 100000000, but the file has only 2 bytes after it");
  EXPECT_EQ(safetensors_refusal(file_of("")),
            "m.safetensors: the header of 0 bytes starts with '', must be a JSON object");
  EXPECT_EQ(safetensors_refusal(file_of("[]")),
            "m.safetensors: the header of 2 bytes starts with '[', must be a JSON object");
  EXPECT_NE(safetensors_refusal(file_of("{\"w\":")).find("not valid JSON"), std::string::npos);
  EXPECT_NE(safetensors_refusal(file_of("{}{}")).find("not valid JSON"), std::string::npos);
  EXPECT_NE(safetensors_refusal(file_of("{\"\xFF\":1}")).find("not valid JSON"), std::string::npos);
  EXPECT_NE(safetensors_refusal(file_of(std::string(5000, '[').insert(0, "{\"w\":"))).find("not valid JSON"),
            std::string::npos);
}

TEST(Safetensors, RefusesTensorsThatSayNonsense) {
  const std::string w = "m.safetensors: tensor 'w': ";
  EXPECT_EQ(safetensors_refusal(file_of(R"({"w":[1]})")),
            w + "is [1], must be an object with dtype, shape and data_offsets");
  EXPECT_EQ(safetensors_refusal(file_of(R"({"w":{"shape":[],"data_offsets":[0,1]}})", "x")), w + "has no dtype");
  EXPECT_EQ(safetensors_refusal(file_of(R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", "x")), w + "has no shape");
  EXPECT_EQ(safetensors_refusal(file_of(R"({"w":{"dtype":"U8","shape":[1]}})", "x")), w + "has no data_offsets");
  EXPECT_EQ(safetensors_refusal(file_of(R"({"w":{"dtype":"U8","dtype":"U8"}})")), w + "has 'dtype' twice");
  EXPECT_EQ(safetensors_refusal(file_of(R"({"w":{"dtype":3,"shape":[1],"data_offsets":[0,1]}})")),
            w + "dtype is 3, must be a string");
  EXPECT_EQ(safetensors_refusal(one("F8_E4M3", "[1]", "[0,1]", "x")),
            w + "dtype 'F8_E4M3' is not supported, must be one of F64 F32 F16 BF16 I64 I32 U8 BOOL");
  EXPECT_EQ(safetensors_refusal(one("U8", "1", "[0,1]", "x")), w + "shape is 1, must be an array");
  EXPECT_EQ(safetensors_refusal(one("U8", "[2,-1]", "[0,1]", "x")),
            w + "shape [2,-1]: extent -1 of axis 1 must be an integer from 0 to 2^63 - 1");
  EXPECT_NE(safetensors_refusal(one("U8", "[1.0]", "[0,1]", "x")).find("extent 1.0 of axis 0"), std::string::npos);
  EXPECT_NE(safetensors_refusal(one("U8", "[9223372036854775808]", "[0,1]", "x")).find("extent 9223372036854775808"),
            std::string::npos);
  EXPECT_EQ(safetensors_refusal(one("U8", "[4294967296,4294967296]", "[0,0]")),
            w + "shape [4294967296,4294967296] overflows: more than 2^59 elements");
  EXPECT_NE(safetensors_refusal(one("U8", "[0,4294967296,4294967296]", "[0,0]")).find("overflows"), std::string::npos);
  EXPECT_EQ(safetensors_refusal(one("U8", "[0,281474976710656]", "[0,0]")),
            w + "shape: extent 281474976710656 of axis 1 is over 2^47");
  EXPECT_EQ(safetensors_refusal(one("U8", "[70368744177664,4]", "[0,281474976710656]")),
            w + "u8[70368744177664,4]: has more than 2^47 bytes");
  EXPECT_EQ(safetensors_refusal(one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]", "x")),
            w + "shape [1,1,1,1,1,1,1,1,1] has more than 8 axes");
  EXPECT_EQ(parse(one("U8", "[1,1,1,1,1,1,1,1]", "[0,1]", "x")).tensors["w"].shape().rank(), 8);
  EXPECT_EQ(safetensors_refusal(one("F32", "[2,3]", "[0,20]", std::string(20, 'x'))),
            w + "data_offsets [0, 20] hold 20 bytes, but F32 of shape [2, 3] is 24 bytes");
  EXPECT_EQ(safetensors_refusal(one("BOOL", "[3]", "[0,3]", std::string("\0\1\2", 3))),
            w + "BOOL element 2 is 2, must be 0 or 1");
}

TEST(Safetensors, RefusesOffsetsThatDoNotFillTheBody) {
  const std::string w = "m.safetensors: tensor 'w': ";
  for (const char* offsets : {"7", "[0]", "[0,1,2]", "[1,0]", "[-1,0]", "[0,\"1\"]", "[0.0,1]"}) {
    EXPECT_NE(safetensors_refusal(one("U8", "[1]", offsets, "x")).find("must be [begin, end]"), std::string::npos)
        << offsets;
  }
  EXPECT_EQ(safetensors_refusal(one("U8", "[4]", "[0,4]", "xyz")),
            w + "data_offsets [0, 4] reach past the end of the body, which has 3 bytes");
  EXPECT_NE(safetensors_refusal(one("U8", "[1]", "[18446744073709551614,18446744073709551615]", "x"))
                .find("reach past the end"),
            std::string::npos);
  EXPECT_EQ(safetensors_refusal(one("U8", "[1]", "[2,3]", "xyz")),
            w + "data_offsets [2, 3] leave a hole: bytes 0 to 2 belong to no tensor");
  EXPECT_EQ(safetensors_refusal(one("U8", "[1]", "[0,1]", "xyz")),
            "m.safetensors: the body has 3 bytes, the tensors end at 1: 2 trailing bytes");
  EXPECT_EQ(safetensors_refusal(file_of("{}", "x")),
            "m.safetensors: the body has 1 bytes, the tensors end at 0: 1 trailing bytes");
  EXPECT_EQ(safetensors_refusal(file_of(
                R"({"v":)" + entry("U8", "[2]", "[0,2]") + R"(,"w":)" + entry("U8", "[2]", "[1,3]") + "}", "xyz")),
            w + "data_offsets [1, 3] overlap those of tensor 'v', which end at 2");
}

TEST(Safetensors, RefusesNamesThatAreThereTwiceOrAreNoText) {
  const std::string first = R"({"w":)" + entry("U8", "[1]", "[0,1]");
  EXPECT_EQ(safetensors_refusal(file_of(first + R"(,"\u0077":)" + entry("U8", "[1]", "[1,2]") + "}", "xy")),
            "m.safetensors: tensor 'w': is there twice");
  EXPECT_EQ(safetensors_refusal(file_of(R"({"__metadata__":{},"__metadata__":{}})")),
            "m.safetensors: the header has __metadata__ twice");
  EXPECT_EQ(safetensors_refusal(file_of(R"({"__metadata__":{"a":"1","a":"1"}})")),
            "m.safetensors: metadata 'a' is there twice");
  EXPECT_EQ(safetensors_refusal(file_of(R"({"__metadata__":{"a":1}})")),
            "m.safetensors: metadata 'a' is 1, must be a string");
  EXPECT_EQ(safetensors_refusal(file_of(R"({"__metadata__":["a"]})")),
            "m.safetensors: __metadata__ is [\"a\"], must be an object");
  for (const char* lone : {R"({"\udc00":)", R"({"\ud800":)", R"({"\ud800\u0041":)"}) {
    const std::string text = safetensors_refusal(file_of(lone + entry("U8", "[1]", "[0,1]") + "}", "x"));
    EXPECT_TRUE(text.find("UTF-8") != std::string::npos || text.find("not valid JSON") != std::string::npos) << text;
  }
}

TEST(Safetensors, ShowsHostileNamesShortAndPrintable) {
  const std::string text = safetensors_refusal(file_of("{\"\\u001b[31m" + std::string(5000, 'n') + "\":1}"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("\\x1b[31mnnn"), std::string::npos) << text;
  EXPECT_LT(text.size(), 300u);
}

TEST(Safetensors, NamesTheFileThatCannotBeRead) {
  TemporaryFolder folder;
  auto message = [](const fs::path& path) -> std::string {
    try {
      load_safetensors(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(folder / "absent"), (folder / "absent").string() + ": cannot open: No such file or directory");
  EXPECT_EQ(message(folder / "."), (folder / ".").string() + ": is a folder, not a regular file");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message(folder / "pipe"), (folder / "pipe").string() + ": is a FIFO, not a regular file");  // and no hang
}

// ---- writing ---------------------------------------------------------------

TEST(Safetensors, WritesSortedKeysAlignedBodyAndPaddedHeader) {
  TemporaryFolder folder;
  const std::map<std::string, Tensor> tensors{{"b", Tensor::from(u8, {3}, std::vector<double>{1, 2, 3})},
                                              {"a\"\\\n", Tensor::from(boolean, {}, std::vector<double>{1})},
                                              {"c", Tensor::from(f32, {1, 1}, std::vector<double>{-2.5})}};
  save_safetensors(folder / "x", tensors, {{"step", "7"}});
  std::string header = R"({"__metadata__":{"step":"7"},"a\"\\\n":)" + entry("BOOL", "[]", "[4,5]") + R"(,"b":)" +
                       entry("U8", "[3]", "[5,8]") + R"(,"c":)" + entry("F32", "[1,1]", "[0,4]") + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(slurp(folder / "x"), file_of(header, std::string("\x00\x00\x20\xC0\x01\x01\x02\x03", 8)));
  EXPECT_EQ(folder.files(), 1);

  save_safetensors(folder / "empty", {});
  EXPECT_EQ(slurp(folder / "empty"), file_of("{}      "));
  EXPECT_TRUE(load_safetensors(folder / "empty").empty());
}

TEST(Safetensors, WhatIsWrittenLoadsTheSame) {
  TemporaryFolder folder;
  std::map<std::string, Tensor> tensors;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    tensors[std::string(to_string(dtype))] = Tensor::from(dtype, {2, 3}, std::vector<double>{0, 1, 1, 0, 1, 0});
  }
  tensors["none"] = Tensor(f64, {3, 0});
  tensors["unset"] = Tensor();
  save_safetensors(folder / "x", tensors, {{"k", "\x01\x7F\"v"}});
  SafetensorsFile read = read_safetensors(folder / "x");
  EXPECT_EQ(read.metadata, (std::map<std::string, std::string>{{"k", "\x01\x7F\"v"}}));
  ASSERT_EQ(read.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(read.tensors[name].type(), tensor.type()) << name;
    EXPECT_EQ(read.tensors[name].to_doubles(), tensor.to_doubles()) << name;
  }
}

TEST(Safetensors, RefusesToWriteWhatItWouldNotRead) {
  TemporaryFolder folder;
  Tensor bad_bool = Tensor::from(boolean, {2}, std::vector<double>{0, 1});
  bad_bool.bytes()[1] = std::byte{5};
  const Tensor good = Tensor::from(u8, {1}, std::vector<double>{1});
  EXPECT_THROW(save_safetensors(folder / "x", {{"w", bad_bool}}), Error);
  EXPECT_THROW(save_safetensors(folder / "x", {{"\xFF", good}}), Error);
  EXPECT_THROW(save_safetensors(folder / "x", {{"__metadata__", good}}), Error);
  EXPECT_THROW(save_safetensors(folder / "x", {{"w", Tensor(Type{f32, {2}}, nullptr)}}), Error);
  EXPECT_THROW(save_safetensors(folder / "x", {{"w", good}}, {{"k", "\xFF"}}), Error);
  EXPECT_THROW(save_safetensors(folder / "absent/x", {{"w", good}}), Error);
  EXPECT_THROW(save_safetensors(folder / ".", {{"w", good}}), Error);
  EXPECT_EQ(folder.files(), 0);
}

TEST(Safetensors, AFailedWriteKeepsTheOldFileAndLeavesNothingElse) {
  TemporaryFolder folder;
  save_safetensors(folder / "x", {{"old", Tensor::from(u8, {1}, std::vector<double>{1})}});
  const std::string before = slurp(folder / "x");

  // A limit on file sizes makes write() fail half way, as a full disk does.
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  auto old_action = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{4096, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  std::string message = "no error";
  try {
    save_safetensors(folder / "x", {{"new", Tensor::from(u8, {10000}, std::vector<double>(10000, 1))}});
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  signal(SIGXFSZ, old_action);

  EXPECT_EQ(message, (folder / "x").string() + ": cannot write: File too large");
  EXPECT_EQ(slurp(folder / "x"), before);
  EXPECT_EQ(folder.files(), 1);
}

TEST(Safetensors, ReplacesItsOwnFileWithItsPermissionsAndNoOther) {
  TemporaryFolder folder;
  const Tensor tensor = Tensor::from(u8, {1}, std::vector<double>{1});
  save_safetensors(folder / "x", {{"old", tensor}});
  fs::permissions(folder / "x", fs::perms::owner_read | fs::perms::owner_write | fs::perms::others_read);
  fs::create_symlink("x", folder / "link");
  save_safetensors(folder / "link", {{"new", tensor}});
  EXPECT_FALSE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(load_safetensors(folder / "x").count("old"), 1u);
  EXPECT_EQ(load_safetensors(folder / "link").count("new"), 1u);
  save_safetensors(folder / "x", {{"new", tensor}});
  EXPECT_EQ(load_safetensors(folder / "x").count("new"), 1u);
  EXPECT_EQ(fs::status(folder / "x").permissions(),
            fs::perms::owner_read | fs::perms::owner_write | fs::perms::others_read);
  const fs::path letter = folder.write("letter", "dear reader");
  EXPECT_THROW(save_safetensors(letter, {{"new", tensor}}), Error);
  EXPECT_EQ(slurp(letter), "dear reader");
}

}  // namespace
}  // namespace paoding
