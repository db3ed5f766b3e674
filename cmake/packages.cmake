# Debian packages by cpack: cmake --preset package && cmake --build --preset package && cpack --preset package
#
# Five: freshet (daemon, tool, unit, documents), libfreshet-replica0, libfreshet-follow0, libfreshet-replica-dev (both libraries) and python3-freshet. Each is for
# the release of Debian that it was built on, whose libraries it names. The CUDA plug-in is in none of them.
set(FRESHET_MAINTAINER "The builder of this package <freshet@localhost>" CACHE STRING "Maintainer of the Debian packages: who distributes them")

file(STRINGS /etc/os-release fr_release REGEX "^VERSION_ID=")
string(REGEX REPLACE "[^0-9]" "" fr_release "${fr_release}")
set(CPACK_PACKAGE_NAME freshet)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR Freshet)
set(CPACK_PACKAGE_CONTACT "${FRESHET_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL freshet replica follow dev python)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE "1~deb${fr_release}")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/package_files.cmake)
set(fr_version "${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}")

# fr_package(COMPONENT name section summary description)
macro(fr_package component name section summary description)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${description}")
  set(CPACK_DEBIAN_${upper}_PACKAGE_SHLIBDEPS ON)
  install(FILES ops/debian/copyright DESTINATION share/doc/${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${CMAKE_BINARY_DIR}/debian/${component}.changelog DESTINATION share/doc/${name} RENAME changelog.Debian COMPONENT ${component} EXCLUDE_FROM_ALL)
  file(CONFIGURE OUTPUT debian/${component}.changelog CONTENT "${name} (@fr_version@) unstable; urgency=medium

  * CHANGELOG.md of the package freshet has the changes of this version.

 -- @FRESHET_MAINTAINER@  Thu, 01 Jan 2026 00:00:00 +0000
" @ONLY)
endmacro()

fr_package(freshet freshet net "online learning from Kafka: daemon and tool"
  "freshetd trains a click model while the labelled samples arrive, and publishes\nwhat changed to a Kafka topic, by default every second. State, position in the\nsample log and published deltas are at the same epoch after any crash.\nThe unit freshetd@MODEL.service runs /etc/freshet/MODEL.yaml.")
fr_package(replica libfreshet-replica0 libs "served copy of a Freshet model"
  "A C library that applies the records of a Freshet delta topic, looks up rows\nand scores samples. It reads the records from any Kafka client.")
fr_package(follow libfreshet-follow0 libs "thread that keeps a Freshet replica in step with its topic"
  "A C library that feeds a replica of libfreshet-replica0 from snapshots and from\nthe delta topic through librdkafka.")
fr_package(dev libfreshet-replica-dev libdevel "headers of libfreshet-replica0 and libfreshet-follow0"
  "Headers, a C++ wrapper, pkg-config files, a CMake package and man pages for\nprograms that serve a Freshet model.")
fr_package(python python3-freshet python "served copy of a Freshet model in Python"
  "Rows, scores, deltas, snapshots, and export to Parquet and ONNX, over\nlibfreshet-replica0.")
file(WRITE ${CMAKE_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
foreach(upper REPLICA FOLLOW)
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/debian/triggers)
endforeach()
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_FRESHET_PACKAGE_DEPENDS "adduser, libfreshet-replica0 (= ${fr_version})")
set(CPACK_DEBIAN_FOLLOW_PACKAGE_DEPENDS "libfreshet-replica0 (= ${fr_version})")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libfreshet-replica0 (= ${fr_version}), libfreshet-follow0 (= ${fr_version})")
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3, python3-numpy, python3-msgpack, python3-crc32c, libfreshet-replica0 (>= ${fr_version})")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-confluent-kafka")
set(fr_debian ${CMAKE_SOURCE_DIR}/ops/debian)
set(CPACK_DEBIAN_FRESHET_PACKAGE_CONTROL_EXTRA ${fr_debian}/postinst ${fr_debian}/prerm ${fr_debian}/postrm ${CMAKE_BINARY_DIR}/debian/conffiles)
file(WRITE ${CMAKE_BINARY_DIR}/debian/conffiles "/etc/freshet/ctr.yaml\n")

# What `cmake --install` leaves out.
install(FILES ops/debian/freshetd@.service DESTINATION /lib/systemd/system COMPONENT freshet EXCLUDE_FROM_ALL)
install(FILES conf/freshet.yaml DESTINATION /etc/freshet RENAME ctr.yaml COMPONENT freshet EXCLUDE_FROM_ALL)
install(DIRECTORY replica/python/freshet DESTINATION lib/python3/dist-packages COMPONENT python EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.py" PATTERN "py.typed"
  PATTERN "__pycache__" EXCLUDE)
include(CPack)
