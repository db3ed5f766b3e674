# The plug-in freshet-mpi.so, the exchange between processes, made where MPI's compiler is found (tests/packages --mpi installs Open MPI). Nothing else links MPI.
set(FRESHET_MPI AUTO CACHE STRING "Build the MPI plug-in: AUTO (where MPI is found), ON (required) or OFF")

if(NOT FRESHET_MPI STREQUAL "OFF" AND NOT FR_SANITIZE)
  find_package(MPI QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    add_library(freshet_mpi MODULE ${CMAKE_SOURCE_DIR}/exchange/mpi/mpi_engine.c)
    set_target_properties(freshet_mpi PROPERTIES PREFIX "" OUTPUT_NAME freshet-mpi C_VISIBILITY_PRESET hidden
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/exchange/mpi)
    target_include_directories(freshet_mpi PRIVATE ${CMAKE_SOURCE_DIR}/exchange)
    target_link_libraries(freshet_mpi PRIVATE fr_exchange MPI::MPI_C fr_flags)
    # Its own copy of what it uses of base and exchange is not seen outside.
    target_link_options(freshet_mpi PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed -Wl,-z,defs)
    install(TARGETS freshet_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    message(STATUS "MPI plug-in by ${MPI_C_COMPILER}")
  elseif(FRESHET_MPI STREQUAL "ON")
    message(FATAL_ERROR "FRESHET_MPI=ON and no MPI: tests/packages --mpi installs Open MPI, or set MPI_HOME")
  else()
    message(STATUS "no MPI: the MPI plug-in is not built (tests/packages --mpi installs Open MPI)")
  endif()
endif()
