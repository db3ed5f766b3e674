# Compiler settings every target of ours shares. Assertions stay on in every build type (STYLE: no NDEBUG).
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# The installed freshet finds libfreshet_replica beside it. Below /usr the loader looks there by itself, and packages name no paths.
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  set(FR_LIBRARY_RPATH "$ORIGIN")
endif()
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME freshet)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")
# The sanitizer builds: a program under them is some three times as fast as with -O0, and its reports name lines.
set(CMAKE_C_FLAGS_DEBUG "-O1 -g1")
set(FR_SANITIZE "" CACHE STRING "address,undefined or thread: sanitizers for our own code")

option(FRESHET_WERROR "Warnings are errors; OFF for a compiler that nobody tried" ON)

add_library(fr_flags INTERFACE)
target_compile_definitions(fr_flags INTERFACE _POSIX_C_SOURCE=200809L _DEFAULT_SOURCE)
# -ffp-contract=off: numbers must not depend on which multiply-adds the compiler fuses (docs/architecture.md, "Exactness").
target_compile_options(fr_flags INTERFACE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
  -Wvla -Wformat=2 $<$<BOOL:${FRESHET_WERROR}>:-Werror> -ffp-contract=off -fno-math-errno -fstack-protector-strong)
# gcc 12 reads an element of a local array before a call that changes it through a pointer into the array, so right C gives wrong numbers
# (tests/unit/base/test_compiler.c); gcc 14 and clang do not.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 11 AND CMAKE_C_COMPILER_VERSION VERSION_LESS 14)
  target_compile_options(fr_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-fno-ipa-modref>)
endif()
if(FR_SANITIZE)
  target_compile_definitions(fr_flags INTERFACE FR_READ_BACK) # exporter/codec/write.c
  target_compile_options(fr_flags INTERFACE -fsanitize=${FR_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(fr_flags INTERFACE -fsanitize=${FR_SANITIZE})
else()
  target_compile_definitions(fr_flags INTERFACE $<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
  target_link_options(fr_flags INTERFACE -Wl,-z,relro,-z,now)
endif()
# Fuzz targets are clang's, which has no target_clones in C at 14 and does not know gcc's pragmas; its warnings are no errors. The unrolled products take it
# many minutes with sanitizers (the bf16 ones 22 s); gcc's builds have them there.
if(FR_SANITIZE MATCHES "fuzzer")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/trainer/ops/gemm.c ${CMAKE_SOURCE_DIR}/trainer/ops/bf16.c PROPERTIES COMPILE_OPTIONS "-fno-sanitize=all")
  target_compile_options(fr_flags INTERFACE "-Dtarget_clones(...)=unused" -Wno-unknown-pragmas -Wno-error)
endif()
# ThreadSanitizer of gcc 12 does not know C11 threads, which librdkafka starts: every program brings their replacement.
if(FR_SANITIZE STREQUAL "thread")
  add_library(fr_tsan_threads OBJECT ${CMAKE_SOURCE_DIR}/tests/kafka/tsan_threads.c)
  target_compile_options(fr_tsan_threads PRIVATE -fsanitize=thread)
  target_link_libraries(fr_flags INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:fr_tsan_threads>>)
endif()
