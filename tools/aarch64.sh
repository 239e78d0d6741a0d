#!/usr/bin/env bash
# Build for AArch64 with the cross compiler and run the tests under qemu-user: the unit tests and the
# golden hashes on a processor with dot products, then the products and the hashes on one without.
# Tests labelled slow, and those of the program (cli), are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh aarch64
cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 | tail -n 1
echo "== processor with dot products"
QEMU_CPU=max ctest --test-dir build/aarch64 --output-on-failure -LE 'slow|cli' -j "$(nproc)"
echo "== processor without"
QEMU_CPU=cortex-a53 ctest --test-dir build/aarch64 --output-on-failure -j "$(nproc)" \
    -R '^(device_matmul|conformance_determinism)$'
