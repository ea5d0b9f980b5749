"""The documents: every example runs, and the reference is complete."""

from __future__ import annotations

import inspect
import io
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import bandsaw

ROOT = Path(__file__).parents[3]


def test_the_programs_of_the_pages_compile() -> None:
    """Those that cannot run here: they need a bucket, or evidence. The examples with output are run by pytest's options."""
    pages = [ROOT / "docs/python.md", *sorted((ROOT / "docs/python").glob("*.md"))]
    if not pages[0].exists():
        pytest.skip("the documents are not here")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    programs = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    programs = [program for program in programs if ">>>" not in program]
    assert len(programs) > 1
    for program in programs:
        compile(program, "docs", "exec")


def test_the_reference_is_up_to_date() -> None:
    script = ROOT / "crates/python/reference.py"
    if not (ROOT / "docs/python-api.md").exists():
        pytest.skip("the documents are not here")
    subprocess.run([sys.executable, script, "--check"], check=True)
    text = (ROOT / "docs/python-api.md").read_text(encoding="utf-8")
    for name in bandsaw.__all__:
        if name not in ("__version__", "dmg", "errors"):
            assert f"`{name}`" in text or f"`{name}(" in text, name


def test_everything_public_has_a_docstring() -> None:
    for kind in (bandsaw.Image, bandsaw.Volume, bandsaw.VolumePath, bandsaw.Disk):
        for name, member in inspect.getmembers(kind):
            inherited = any(name in vars(base) for base in io.RawIOBase.__mro__)
            if not name.startswith("_") and not inherited:
                assert inspect.getdoc(member), f"{kind.__name__}.{name}"


def test_stubs_name_every_native_member() -> None:
    import ast

    from bandsaw import _bandsaw

    stub = Path(bandsaw.__file__).with_name("_bandsaw.pyi")
    classes = {one.name: one for one in ast.parse(stub.read_text()).body if isinstance(one, ast.ClassDef)}
    for name, kind in vars(_bandsaw).items():
        if isinstance(kind, type):
            stated = {one.name for one in classes[name].body if isinstance(one, ast.FunctionDef)}
            found = {member for member in vars(kind) if not member.startswith("_")}
            assert found == {member for member in stated if not member.startswith("_")}, name


def test_the_example_of_artifacts(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import plistlib

    script = ROOT / "crates/python/examples/artifacts.py"
    if not script.exists():
        pytest.skip("the example is not here")
    path = tmp_path / "mac.sparsebundle"
    with bandsaw.create(path, 32 << 20, volname="Mac") as image:
        volume = image.volume()
        volume.mkdir("System/Library/CoreServices", parents=True)
        volume.write_bytes("System/Library/CoreServices/SystemVersion.plist", plistlib.dumps({"ProductVersion": "26.1"}))
        volume.mkdir("Users/me/Library/Preferences", parents=True)
        volume.write_bytes("Users/me/Library/Preferences/bad.plist", b"bplist00 damaged")
    monkeypatch.setattr(sys, "argv", ["artifacts.py", str(path)])
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert "SystemVersion.plist: ['ProductVersion']" in printed
    assert "bad.plist" in printed
