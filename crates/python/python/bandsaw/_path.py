"""Paths in a volume, with the interface of `pathlib`."""

from __future__ import annotations

import errno
import os
import stat as _stat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, cast

from .errors import IsAFolder, NotAFolder, NotFound, SymlinkLoop

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

    from ._bandsaw import Stat
    from ._volume import Volume

__all__ = ["VolumePath"]


_UMASK = 0o022
"""Bits that new files and folders do not have: those of the usual umask."""
_MAX_LINKS = 40


class VolumePath:
    """A path in a volume. It follows `pathlib.Path`; symbolic links are followed within the volume.

    All paths are absolute. `rename` does not replace an existing file; `replace` does. There is no `owner`, `group`, `cwd`,
    `home` or `expanduser`: a volume has no users.

    >>> import bandsaw
    >>> with bandsaw.open(example("Docs.sparsebundle")) as image:
    ...     letters = image.volume().path("/Letters")
    ...     [path.name for path in sorted(letters.iterdir())]
    ...     (letters / "a.txt").read_text()
    ['a.txt', 'b.txt']
    'Dear A\\n'
    """

    __slots__ = ("_pure", "_volume")

    def __init__(self, volume: Volume, *parts: str | VolumePath) -> None:
        self._volume = volume
        self._pure = PurePosixPath("/", *(str(part) for part in parts))

    def _with(self, pure: PurePosixPath) -> VolumePath:
        new = VolumePath.__new__(VolumePath)
        new._volume = self._volume
        new._pure = pure
        return new

    def __str__(self) -> str:
        return str(self._pure)

    def __repr__(self) -> str:
        return f"VolumePath({str(self._pure)!r})"

    def __hash__(self) -> int:
        return hash((id(self._volume), self._pure))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VolumePath):
            return NotImplemented
        return self._volume is other._volume and self._pure == other._pure

    def __lt__(self, other: VolumePath) -> bool:
        if not isinstance(other, VolumePath):
            return NotImplemented
        return self._pure < other._pure

    def __le__(self, other: VolumePath) -> bool:
        if not isinstance(other, VolumePath):
            return NotImplemented
        return self._pure <= other._pure

    def __gt__(self, other: VolumePath) -> bool:
        if not isinstance(other, VolumePath):
            return NotImplemented
        return self._pure > other._pure

    def __ge__(self, other: VolumePath) -> bool:
        if not isinstance(other, VolumePath):
            return NotImplemented
        return self._pure >= other._pure

    def __truediv__(self, other: str | VolumePath) -> VolumePath:
        return self._with(self._pure / str(other))

    def joinpath(self, *others: str | VolumePath) -> VolumePath:
        """Returns the path with further parts."""
        return self._with(self._pure.joinpath(*(str(other) for other in others)))

    @property
    def volume(self) -> Volume:
        """The volume."""
        return self._volume

    @property
    def drive(self) -> str:
        """Empty, as everywhere but on Windows."""
        return ""

    @property
    def root(self) -> str:
        """The root, `/`."""
        return "/"

    @property
    def anchor(self) -> str:
        """The root, `/`."""
        return "/"

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts, the root first."""
        return self._pure.parts

    @property
    def name(self) -> str:
        """The last part."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """The extension with its dot."""
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        """All extensions with their dots."""
        return self._pure.suffixes

    @property
    def parent(self) -> VolumePath:
        """The folder."""
        return self._with(self._pure.parent)

    @property
    def parents(self) -> tuple[VolumePath, ...]:
        """The folders, from the inside out."""
        return tuple(self._with(parent) for parent in self._pure.parents)

    def as_posix(self) -> str:
        """Returns the path as text."""
        return str(self._pure)

    def is_absolute(self) -> bool:
        """Returns true: paths in a volume begin at its root."""
        return True

    def absolute(self) -> VolumePath:
        """Returns the path."""
        return self

    def with_name(self, name: str) -> VolumePath:
        """Returns the path with another last part."""
        return self._with(self._pure.with_name(name))

    def with_stem(self, stem: str) -> VolumePath:
        """Returns the path with another stem."""
        return self._with(self._pure.with_stem(stem))

    def with_suffix(self, suffix: str) -> VolumePath:
        """Returns the path with another suffix."""
        return self._with(self._pure.with_suffix(suffix))

    def relative_to(self, *other: str | VolumePath) -> PurePosixPath:
        """Returns the path relative to a folder."""
        return self._pure.relative_to(str(self._with(PurePosixPath("/", *map(str, other)))))

    def is_relative_to(self, *other: str | VolumePath) -> bool:
        """Returns true if the path is the folder or in it."""
        return self._pure.is_relative_to(str(self._with(PurePosixPath("/", *map(str, other)))))

    def match(self, pattern: str) -> bool:
        """Returns true if the path matches a pattern."""
        return self._pure.match(pattern)

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """Returns the attributes."""
        return self._volume.stat(str(self), follow_symlinks=follow_symlinks)

    def lstat(self) -> Stat:
        """Returns the attributes; those of a symbolic link itself."""
        return self.stat(follow_symlinks=False)

    def _mode(self, follow_symlinks: bool = True) -> int:
        """Returns the mode; 0 if there is nothing, or a symbolic link to nothing or to itself."""
        try:
            return self.stat(follow_symlinks=follow_symlinks).st_mode
        except (NotFound, SymlinkLoop):
            return 0

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Returns true if there is an object at the path."""
        return self._mode(follow_symlinks) != 0

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Returns true for a folder."""
        return _stat.S_ISDIR(self._mode(follow_symlinks))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Returns true for a file."""
        return _stat.S_ISREG(self._mode(follow_symlinks))

    def is_symlink(self) -> bool:
        """Returns true for a symbolic link."""
        return _stat.S_ISLNK(self._mode(follow_symlinks=False))

    def is_mount(self) -> bool:
        """Returns true for the root."""
        return self._pure == PurePosixPath("/")

    def is_fifo(self) -> bool:
        """Returns true for a named pipe."""
        return _stat.S_ISFIFO(self._mode())

    def is_socket(self) -> bool:
        """Returns true for a socket."""
        return _stat.S_ISSOCK(self._mode())

    def is_block_device(self) -> bool:
        """Returns true for a block device."""
        return _stat.S_ISBLK(self._mode())

    def is_char_device(self) -> bool:
        """Returns true for a character device."""
        return _stat.S_ISCHR(self._mode())

    def samefile(self, other_path: str | VolumePath) -> bool:
        """Returns true if the other path leads to the same object."""
        other = other_path if isinstance(other_path, VolumePath) else VolumePath(self._volume, other_path)
        return self._volume is other._volume and self.stat().st_ino == other.stat().st_ino

    def readlink(self) -> PurePosixPath:
        """Returns the target of a symbolic link, which may be relative."""
        return PurePosixPath(self._volume.readlink(str(self)))

    def resolve(self, strict: bool = False) -> VolumePath:
        """Returns the path without symbolic links and `..`.

        What does not exist stays as it is, and so does a link to itself; with `strict`, they raise `NotFound` and `SymlinkLoop`.
        """
        if strict:
            self.stat()
        found = PurePosixPath("/")
        ahead = list(reversed(self._pure.parts[1:]))
        links = 0
        while ahead:
            part = ahead.pop()
            if part == "..":
                found = found.parent
                continue
            inner = found / part
            try:
                is_link = _stat.S_ISLNK(self._volume.lstat(str(inner)).st_mode)
            except NotFound:
                is_link = False
            if is_link and links < _MAX_LINKS:
                links += 1
                target = PurePosixPath(self._volume.readlink(str(inner)))
                if target.is_absolute():
                    found = PurePosixPath("/")
                ahead.extend(part for part in reversed(target.parts) if part != "/")
            else:
                found = inner
        return self._with(found)

    def iterdir(self) -> Iterator[VolumePath]:
        """Returns an iterator over the entries of the folder."""
        for entry in self._volume.scandir(str(self)):
            yield self._with(self._pure / entry.name)

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[Exception], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[VolumePath, list[str], list[str]]]:
        """Returns an iterator as `pathlib.Path.walk` does."""
        for folder, folders, files in self._volume.walk(str(self), top_down, on_error, follow_symlinks):
            yield self._with(PurePosixPath(folder)), folders, files

    def glob(self, pattern: str, *, case_sensitive: bool | None = None) -> Iterator[VolumePath]:
        """Returns an iterator over the objects below the folder that match a pattern, as `Volume.glob` does."""
        if pattern.startswith("/"):
            raise NotImplementedError("Non-relative patterns are unsupported")
        for path in self._volume.glob(pattern, str(self), case_sensitive=case_sensitive is not False):
            yield self._with(PurePosixPath(path))

    def rglob(self, pattern: str, *, case_sensitive: bool | None = None) -> Iterator[VolumePath]:
        """Returns the same for the pattern at any depth."""
        if pattern.startswith("/"):
            raise NotImplementedError("Non-relative patterns are unsupported")
        return self.glob(f"**/{pattern}", case_sensitive=case_sensitive)

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        fork: str = "data",
    ) -> io.IOBase:
        """Opens the file, as text unless the mode says otherwise."""
        return self._volume.open(
            str(self), mode, fork=fork, buffering=buffering, encoding=encoding, errors=errors, newline=newline
        )

    def read_bytes(self) -> bytes:
        """Returns the contents."""
        return self._volume.read_bytes(str(self))

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """Returns the contents as text."""
        with cast("io.TextIOWrapper", self.open("r", -1, encoding, errors)) as file:
            return file.read()

    def write_bytes(self, data: Buffer) -> int:
        """Writes the file as a whole."""
        return self._volume.write_bytes(str(self), data)

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        """Writes the file as text."""
        with cast("io.TextIOWrapper", self.open("w", -1, encoding, errors, newline)) as file:
            return file.write(data)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Creates a folder, with the permissions that a umask of 022 leaves."""
        self._volume.mkdir(str(self), mode & ~_UMASK, parents=parents, exist_ok=exist_ok)

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        """Creates an empty file, with the permissions that a umask of 022 leaves, or sets the date of an existing one."""
        self._volume.touch(str(self), mode=mode & ~_UMASK, exist_ok=exist_ok)

    def rename(self, target: str | VolumePath) -> VolumePath:
        """Moves the object; an existing one is not replaced."""
        self._volume.rename(str(self), str(target))
        return VolumePath(self._volume, target)

    def replace(self, target: str | VolumePath) -> VolumePath:
        """Moves the object, and replaces an existing one in the same step."""
        self._volume.rename(str(self), str(target), replace=True)
        return VolumePath(self._volume, target)

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes a file or link."""
        try:
            if _stat.S_ISDIR(self.lstat().st_mode):
                raise IsAFolder(errno.EISDIR, os.strerror(errno.EISDIR), str(self))
            self._volume.remove(str(self))
        except NotFound as error:
            if not missing_ok or isinstance(error, NotAFolder):
                raise

    def rmdir(self) -> None:
        """Removes an empty folder."""
        if not _stat.S_ISDIR(self.lstat().st_mode):
            raise NotAFolder(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self))
        self._volume.remove(str(self))

    def symlink_to(self, target: str | VolumePath, target_is_directory: bool = False) -> None:
        """Makes the path a symbolic link. `target_is_directory` is without effect, as everywhere but on Windows."""
        self._volume.symlink(str(target), str(self))

    def hardlink_to(self, target: str | VolumePath) -> None:
        """Makes the path another name of a file."""
        self._volume.link(str(target), str(self))

    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        """Sets the permission bits."""
        self._volume.set_attributes(str(self), mode=mode, follow_symlinks=follow_symlinks)

    def lchmod(self, mode: int) -> None:
        """Sets the permission bits; those of a symbolic link itself."""
        self.chmod(mode, follow_symlinks=False)

    def xattrs(self) -> dict[str, bytes]:
        """Returns the extended attributes."""
        return self._volume.xattrs(str(self))
