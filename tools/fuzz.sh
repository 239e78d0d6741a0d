#!/usr/bin/env bash
# Run every fuzz target for some seconds on its seeds, a target on each processor at a time. New
# inputs go to the build folder; an input that crashes is left there too and named.
# Usage: tools/fuzz.sh [seconds] [seed]
# The seed is 1 unless given, so that continuous integration walks the same way each time; 0 takes a
# new one, for longer runs by hand.
set -euo pipefail
cd "$(dirname "$0")/.."
export SECONDS_EACH=${1:-20} SEED=${2:-1}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz | tail -n 1

# One target; its output appears whole when it ends, so that two do not mix.
fuzz_one() {
    local name=${1##*/fuzz_} work log status=0
    work=build/fuzz/found/$name
    log=build/fuzz/found/$name.log
    mkdir -p "$work"
    "$1" -seed="$SEED" -max_total_time="$SECONDS_EACH" -max_len=65536 -rss_limit_mb=4096 \
        -timeout=20 -artifact_prefix="$work/crash-" -print_final_stats=0 -verbosity=0 \
        "$work" "tests/fuzz/corpus/$name" >"$log" 2>&1 || status=$?
    echo "== $name"
    cat "$log"
    return $status
}
export -f fuzz_one
find build/fuzz/tests/fuzz -maxdepth 1 -type f -executable -name 'fuzz_*' | sort |
    xargs -P "$(nproc)" -I{} bash -c 'fuzz_one {}'
echo "fuzz: ok"
