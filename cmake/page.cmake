# The bytes of the page (page/), in the program: as they are, and compressed by gzip.
# dygraphs draws the charts; Debian's libjs-dygraphs has it in one file, with its licence.
enable_language(ASM)
find_program(FR_GZIP gzip REQUIRED)
find_file(FR_DYGRAPH_JS dygraph.min.js PATHS /usr/share/javascript/dygraphs NO_DEFAULT_PATH)
find_file(FR_DYGRAPH_CSS dygraph.min.css PATHS /usr/share/javascript/dygraphs NO_DEFAULT_PATH)
find_file(FR_DYGRAPH_LICENCE copyright PATHS /usr/share/doc/libjs-dygraphs NO_DEFAULT_PATH)
if(NOT FR_DYGRAPH_JS OR NOT FR_DYGRAPH_CSS OR NOT FR_DYGRAPH_LICENCE)
  message(FATAL_ERROR "dygraphs is missing: install Debian's libjs-dygraphs (tests/packages does), or set FR_DYGRAPH_JS, FR_DYGRAPH_CSS and FR_DYGRAPH_LICENCE")
endif()

# fr_page_bytes(target label=file...): the external arrays fr_page_<label> and, compressed, fr_page_<label>_gz, each with its end.
function(fr_page_bytes target)
  set(assembly "# Made by cmake/page.cmake.\n.section .note.GNU-stack,\"\",%progbits\n.section .rodata\n")
  set(files)
  foreach(asset ${ARGN})
    string(REPLACE "=" ";" asset "${asset}")
    list(GET asset 0 label)
    list(GET asset 1 file)
    set(packed ${CMAKE_CURRENT_BINARY_DIR}/page/${label}.gz)
    add_custom_command(OUTPUT ${packed} DEPENDS ${file} VERBATIM
      COMMAND sh -c "\"$1\" -9nc \"$2\" >\"$3\"" gzip ${FR_GZIP} ${file} ${packed})
    list(APPEND files ${file} ${packed})
    foreach(bytes "fr_page_${label}=${file}" "fr_page_${label}_gz=${packed}")
      string(REPLACE "=" ";" bytes "${bytes}")
      list(GET bytes 0 name)
      list(GET bytes 1 path)
      string(APPEND assembly ".global ${name}, ${name}_end\n${name}:\n.incbin \"${path}\"\n${name}_end:\n.byte 0\n")
    endforeach()
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/page/page_bytes.S)
  file(CONFIGURE OUTPUT ${source} CONTENT "${assembly}" @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${files}")
  target_sources(${target} PRIVATE ${source})
endfunction()

set(page ${CMAKE_SOURCE_DIR}/page)
fr_page_bytes(fr_page index_html=${page}/index.html icon_svg=${page}/icon.svg page_css=${page}/page.css page_js=${page}/page.js charts_js=${page}/charts.js
  curve_js=${page}/curve.js documents_js=${page}/documents.js elements_js=${page}/elements.js insight_js=${page}/insight.js model_js=${page}/model.js
  dygraph_js=${FR_DYGRAPH_JS} dygraph_css=${FR_DYGRAPH_CSS} licence_txt=${FR_DYGRAPH_LICENCE})
