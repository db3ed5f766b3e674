# cmake --install: freshetd, freshet, sample configuration, and the libraries with headers, pkg-config files, CMake package and man pages.
# Each component is a Debian package (packages.cmake); what names none is of the component freshet.
include(CMakePackageConfigHelpers)

set_target_properties(freshet_replica PROPERTIES EXPORT_NAME replica)
set_target_properties(freshet_follow PROPERTIES EXPORT_NAME follow)
install(TARGETS freshet_replica EXPORT freshet LIBRARY COMPONENT replica NAMELINK_COMPONENT dev)
install(TARGETS freshet_follow EXPORT freshet LIBRARY COMPONENT follow NAMELINK_COMPONENT dev)
install(FILES replica/include/freshet/replica.h replica/include/freshet/reader.h replica/include/freshet/freshet.hpp
  replica/follow/client/include/freshet/follow.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/freshet COMPONENT dev)
install(FILES replica/man/libfreshet_replica.3 replica/man/libfreshet_follow.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT dev)
install(FILES conf/freshet.yaml conf/quickstart.yaml conf/OPTIONS.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/conf)
install(DIRECTORY conf/samples DESTINATION ${CMAKE_INSTALL_DOCDIR}/conf FILES_MATCHING PATTERN "*.yaml")
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ops/grafana ops/prometheus DESTINATION ${CMAKE_INSTALL_DOCDIR}/ops)

file(RELATIVE_PATH freshet_pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
foreach(name freshet_replica freshet_follow)
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endforeach()

# freshet::replica and freshet::follow: shared libraries whose C ABIs need nothing of what they are built from.
configure_package_config_file(cmake/freshet-config.cmake.in freshet-config.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/freshet)
write_basic_package_version_file(freshet-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/freshet-config.cmake ${CMAKE_BINARY_DIR}/freshet-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/freshet COMPONENT dev)
install(EXPORT freshet NAMESPACE freshet:: FILE freshet-targets.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/freshet COMPONENT dev)
include(man)
include(packages)
