# SPDX-License-Identifier: Apache-2.0
# embed_text(out folder files...): every x.cu becomes `extern const char k_x_cu[]` at global scope, declared in the
# generated header cuda_text.h. The sources to compile are put into `out`.
# The same file, run as a script (cmake -DIN= -DOUT= -DNAME= -P), writes one of those sources.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${IN} text)
  file(WRITE ${OUT} "// Generated from ${IN}\n#include \"cuda_text.h\"\n\nconst char ${NAME}[] = R\"pd_text(${text})pd_text\";\n")
  return()
endif()

set(embed_text_script ${CMAKE_CURRENT_LIST_FILE})

function(embed_text out folder)
  set(sources)
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
    add_custom_command(OUTPUT ${folder}/${stem}_cu.cpp
      COMMAND ${CMAKE_COMMAND} -DIN=${file} -DOUT=${folder}/${stem}_cu.cpp -DNAME=${name} -P ${embed_text_script}
      DEPENDS ${file} ${embed_text_script} VERBATIM)
    list(APPEND sources ${folder}/${stem}_cu.cpp)
  endforeach()
  file(CONFIGURE OUTPUT ${folder}/cuda_text.h @ONLY CONTENT
    "// Generated: the text of every .cu file, for NVRTC.\n#pragma once\n\n@declarations@")
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
