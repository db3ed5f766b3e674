# cmake --install: freshetd, freshet, sample configuration, and libfreshet_replica with header, pkg-config file and CMake package.
include(CMakePackageConfigHelpers)

install(TARGETS freshet_replica LIBRARY)
install(FILES replica/include/freshet/replica.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/freshet)
install(FILES conf/freshet.yaml conf/quickstart.yaml conf/bench_r16.yaml conf/bench_shared.yaml conf/OPTIONS.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/conf)
install(DIRECTORY conf/samples DESTINATION ${CMAKE_INSTALL_DOCDIR}/conf FILES_MATCHING PATTERN "*.yaml")
install(FILES LICENSE README.md DESIGN.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

file(RELATIVE_PATH freshet_pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/freshet_replica.pc.in freshet_replica.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/freshet_replica.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The package names the shared library itself: its C ABI needs nothing of what it is built from.
configure_package_config_file(cmake/freshet-config.cmake.in freshet-config.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/freshet
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(freshet-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/freshet-config.cmake ${CMAKE_BINARY_DIR}/freshet-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/freshet)
