#!/usr/bin/env bash
# Run every fuzz target for some seconds on its seeds. New inputs go to the build folder; an input
# that crashes is left there too and named.
# Usage: tools/fuzz.sh [seconds] [seed]
# The seed is 1 unless given, so that continuous integration walks the same way each time; 0 takes a
# new one, for longer runs by hand.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
seed=${2:-1}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz | tail -n 1
for target in build/fuzz/tests/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=${target##*/fuzz_}
    work=build/fuzz/found/$name
    mkdir -p "$work"
    echo "== $name"
    "$target" -seed="$seed" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=4096 -timeout=20 \
        -artifact_prefix="$work/crash-" -print_final_stats=0 -verbosity=0 \
        "$work" "tests/fuzz/corpus/$name"
done
echo "fuzz: ok"
