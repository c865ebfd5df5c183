// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "data/image_formats.h"
#include "data/test_folder.h"
#include "paoding/data/corpora.h"
#include "tests/support/temporary_folder.h"

namespace paoding::data {
namespace {

std::string idx(const std::vector<std::uint32_t>& extents, std::string_view body, char type = 8) {
  std::string bytes{'\0', '\0', type, static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift & 0xff);
  }
  return bytes.append(body);
}

std::string refused(const std::string& bytes, int rank) {
  return refusal([&] { parse_idx(std::string(bytes), "f", rank); });
}

TEST(Idx, GivesBytesInTheirShape) {
  const Tensor images = parse_idx(idx({2, 1, 3}, "abc\xff\x01z"), "f", 3);
  EXPECT_EQ(images.type(), Type(u8, Shape{2, 1, 3}));
  EXPECT_EQ(images.to_doubles(), (std::vector<double>{97, 98, 99, 255, 1, 122}));
}

TEST(Idx, RefusesEveryOtherLength) {
  const std::string file = idx({2, 1, 3}, "abcdef");
  for (std::size_t size = 0; size < file.size(); ++size) EXPECT_NE(refused(file.substr(0, size), 3), "") << size;
  EXPECT_EQ(refused(file.substr(0, 18), 3), "file: f: 2 bytes of elements, its extents 2 x 1 x 3 need 6: get it again");
  EXPECT_EQ(refused(file + "g", 3), "file: f: 7 bytes of elements, its extents 2 x 1 x 3 need 6: get it again");
  EXPECT_EQ(refused(file.substr(0, 9), 3),
            "file: f: 9 bytes, shorter than its header of 16: it is truncated, get it again");
}

TEST(Idx, RefusesOtherKinds) {
  EXPECT_EQ(refused("", 3), "file: f: begins with nothing, an IDX file begins with 00 00 08 03, a PGM picture with P5");
  EXPECT_EQ(refused("PK\x03\x04", 1),
            "file: f: begins with 50 4b 03 04, an IDX file begins with 00 00 08 01, a PGM picture with P5");
  EXPECT_EQ(refused(idx({4}, "abcd", 0x0d), 1),
            "file: f: IDX elements of type 0x0d on 1 axes, must be bytes (0x08) on 1");
  EXPECT_EQ(refused(idx({2}, "ab"), 3), "file: f: IDX elements of type 0x08 on 1 axes, must be bytes (0x08) on 3");
  EXPECT_EQ(refused(idx({0, 28, 28}, ""), 3), "file: f: axis 0 has extent 0, there is nothing in it");
}

TEST(Idx, RefusesExtentsWhoseProductOverflows) {
  // 2^16 * 2^24 * 2^24 is 2^64: 0, as 64 bits have it.
  EXPECT_EQ(
      refused(idx({1 << 16, 1 << 24, 1 << 24}, ""), 3),
      "file: f: 0 bytes of elements, its extents 65536 x 16777216 x 16777216 need 18446744073709551616: get it again");
}

TEST(Pgm, GivesPixelsOf255) {
  const Tensor picture = parse_pgm("P5\n# by hand\n3 2 # w h\n255\nabc\xff\n#", "f");
  EXPECT_EQ(picture.type(), Type(u8, Shape{1, 2, 3}));
  EXPECT_EQ(picture.to_doubles(), (std::vector<double>{97, 98, 99, 255, 10, 35}));
  const std::string two_values = std::string("P5 3 1 2\n") + '\0' + '\1' + '\2';
  EXPECT_EQ(parse_pgm(two_values, "f").to_doubles(), (std::vector<double>{0, 128, 255}));
}

TEST(Pgm, RefusesWhatIsNoPicture) {
  const auto refused = [](const std::string& bytes) { return refusal([&] { parse_pgm(bytes, "f"); }); };
  const std::string header = "file: f: width, height and largest value of a PGM picture must be numbers in 1 .. 65535";
  EXPECT_EQ(refused("P6 1 1 255\nabc"), "file: f: is no binary PGM picture, which begins with P5");
  for (const char* text : {"P5", "P5 3", "P5 0 3 255\n", "P5 -1 3 255\n", "P5 3 x 255\n",
                           "P5 99999999999999999999 1 255\n", "P5 # never ends"}) {
    EXPECT_EQ(refused(text), header) << text;
  }
  EXPECT_EQ(refused("P5 2 1 255\na"), "file: f: 1 bytes of pixels, a picture of 2 x 1 has 2");
  EXPECT_EQ(refused("P5 2 1 255\nabc"), "file: f: 3 bytes of pixels, a picture of 2 x 1 has 2");
  EXPECT_EQ(refused("P5 2 1 255"), "file: f: 0 bytes of pixels, a picture of 2 x 1 has 2");
  EXPECT_EQ(refused("P5 1 1 65535\nab"), "file: f: its largest value is 65535, must be at most 255");
  EXPECT_EQ(refused("P5 1 1 9\nz"), "file: f: pixel 0 is 122, its largest is 9");
}

TEST(Images, AreReadFromEitherFormat) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_image_file(folder.write("a.pgm", "P5 2 1 255\nab")).shape(), (Shape{1, 1, 2}));
  EXPECT_EQ(read_image_file(folder.write("a.idx", idx({1, 1, 2}, "ab"))).to_doubles(), (std::vector<double>{97, 98}));
  const auto png = folder.write("a.png", "\x89PNG\r\n");
  EXPECT_EQ(refusal([&] { read_image_file(png); }),
            "file: " + png.string() +
                ": begins with 89 50 4e 47, an IDX file begins with 00 00 08 03, a PGM picture with P5");
}

