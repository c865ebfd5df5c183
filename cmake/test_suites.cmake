# SPDX-License-Identifier: Apache-2.0
# add_test_binary(name files...): a GoogleTest program with one ctest entry per suite. Entries per test would start the
# program thousands of times. The suites are listed when ctest runs, by this same file (its second half). Their names
# begin with the variable suite_prefix, where it is set.
# add_suites(name environment only): once more the suites of the program whose names match `only`, in an environment.
if(NOT PAODING_LIST_SUITES_OF)
  set(test_suites_file ${CMAKE_CURRENT_LIST_FILE})

  # Waiting threads must sleep: spinning ones take the cores from the other suites.
  set(PAODING_TEST_ENVIRONMENT OMP_WAIT_POLICY=passive)
  if(PAODING_SANITIZE MATCHES "thread")
    # Few threads find the same races as many, and each costs the sanitizer memory.
    list(APPEND PAODING_TEST_ENVIRONMENT OMP_NUM_THREADS=3 OMP_TOOL_LIBRARIES=${PAODING_ARCHER})
  endif()

  function(add_suites name environment only)
    list(PREPEND environment ${PAODING_TEST_ENVIRONMENT})
    string(MAKE_C_IDENTIFIER ${suite_prefix}${name} list_name)
    set(list_file ${CMAKE_CURRENT_BINARY_DIR}/${list_name}_suites.cmake)
    set(seconds 600)
    if(PAODING_SANITIZE OR CMAKE_CROSSCOMPILING)
      set(seconds 3600)
    endif()
    file(GENERATE OUTPUT ${list_file} CONTENT "set(PAODING_LIST_SUITES_OF \"$<TARGET_FILE:${name}>\")
set(folder \"${CMAKE_CURRENT_SOURCE_DIR}\")
set(environment \"${environment}\")
set(suite_prefix \"${suite_prefix}\")
set(only \"${only}\")
set(seconds ${seconds})
set(emulator \"${CMAKE_CROSSCOMPILING_EMULATOR}\")
include(\"${test_suites_file}\")\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${list_file})
  endfunction()

  function(add_test_binary name)
    if(NOT ARGN)
      return()
    endif()
    find_package(GTest REQUIRED)
    add_executable(${name} ${ARGN})
    target_link_libraries(${name} PRIVATE paoding_inside GTest::gtest)
    target_compile_options(${name} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ${CMAKE_CURRENT_SOURCE_DIR}/tests/support/reached_assertions.h>")
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/tests/main.cpp)
      target_link_libraries(${name} PRIVATE GTest::gtest_main)
    endif()

    add_suites(${name} "" "")
  endfunction()
  return()
endif()

# Inside ctest: --gtest_list_tests prints "Suite." or "Prefix/Suite.  # TypeParam = ..." lines, tests indented below.
execute_process(COMMAND ${emulator} ${PAODING_LIST_SUITES_OF} --gtest_list_tests
  WORKING_DIRECTORY ${folder} OUTPUT_VARIABLE lines ERROR_VARIABLE problem RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PAODING_LIST_SUITES_OF} --gtest_list_tests: ${result}\n${lines}${problem}")
endif()
string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_/]+[.]" suites "${lines}")
foreach(suite ${suites})
  string(REGEX REPLACE "[\n.]" "" suite "${suite}")
  if(NOT suite MATCHES "(^|/)DISABLED_" AND suite MATCHES "${only}")
    set(name ${suite_prefix}${suite})
    add_test(${name} ${emulator} ${PAODING_LIST_SUITES_OF} --gtest_filter=${suite}.*:-*DISABLED_* --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES WORKING_DIRECTORY "${folder}" ENVIRONMENT "${environment}" TIMEOUT ${seconds})
  endif()
endforeach()
