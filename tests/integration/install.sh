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
nm -D --defined-only "$(find "$work/prefix" -name 'libfreshet_replica.so.0.*')" | grep -v ' freshet_' && { echo "symbols beside freshet_* are exported" >&2; exit 1; }
# what the documents show and say is installed, too
doc=$(dirname "$(find "$work/prefix" -name OPTIONS.md)")/..
sed -n '/^```c$/,/^```$/p' "$doc/docs/deltas.md" | sed '/^```/d' >"$work/snippet.c"
grep -q 'int main' "$work/snippet.c"
# shellcheck disable=SC2046
cc -std=c17 -Wall -Wextra -Werror -c "$work/snippet.c" -o "$work/snippet.o" $(PKG_CONFIG_PATH=$pc pkg-config --cflags freshet_replica)
dead=0
while IFS=: read -r file link; do
    [ -e "$(dirname "$file")/$link" ] || { echo "$file: nothing is installed at $link" >&2; dead=1; }
done < <(grep -roE --include='*.md' '\]\([^)#: ]+' "$doc" | sed 's/](//')
[ $dead = 0 ]
# benchmarks find their configuration: the first one begins, and that is enough
(cd "$work" && timeout 10 "$work/prefix/bin/freshet" bench decode) >"$work/bench.log" 2>&1 || true
grep -q '^bench: decode' "$work/bench.log" || { cat "$work/bench.log" >&2; exit 1; }
echo "1 passed, 0 failed"
