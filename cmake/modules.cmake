# fr_module(TARGET DIR folder [SHARED_ABI] LINKS ...): a library from folder/*.c whose public headers are folder/include.
# Only direct link edges (and what their public headers need) put header folders on the include path.
function(fr_module target)
  cmake_parse_arguments(M "SHARED_ABI" "DIR" "LINKS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${M_DIR}/*.c)
  if(NOT sources)
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${CMAKE_SOURCE_DIR}/${M_DIR}/include)
    list(REMOVE_ITEM M_LINKS PUBLIC PRIVATE)
    target_link_libraries(${target} INTERFACE ${M_LINKS})
    return()
  endif()
  if(M_SHARED_ABI)
    add_library(${target} SHARED ${sources})
    set_target_properties(${target} PROPERTIES C_VISIBILITY_PRESET hidden VERSION ${PROJECT_VERSION} SOVERSION 0
     )
    target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
    # A host process outlives refused memory: replica/memory.h.
    target_link_options(${target} PRIVATE
      -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=posix_memalign -Wl,--wrap=free)
  else()
    add_library(${target} STATIC ${sources})
  endif()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/${M_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}> PRIVATE ${CMAKE_SOURCE_DIR}/${M_DIR})
  target_link_libraries(${target} ${M_LINKS} PRIVATE fr_flags)
endfunction()
