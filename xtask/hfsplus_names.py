#!/usr/bin/env python3
"""Writes crates/fs/src/hfsplus/unicode/tables.rs from Python's Unicode character database.

    python3 xtask/hfsplus_names.py > crates/fs/src/hfsplus/unicode/tables.rs

docs/formats/hfsplus.md section 9.1 gives the rules and how they were checked against macOS. The result is frozen:
names on volumes must not change with Unicode. Decompositions are those of `xtask/unicode_names.py`.
"""
import unicodedata

WIDTH = 126


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

print("//! Combining classes of names on HFS+ volumes. Written by `xtask/hfsplus_names.py`; do not edit.")
array("CLASSES", "(u16, u16, u8)", (f"(0x{a:X}, 0x{b:X}, {v})" for a, b, v in classes),
      "First and last unit of a run of one combining class, ascending; all others are of class 0.")
