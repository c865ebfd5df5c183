# SPDX-License-Identifier: Apache-2.0
# How everything is compiled: target paoding_options, plus ccache and the run paths.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

# The programs find their libraries beside themselves or in lib/, so that a build can be carried elsewhere (tools/bundle.sh).
# Old-style RPATH, because it also serves the libraries' own dependencies (oneDNN -> gomp); RUNPATH does not.
set(CMAKE_BUILD_RPATH "$ORIGIN;$ORIGIN/lib")
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

# one_run_path(target entry..): the run path of a target that is installed, for the build too. Where the two differ CMake pads
# the build's with empty entries to have room for the other, and an empty entry is the current folder, which may be anyone's:
# his libraries would be ours. (tools/check_run_paths.sh looks at what came out.)
function(one_run_path target)
  set_target_properties(${target} PROPERTIES
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "${ARGN}"
    INSTALL_RPATH_USE_LINK_PATH ON)
endfunction()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # It reads the compiler's own list of headers, in place of running the preprocessor a second time: 4% less to compile a file.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 ${CCACHE_PROGRAM})
endif()

add_library(paoding_options INTERFACE)
target_compile_options(paoding_options INTERFACE
  -Wall -Wextra
  # GCC would fuse a*b+c where the instruction set has fma, so results would depend on the code around a formula.
  -ffp-contract=off)
target_link_options(paoding_options INTERFACE -Wl,--disable-new-dtags -Wl,--as-needed)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarm of GCC 12 for `"literal" + std::string` (bug 105651).
  target_compile_options(paoding_options INTERFACE -Wno-restrict)
endif()
if(PAODING_WERROR)
  target_compile_options(paoding_options INTERFACE -Werror)
endif()

if(PAODING_SANITIZE)
  target_compile_options(paoding_options INTERFACE
    -fsanitize=${PAODING_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    # The sanitizers' own branches make GCC see variables that might be unset.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(paoding_options INTERFACE -fsanitize=${PAODING_SANITIZE})
endif()

if(PAODING_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "PAODING_FUZZ needs clang, the compiler is ${CMAKE_CXX_COMPILER_ID}: cmake --preset fuzz")
  endif()
  set(BUILD_SHARED_LIBS OFF)
  target_compile_options(paoding_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
