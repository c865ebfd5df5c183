# SPDX-License-Identifier: Apache-2.0
# A toolchain: Debian's cross compiler for AArch64, libraries of arm64 packages in a folder (make deps-aarch64), and qemu
# to run what is built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
cmake_path(SET libraries NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../.deps-aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${libraries} /usr/aarch64-linux-gnu)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_C_FLAGS_INIT "-isystem ${libraries}/usr/include/aarch64-linux-gnu")
set(CMAKE_CXX_FLAGS_INIT "-isystem ${libraries}/usr/include/aarch64-linux-gnu")
# Libraries of libraries are there too.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${libraries}/usr/lib/aarch64-linux-gnu:${libraries}/lib/aarch64-linux-gnu")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-Wl,-rpath-link,${libraries}/usr/lib/aarch64-linux-gnu:${libraries}/lib/aarch64-linux-gnu")
# qemu keeps a table entry for every page of addresses that a program reserves, touched or not, and never gives one back:
# without a limit an arena's reservations would fill the memory. With one (ulimit -v) they take what they need.
set(CMAKE_CROSSCOMPILING_EMULATOR prlimit --as=8000000000 qemu-aarch64 -L /usr/aarch64-linux-gnu
  -E LD_LIBRARY_PATH=${libraries}/usr/lib/aarch64-linux-gnu:${libraries}/lib/aarch64-linux-gnu)
