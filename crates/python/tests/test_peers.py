"""Other readers of the same images: the same bytes, names, sizes and dates."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest

import bandsaw
from conftest import needed

FILES = 40


@pytest.fixture(scope="module", params=["hfs+", "hfs+j", "apfs"])
def disk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A raw image with folders, names in several scripts, links, attributes and large files."""
    folder = tmp_path_factory.mktemp("peers")
    path = folder / "disk.img"
    with bandsaw.create(path, 64 << 20, format="UDRW", fs=request.param, volname="Peers") as image:
        volume = image.volume()
        for number in range(FILES):
            where = f"folder {number % 4}"
            volume.mkdir(where, exist_ok=True)
            volume.write_bytes(f"{where}/file {number} é 文.txt", bytes([number]) * (number * 3001))
        volume.mkdir("deep/er/and/deeper", parents=True)
        volume.write_bytes("deep/er/and/deeper/x", b"deep")
        volume.symlink("deep/er", "link")
        volume.set_xattr("deep/er/and/deeper/x", "com.example", b"value")
        volume.set_attributes("deep/er/and/deeper/x", mode=0o640, uid=501, gid=20)
        volume.write_bytes("deep/a:b", b"colon")
    return request.param, path


def ours(image: bandsaw.Image) -> dict[str, tuple[str, int, int, int, str]]:
    found = {}
    volume = image.volume()
    for entry in volume.find():
        of = entry.stat()
        contents = hashlib.sha256(volume.read_bytes(entry)).hexdigest() if entry.is_file() else ""
        size = 0 if entry.is_dir() else entry.size
        # Other readers show the colon of the disk.
        found[entry.path] = (entry.kind, size, of.st_mode & 0o7777, of.st_mtime_ns, contents)
    return found


def libyal(entry: Any, path: str, found: dict[str, Any], scale: int) -> None:
    """Walks the entries of pyfsapfs or pyfshfs."""
    for at in range(entry.get_number_of_sub_file_entries()):
        child = entry.get_sub_file_entry(at)
        name = child.get_name()
        where = f"{path}/{name.replace('/', ':')}"
        mode = child.get_file_mode()
        kind = {0o040000: "folder", 0o100000: "file", 0o120000: "symlink"}[mode & 0o170000]
        contents = ""
        size = 0 if kind == "folder" else child.get_size()
        if kind == "symlink":
            size = len(child.get_symbolic_link_target())
        if kind == "file":
            contents = hashlib.sha256(child.read_buffer(size) if size else b"").hexdigest()
        if scale == 1:
            # pyfsapfs exchanges the dates of creation and modification of the inode; Apple's reference has creation first, and
            # dissect.apfs reads it so.
            nanoseconds = child.get_creation_time_as_integer()
        else:
            nanoseconds = (child.get_modification_time_as_integer() - 2082844800) * 1_000_000_000
        found[where] = (kind, size, mode & 0o7777, nanoseconds, contents)
        libyal(child, where, found, scale)


def compare(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    import unicodedata

    def composed(found: dict[str, Any]) -> dict[str, Any]:
        return {unicodedata.normalize("NFC", path): value for path, value in found.items()}

    mine, theirs = composed(mine), composed(theirs)
    assert set(mine) == set(theirs)
    for path, value in mine.items():
        assert value == theirs[path], path


def test_pyfsapfs(disk: tuple[str, Path]) -> None:
    pyfsapfs = needed("pyfsapfs")
    fs, path = disk
    if fs != "apfs":
        pytest.skip("an HFS+ volume")
    with bandsaw.open(path) as image:
        partition = image.partitions.partitions[0]  # type: ignore[union-attr]
        data = image.disk.pread(partition.size, partition.offset)
        container = pyfsapfs.container()
        container.open_file_object(io.BytesIO(data))
        theirs: dict[str, Any] = {}
        libyal(container.get_volume(0).get_root_directory(), "", theirs, 1)
        compare(ours(image), theirs)


def test_pyfshfs(disk: tuple[str, Path]) -> None:
    pyfshfs = needed("pyfshfs")
    fs, path = disk
    if fs == "apfs":
        pytest.skip("an APFS volume")
    with bandsaw.open(path) as image:
        partition = image.partitions.partitions[0]  # type: ignore[union-attr]
        data = image.disk.pread(partition.size, partition.offset)
        volume = pyfshfs.volume()
        volume.open_file_object(io.BytesIO(data))
        theirs: dict[str, Any] = {}
        libyal(volume.get_root_directory(), "", theirs, 2)
        private = {".HFS+ Private Directory Data\r", "\u2400\u2400\u2400\u2400HFS+ Private Data", ".journal", ".journal_info_block"}
        theirs = {name: value for name, value in theirs.items() if name.split("/")[1] not in private}
        mine = {
            # Dates of HFS+ are whole seconds.
            name: (*value[:3], value[3] // 10**9 * 10**9, value[4]) for name, value in ours(image).items()
        }
        compare(mine, theirs)


def test_dissect_apfs(disk: tuple[str, Path]) -> None:
    apfs = needed("dissect.apfs")
    fs, path = disk
    if fs != "apfs":
        pytest.skip("an HFS+ volume")
    with bandsaw.open(path) as image:
        partition = image.partitions.partitions[0]  # type: ignore[union-attr]
        data = image.disk.pread(partition.size, partition.offset)
        volume = apfs.APFS(io.BytesIO(data)).volumes[0]
        theirs: dict[str, Any] = {}

        def walk(node: Any, where: str) -> None:
            for entry in node.iterdir():
                inode = entry.inode
                child = f"{where}/{entry.name.replace('/', ':')}"
                kind = {0o040000: "folder", 0o100000: "file", 0o120000: "symlink"}[inode.mode & 0o170000]
                contents = hashlib.sha256(inode.open().read()).hexdigest() if kind == "file" else ""
                size = len(inode.readlink()) if kind == "symlink" else 0 if kind == "folder" else inode.size
                theirs[child] = (kind, size, inode.mode & 0o7777, inode.inode.mod_time, contents)
                if kind == "folder":
                    walk(inode, child)

        walk(volume.get("/"), "")
        compare(ours(image), theirs)


@pytest.mark.parametrize("name", ["a.asif"])
def test_dissect_hypervisor(disk: tuple[str, Path], tmp_path: Path, name: str) -> None:
    asif = needed("dissect.hypervisor.disk.asif")
    _, path = disk
    with bandsaw.open(path) as image:
        image.convert(tmp_path / name)
        expected = image.checksum("sha256")
    with (tmp_path / name).open("rb") as file:
        stream = asif.ASIF(file).open()
        theirs = hashlib.sha256()
        while piece := stream.read(1 << 20):
            theirs.update(piece)
    assert theirs.hexdigest() == expected


@pytest.mark.parametrize("format", ["UDZO", "UDBZ", "UDSP", "UDRO"])
def test_pymodi(disk: tuple[str, Path], tmp_path: Path, format: str) -> None:
    pymodi = needed("pymodi")
    _, path = disk
    copy = tmp_path / "copy"
    with bandsaw.open(path) as image:
        image.convert(copy, format=format)
        handle = pymodi.handle()
        handle.open(str(copy))
        assert handle.get_media_size() == image.size
        theirs = hashlib.sha256()
        left = image.size
        while left:
            piece = handle.read(min(left, 1 << 20))
            assert piece
            theirs.update(piece)
            left -= len(piece)
        handle.close()
        assert theirs.hexdigest() == image.checksum()
