"""The native part. Use the classes of `bandsaw` instead."""

from collections.abc import Iterator
from datetime import datetime
from os import PathLike
from typing import Any, final

from typing_extensions import Buffer

__all__ = [
    "Device",
    "DirEntry",
    "Entries",
    "NativeImage",
    "NativeVolume",
    "NewFile",
    "Stat",
    "__version__",
    "build_dmg",
    "create",
]

__version__: str

@final
class Stat:
    """The attributes of an object, with the names of `os.stat_result`. Dates that are not set are 0."""

    @property
    def st_mode(self) -> int: ...
    @property
    def st_ino(self) -> int: ...
    @property
    def st_nlink(self) -> int: ...
    @property
    def st_uid(self) -> int: ...
    @property
    def st_gid(self) -> int: ...
    @property
    def st_size(self) -> int:
        """Bytes of the data fork; of a folder, the number of its entries."""
    @property
    def st_blocks(self) -> int: ...
    @property
    def st_rdev(self) -> int: ...
    @property
    def st_flags(self) -> int:
        """BSD flags, as in `stat(2)` of macOS."""
    @property
    def st_atime(self) -> float: ...
    @property
    def st_mtime(self) -> float: ...
    @property
    def st_ctime(self) -> float: ...
    @property
    def st_birthtime(self) -> float: ...
    @property
    def st_atime_ns(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_ctime_ns(self) -> int: ...
    @property
    def st_birthtime_ns(self) -> int: ...
    @property
    def kind(self) -> str:
        """`file`, `folder`, `symlink`, `fifo`, `socket`, `character_device` or `block_device`."""
    @property
    def allocated(self) -> int:
        """Bytes allocated for both forks."""
    @property
    def resource_fork_size(self) -> int:
        """Bytes of the resource fork."""
    @property
    def has_xattrs(self) -> bool:
        """True if there are extended attributes besides Finder info and resource fork."""
    @property
    def compressed(self) -> bool:
        """True if macOS stores the contents compressed. They are read uncompressed."""
    @property
    def created(self) -> datetime | None:
        """The date of creation in UTC; `None` if it is not set, or out of the range of `datetime`."""
    @property
    def modified(self) -> datetime | None:
        """The date of the last change of the contents, as `created`."""
    @property
    def changed(self) -> datetime | None:
        """The date of the last change of the attributes, as `created`."""
    @property
    def accessed(self) -> datetime | None:
        """The date of the last access, as `created`."""
    @property
    def backed_up(self) -> datetime | None:
        """The date of the last backup, as `created`."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class DirEntry:
    """An entry of a folder, with the methods of `os.DirEntry`. Its attributes were read with the folder."""

    @property
    def name(self) -> str:
        """The name."""
    @property
    def path(self) -> str:
        """The path in the volume."""
    @property
    def kind(self) -> str:
        """The kind of the object, as of `Stat`."""
    @property
    def size(self) -> int:
        """Bytes of the data fork; of a folder, the number of its entries."""
    def inode(self) -> int:
        """Returns the number of the object in its volume."""
    def is_dir(self) -> bool:
        """Returns true for a folder."""
    def is_file(self) -> bool:
        """Returns true for a file."""
    def is_symlink(self) -> bool:
        """Returns true for a symbolic link."""
    def stat(self) -> Stat:
        """Returns the attributes; those of a symbolic link itself."""

@final
class Entries:
    """An iterator over entries of folders."""

    def __iter__(self) -> Iterator[DirEntry]: ...
    def __next__(self) -> DirEntry: ...

@final
class Device:
    """An array of bytes."""

    @property
    def size(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def writable(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    def pread(self, size: int, offset: int) -> bytes: ...
    def pread_into(self, buffer: Buffer, offset: int) -> int: ...
    def pwrite(self, buffer: Buffer, offset: int, grow: bool) -> int: ...
    def truncate(self, size: int) -> None: ...
    def discard(self, start: int, end: int) -> None: ...
    def flush(self) -> None: ...
    def extent(self, start: int, end: int) -> tuple[str, int]: ...
    def close(self) -> None: ...

@final
class NewFile:
    """A file that has no name yet."""

    def open(self) -> Device: ...
    def finish(self) -> None: ...

@final
class NativeVolume:
    """An open volume."""

    def info(self) -> dict[str, Any]: ...
    @property
    def writable(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    def stat(self, path: str, follow: bool) -> Stat: ...
    def stat_node(self, node: int) -> Stat: ...
    def entries(self, path: str, recursive: bool) -> Entries: ...
    def open(self, node: int, fork: str, writable: bool) -> Device: ...
    def read(self, node: int, fork: str) -> bytes: ...
    def read_entry(self, entry: DirEntry, fork: str) -> bytes | None: ...
    def readlink(self, node: int) -> str: ...
    def xattrs(self, node: int) -> list[str]: ...
    def xattr(self, node: int, name: str) -> bytes | None: ...
    def extract(
        self,
        path: str,
        target: str | PathLike[str],
        tar: bool,
        overwrite: bool,
        special_files: bool,
        setuid: bool,
        progress: object,
    ) -> dict[str, Any]: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...
    def new_file(self, path: str, replace: bool) -> NewFile: ...
    def write(self, path: str, data: Buffer, replace: bool, mode: int | None) -> int: ...
    def mkdir(self, path: str, mode: int) -> None: ...
    def symlink(self, path: str, target: str) -> None: ...
    def link(self, source: str, target: str) -> None: ...
    def rename(self, source: str, target: str, replace: bool) -> None: ...
    def remove(self, path: str, recursive: bool, progress: object) -> None: ...
    def set_attributes(
        self,
        node: int,
        mode: int | None,
        uid: int | None,
        gid: int | None,
        flags: int | None,
        times: list[int | None],
    ) -> None: ...
    def set_xattr(self, node: int, name: str, value: Buffer) -> None: ...
    def remove_xattr(self, node: int, name: str) -> None: ...
    def add(
        self,
        sources: list[tuple[str, str]],
        path: str,
        overwrite: bool,
        progress: object,
    ) -> dict[str, Any]: ...

@final
class NativeImage:
    """An open image."""

    def __new__(
        cls,
        path: str | PathLike[str],
        source: object,
        descriptor: int | None,
        *,
        writable: bool,
        format: str | None,
        passphrase: bytes | None,
        key: bytes | None,
        signer: bytes | None,
        shadows: list[str],
        checkpoint: int | None,
        logical_volume: str | None,
        physical_volumes: list[str],
        system_files: bool,
    ) -> NativeImage: ...
    def release(self) -> None: ...
    def reopen(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def writable(self) -> bool: ...
    @property
    def path(self) -> Any: ...
    @property
    def format(self) -> str: ...
    @property
    def encrypted(self) -> bool: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def layers(self) -> list[str]: ...
    def disk(self) -> Device: ...
    def info(self, progress: object) -> dict[str, Any]: ...
    def volumes(self) -> list[dict[str, Any]]: ...
    def open_volume(
        self, partition: int | None, number: int | None, snapshot: str | None, writable: bool
    ) -> NativeVolume: ...
    def units(self, progress: object) -> dict[str, Any] | None: ...
    def checksum(self, algorithm: str, progress: object) -> str: ...
    def verify(self, progress: object) -> dict[str, Any]: ...
    def check(self, contents: bool, progress: object) -> dict[str, Any]: ...
    def convert(
        self,
        target: str | PathLike[str],
        *,
        format: str | None,
        band_size: int | None,
        level: int | None,
        overwrite: bool,
        skip_free: bool,
        passphrase: bytes | None,
        verify: bool,
        remove_signature: bool,
        progress: object,
    ) -> dict[str, Any]: ...
    def compact(self, zeros: bool | None, battery_allowed: bool, progress: object) -> dict[str, Any]: ...
    def limits(self, partition: int | None) -> dict[str, Any]: ...
    def resize(
        self, size: int | None, parts: str, partition: int | None, dry_run: bool, progress: object
    ) -> dict[str, Any]: ...
    def repair(
        self,
        dry_run: bool,
        accept_loss: bool,
        assume: list[str],
        undo_dir: str | PathLike[str] | None,
        temporary: str,
        progress: object,
    ) -> dict[str, Any]: ...
    def finish_repair(
        self, undo: bool, undo_dir: str | PathLike[str] | None, temporary: str
    ) -> dict[str, Any]: ...
    def snapshots(self) -> list[dict[str, Any]]: ...
    def change_snapshot(self, action: str, name: str, progress: object) -> None: ...

def create(
    path: str | PathLike[str],
    *,
    format: str | None,
    size: int | None,
    band_size: int | None,
    sector_size: int | None,
    level: int | None,
    overwrite: bool,
    volume: dict[str, Any] | None,
    passphrase: bytes | None,
    epoch: int | None,
    progress: object,
) -> None: ...
def build_dmg(
    path: str | PathLike[str],
    *,
    name: str,
    format: str | None,
    fs: str | None,
    size: int | None,
    level: int | None,
    overwrite: bool,
    items: list[tuple[str, str, str]],
    look: dict[str, Any],
    license_text: bytes | None,
    epoch: int | None,
    progress: object,
) -> None: ...
