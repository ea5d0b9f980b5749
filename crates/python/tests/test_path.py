"""`VolumePath` beside `pathlib.Path` on the same tree."""

from __future__ import annotations

import errno
import inspect
import os
import pathlib
import sys
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bandsaw

FILES = ("a/one.txt", "a/two.py", "a/b/three.py", "a/b/c/four.py", "a/b/a/b/five.py", ".hidden/six.py", "top.py")
LINKS = {
    "a/link": "b/three.py",
    "folder": "a/b",
    "absent": "nothing/there",
    "loop": "loop",
    "a/up": "../a/b",
    "a/b/again": "../one.txt",
}


@pytest.fixture(scope="module", params=["hfs+", "apfs"])
def trees(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any]]:
    """The same tree in a folder of the host and in a volume."""
    host = tmp_path_factory.mktemp("host")
    with bandsaw.create(tmp_path_factory.mktemp("image") / "a.sparsebundle", 32 << 20, fs=request.param, volname="A") as image:
        volume = image.volume()
        for name in FILES:
            (host / name).parent.mkdir(parents=True, exist_ok=True)
            (host / name).write_bytes(name.encode())
            volume.mkdir(os.path.dirname("/" + name), parents=True, exist_ok=True)
            volume.write_bytes(name, name.encode())
        for name, target in LINKS.items():
            (host / name).symlink_to(target)
            volume.symlink(target, name)
        yield host, volume.path()


def without_own(names: list[str]) -> list[str]:
    """Leaves out what the file system keeps in its root."""
    return sorted(name for name in names if not name.startswith((".fseventsd", ".Trashes", ".journal", ".HFS")))


PATHS = ["", "a", "a/one.txt", "a/link", "folder", "folder/c", "folder/../one.txt", "absent", "loop", "loop/x", "a/up/c",
         "a/one.txt/x", "nothing", "nothing/more", "a/../top.py", "a/b/again"]  # fmt: skip
QUESTIONS: dict[str, Callable[[Any], object]] = {
    "exists": lambda path: path.exists(),
    "is_dir": lambda path: path.is_dir(),
    "is_file": lambda path: path.is_file(),
    "is_symlink": lambda path: path.is_symlink(),
    "is_fifo": lambda path: path.is_fifo(),
    "is_socket": lambda path: path.is_socket(),
    "is_block_device": lambda path: path.is_block_device(),
    "is_char_device": lambda path: path.is_char_device(),
    "readlink": lambda path: str(path.readlink()),
    "read_text": lambda path: path.read_text(),
    "iterdir": lambda path: without_own([one.name for one in path.iterdir()]),
    "open": lambda path: path.open("rb", 0).close(),
    "stat": lambda path: path.stat() and None,
    "lstat": lambda path: path.lstat() and None,
    "parts": lambda path: (path.name, path.stem, path.suffix, path.suffixes, path.anchor, path.root, path.drive),
    "match": lambda path: path.match("*/o*.txt"),
    "rmdir of a file": lambda path: path.rmdir() if path.is_file() else None,
    "unlink of a folder": lambda path: path.unlink() if path.is_dir() and not path.is_symlink() else None,
}


def outcome(question: Callable[[Any], object], path: Any) -> object:
    """Returns the answer, or the number of the error."""
    try:
        return question(path)
    except OSError as error:
        return f"error {error.errno}"


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_those_of_pathlib(trees: tuple[Path, Any], name: str) -> None:
    host, root = trees
    for path in PATHS:
        if name == "parts" and not path:
            continue
        theirs, ours = (outcome(QUESTIONS[name], base / path) for base in (host, root))
        assert ours == theirs, (name, path)


def test_resolve(trees: tuple[Path, Any]) -> None:
    host, root = trees
    for path in PATHS:
        if path.startswith("loop"):
            continue
        assert str(host / path) == str(host) + str(root / path).rstrip("/") or not path
        theirs = str((host / path).resolve()).removeprefix(str(host.resolve())) or "/"
        assert str((root / path).resolve()) == theirs, path
        strict = [outcome(lambda one: one.resolve(strict=True) and None, base / path) for base in (host, root)]
        assert strict[0] == strict[1], path
    assert str((root / "loop").resolve()) == "/loop"
    with pytest.raises(bandsaw.SymlinkLoop) as loop:
        (root / "loop/x").resolve(strict=True)
    assert isinstance(loop.value, OSError) and loop.value.errno == errno.ELOOP
    assert (root / "folder").samefile("/a/b") and not (root / "folder").samefile(root / "a")


