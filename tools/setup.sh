#!/usr/bin/env bash
# Install what building and testing need on a Debian system, if it is missing: a no-op otherwise.
# Usage: tools/setup.sh [build|test|ci]   (each level takes the ones before it)
set -euo pipefail

level=${1:-build}
packages=(gcc cmake ninja-build pkg-config libc6-dev libpcre2-dev libutf8proc-dev libjansson-dev
    python3 python3-pip unzip)
case "$level" in
    build) ;;
    test) packages+=(libcmocka-dev libsimde-dev) ;;
    ci) packages+=(libcmocka-dev libsimde-dev clang libclang-rt-dev clang-format) ;;
    *) echo "setup.sh: unknown level $level" >&2; exit 1 ;;
esac

missing=()
for package in "${packages[@]}"; do
    if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed'; then
        missing+=("$package")
    fi
done
# A compiler, cmake or pip that did not come as a Debian package serves as well.
keep=()
for package in "${missing[@]}"; do
    case "$package" in
        gcc | cmake | clang | clang-format | clang-tidy | unzip | python3)
            command -v "$package" >/dev/null && continue ;;
        python3-pip) python3 -m pip --version >/dev/null 2>&1 && continue ;;
        ninja-build) command -v ninja >/dev/null && continue ;;
    esac
    keep+=("$package")
done
[ ${#keep[@]} -eq 0 ] && exit 0

echo "installing: ${keep[*]}"
sudo=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "setup.sh: run as root: apt-get install ${keep[*]}" >&2
        exit 1
    }
    sudo=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
if ! "${sudo[@]}" apt-get update -q >/dev/null || ! "${sudo[@]}" apt-get install -q -y --no-install-recommends "${keep[@]}" >/dev/null; then
    echo "setup.sh: could not install ${keep[*]}: is there a network? Install them and try again." >&2
    exit 1
fi
