# Third-party libraries, all from the distribution; README.md ("Built on") says why each is there.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(RocksDB REQUIRED)
pkg_check_modules(RDKAFKA REQUIRED IMPORTED_TARGET rdkafka>=2.0.2)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
pkg_check_modules(EVENT REQUIRED IMPORTED_TARGET libevent)
pkg_check_modules(EVENT_PTHREADS REQUIRED IMPORTED_TARGET libevent_pthreads)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
# msgpack-c by its header and its library, which Debian 12 calls msgpackc. Its pkg-config file is of no use: 6.0.1's says that the headers are in "include",
# which is no folder where it is read, and it has another name in each version.
find_path(FR_MSGPACK_HEADERS msgpack.h REQUIRED)
find_library(FR_MSGPACK_LIBRARY NAMES msgpack-c msgpackc REQUIRED)
add_library(Msgpack::msgpack INTERFACE IMPORTED)
target_include_directories(Msgpack::msgpack INTERFACE ${FR_MSGPACK_HEADERS})
target_link_libraries(Msgpack::msgpack INTERFACE ${FR_MSGPACK_LIBRARY})
