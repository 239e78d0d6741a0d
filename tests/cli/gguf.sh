#!/bin/bash
# "quern gguf": listing as text and JSON, damaged files.
# usage: gguf.sh PROGRAM OWN_DATA SHARED_DATA
set -u
quern=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export HOME=$scratch XDG_CONFIG_HOME=$scratch
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# two keys and a vector of three numbers
printf 'GGUF\3\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0' >"$scratch/a.gguf"
printf '\1\0\0\0\0\0\0\0k\4\0\0\0\7\0\0\0' >>"$scratch/a.gguf"
printf '\1\0\0\0\0\0\0\0s\x8\0\0\0\4\0\0\0\0\0\0\0a"\n\xff' >>"$scratch/a.gguf"
printf '\1\0\0\0\0\0\0\0t\1\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' >>"$scratch/a.gguf"
size=$(stat -c %s "$scratch/a.gguf")
head -c $(((32 - size % 32) % 32 + 12)) /dev/zero >>"$scratch/a.gguf"

text=$("$quern" gguf "$scratch/a.gguf") || fail "the listing fails"
grep -qE '^  k +u32 +7$' <<<"$text" || fail "key k is not listed"
grep -qaE '^  s +str +a"\\n' <<<"$text" || fail "key s is not listed"
grep -qE '0 t +f32 +\[3\] +12 bytes at 128$' <<<"$text" || fail "tensor t is not listed"
json=$("$quern" gguf --json "$scratch/a.gguf") || fail "the JSON listing fails"
grep -qF '"value": "a\"\n\ufffd"' <<<"$json" || fail "the string is not escaped"
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys
d = json.load(sys.stdin)
assert d["tensors"] == [{"name": "t", "type": "f32", "shape": [3], "bytes": 12, "file": 0, "offset": 128}]
assert d["metadata"]["k"] == {"type": "u32", "value": 7}' <<<"$json" || fail "the JSON is wrong"
fi

# cut inside the data: listed, and called an error
head -c -4 "$scratch/a.gguf" >"$scratch/cut.gguf"
"$quern" gguf "$scratch/cut.gguf" >"$scratch/out" 2>"$scratch/err" && fail "a cut file passes"
grep -q 'tensor t' "$scratch/err" || fail "the cut tensor is not named"
grep -q '12 bytes' "$scratch/out" || fail "a cut file is not listed"
head -c 60 "$scratch/a.gguf" >"$scratch/cut.gguf"
"$quern" gguf "$scratch/cut.gguf" 2>"$scratch/err" && fail "a cut header passes"
grep -q "cut.gguf: .*cut short" "$scratch/err" || fail "the cut file is not named"

[ $failures = 0 ] && echo "gguf: ok"
exit $((failures > 0))
