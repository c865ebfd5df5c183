# SPDX-License-Identifier: Apache-2.0
# Tests of the GPU's runtime on a GPU that is not there (tests/gpu/pretend_gpu/): a driver, cuBLASLt and a compiler of kernels
# that the library loads as it would load NVIDIA's. They need CUDA's headers and g++.
file(GLOB pretend_test_files CONFIGURE_DEPENDS tests/gpu/pretend_gpu/*_test.cpp tests/gpu/pretend_gpu/main.cpp)
set(pretend_folder ${CMAKE_CURRENT_BINARY_DIR}/pretend_gpu)

function(add_pretended library file_name)
  set(files ${ARGN})
  list(TRANSFORM files PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/tests/gpu/pretend_gpu/)
  unite(units ${library} ${CMAKE_CURRENT_SOURCE_DIR} ${files})
  add_library(${library} MODULE ${units})
  target_include_directories(${library} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(${library} PRIVATE paoding_options paoding_cuda_headers ${CMAKE_DL_LIBS})
  target_compile_definitions(${library} PRIVATE PAODING_SOURCE_ROOT="${CMAKE_CURRENT_SOURCE_DIR}")
  set_target_properties(${library} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${file_name}
    LIBRARY_OUTPUT_DIRECTORY ${pretend_folder})
endfunction()
add_pretended(pretended_driver libcuda.so.1 driver.cpp machine.cpp captured_streams.cpp nccl.cpp cublaslt.cpp cudnn.cpp cupti.cpp tensor_maps.cpp)
add_custom_command(TARGET pretended_driver POST_BUILD  # one library, so that all know the same streams
  COMMAND ${CMAKE_COMMAND} -E create_symlink libcuda.so.1 ${pretend_folder}/libcublasLt.so.13
  COMMAND ${CMAKE_COMMAND} -E create_symlink libcuda.so.1 ${pretend_folder}/libcudnn.so.9
  COMMAND ${CMAKE_COMMAND} -E create_symlink libcuda.so.1 ${pretend_folder}/libnccl.so.2
  COMMAND ${CMAKE_COMMAND} -E create_symlink libcuda.so.1 ${pretend_folder}/libcupti.so.13)
add_pretended(pretended_nvrtc libnvrtc.so.13 nvrtc.cpp)

set(suite_prefix pretend_gpu/)
set(shared_test_files src/ops/conv/gpu/conv_cudnn_test.cpp src/debug/find_nonfinite_test.cpp
  tests/support/allocation_count.cpp tests/support/reached_assertions.cpp tests/gpu/backward_batch_gpu_test.cpp tests/gpu/called_off_gpu_test.cpp tests/gpu/device_tensors_gpu_test.cpp
  tests/gpu/enqueued_runs_gpu_test.cpp tests/program/failing_run_test.cpp tests/gpu/fused_launches_gpu_test.cpp tests/gpu/placed_graph_gpu_test.cpp
  tests/gpu/placed_choices_gpu_test.cpp tests/gpu/placed_parameters_gpu_test.cpp
  tests/gpu/prepared_programs_gpu_test.cpp
  tests/gpu/printing_runs_gpu_test.cpp tests/gpu/profiler_gpu_test.cpp tests/gpu/recurrent_c_gpu_test.cpp tests/gpu/pipelined_layers_gpu_test.cpp
  tests/gpu/waited_runs_gpu_test.cpp)
list(TRANSFORM shared_test_files PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
unite(pretend_units pretend_tests ${CMAKE_CURRENT_SOURCE_DIR} ${pretend_test_files} ${shared_test_files})
add_test_binary(paoding_pretend_gpu_tests ${pretend_units})
unset(suite_prefix)
target_compile_options(paoding_pretend_gpu_tests PRIVATE $<$<CONFIG:Release>:-O1>)
add_dependencies(paoding_pretend_gpu_tests pretended_driver pretended_nvrtc)
target_compile_definitions(paoding_pretend_gpu_tests PRIVATE PAODING_PRETEND_FOLDER="${pretend_folder}")