TEST(Images, MustHaveALabelEach) {
  const TemporaryFolder folder;
  const auto images = folder.write("images", idx({2, 1, 3}, "abcdef"));
  const auto labels = folder.write("labels", idx({2}, "\x04\x02"));
  const ImageSet set = read_images(images, labels);
  EXPECT_EQ(set.labels.to_doubles(), (std::vector<double>{4, 2}));
  EXPECT_EQ(set.images.to_doubles()[3], 'd');
  EXPECT_EQ(refusal([&] { read_images(images, folder.write("three", idx({3}, "abc"))); }),
            "file: " + images.string() + ": 2 images, but 3 labels in " + (folder / "three").string() +
                ": they do not belong together");
}

TEST(Images, OfFashionMnistAreAllRead) {
  FOUND_OR_SKIP(files, find_fashion(test_folder()));
  const ImageSet train = read_images(files.train_images, files.train_labels);
  const ImageSet test = read_images(files.test_images, files.test_labels);
  EXPECT_EQ(train.images.shape(), (Shape{60000, 28, 28}));
  EXPECT_EQ(test.images.shape(), (Shape{10000, 28, 28}));
  // Each of the ten kinds comes as often; the mean pixel is 72.94 of 255, as everybody normalizes with.
  std::array<int, 256> counts{};
  for (std::int64_t i = 0; i < 60000; ++i) ++counts[train.labels.data<std::uint8_t>()[i]];
  for (std::size_t label = 0; label < 256; ++label) EXPECT_EQ(counts[label], label < 10 ? 6000 : 0);
  const std::uint8_t* pixels = train.images.data<std::uint8_t>();
  const double sum = std::accumulate(pixels, pixels + train.images.size_bytes(), 0.0);
  EXPECT_NEAR(sum / static_cast<double>(train.images.size_bytes()), 72.9404, 1e-4);
}

TEST(Images, ThatAreNowhereAreToldHowToGet) {
  if (std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "NOT CHECKED: needs a machine without these pictures, and they are installed";
  const TemporaryFolder folder;
  folder.write("fashion/train-images-idx3-ubyte.gz", "");
  const std::string text = refusal([&] { find_fashion(folder.path()); });
  EXPECT_NE(text.find((folder / "fashion/train-labels-idx1-ubyte.gz").string()), std::string::npos) << text;
  EXPECT_NE(text.find("paoding fetch fashion "), std::string::npos) << text;
}

}  // namespace
}  // namespace paoding::data
