#!/usr/bin/env bash
# Installs into an empty prefix and builds a program against libfreshet_replica through pkg-config and through the CMake package, as a user would.
# Usage: install.sh BUILD
set -euo pipefail
work=$(mktemp -d /tmp/freshet-install-XXXXXX)
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/prefix" >"$work/install.log"
"$work/prefix/bin/freshetd" --version
"$work/prefix/bin/freshet" --version
cat >"$work/serve.c" <<'PROGRAM'
#include <freshet/replica.h>
#include <stdio.h>

int main(void)
{
    struct freshet_replica *replica = NULL;
    struct freshet_replica_options options = {0};
    struct freshet_replica_info info;
    if (freshet_replica_new(&options, &replica) != FRESHET_OK)
        return 1;
    freshet_replica_get_info(replica, &info);
    printf("epoch %llu, rows %llu\n", (unsigned long long)info.epoch, (unsigned long long)info.rows);
    freshet_replica_free(replica);
    return 0;
}
PROGRAM
pc=$(dirname "$(find "$work/prefix" -name freshet_replica.pc)")
# shellcheck disable=SC2046
cc -std=c17 -Wall -Werror "$work/serve.c" -o "$work/serve" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs freshet_replica) "-Wl,-rpath,$(dirname "$pc")"
"$work/serve"
cat >"$work/CMakeLists.txt" <<'PROGRAM'
cmake_minimum_required(VERSION 3.25)
project(serve LANGUAGES C)
find_package(freshet 0.1 REQUIRED)
add_executable(serve serve.c)
target_link_libraries(serve PRIVATE freshet::replica)
PROGRAM
cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log"
cmake --build "$work/build" >"$work/build.log"
"$work/build/serve"
# libfreshet_follow: the program of docs/serving.md, a C++ one over the wrapper, and both by the CMake package
doc=$(dirname "$(find "$work/prefix" -name OPTIONS.md)")/..
awk '/^```c$/ { on = 1; next } /^```$/ && on { exit } on' "$doc/docs/serving.md" >"$work/serving.c"
# shellcheck disable=SC2046
cc -std=c17 -Wall -Wextra -Werror "$work/serving.c" -o "$work/serving" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs freshet_follow) "-Wl,-rpath,$(dirname "$pc")"
[ "$(grep -c . "$work/serving.c")" -le 40 ]
! "$work/serving" 127.0.0.1:1 || { echo "a program without a topic starts" >&2; exit 1; }
cat >"$work/wrapper.cpp" <<'PROGRAM'
#include <freshet/freshet.hpp>
#include <cstdio>

int main()
{
    freshet_follow_options options = {};
    try {
        freshet::follow none(options);
        return 1;
    } catch (const freshet::error &e) {
        if (e.code != FRESHET_E_INVALID)
            return 2;
    }
    options.brokers = "127.0.0.1:1"; /* nobody is there: it starts, and waits */
    options.topic = "none";
    freshet::follow follow(options);
    freshet::reader reader = follow.read();
    if (follow.wait(1, std::chrono::milliseconds(1)) || follow.wait_caught_up(std::chrono::milliseconds(1)) || reader.info().epoch != 0)
        return 3;
    try {
        freshet::epoch held(reader);
        return 4;
    } catch (const freshet::error &e) {
        std::printf("%s %s\n", freshet_version(), e.what());
        return e.code == FRESHET_E_NOT_READY ? 0 : 5;
    }
}
PROGRAM
mkdir "$work/both"
cp "$work/wrapper.cpp" "$work/serving.c" "$work/both"
cat >"$work/both/CMakeLists.txt" <<'PROGRAM'
cmake_minimum_required(VERSION 3.25)
project(both LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(freshet 0.1 REQUIRED)
add_executable(serving serving.c)
add_executable(wrapper wrapper.cpp)
target_compile_options(wrapper PRIVATE -Wall -Wextra -Werror)
target_link_libraries(serving PRIVATE freshet::follow)
target_link_libraries(wrapper PRIVATE freshet::follow)
PROGRAM
cmake -S "$work/both" -B "$work/both/build" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log"
cmake --build "$work/both/build" >"$work/build.log"
timeout 60 "$work/both/build/wrapper"
for name in libfreshet_replica libfreshet_follow; do
    library=$(find "$work/prefix" -name "$name.so.0.*")
    readelf -d "$library" | grep -q "SONAME.*$name.so.0]" || { echo "$name has another soname" >&2; exit 1; }
    nm -D --defined-only "$library" | grep -q ' freshet_.*@@FRESHET_0.1$' || { echo "$name has no versions" >&2; exit 1; }
    nm -D --defined-only "$library" | grep -vE ' freshet_.*@@FRESHET_0.1$| FRESHET_0.1$' && { echo "$name exports more" >&2; exit 1; }
    man=$(find "$work/prefix" -path "*man3/$name.3")
    grep -q "^.SH RETURN VALUE\|^.SH DESCRIPTION" "$man" || { echo "$name has no man page" >&2; exit 1; }
done
nm -D --defined-only "$(find "$work/prefix" -name 'libfreshet_replica.so.0.*')" | grep -vE ' freshet_| FRESHET_' && { echo "symbols beside freshet_* are exported" >&2; exit 1; }
# what the documents show and say is installed, too
doc=$(dirname "$(find "$work/prefix" -name OPTIONS.md)")/..
sed -n '/^## A Kafka client of your own$/,$p' "$doc/docs/serving.md" | sed -n '/^```c$/,/^```$/p' | sed '/^```/d' >"$work/snippet.c"
grep -q 'int main' "$work/snippet.c"
# shellcheck disable=SC2046
cc -std=c17 -Wall -Wextra -Werror -c "$work/snippet.c" -o "$work/snippet.o" $(PKG_CONFIG_PATH=$pc pkg-config --cflags freshet_replica)
dead=0
while IFS=: read -r file link; do
    case "$link" in http | https) continue ;; esac
    [ -e "$(dirname "$file")/$link" ] || { echo "$file: nothing is installed at $link" >&2; dead=1; }
done < <(grep -roE --include='*.md' '\]\([^)#: ]+' "$doc" | sed 's/](//')
[ $dead = 0 ]
echo "1 passed, 0 failed"
