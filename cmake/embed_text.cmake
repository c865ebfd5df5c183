# SPDX-License-Identifier: Apache-2.0
# embed_text(out folder files...): every x.cu becomes `extern const char k_x_cu[]` at global scope, declared in the
# generated header cuda_text.h. The one source to compile, which holds all of them, is put into `out`.
# The same file, run as a script (cmake -DLIST= -DOUT= -P), writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  include(${LIST})
  set(written "// Generated: the text of every .cu file.\n#include \"cuda_text.h\"\n")
  file(WRITE ${OUT} "${written}")
  foreach(file ${files})
    cmake_path(GET file STEM stem)
    file(READ ${file} text)
    file(APPEND ${OUT} "\nconst char k_${stem}_cu[] = R\"pd_text(${text})pd_text\";\n")
  endforeach()
  return()
endif()

set(embed_text_script ${CMAKE_CURRENT_LIST_FILE})

function(embed_text out folder)
  set(names)
  set(declarations "")
  foreach(file ${ARGN})
    cmake_path(GET file STEM stem)
    set(name k_${stem}_cu)
    if(name IN_LIST names)
      message(FATAL_ERROR "${file}: another folder has a ${stem}.cu too; both would be ${name}")
    endif()
    list(APPEND names ${name})
    string(APPEND declarations "extern const char ${name}[];\n")
  endforeach()
  list(JOIN ARGN "\n  " lines)
  file(CONFIGURE OUTPUT ${folder}/cuda_text_files.cmake @ONLY CONTENT "set(files\n  @lines@)\n")
  add_custom_command(OUTPUT ${folder}/cuda_text.cpp
    COMMAND ${CMAKE_COMMAND} -DLIST=${folder}/cuda_text_files.cmake -DOUT=${folder}/cuda_text.cpp -P ${embed_text_script}
    DEPENDS ${ARGN} ${folder}/cuda_text_files.cmake ${embed_text_script} VERBATIM)
  file(CONFIGURE OUTPUT ${folder}/cuda_text.h @ONLY CONTENT
    "// Generated: the text of every .cu file, for NVRTC.\n#pragma once\n\n@declarations@")
  set(${out} ${folder}/cuda_text.cpp PARENT_SCOPE)
endfunction()
