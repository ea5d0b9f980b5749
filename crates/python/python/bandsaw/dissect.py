"""Containers and file systems for `dissect.target`.

`dissect.target` has no entry points for these; call `register` before a target is opened:

    import bandsaw.dissect
    bandsaw.dissect.register()
    target = Target.open("Evidence.sparsebundle")

or have its tools load this module: `DISSECT_PLUGINS=$(python -m bandsaw.dissect) target-query ...`.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dissect.target import container, filesystem, loader
from dissect.target.container import Container
from dissect.target.exceptions import (
    FileNotFoundError,
    FilesystemError,
    IsADirectoryError,
    NotADirectoryError,
    NotASymlinkError,
)
from dissect.target.filesystem import DirEntry, Filesystem, FilesystemEntry
from dissect.target.helpers import fsutil, keychain
from dissect.target.loader import Loader
from dissect.target.volume import Volume, VolumeSystem

import bandsaw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dissect.target.target import Target

__all__ = ["BandsawContainer", "BandsawFilesystem", "BandsawLoader", "register"]

_HEADS = (b"sprs", b"shdw", b"encrcdsa")
"""The first bytes of a sparse image, an Apple sparse image and an encrypted image."""

_TYPES = (bytes.fromhex("005346480000aa11aa1100306543ecac"), bytes.fromhex("ef57347c0000aa11aa1100306543ecac"))
"""The types of partitions of a GPT with HFS+ and APFS."""


def _passphrases() -> list[str]:
    """Returns the passphrases that `target-query -K` and others were given."""
    keys = keychain.get_keys_for_provider("bandsaw") + keychain.get_keys_without_provider()
    return [str(key.value) for key in keys if key.key_type == keychain.KeyType.PASSPHRASE]


def _open(source: Any) -> bandsaw.Image:
    try:
        return bandsaw.open(source)
    except bandsaw.PassphraseNeeded:
        for passphrase in _passphrases():
            try:
                return bandsaw.open(source, passphrase=passphrase)
            except bandsaw.WrongKey:
                continue
        raise


class BandsawContainer(Container):  # type: ignore[misc]
    """The disk of a sparse bundle, a sparse image, an Apple sparse image or a `.dmg`."""

    __type__ = "bandsaw"

    def __init__(self, fh: Any, *args: Any, **kwargs: Any) -> None:
        self.image = _open(fh)
        self.disk = self.image.open_disk()
        super().__init__(fh, self.disk.size, *args, **kwargs)
        if self.image.volumes:
            self.vs = BandsawVolumeSystem(self)

    @staticmethod
    def _detect_fh(fh: BinaryIO, original: Any) -> bool:
        head = fh.read(17408)
        if head.startswith(_HEADS):
            return True
        if head[512:520] == b"EFI PART" and any(kind in head for kind in _TYPES):
            return True
        size = fh.seek(0, os.SEEK_END)
        if size < 512:
            return False
        fh.seek(size - 512)
        return fh.read(4) == b"koly"

    @staticmethod
    def detect_path(path: Path, original: Any) -> bool:
        return path.suffix.lower() == ".sparsebundle" and path.joinpath("Info.plist").exists()

    def read(self, length: int = -1) -> bytes:
        return self.disk.read(length)

    def readinto(self, b: Any) -> int:
        return self.disk.readinto(b)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self.disk.seek(offset, whence)

    def tell(self) -> int:
        return self.disk.tell()

    def close(self) -> None:
        self.image.close()


class _Part(io.RawIOBase):
    """A part of a disk."""

    def __init__(self, disk: bandsaw.Disk, offset: int, size: int) -> None:
        super().__init__()
        self.disk, self.offset, self.size, self.at = disk, offset, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self.at = max(0, offset + (0, self.at, self.size)[whence])
        return self.at

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        left = max(0, min(len(view), self.size - self.at))
        count = self.disk.pread_into(view[:left], self.offset + self.at)
        self.at += count
        return count


class BandsawVolumeSystem(VolumeSystem):  # type: ignore[misc]
    """The volumes of an image, by its partition map or without one.

    `dissect.volume` 3.18 leaves out the last sector of a GPT partition, and an HFS+ volume that ends there does not open.
    """

    __type__ = "bandsaw"

    def __init__(self, of: BandsawContainer) -> None:
        source: Any = of
        super().__init__(source)
        self.image = of.image

    @staticmethod
    def _detect(fh: BinaryIO) -> bool:
        return isinstance(fh, BandsawContainer)

    def _volumes(self) -> Iterator[Volume]:
        info = self.image.info()
        places = [(one.number, one.offset, one.size, one.name, one.uuid) for one in
                  (info.partition_map.partitions if info.partition_map is not None else [])]  # fmt: skip
        for number, offset, size, name, uuid in places or [(1, 0, self.image.size, "", None)]:
            part: Any = _Part(self.image.open_disk(), offset, size)
            volume = Volume(part, number, offset, size, None, name, uuid, disk=self.disk, vs=self)
            found = [one for one in self.image.volumes if one.facts.offset == offset and one.readable]
            if found:
                volume.fs = BandsawFilesystem(volume, volume=found[0], others=found[1:])
            yield volume


class BandsawLoader(Loader):  # type: ignore[misc]
    """A sparse bundle, which is a folder, as a target."""

    @staticmethod
    def detect(path: Path) -> bool:
        return path.is_dir() and BandsawContainer.detect_path(path, path)

    def map(self, target: Target) -> None:
        target.disks.add(BandsawContainer(self.path))


class BandsawFilesystem(Filesystem):  # type: ignore[misc]
    """An HFS+ volume, or an APFS container with its volumes."""

    __type__ = "bandsaw"

    def __init__(
        self,
        fh: Any = None,
        *args: Any,
        volume: bandsaw.Volume | None = None,
        others: list[bandsaw.Volume] | None = None,
        **kwargs: Any,
    ) -> None:
        self.image: bandsaw.Image | None = None
        self.others = others or []
        if volume is None:
            try:
                self.image = bandsaw.open(fh, format="UDRW")
                readable = [one for one in self.image.volumes if one.readable]
            except bandsaw.Error as error:
                raise FilesystemError(str(error)) from error
            if not readable:
                raise FilesystemError("no readable volume")
            volume, *self.others = readable
        self.bandsaw_volume = volume
        super().__init__(fh, *args, case_sensitive=bool(volume.facts.case_sensitive), **kwargs)

    @staticmethod
    def _detect(fh: BinaryIO) -> bool:
        head = fh.read(2048)
        return head[1024:1026] in (b"H+", b"HX") or head[32:36] == b"NXSB"

    def iter_subfs(self) -> Iterator[BandsawFilesystem]:
        for volume in self.others:
            yield BandsawFilesystem(self.volume, volume=volume)

    def get(self, path: str) -> BandsawFilesystemEntry:
        return BandsawFilesystemEntry(self, path, self._stat(path))

    def _stat(self, path: str) -> bandsaw.Stat:
        try:
            return self.bandsaw_volume.stat(path, follow_symlinks=False)
        except bandsaw.NotFound as error:
            if error.message == "not a folder":
                raise NotADirectoryError(path) from error
            raise FileNotFoundError(path) from error
        except bandsaw.Error as error:
            raise FilesystemError(str(error)) from error


def _stat_result(of: bandsaw.Stat) -> Any:
    # mode, ino, dev, nlink, uid, gid, size, atime, mtime, ctime
    found = fsutil.stat_result(
        [
            of.st_mode,
            of.st_ino,
            0,
            of.st_nlink,
            of.st_uid,
            of.st_gid,
            of.st_size,
            of.st_atime,
            of.st_mtime,
            of.st_ctime,
        ]
    )
    found.st_atime_ns = of.st_atime_ns
    found.st_mtime_ns = of.st_mtime_ns
    found.st_ctime_ns = of.st_ctime_ns
    found.st_birthtime = of.st_birthtime
    found.st_birthtime_ns = of.st_birthtime_ns
    found.st_blocks = of.st_blocks
    found.st_blksize = 4096
    return found


class BandsawDirEntry(DirEntry):  # type: ignore[misc]
    """An entry of a folder, whose attributes were read with it."""

    fs: BandsawFilesystem
    entry: bandsaw.DirEntry

    def get(self) -> BandsawFilesystemEntry:
        return BandsawFilesystemEntry(self.fs, self.path, self.entry.stat())

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks and self.is_symlink():
            return bool(super().is_dir(follow_symlinks=follow_symlinks))
        return self.entry.is_dir()

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks and self.is_symlink():
            return bool(super().is_file(follow_symlinks=follow_symlinks))
        return self.entry.is_file()

    def is_symlink(self) -> bool:
        return self.entry.is_symlink()

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        return self.get().stat(follow_symlinks=follow_symlinks)


class BandsawFilesystemEntry(FilesystemEntry):  # type: ignore[misc]
    """A file or folder."""

    fs: BandsawFilesystem
    entry: bandsaw.Stat

    def get(self, path: str) -> BandsawFilesystemEntry:
        joined = fsutil.join(self.path, path, alt_separator=self.fs.alt_separator)
        return BandsawFilesystemEntry(self.fs, joined, self.fs._stat(joined))

    def open(self) -> Any:
        if self.is_dir():
            raise IsADirectoryError(self.path)
        return self.fs.bandsaw_volume.open(self._resolve().path)

    def scandir(self) -> Iterator[BandsawDirEntry]:
        if not self.is_dir():
            raise NotADirectoryError(self.path)
        for entry in self.fs.bandsaw_volume.scandir(self._resolve().path):
            yield BandsawDirEntry(self.fs, self.path, entry.name, entry)

    def is_dir(self, follow_symlinks: bool = True) -> bool:
        return self._kind(follow_symlinks) == "folder"

    def is_file(self, follow_symlinks: bool = True) -> bool:
        return self._kind(follow_symlinks) == "file"

    def _kind(self, follow_symlinks: bool) -> str | None:
        try:
            entry: bandsaw.Stat = self._resolve(follow_symlinks=follow_symlinks).entry
        except FilesystemError:
            return None
        return entry.kind

    def is_symlink(self) -> bool:
        return self.entry.kind == "symlink"

    def readlink(self) -> str:
        if not self.is_symlink():
            raise NotASymlinkError(self.path)
        return self.fs.bandsaw_volume.readlink(self.path)

    def stat(self, follow_symlinks: bool = True) -> Any:
        return self._resolve(follow_symlinks=follow_symlinks).lstat()

    def lstat(self) -> Any:
        return _stat_result(self.entry)

    def attr(self) -> Any:
        return self.fs.bandsaw_volume.xattrs(self._resolve().path)


def register() -> None:
    """Makes `dissect.target` open images and volumes by this package, before its own classes. Safe to call again."""
    known: Any
    for known, own in (
        (container.CONTAINERS, BandsawContainer),
        (filesystem.FILESYSTEMS, BandsawFilesystem),
        (loader.LOADERS, BandsawLoader),
    ):
        if own not in known:
            known.insert(0, own)


if __name__ == "__main__":
    print(Path(__file__).parent / "_dissect_plugin")
