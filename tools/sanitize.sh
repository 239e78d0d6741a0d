#!/usr/bin/env bash
# Build with the sanitizer presets and run the unit tests under them. The tests of the real models
# and of recorded speeds take too long there and are left out (label "slow"); so are the scripts that
# load a real model again and again, and the test that counts what the allocator is asked for.
set -euo pipefail
cd "$(dirname "$0")/.."
for preset in "${@:-asan tsan}"; do
    for one in $preset; do
        echo "== $one"
        cmake --preset "$one" >/dev/null
        cmake --build --preset "$one" | tail -n 1
        ctest --test-dir "build/$one" --output-on-failure -LE slow \
            -E '^(cli_sampling|cli_grammar|context_allocations)$' -j "$(nproc)"
    done
done
