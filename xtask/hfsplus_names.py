#!/usr/bin/env python3
"""Writes crates/fs/src/hfsplus/unicode/tables.rs from Python's Unicode character database.

    python3 xtask/hfsplus_names.py > crates/fs/src/hfsplus/unicode/tables.rs

Needs unicodedata.unidata_version 14 or later (Python 3.11); docs/formats/hfsplus.md section 9.1 gives the rules and
how they were checked against macOS. The result is frozen: names on volumes must not change with Unicode.
"""
import unicodedata

KEPT = [range(0x2000, 0x3000), range(0xF900, 0xFB00), range(0x1B00, 0x1B80)]
HANGUL = range(0xAC00, 0xD7A4)
WIDTH = 126


def full(char):
    mapping = unicodedata.decomposition(char)
    if not mapping or mapping.startswith("<"):
        return char
    return "".join(full(chr(int(part, 16))) for part in mapping.split())


def rows(items):
    line = "   "
    for item in items:
        if len(line) + 1 + len(item) > WIDTH:
            yield line
            line = "   "
        line += " " + item
    yield line


def array(name, kind, items, doc):
    items = list(items)
    print(f"\n/// {doc}\n#[rustfmt::skip]\npub(super) static {name}: [{kind}; {len(items)}] = [")
    print("\n".join(rows(f"{item}," for item in items)))
    print("];")


pool, codes = "", []
for code in range(0xC0, 0x10000):
    char = chr(code)
    if code in HANGUL or 0xD800 <= code < 0xE000 or any(code in kept for kept in KEPT):
        continue
    mapping = full(char)
    if mapping == char:
        continue
    assert all(ord(part) < 0x10000 for part in mapping) and len(mapping) <= 4, hex(code)
    at = pool.find(mapping)
    if at < 0:
        at, pool = len(pool), pool + mapping
    assert at < 1 << 13
    codes.append((code, at << 3 | len(mapping)))

classes = []
for code in range(0x300, 0x10000):
    if 0xD800 <= code < 0xE000:
        continue
    value = unicodedata.ucd_3_2_0.combining(chr(code))
    if value == 0:
        continue
    if classes and classes[-1][1] + 1 == code and classes[-1][2] == value:
        classes[-1] = (classes[-1][0], code, value)
    else:
        classes.append((code, code, value))

print("//! Decompositions and combining classes of names on HFS+ volumes. Written by `xtask/hfsplus_names.py`; do not edit.")
array("DECOMPOSED", "(u16, u16)", (f"(0x{c:X}, {p})" for c, p in codes),
      "A unit that decomposes, ascending; where its decomposition begins in [`POOL`], times 8, plus its length.")
array("POOL", "u16", (f"0x{ord(c):X}" for c in pool), "The units of all decompositions.")
array("CLASSES", "(u16, u16, u8)", (f"(0x{a:X}, 0x{b:X}, {v})" for a, b, v in classes),
      "First and last unit of a run of one combining class, ascending; all others are of class 0.")