PATTERNS = ["*", "*.py", "**/*.py", "a/*", "a/**/*.py", "**/b", "**/b/**/*.py", "*/b/*", "folder/*", "*/*/c/*.py", "**",
            "a/**", "a/one.txt", "a/one.*/x", "[at]*", "?", "*/", "**/", "a/up/*.py", "a/*/*.py", "nothing/*", ".*",
            "**/a/**/b/**/*.py", "folder/**/*.py", "**/**/*.py"]  # fmt: skip


def test_glob(trees: tuple[Path, Any]) -> None:
    host, root = trees
    for pattern in PATTERNS:
        if pattern.endswith("**") and sys.version_info >= (3, 13):
            continue  # which returns files as well
        found = [str(path) for path in root.glob(pattern)]
        assert len(found) == len(set(found)), pattern
        theirs = {str(path).removeprefix(str(host)).rstrip("/") or "/" for path in host.glob(pattern)}
        assert without_own([one.lstrip("/") for one in found]) == sorted(one.lstrip("/") for one in theirs), pattern
    assert {str(path) for path in root.rglob("f*.py")} == {"/a/b/c/four.py", "/a/b/a/b/five.py"}
    assert [path.name for path in root.glob("A/ONE.*", case_sensitive=False)] == ["one.txt"]
    assert list(root.glob("A/ONE.*")) == []
    for pattern in ("/a", ""):
        with pytest.raises((NotImplementedError, ValueError)):
            list(root.glob(pattern))


def test_walk(trees: tuple[Path, Any]) -> None:
    host, root = trees
    for options in ({}, {"topdown": False}, {"followlinks": True, "top": "a/b"}):
        top = str(options.pop("top", ""))
        theirs = {}
        for folder, folders, files in os.walk(host / top, **options):  # type: ignore[call-overload]
            links = [name for name in folders if os.path.islink(os.path.join(folder, name)) and not options.get("followlinks")]
            theirs[folder.removeprefix(str(host)).rstrip("/") or "/"] = (
                without_own([name for name in folders if name not in links]),
                without_own(files + links),
            )
        ours = list(root.volume.walk("/" + top, **options))
        assert {folder: (without_own(folders), without_own(files)) for folder, folders, files in ours if not folder.startswith(
            ("/.fseventsd", "/.Trashes", "/.HFS"))} == theirs
        order = [folder for folder, _, _ in ours]
        assert (order[0] == "/" + top) == options.get("topdown", True)
    seen = []
    for folder, folders, _ in root.walk(top_down=True):
        seen.append(str(folder))
        folders[:] = [name for name in folders if name == "a"]
    assert seen == ["/", "/a"]
    errors: list[Exception] = []
    assert list((root / "nothing").walk(on_error=errors.append)) == []
    assert [isinstance(error, FileNotFoundError) for error in errors] == [True]


@pytest.mark.parametrize("fs", ["hfs+", "apfs"])
def test_changes(tmp_path: Path, fs: str) -> None:
    host = tmp_path / "host"
    host.mkdir()
    before = os.umask(0o022)
    try:
        with bandsaw.create(tmp_path / "a.sparsebundle", 32 << 20, fs=fs, volname="A") as image:
            for root in (host, image.volume().path()):
                file, link, folder = root / "file", root / "link", root / "folder"
                file.touch(0o666)
                assert file.stat().st_mode == 0o100644
                (root / "private").touch(mode=0o600)
                assert (root / "private").stat().st_mode & 0o777 == 0o600
                with pytest.raises(FileExistsError):
                    file.touch(exist_ok=False)
                link.symlink_to("file", target_is_directory=False)
                link.chmod(0o640)
                assert (file.stat().st_mode & 0o777, link.is_symlink()) == (0o640, True)
                folder.mkdir()
                assert folder.stat().st_mode & 0o777 == 0o755
                with pytest.raises(NotADirectoryError):
                    file.rmdir()
                with pytest.raises(IsADirectoryError):
                    folder.unlink()
                with pytest.raises(NotADirectoryError):
                    (file / "x").unlink(missing_ok=True)
                (root / "none").unlink(missing_ok=True)
                assert file.exists() and folder.exists()
                # Line buffering, and none.
                with file.open("w", 1, "utf-8", newline="\n") as text:
                    assert text.line_buffering  # type: ignore[union-attr]
                    text.write("Gr\u00fc\u00dfe\n")
                assert file.read_text("utf-8") == "Gr\u00fc\u00dfe\n"
                with file.open("rb", buffering=0) as raw:
                    assert raw.read(2) == b"Gr"
                with pytest.raises(ValueError):
                    file.open("r", 0)
                assert file.write_text("a\nb", newline="\r\n") == 3
                assert file.read_bytes() == b"a\r\nb"
                file.replace(root / "moved")
                assert not file.exists() and not link.exists() and link.is_symlink()
                folder.rmdir()
                with pytest.raises(IsADirectoryError):
                    (root / "").open("rb")
            path = image.volume().path()
            with pytest.raises(bandsaw.IsAFolder):
                path.open("rb")
            path.mkdir(exist_ok=True)
            with pytest.raises(FileExistsError):
                path.mkdir()
            image.volume().mkdir("taken")
            with pytest.raises(bandsaw.IsAFolder):
                image.volume().write_bytes("taken", b"")
            (path / "link").lchmod(0o700)
            assert (path / "link").lstat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


