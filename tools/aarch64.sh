#!/usr/bin/env bash
# Build for AArch64 with the cross compiler and run the tests under qemu-user: the unit tests and the
# golden hashes on a processor with dot products, then the products and the hashes of the instruction
# sets on one without. Left out are tests labelled slow, those of the program (cli), and some
# that take most of a minute each there and run no code of the processor that others do not.
set -euo pipefail
cd "$(dirname "$0")/.."
start=$SECONDS
tools/setup.sh aarch64
cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 | tail -n 1
echo "== built after $((SECONDS - start)) s"
ctest --test-dir build/aarch64 --output-on-failure -j "$(nproc)" -LE 'slow|cli' \
    -E '^(context_(allocations|context|equality|grammar_sampling|graph_.*)|memory_memory|model_quantize|sampler_graph)$'
echo "== a processor without dot products"
for test in device_matmul "conformance_determinism instruction_set*"; do
    # shellcheck disable=SC2086
    set -f -- $test
    QEMU_CPU=cortex-a53 qemu-aarch64-static -L /usr/aarch64-linux-gnu "build/aarch64/tests/test_$1" "${@:2}"
done
echo "== AArch64: $((SECONDS - start)) s"
