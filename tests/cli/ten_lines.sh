#!/bin/bash
# The example of ten lines, built against the installed library, writes text.
# usage: ten_lines.sh PROGRAM OWN_DATA SHARED_DATA
set -u
build=$(dirname "$1")
source=$(dirname "$2")/../examples/ten_lines.c
model=${XDG_CACHE_HOME:-$HOME/.cache}/quern/SmolLM2-135M-Instruct.Q4_1.gguf
skip() { echo "skipped: $*"; exit 77; }
fail() { echo "FAILED: $*"; exit 1; }

command -v cmake >/dev/null && command -v pkg-config >/dev/null || skip "no cmake or pkg-config"
nm -D "$build/libquern.so" 2>/dev/null | grep -qE '__(asan|tsan)_init' && skip "built with a sanitizer"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cmake --install "$build" --prefix "$place" >"$place/log" 2>&1 || { cat "$place/log"; fail "cannot install"; }
flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$place" -name quern.pc)") \
    pkg-config --define-variable=prefix="$place" --cflags --libs quern) || fail "quern.pc"
library=$(dirname "$(find "$place" -name libquern.so)")
# shellcheck disable=SC2086
${CC:-cc} -std=c99 -Wall -Wextra -Werror "$source" $flags -o "$place/ten_lines" || fail "cannot build"
export LD_LIBRARY_PATH=$library
nm -D --defined-only "$library/libquern.so" | awk '$2 ~ /[TDBR]/ {print $3}' | grep -v '^qn_[a-z]' &&
    fail "symbols that are not public"
"$place/ten_lines" 2>"$place/usage" && fail "no arguments, no failure"
grep -q '^usage: ' "$place/usage" || fail "no usage line"
"$place/ten_lines" /nowhere.gguf x 2>"$place/missing" && fail "no model, no failure"
grep -q '/nowhere.gguf' "$place/missing" || fail "the missing file is not named"
[ -r "$model" ] || skip "SmolLM2 is not here: tools/fetch_model.sh fetches it"
text=$(timeout 60 "$place/ten_lines" "$model" "Once upon a time" 2>"$place/errors" | head -c 60)
[ ${#text} -ge 20 ] || { cat "$place/errors"; fail "wrote only '$text'"; }
echo "wrote: $text"
