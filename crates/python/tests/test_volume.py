"""Volumes: listing, names, changes, extraction."""

from __future__ import annotations

import io
import itertools
import os
import stat
import subprocess
import sys
import tarfile
import threading
import unicodedata
from datetime import datetime, timezone
from pathlib import Path

import pytest

import bandsaw


def fill(image: bandsaw.Image) -> bandsaw.Volume:
    volume = image.volume()
    volume.mkdir("a/b/c", parents=True)
    for name in ("a/one.txt", "a/two.py", "a/b/three.py", "a/b/c/four.py"):
        volume.write_bytes(name, name.encode())
    volume.symlink("b/three.py", "a/link")
    volume.symlink("/a/b", "folder")
    return volume


def test_listing(writable: bandsaw.Image) -> None:
    volume = fill(writable)
    assert sorted(volume.listdir()) == ["a", "folder"]
    entries = {entry.name: entry for entry in volume.scandir("/a")}
    assert set(entries) == {"one.txt", "two.py", "b", "link"}
    assert entries["b"].is_dir()
    assert entries["link"].is_symlink()
    assert entries["one.txt"].is_file()
    assert entries["one.txt"].path == "/a/one.txt"
    assert entries["one.txt"].size == 9
    assert entries["one.txt"].stat() == volume.stat("/a/one.txt")
    assert entries["one.txt"].inode() == volume.stat("a/one.txt").st_ino
    assert volume.read_bytes(entries["one.txt"]) == b"a/one.txt"
    assert volume.read_bytes(entries["link"]) == b"a/b/three.py"
    assert sorted(entry.path for entry in volume.find("a/b")) == ["/a/b/c", "/a/b/c/four.py", "/a/b/three.py"]
    assert [(folder, sorted(folders), sorted(files)) for folder, folders, files in volume.walk()] == [
        ("/", ["a"], ["folder"]),
        ("/a", ["b"], ["link", "one.txt", "two.py"]),
        ("/a/b", ["c"], ["three.py"]),
        ("/a/b/c", [], ["four.py"]),
    ]
    assert [folder for folder, _, _ in volume.walk("/a", topdown=False)] == ["/a/b/c", "/a/b", "/a"]
    assert sorted(volume.glob("a/*.py")) == ["/a/two.py"]
    assert sorted(volume.glob("**/*.py")) == ["/a/b/c/four.py", "/a/b/three.py", "/a/two.py"]
    assert sorted(volume.glob("*/b/**/*.py")) == ["/a/b/c/four.py", "/a/b/three.py"]
    with pytest.raises(FileNotFoundError):
        volume.scandir("/a/one.txt")
    errors: list[Exception] = []
    assert list(volume.walk("/nothing", onerror=errors.append)) == []
    assert len(errors) == 1


def test_links(writable: bandsaw.Image) -> None:
    volume = fill(writable)
    assert volume.readlink("a/link") == "b/three.py"
    assert stat.S_ISLNK(volume.lstat("a/link").st_mode)
    assert stat.S_ISREG(volume.stat("a/link").st_mode)
    assert volume.read_bytes("folder/c/../three.py") == b"a/b/three.py"
    volume.symlink("loop", "loop")
    with pytest.raises(bandsaw.LimitExceeded):
        volume.stat("loop")
    with pytest.raises(bandsaw.Invalid):
        volume.readlink("a/one.txt")
    volume.link("a/one.txt", "a/again.txt")
    assert volume.stat("a/again.txt").st_nlink == 2


def test_names(writable: bandsaw.Image) -> None:
    volume = writable.volume()
    composed, decomposed = unicodedata.normalize("NFC", "Grüße é"), unicodedata.normalize("NFD", "Grüße é")
    volume.write_bytes(composed, b"1")
    assert volume.read_bytes(decomposed) == volume.read_bytes(composed) == b"1"
    assert len(volume.listdir()) == 1
    assert unicodedata.normalize("NFC", volume.listdir()[0]) == composed
    volume.write_bytes("a:b", b"colon")
    assert "a:b" in volume.listdir()
    # Names of a volume are Unicode: what a host escapes names nothing.
    with pytest.raises(FileNotFoundError):
        volume.stat(os.fsdecode(b"\xff"))
    for wrong in ("", "/", "..", "a/.."):
        with pytest.raises(bandsaw.Invalid):
            volume.write_bytes(wrong, b"")


def test_changes(writable: bandsaw.Image) -> None:
    volume = fill(writable)
    volume.rename("a/one.txt", "a/b/moved.txt")
    assert volume.read_bytes("a/b/moved.txt") == b"a/one.txt"
    with pytest.raises(bandsaw.Exists):
        volume.rename("a/b/moved.txt", "a/two.py")
    volume.rename("a/b/moved.txt", "a/two.py", replace=True)
    assert volume.read_bytes("a/two.py") == b"a/one.txt"
    with pytest.raises(bandsaw.Error):
        volume.remove("a")
    volume.remove("a", recursive=True)
    assert volume.listdir() == ["folder"]
    volume.remove("folder")
    with pytest.raises(FileNotFoundError):
        volume.remove("folder")
    with pytest.raises(FileExistsError):
        volume.mkdir("x", exist_ok=False) or volume.mkdir("x")
    volume.mkdir("x", exist_ok=True)
    with pytest.raises(FileNotFoundError):
        volume.mkdir("y/z")
    volume.touch("x/empty")
    assert volume.stat("x/empty").st_size == 0
    assert writable.check().sound


