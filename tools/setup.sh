#!/usr/bin/env bash
# Install what building and testing need on a Debian system, if it is missing: a no-op otherwise.
# Usage: tools/setup.sh [build|test|ci]   (each level takes the ones before it)
#        tools/setup.sh aarch64           what the preset aarch64 needs: compiler, qemu, libraries
set -euo pipefail
cd "$(dirname "$0")/.."

level=${1:-build}
packages=(gcc cmake ninja-build pkg-config libc6-dev libpcre2-dev libutf8proc-dev libjansson-dev
    python3 python3-pip unzip)
case "$level" in
    build) ;;
    test) packages+=(libcmocka-dev libsimde-dev) ;;
    ci) packages+=(libcmocka-dev libsimde-dev clang libclang-rt-dev clang-format) ;;
    aarch64) packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static) ;;
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

install_packages() {
    echo "installing: $*"
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || {
            echo "setup.sh: run as root: apt-get install $*" >&2
            exit 1
        }
        sudo=(sudo)
    fi
    export DEBIAN_FRONTEND=noninteractive
    if ! "${sudo[@]}" apt-get update -q >/dev/null ||
        ! "${sudo[@]}" apt-get install -q -y --no-install-recommends "$@" >/dev/null; then
        echo "setup.sh: could not install $*: is there a network? Install them and try again." >&2
        exit 1
    fi
}

# The libraries for AArch64, unpacked to a folder of their own. Installed beside the native ones, as
# a foreign architecture, they would want the same versions of the system's own libraries and so
# change those.
unpack_aarch64() {
    local root=build/aarch64-root options
    local libraries=(libpcre2-dev libpcre2-8-0 libutf8proc-dev libutf8proc2 libjansson-dev
        libjansson4 libcmocka-dev libcmocka0)
    [ -e "$root/done" ] && return
    echo "unpacking to $root: ${libraries[*]}"
    mkdir -p build
    work=$(mktemp -d "$PWD/build/aarch64-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/root"
    options=(-q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::Cache="$work/cache"
        -o Dir::State::lists="$work/lists" -o Dir::State::status=/dev/null -o APT::Sandbox::User=)
    if ! apt-get "${options[@]}" update >/dev/null ||
        ! (cd "$work" && apt-get "${options[@]}" download "${libraries[@]}" >/dev/null); then
        echo "setup.sh: could not fetch ${libraries[*]} for arm64: is there a network?" >&2
        exit 1
    fi
    for package in "$work"/*.deb; do
        dpkg-deb -x "$package" "$work/root"
    done
    touch "$work/root/done"
    rm -rf "$root"
    mv "$work/root" "$root"
}

[ ${#keep[@]} -eq 0 ] || install_packages "${keep[@]}"
[ "$level" != aarch64 ] || unpack_aarch64
