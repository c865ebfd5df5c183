// SPDX-License-Identifier: Apache-2.0
// Whether ThreadSanitizer watches this build (`make tsan`), where it is a test's concern.
#pragma once

namespace paoding {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
inline constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace paoding