def test_errors_have_numbers(tmp_path: Path) -> None:
    with bandsaw.create(tmp_path / "a.sparsebundle", 16 << 20, fs="hfs+", volname="A") as image:
        volume = image.volume()
        with pytest.raises(bandsaw.NameTooLong) as long:
            volume.write_bytes("x" * 300, b"")
        assert isinstance(long.value, OSError) and long.value.errno == errno.ENAMETOOLONG
        with pytest.raises(bandsaw.NoSpace) as full:
            volume.write_bytes("large", bytes(32 << 20))
        assert isinstance(full.value, OSError) and full.value.errno == errno.ENOSPC
        assert isinstance(full.value, bandsaw.LimitExceeded)
        with pytest.raises(bandsaw.NotAFolder) as file:
            volume.write_bytes("file", b"")
            volume.stat("file/x")
        assert isinstance(file.value, FileNotFoundError) and isinstance(file.value, NotADirectoryError)
        assert file.value.errno == errno.ENOTDIR


def test_both_forms_of_unicode_match(tmp_path: Path) -> None:
    for fs in ("hfs+", "apfs"):
        with bandsaw.create(tmp_path / f"{fs}.sparsebundle", 32 << 20, fs=fs, volname="A") as image:
            image.volume().write_bytes("Gr\u00fc\u00dfe.txt", b"")
            for form in ("NFC", "NFD"):
                found = list(image.volume().glob(unicodedata.normalize(form, "Gr\u00fc*.txt")))
                assert len(found) == 1, (fs, form)


# What has no meaning in a volume, or needs a user or the current folder.
WITHOUT = {"as_uri", "cwd", "expanduser", "from_uri", "group", "home", "is_junction", "is_reserved", "link_to", "owner",
           "with_segments", "full_match", "info", "parser", "copy", "copy_into", "move", "move_into"}  # fmt: skip
# Newer than Python 3.11.
NEWER = {"walk_up", "case_sensitive", "recurse_symlinks", "follow_symlinks", "newline"}


def test_the_interface_is_that_of_pathlib() -> None:
    for name, theirs in inspect.getmembers(pathlib.Path):
        if name.startswith("_") or name in WITHOUT:
            continue
        ours = inspect.getattr_static(bandsaw.VolumePath, name)
        if not inspect.isfunction(theirs):
            continue
        expected, found = inspect.signature(theirs).parameters, inspect.signature(ours).parameters
        for parameter in expected.values():
            if parameter.name in found:
                other = found[parameter.name]
                assert other.kind == parameter.kind or name in ("relative_to", "is_relative_to"), (name, parameter)
                assert other.default == parameter.default, (name, parameter)
            else:
                assert parameter.name in NEWER or parameter.kind in (
                    inspect.Parameter.VAR_POSITIONAL,
                    inspect.Parameter.VAR_KEYWORD,
                    inspect.Parameter.POSITIONAL_ONLY,
                ) or _renamed(name, parameter.name), (name, parameter)


def _renamed(name: str, parameter: str) -> bool:
    """Returns true for parameters whose names differ between versions of Python."""
    return (name, parameter) in {("match", "path_pattern"), ("samefile", "other_path"), ("is_relative_to", "other")}


def test_glob_keeps_no_paths(tmp_path: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    for number in range(30_000):
        (source / f"{number:06}").touch()
    bandsaw.create(tmp_path / "many.dmg", source=source, fs="hfs+", format="UDRW", volname="Many").close()
    with bandsaw.open(tmp_path / "many.dmg") as image:
        volume = image.volume()
        list(zip(volume.glob("**/*"), range(10), strict=False))
        tracemalloc.start()
        count = sum(1 for _ in volume.glob("**/0*"))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert count == 30_000
    assert peak < 200_000, f"{peak} bytes"
