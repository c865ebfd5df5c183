# SPDX-License-Identifier: Apache-2.0
# embed_text(out folder name what files...): every x.cu becomes `extern const char k_x_cu[]` at global scope, x.js k_x_js,
# declared in the generated header name.h, which says `what` they are. The one source to compile, name.cpp, which holds all
# of them, is put into `out`.
# The same file, run as a script (cmake -DLIST= -DOUT= -P), writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  include(${LIST})
  set(written "// Generated: ${what}.\n#include \"${header}\"\n")
  file(WRITE ${OUT} "${written}")
  foreach(file ${files})
    cmake_path(GET file FILENAME name)
    string(REPLACE . _ name ${name})
    file(READ ${file} text)
    file(APPEND ${OUT} "\nconst char k_${name}[] = R\"pd_text(${text})pd_text\";\n")
  endforeach()
  return()
endif()

set(embed_text_script ${CMAKE_CURRENT_LIST_FILE})

function(embed_text out folder name what)
  set(names)
  set(declarations "")
  foreach(file ${ARGN})
    cmake_path(GET file FILENAME symbol)
    string(REPLACE . _ symbol k_${symbol})
    if(symbol IN_LIST names)
      message(FATAL_ERROR "${file}: another folder has a file of that name too; both would be ${symbol}")
    endif()
    list(APPEND names ${symbol})
    string(APPEND declarations "extern const char ${symbol}[];\n")
  endforeach()
  list(JOIN ARGN "\n  " lines)
  file(CONFIGURE OUTPUT ${folder}/${name}_files.cmake @ONLY CONTENT
    "set(what \"@what@\")\nset(header @name@.h)\nset(files\n  @lines@)\n")
  add_custom_command(OUTPUT ${folder}/${name}.cpp
    COMMAND ${CMAKE_COMMAND} -DLIST=${folder}/${name}_files.cmake -DOUT=${folder}/${name}.cpp -P ${embed_text_script}
    DEPENDS ${ARGN} ${folder}/${name}_files.cmake ${embed_text_script} VERBATIM)
  file(CONFIGURE OUTPUT ${folder}/${name}.h @ONLY CONTENT "// Generated: @what@.\n#pragma once\n\n@declarations@")
  set(${out} ${folder}/${name}.cpp PARENT_SCOPE)
endfunction()
