#!/usr/bin/env python3
"""Check the include law: a room includes only itself and rooms above it in the order below.

Rooms that stand on the public interface alone may include their own headers and <quern/...>.
Prints every arrow that runs the wrong way and exits 1 if there is one.
"""
import pathlib
import re
import sys

ORDER = ["base", "tensor", "quant", "device", "gguf", "vocab", "model", "memory", "grammar",
         "sampler", "context"]
# Rooms that may not use everything above them: room -> rooms that it may include.
ONLY = {
    "quant": {"base", "tensor"},
    "gguf": {"base", "tensor", "quant"},
    "vocab": {"base", "gguf"},
    "grammar": {"base", "vocab"},
    "sampler": {"base", "tensor", "vocab", "grammar"},
}
PUBLIC_ONLY = {"speculative", "chat", "server", "cli"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def allowed(room: str) -> set:
    if room in PUBLIC_ONLY:
        return {room}
    if room in ONLY:
        return ONLY[room] | {room}
    return set(ORDER[: ORDER.index(room) + 1])


def main() -> int:
    src = pathlib.Path(__file__).resolve().parent.parent / "src"
    wrong = 0
    for path in sorted(src.rglob("*.[ch]")):
        room = path.relative_to(src).parts[0]
        if room not in ORDER and room not in PUBLIC_ONLY:
            print(f"{path}: room {room} is not in the order")
            wrong += 1
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1).split("/")[0]
            if "/" not in match.group(1):
                print(f"{path}:{number}: include {match.group(1)} by its path from src/")
                wrong += 1
            elif target not in allowed(room):
                print(f"{path}:{number}: {room} may not include {target}")
                wrong += 1
    print("include law: ok" if wrong == 0 else f"include law: {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
