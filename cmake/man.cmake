# Man pages of the two programs, made from what they print for --help. A cross build makes them where the programs can be run.
if(NOT FR_SANITIZE AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
  set(pages)
  foreach(page freshetd.8 freshet.1)
    cmake_path(GET page STEM program)
    string(REGEX MATCH "[0-9]$" section ${page})
    add_custom_command(OUTPUT ${page} DEPENDS ${program} cmake/man_page.sh VERBATIM
      COMMAND sh ${CMAKE_SOURCE_DIR}/cmake/man_page.sh "$<TARGET_FILE:${program}>" ${program} ${section} ${PROJECT_VERSION} ${page}
        ${CMAKE_CROSSCOMPILING_EMULATOR})
    list(APPEND pages ${CMAKE_BINARY_DIR}/${page})
    install(FILES ${CMAKE_BINARY_DIR}/${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT freshet)
  endforeach()
  add_custom_target(man_pages ALL DEPENDS ${pages})
endif()
