# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` (make install) puts under the prefix: headers, libpaoding, the paoding program, and what other
# projects find them with: find_package(paoding), pkg-config paoding.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/paoding)

install(DIRECTORY include/paoding DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${generated}/paoding/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/paoding)

set(installed_targets paoding)
if(TARGET paoding_before_gomp)
  list(APPEND installed_targets paoding_before_gomp)
endif()
if(NOT BUILD_SHARED_LIBS)
  list(APPEND installed_targets paoding_libraries) # whoever links libpaoding.a links them too
endif()
install(TARGETS ${installed_targets} EXPORT paodingTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT paodingTargets NAMESPACE paoding:: DESTINATION ${package_folder})
configure_package_config_file(cmake/paodingConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/paodingConfig.cmake
  INSTALL_DESTINATION ${package_folder})
# Before 1.0 a minor version may change what was there.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/paodingConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/paodingConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/paodingConfigVersion.cmake
  DESTINATION ${package_folder})

# For a shared libpaoding, which brings its own libraries. The folders are found from the file's own place, so the
# prefix may be moved.
if(BUILD_SHARED_LIBS)
  file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/paoding.pc @ONLY CONTENT
"prefix=\${pcfiledir}/@to_prefix@
libdir=\${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=\${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: paoding
Description: A deep-learning engine in C++20: graphs, gradients, compiled for CPU and GPU
Version: @PROJECT_VERSION@
Libs: -L\${libdir} -lpaoding
Cflags: -std=c++20 -I\${includedir}
")
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/paoding.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

# What the program names: its script, documents and examples. A build has the script where an installation has it,
# seen from the program.
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/share/paoding)
file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/tools/fetch_data.sh ${CMAKE_CURRENT_BINARY_DIR}/share/paoding/fetch_data.sh
  SYMBOLIC)
install(PROGRAMS tools/fetch_data.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/paoding)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET paoding_cli)
  file(RELATIVE_PATH to_libraries /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  one_run_path(paoding_cli "$ORIGIN" "$ORIGIN/${to_libraries}")
  install(TARGETS paoding_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

if(PAODING_TESTS AND TARGET paoding_cli)
  add_test(NAME InstalledLibrary COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/check_install.sh ${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(InstalledLibrary PROPERTIES TIMEOUT 300 ENVIRONMENT "${PAODING_TEST_ENVIRONMENT}")
endif()
