// SPDX-License-Identifier: Apache-2.0
// A model of images over HTTP: pixels as bytes and as base64 get the answers of `paoding predict`.
#include "cli/question.h"
#include "tests/cli/serving_run.h"
#include "tests/support/small_corpora.h"

namespace paoding {
namespace {

constexpr std::size_t kPixels = 28 * 28;

std::string image(unsigned number) {
  std::string pixels;
  for (unsigned at = 0; at < kPixels; ++at) {
    pixels += static_cast<char>((at * 31 + number * 17) % 100 + (at / 79 == number % 10 ? 150 : 0));
  }
  return pixels;
}

std::string base64(const std::string& bytes) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? digits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// Lines {"input":..,"predictions":[..]} of `paoding predict --json`: the lists.
std::vector<std::string> predictions_of(const std::string& lines) {
  std::vector<std::string> all;
  for (const std::string& line : lines_of(lines)) {
    const std::size_t at = line.find("\"predictions\":");
    all.push_back(line.substr(at + 14, line.size() - at - 15));
  }
  return all;
}

class ServeImages : public ServingRun {
 protected:
  void SetUp() override {
    ServingRun::SetUp();
    const std::string data = small_corpora::all().path().string();
    const Ran ran =
        shell("paoding train fashion --channels 4 --epochs 2 --batch-size 16 --show 0 --out a --data " + data);
    ASSERT_EQ(ran.code, 0) << ran.err;
    ASSERT_EQ(shell("paoding export a fashion.pd").code, 0);
  }
};

TEST_F(ServeImages, PixelsGetWhatPredictSays) {
  std::string file("\0\0\x08\x03\0\0\0\x03\0\0\0\x1c\0\0\0\x1c", 16), pixels, list;
  for (unsigned i = 0; i < 3; ++i) {
    pixels += image(i);
    list += (i == 0 ? "\"" : ", \"") + base64(image(i)) + "\"";
  }
  folder_.write("three-idx3-ubyte", file + pixels);
  const Ran predicted = shell("paoding predict fashion.pd three-idx3-ubyte --json --best 10");
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  const auto expected = predictions_of(predicted.out);
  ASSERT_EQ(expected.size(), 3u) << predicted.out;
  const std::string all = "{\"predictions\":[" + expected[0] + "," + expected[1] + "," + expected[2] + "]}\n";

  start("fashion.pd", {});
  EXPECT_EQ(body_of(ask("POST", "/predict", "{\"inputs\": [" + list + "], \"best\": 10}", "application/json")), all);
  // A request of bytes gets the best class alone.
  const std::string best = body_of(ask("POST", "/predict", pixels, "application/octet-stream"));
  std::vector<std::string> first;
  for (const std::string& one : expected) first.push_back(one.substr(0, one.find('}') + 1) + "]");
  EXPECT_EQ(best, "{\"predictions\":[" + first[0] + "," + first[1] + "," + first[2] + "]}\n");

  const auto said = [&](const std::string& answer, const char* words) {
    EXPECT_TRUE(has(answer, "HTTP/1.1 400") && has(answer, words)) << answer;
  };
  said(ask("POST", "/predict", pixels.substr(1), "image/x"), "needed are images of 784 bytes each");
  said(ask("POST", "/predict", R"({"inputs": "AAAA"})", "application/json"), "an image has 3 bytes, needed are 784");
  said(ask("POST", "/predict", R"({"inputs": "A*"})", "application/json"), "an input is no base64 of an image");
  said(ask("POST", "/predict", R"({"inputs": "AAAA", "best": 11})", "application/json"), "the model knows 10 kinds");
  said(ask("POST", "/predict", "", "image/x"), "there is no input");
  EXPECT_EQ(end(), 0);
}

TEST(Base64, IsDecodedOrRefused) {
  for (std::size_t size = 0; size < 40; ++size) {
    const std::string bytes = image(7).substr(100, size);
    std::string text = base64(bytes), got;
    EXPECT_TRUE(cli::decode_base64(text, &got)) << text;
    EXPECT_EQ(got, bytes);
    while (text.ends_with('=')) text.pop_back();
    EXPECT_TRUE(cli::decode_base64(text, &got) && got == bytes) << text;
  }
  for (const char* wrong : {"A", "AB=C", "AB*=", "A===", "AAAAA", "AB", "ABC"}) {
    std::string got;
    EXPECT_FALSE(cli::decode_base64(wrong, &got)) << wrong;
  }
}

}  // namespace
}  // namespace paoding
