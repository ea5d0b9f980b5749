"""Writes docs/python-api.md from the signatures and docstrings of the package.

python crates/python/reference.py          writes the page
python crates/python/reference.py --check  fails if it is out of date
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE / "python/bandsaw"
PAGE = HERE.parents[1] / "docs/python-api.md"

SECTIONS = [
    ("Functions", "_image.py", ["open", "create"]),
    ("Image", "_image.py", ["Image"]),
    ("Volume", "_volume.py", ["Volume"]),
    ("VolumePath", "_path.py", ["VolumePath"]),
    ("DirEntry and Stat", "_bandsaw.pyi", ["DirEntry", "Stat"]),
    ("Files", "_files.py", ["DeviceFile", "Disk", "Extent"]),
    ("bandsaw.dmg", "dmg.py", ["build"]),
    ("bandsaw.fsspec", "fsspec.py", ["BandsawFileSystem"]),
    ("bandsaw.dissect", "dissect.py", ["register"]),
    ("bandsaw.dfvfs", "dfvfs.py", ["register"]),
    ("Errors", "errors.py", None),
    ("Reports", "_reports.py", None),
]


def page() -> str:
    lines = [
        "# Python reference",
        "",
        "Written by `crates/python/reference.py` from the sources of the package. [python.md](python.md) has examples.",
    ]
    for title, file, names in SECTIONS:
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        found = {one.name: one for one in tree.body if isinstance(one, (ast.ClassDef, ast.FunctionDef))}
        if names is None:
            names = [name for name in found if not name.startswith("_") and isinstance(found[name], ast.ClassDef)]
            lines += ["", f"## {title}", ""]
            lines += [row(found[name]) for name in names]
            continue
        lines += ["", f"## {title}"]
        for name in names:
            lines += entry(found[name])
    return "\n".join(lines) + "\n"


def row(of: ast.AST) -> str:
    """Returns one line for a class of data or an error."""
    assert isinstance(of, ast.ClassDef)
    bases = ", ".join(f"`{ast.unparse(base)}`" for base in of.bases if ast.unparse(base) not in ("Report", "Error"))
    fields = [one for one in of.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    members = ", ".join(f"`{one.target.id}`" for one in fields if isinstance(one.target, ast.Name))
    text = summary(of)
    return f"* `{of.name}`{f' ({bases})' if bases else ''}: {text}{f' Members: {members}.' if members else ''}"


def entry(of: ast.AST) -> list[str]:
    if isinstance(of, ast.FunctionDef):
        return ["", f"### `{signature(of)}`", "", *body(of)]
    assert isinstance(of, ast.ClassDef)
    lines = ["", f"### class `{of.name}`", "", *body(of)]
    overloaded = set()
    for one in of.body:
        if not isinstance(one, ast.FunctionDef) or one.name.startswith("_"):
            continue
        marks = {ast.unparse(mark) for mark in one.decorator_list}
        if "overload" in marks:
            overloaded.add(one.name)
            continue
        text = summary(one)
        if not text:
            continue
        shown = one.name if "property" in marks else signature(one)
        lines += [f"* `{shown}`: {text}"] if lines[-1].startswith("* ") else ["", f"* `{shown}`: {text}"]
    return lines


def signature(of: ast.FunctionDef) -> str:
    arguments = ast.unparse(of.args).removeprefix("self, ").removeprefix("self").removeprefix("cls, ")
    returns = f" -> {ast.unparse(of.returns)}" if of.returns is not None else ""
    return f"{of.name}({arguments}){returns}"


def summary(of: ast.AST) -> str:
    assert isinstance(of, (ast.ClassDef, ast.FunctionDef))
    text = ast.get_docstring(of) or ""
    return " ".join(text.split("\n>>>")[0].split())


def body(of: ast.AST) -> list[str]:
    """Returns a docstring, with its examples as code and its arguments as a list."""
    assert isinstance(of, (ast.ClassDef, ast.FunctionDef))
    lines: list[str] = []
    code = False
    for line in (ast.get_docstring(of) or "").splitlines():
        starts = line.startswith(">>> ")
        if starts and not code:
            lines.append("```python")
            code = True
        if code and not line:
            lines.append("```")
            code = False
        if line in ("Args:", "Raises:"):
            lines += [line[:-1].replace("Args", "Arguments") + ":", ""]
        elif not code and line.startswith("    ") and not line.startswith("     ") and ":" in line:
            name, _, text = line.strip().partition(":")
            lines.append(f"* `{name}`:{text}")
        else:
            lines.append(line if code else line.strip())
    if code:
        lines.append("```")
    return lines


if __name__ == "__main__":
    if "--check" in sys.argv:
        if PAGE.read_text(encoding="utf-8") != page():
            sys.exit("docs/python-api.md is out of date: run crates/python/reference.py")
    else:
        PAGE.write_text(page(), encoding="utf-8")
