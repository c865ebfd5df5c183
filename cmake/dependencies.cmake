# SPDX-License-Identifier: Apache-2.0
# The libraries that are linked (`make deps` installs them): target paoding_libraries. No CUDA library is among them.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(simdjson REQUIRED)
find_package(ZLIB REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(hwy REQUIRED)

# Those that bring no CMake package (SLEEF, SentencePiece, zstd before 1.5), or one that asks for more than is used: OpenCL (oneDNN).
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_library(SLEEF_LIBRARY sleef REQUIRED)
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_trainer.h REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
find_path(ZSTD_INCLUDE_DIR zstd.h REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)

# Unpacks gzip three times as fast as zlib, which is used without it.
option(PAODING_ISAL "Unpack traces by ISA-L where it is found" ON)
set(PAODING_WITH_ISAL 0)
if(PAODING_ISAL)
  find_path(ISAL_INCLUDE_DIR isa-l/igzip_lib.h)
  find_library(ISAL_LIBRARY isal)
  if(ISAL_INCLUDE_DIR AND ISAL_LIBRARY)
    set(PAODING_WITH_ISAL 1)
  endif()
endif()

# Ranks on CPUs; a build without it says what is missing when it is asked for them.
option(PAODING_GLOO "Ranks on CPUs by Gloo where it is found" ON)
set(PAODING_WITH_GLOO 0)
if(PAODING_GLOO AND NOT PAODING_FUZZ)
  find_path(GLOO_INCLUDE_DIR gloo/config.h)
  find_library(GLOO_LIBRARY gloo)
  if(GLOO_INCLUDE_DIR AND GLOO_LIBRARY)
    set(PAODING_WITH_GLOO 1)
  endif()
endif()

add_library(paoding_libraries INTERFACE)
target_include_directories(paoding_libraries SYSTEM INTERFACE
  ${DNNL_INCLUDE_DIR} ${SENTENCEPIECE_INCLUDE_DIR} ${ZSTD_INCLUDE_DIR})
target_link_libraries(paoding_libraries INTERFACE
  fmt::fmt ${DNNL_LIBRARY} ${SLEEF_LIBRARY} simdjson::simdjson ZLIB::ZLIB SQLite::SQLite3 ${ZSTD_LIBRARY} hwy::hwy
  ${SENTENCEPIECE_TRAIN_LIBRARY} ${SENTENCEPIECE_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS})
if(PAODING_WITH_GLOO)
  target_include_directories(paoding_libraries SYSTEM INTERFACE ${GLOO_INCLUDE_DIR})
  target_link_libraries(paoding_libraries INTERFACE ${GLOO_LIBRARY})
endif()
if(PAODING_WITH_ISAL)
  target_include_directories(paoding_libraries SYSTEM INTERFACE ${ISAL_INCLUDE_DIR})
  target_link_libraries(paoding_libraries INTERFACE ${ISAL_LIBRARY})
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # Vectors whose length the compiler does not know cannot be members of a class: NEON is used.
  target_compile_definitions(paoding_libraries INTERFACE "HWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Where nothing better is there Highway falls back to HWY_SCALAR with GCC, which is what our kernels know.
  target_compile_definitions(paoding_libraries INTERFACE HWY_BROKEN_EMU128=1)
endif()

if(PAODING_FUZZ)
  # clang's OpenMP would put a second thread pool beside oneDNN's gomp. Fuzzing is serial: pragmas are ignored, and the
  # few omp_ calls go to gomp, whose header gets a folder of its own (its neighbours are GCC's intrinsics).
  file(GLOB gomp_headers /usr/lib/gcc/*/*/include/omp.h)
  list(SORT gomp_headers COMPARE NATURAL ORDER DESCENDING)
  if(gomp_headers)
    list(GET gomp_headers 0 gomp_header)
    configure_file(${gomp_header} ${CMAKE_CURRENT_BINARY_DIR}/gomp/omp.h COPYONLY)
  endif()
  target_include_directories(paoding_libraries SYSTEM INTERFACE $<BUILD_INTERFACE:${CMAKE_CURRENT_BINARY_DIR}/gomp>)
  target_link_libraries(paoding_libraries INTERFACE -l:libgomp.so.1)
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  target_link_libraries(paoding_libraries INTERFACE OpenMP::OpenMP_CXX)
endif()

if(PAODING_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # oneDNN asks for gomp, whose barriers ThreadSanitizer cannot see. clang's OpenMP answers to gomp's names too, and its
  # tool Archer tells the sanitizer what waits for what. (The programs look beside themselves first.)
  file(REAL_PATH ${OpenMP_omp_LIBRARY} omp_library)
  cmake_path(GET omp_library PARENT_PATH omp_folder)
  foreach(name libgomp.so.1 libomp.so.5)
    file(CREATE_LINK ${omp_library} ${CMAKE_CURRENT_BINARY_DIR}/${name} SYMBOLIC)
  endforeach()
  find_file(PAODING_ARCHER libarcher.so HINTS ${omp_folder} REQUIRED)
endif()
