// SPDX-License-Identifier: Apache-2.0
#include "gpu/profile/cupti_library.h"

#include <gtest/gtest.h>

namespace paoding::gpu {
namespace {

TEST(CuptiLibrary, EitherLoadsOrSaysWhyNot) {
  EXPECT_EQ(cupti() == nullptr, !cupti_problem().empty());
  EXPECT_EQ(cupti() == nullptr, cupti_version() == 0) << cupti_problem();
}

#if PD_HAS_CUPTI
TEST(CuptiLibrary, AFailedCallIsAnErrorWithItsText) {
  EXPECT_NO_THROW(PD_CUPTI(CUPTI_SUCCESS));
  try {
    PD_CUPTI(CUPTI_ERROR_NOT_INITIALIZED);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_EQ(std::string(error.what()).find("CUPTI_ERROR_NOT_INITIALIZED: CUPTI error 15"), 0u) << error.what();
  }
}

TEST(CuptiLibrary, NamesItsErrorsWithoutAGpu) {
  if (cupti() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << cupti_problem();
  const char* text = nullptr;
  EXPECT_EQ(cupti()->cuptiGetResultString(CUPTI_ERROR_INVALID_PARAMETER, &text), CUPTI_SUCCESS);
  ASSERT_NE(text, nullptr);
  EXPECT_NE(std::string(text).find("INVALID_PARAMETER"), std::string::npos) << text;
}
#endif

}  // namespace
}  // namespace paoding::gpu
