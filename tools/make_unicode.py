#!/usr/bin/env python3
"""Write src/vocab/unicode_classes.c from a table of general categories.

Usage: tools/make_unicode.py classes.tsv > src/vocab/unicode_classes.c
Each line of the table: first and last code point in hex and the first letter of the category, or U
for unassigned; ranges that are missing are unassigned.
"""
import sys

LETTERS = "ULNPSZMC"  # the order of the enum in unicode.h

HEAD = """/*
 * unicode_classes.c: the general class of every code point, Unicode 15.1.0. Written by
 * tools/make_unicode.py; do not edit.
 *
 * Each entry is (first code point << 3) | class and holds up to the next entry.
 */
#include "vocab/unicode.h"

/* clang-format off */
const uint32_t qn__unicode_class_runs[] = {
"""


def main() -> None:
    runs = []

    def add(start: int, letter: str) -> None:
        if not runs or runs[-1][1] != letter:
            runs.append((start, letter))

    end = 0
    for line in open(sys.argv[1], encoding="ascii"):
        first, last, letter = line.split()
        if int(first, 16) > end:
            add(end, "U")
        add(int(first, 16), letter)
        end = int(last, 16) + 1
    add(end, "U")
    words = [f"0x{start << 3 | LETTERS.index(letter):x}," for start, letter in runs]
    print(HEAD, end="")
    line = "   "
    for word in words:
        if len(line) + 1 + len(word) > 100:
            print(line)
            line = "   "
        line += " " + word
    print(line)
    print("};")
    print("/* clang-format on */")
    print()
    print("const size_t qn__unicode_class_run_count =")
    print("    sizeof qn__unicode_class_runs / sizeof qn__unicode_class_runs[0];")


main()
