// SPDX-License-Identifier: Apache-2.0
// Scripts made small: every text of theirs stays, and they mean the same. tests/page/page_test.py runs the page's.
#include "profile/page_script.h"

#include <gtest/gtest.h>

#include "page_text.h"

namespace paoding::profile {
namespace {

TEST(PageScript, LosesCommentsAndSpacesThatNobodyNeeds) {
  EXPECT_EQ(
      small_script(
          "// a comment\n  const a = b + 1;  \n\n  // another\n  if (a in b) {\n    f(a, b);\n  } else\n    g();\n"),
      "const a=b+1;\nif(a in b){\nf(a,b);\n}else\ng();\n");
  EXPECT_EQ(small_script("x = a + +b - -c + d++ + e;\n"), "x=a+ +b- -c+d++ +e;\n");
  EXPECT_EQ(small_script("return x => -x / 2 / y;\n"), "return x=>-x/2/y;\n");
  EXPECT_EQ(small_script("const is = (x) => /GPU \\d+ $/.test(x);\n"), "const is=(x)=>/GPU \\d+ $/.test(x);\n");
}

TEST(PageScript, KeepsTextsTemplatesAndExpressionsAsTheyAre) {
  for (const char* kept : {R"(" // a  b 'c' ")", R"('it is "so"  \' + 1')", R"(`a  ${ b + `  ${c}  ` } '  "`)",
                           R"(/[/ ]  "(\d) us\b/g)", R"("\\")", "`two\nlines  ${f( \"}\" )} `"}) {
    EXPECT_EQ(small_script("f( " + std::string(kept) + " );\n"), "f(" + std::string(kept) + ");\n");
  }
}

TEST(PageScript, IsOneThatStaysAsItIs) {
  const std::string once = small_script(k_overview_js);
  EXPECT_LT(once.size(), std::string_view(k_overview_js).size());
  EXPECT_EQ(small_script(once), once);
}

}  // namespace
}  // namespace paoding::profile
