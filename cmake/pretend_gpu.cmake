# SPDX-License-Identifier: Apache-2.0
# Tests of the GPU's runtime on a GPU that is not there (tests/gpu/pretend_gpu/): a driver, cuBLASLt and a compiler of kernels
# that the library loads as it would load NVIDIA's. They need CUDA's headers and g++.
file(GLOB pretend_test_files CONFIGURE_DEPENDS tests/gpu/pretend_gpu/*_test.cpp tests/gpu/pretend_gpu/main.cpp)
set(pretend_folder ${CMAKE_CURRENT_BINARY_DIR}/pretend_gpu)

function(add_pretended library file_name)
  add_library(${library} MODULE ${ARGN})
  target_include_directories(${library} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(${library} PRIVATE paoding_options paoding_cuda_headers ${CMAKE_DL_LIBS})
  target_compile_definitions(${library} PRIVATE PAODING_SOURCE_ROOT="${CMAKE_CURRENT_SOURCE_DIR}")
  set_target_properties(${library} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${file_name}
    LIBRARY_OUTPUT_DIRECTORY ${pretend_folder})
endfunction()
add_pretended(pretended_driver libcuda.so.1 tests/gpu/pretend_gpu/driver.cpp tests/gpu/pretend_gpu/machine.cpp
  tests/gpu/pretend_gpu/cublaslt.cpp tests/gpu/pretend_gpu/cudnn.cpp tests/gpu/pretend_gpu/cupti.cpp
  tests/gpu/pretend_gpu/tensor_maps.cpp)
add_custom_command(TARGET pretended_driver POST_BUILD  # one library, so that all know the same streams
  COMMAND ${CMAKE_COMMAND} -E create_symlink libcuda.so.1 ${pretend_folder}/libcublasLt.so.13
  COMMAND ${CMAKE_COMMAND} -E create_symlink libcuda.so.1 ${pretend_folder}/libcudnn.so.9
  COMMAND ${CMAKE_COMMAND} -E create_symlink libcuda.so.1 ${pretend_folder}/libcupti.so.13)
add_pretended(pretended_nvrtc libnvrtc.so.13 tests/gpu/pretend_gpu/nvrtc.cpp)

set(suite_prefix pretend_gpu/)
add_test_binary(paoding_pretend_gpu_tests ${pretend_test_files} tests/program/failing_run_test.cpp
  tests/gpu/called_off_gpu_test.cpp tests/gpu/backward_batch_gpu_test.cpp tests/gpu/device_tensors_gpu_test.cpp tests/gpu/enqueued_runs_gpu_test.cpp tests/gpu/waited_runs_gpu_test.cpp tests/gpu/joined_launches_gpu_test.cpp
  tests/gpu/placed_graph_gpu_test.cpp tests/gpu/printing_runs_gpu_test.cpp tests/gpu/profiler_gpu_test.cpp tests/gpu/recurrent_c_gpu_test.cpp src/ops/conv/conv_cudnn_gpu_test.cpp src/runtime/find_nonfinite_test.cpp
  tests/gpu/stacked_layers_gpu_test.cpp tests/support/allocation_count.cpp tests/support/reached_assertions.cpp)
unset(suite_prefix)
add_dependencies(paoding_pretend_gpu_tests pretended_driver pretended_nvrtc)
target_compile_definitions(paoding_pretend_gpu_tests PRIVATE PAODING_PRETEND_FOLDER="${pretend_folder}")