def test_attributes(writable: bandsaw.Image) -> None:
    volume = writable.volume()
    volume.write_bytes("f", b"data")
    when = datetime(2020, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    volume.set_attributes("f", mode=0o640, uid=501, gid=20, flags=1, created=when, modified=when)
    found = volume.stat("f")
    assert (found.st_mode, found.st_uid, found.st_gid, found.st_flags) == (0o100640, 501, 20, 1)
    assert found.created == found.modified == when
    assert found.st_mtime == when.timestamp()
    assert found.st_mtime_ns == int(when.timestamp()) * 10**9
    assert (found.kind, found.st_nlink, found.compressed) == ("file", 1, False)
    volume.set_xattr("f", "com.example.note", b"note")
    assert volume.xattrs("f") == {"com.example.note": b"note"}
    volume.remove_xattr("f", "com.example.note")
    assert volume.xattrs("f") == {}
    with volume.open("f", "r+b", fork="resource") as fork:
        fork.write(b"resource")
    assert volume.read_bytes("f", fork="resource") == b"resource"
    assert volume.stat("f").resource_fork_size == 8
    with pytest.raises(ValueError):
        volume.set_attributes("f", modified=datetime(2020, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError):
        volume.open("f", fork="other")


def test_files_of_the_host(writable: bandsaw.Image, tmp_path: Path) -> None:
    source = tmp_path / "Source"
    (source / "sub").mkdir(parents=True)
    (source / "one").write_bytes(b"1" * 100_000)
    (source / "sub/two").write_bytes(b"2")
    (source / "link").symlink_to("sub/two")
    volume = writable.volume()
    stages: list[tuple[str, int, int]] = []
    done = volume.add(source, progress=lambda *report: stages.append(report))
    assert (done.files, done.folders, done.symlinks, done.size) == (2, 2, 1, 100_001)
    assert volume.read_bytes("Source/sub/two") == b"2"
    with pytest.raises(bandsaw.Conflict):
        volume.add(source / "one", "Source")
    volume.add(source / "sub/two", "Source", name="one", overwrite=True)
    assert volume.read_bytes("Source/one") == b"2"
    out = tmp_path / "out"
    extracted = volume.extract(out, "Source")
    assert (extracted.files, extracted.symlinks, extracted.problem_count) == (2, 1, 0)
    assert (out / "sub/two").read_bytes() == b"2"
    assert os.readlink(out / "link") == "sub/two"
    again = volume.extract(out, "Source")
    assert again.problem_count == 3
    assert {problem.kind for problem in again.problems} == {"conflict"}
    volume.extract(tmp_path / "out.tar", "Source", tar=True)
    import tarfile

    with tarfile.open(tmp_path / "out.tar") as archive:
        assert any(name.endswith("sub/two") for name in archive.getnames())


def test_a_read_only_volume_refuses_changes(bundle: Path) -> None:
    with bandsaw.open(bundle) as image:
        volume = image.volume()
        for change in (
            lambda: volume.write_bytes("x", b""),
            lambda: volume.mkdir("x"),
            lambda: volume.remove("Letters/a.txt"),
            lambda: volume.open("Letters/a.txt", "r+b"),
            lambda: volume.set_xattr("Letters/a.txt", "x", b""),
        ):
            with pytest.raises(bandsaw.ReadOnly):
                change()


@pytest.mark.parametrize("fs", ["hfs+", "apfs"])
def test_large_folders_take_bounded_memory(tmp_path: Path, fs: str) -> None:
    source = tmp_path / "many"
    source.mkdir()
    count = 20_000
    for number in range(count):
        (source / f"{number:06}").touch()
    bandsaw.create(tmp_path / "many.dmg", source=source, fs=fs, format="UDRW", volname="Many").close()
    with bandsaw.open(tmp_path / "many.dmg") as image:
        volume = image.volume()
        entries = volume.scandir()
        seen = []
        for entry in entries:
            seen.append(entry.name)
            if len(seen) in (1, 5000, 15_000):
                # The volume is used while a thread lists it.
                assert volume.stat(entry).st_size == 0
        assert sorted(seen) == [f"{number:06}" for number in range(count)]
        half = volume.scandir()
        for _ in range(10_000):
            next(half)
        del half
        shared = volume.scandir()
        total: list[int] = []
        threads = [threading.Thread(target=lambda: total.append(sum(1 for _ in shared))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(total) == count


class Below(io.RawIOBase):
    """A file object in Python, which is read by threads that are attached to the interpreter."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = open(path, "rb", buffering=0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self.file.seek(offset, whence)

    def readinto(self, buffer: bytearray, /) -> int | None:  # type: ignore[override]
        return self.file.readinto(buffer)

    def close(self) -> None:
        self.file.close()
        super().close()


@pytest.mark.parametrize("fs", ["hfs+", "apfs"])
def test_folders_are_read_ahead_in_the_same_order(tmp_path: Path, fs: str) -> None:
    source = tmp_path / "folders"
    for number in range(200):
        folder = source / f"{number % 7}" / f"{number:03}"
        folder.mkdir(parents=True)
        for file in range(30):
            (folder / f"{file:02}").touch()
    image = tmp_path / "folders.dmg"
    bandsaw.create(image, source=source, fs=fs, format="UDRW", volname="Folders").close()
    with bandsaw.open(image) as opened:
        ahead = [entry.path for entry in opened.volume().find()]
    # A volume that may change is read a folder at a time, without a thread.
    with bandsaw.open(image, writable=True) as opened:
        assert [entry.path for entry in opened.volume().find()] == ahead
    assert len(ahead) == 7 + 200 * 31
    for taken in (0, 1, 40, 2500):
        # A thread that is reading ahead is waited for, also if it waits for the interpreter.
        with Below(image) as file, bandsaw.open(file, format="UDRW") as opened:
            entries = opened.volume().find()
            assert len(list(itertools.islice(entries, taken))) == taken
            del entries
    before = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 0
    for _ in range(50):
        with bandsaw.open(image) as opened:
            next(opened.volume().find())
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/task")) <= before + 4, "threads end with their iterator"


LIST = """
import resource, sys, bandsaw

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

with bandsaw.open(sys.argv[1]) as image:
    entries = image.volume().scandir()
    count = sum(1 for _ in zip(range(20_000), entries))
    before = peak()
    count += sum(1 for _ in entries)
    print(count, peak() - before)
"""


@pytest.mark.parametrize("fs", ["hfs+", "apfs"])
def test_a_million_entries_take_bounded_memory(tmp_path: Path, fs: str) -> None:
    count = 1_000_000
    header = bytearray(tarfile.TarInfo("0" * 7).tobuf(tarfile.USTAR_FORMAT)[:512])
    header[148:156] = b" " * 8
    checksum = sum(header) - 7 * ord("0")
    with open(tmp_path / "many.tar", "wb") as archive:
        for number in range(count):
            name = b"%07d" % number
            header[:7] = name
            header[148:156] = b"%06o\0 " % (checksum + sum(name))
            archive.write(header)
        archive.write(bytes(1024))
    image = tmp_path / "many.dmg"
    bandsaw.create(image, source=tmp_path / "many.tar", fs=fs, format="UDRW", volname="Many").close()
    listed = subprocess.run([sys.executable, "-c", LIST, image], check=True, capture_output=True, text=True)
    found, growth = map(int, listed.stdout.split())
    assert found == count
    # All entries together have more than 200 MiB.
    assert growth < 64 << 10, f"{growth} KiB"


def test_paths(writable: bandsaw.Image) -> None:
    volume = fill(writable)
    root = volume.path()
    one = root / "a" / "one.txt"
    assert (str(one), one.name, one.stem, one.suffix, one.parts) == ("/a/one.txt", "one.txt", "one", ".txt", ("/", "a", "one.txt"))
    assert one.parent == volume / "a"
    assert [str(path) for path in one.parents] == ["/a", "/"]
    assert one.read_text() == "a/one.txt"
    assert one.exists() and one.is_file() and not one.is_dir()
    assert (root / "a/link").is_symlink() and (root / "a/link").is_file()
    assert str((root / "a/link").readlink()) == "b/three.py"
    assert not (root / "nothing").exists()
    assert sorted(path.name for path in (root / "a").iterdir()) == ["b", "link", "one.txt", "two.py"]
    assert sorted(map(str, root.rglob("*.py"))) == ["/a/b/c/four.py", "/a/b/three.py", "/a/two.py"]
    assert one.with_suffix(".md").name == "one.md"
    assert str(one.relative_to("/a")) == "one.txt"
    new = root / "new"
    new.mkdir()
    (new / "x").write_text("x")
    (new / "x").rename(new / "y")
    (new / "y").chmod(0o600)
    assert (new / "y").stat().st_mode & 0o777 == 0o600
    (new / "y").unlink()
    (new / "y").unlink(missing_ok=True)
    new.rmdir()
    assert not new.exists()
    assert {one, root / "a/one.txt"} == {one}


def test_snapshots_and_several_volumes(tmp_path: Path) -> None:
    path = tmp_path / "two.dmg"
    bandsaw.create(path, 1 << 30, format="UDRW", volname="One", volumes=["Two"]).close()
    with bandsaw.open(path, writable=True) as image:
        assert [volume.name for volume in image.volumes] == ["One", "Two"]
        assert [volume.number for volume in image.volumes] == [1, 2]
        with image.volume("Two") as volume:
            volume.write_bytes("x", b"two")
            with pytest.raises(bandsaw.Conflict):
                image.volume("One").listdir()
        with image.volume("One") as volume:
            volume.write_bytes("x", b"one")
    with bandsaw.open(path) as image:
        assert image.volume().name == "One"
        assert image.volume("Two").read_bytes("x") == b"two"
        assert image.volume("Two").usage()["files"] == 1
