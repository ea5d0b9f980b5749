"""Volumes: their files and folders."""

from __future__ import annotations

import errno
import io
import os
import stat as _stat
import weakref
from typing import TYPE_CHECKING, Literal, cast, overload

from . import _bandsaw
from ._files import PIECE, DeviceFile
from .errors import Corrupt, Exists, Invalid, IsAFolder, NotALink, NotFound, SymlinkLoop

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime
    from types import TracebackType
    from typing import Any

    from typing_extensions import Buffer, Self

    from ._bandsaw import DirEntry, Stat
    from ._path import VolumePath
    from ._reports import Added, Extracted, VolumeFacts

    Name = str | VolumePath | DirEntry
    _Above = tuple[int, "_Above | None"]
    """The number of a folder, and the folders above it."""

__all__ = ["Volume"]


class Volume:
    """A volume of an image. It is opened by its first use, and may be used by several threads at the same time.

    Paths are text and begin at the root; a first `/` may be left out. A name is found in either form of Unicode, by the rules
    of the volume. Names with `:` are those that macOS shows with `/`. Methods take an entry of `scandir` instead of a path.

    >>> import bandsaw
    >>> with bandsaw.open(example("Docs.sparsebundle")) as image:
    ...     volume = image.volumes[0]
    ...     print(volume.name, volume.file_system)
    ...     for name in sorted(volume.listdir("/Letters")):
    ...         print(name, volume.stat(f"/Letters/{name}").st_size)
    Docs APFS
    a.txt 7
    b.txt 7
    """

    def __init__(self, image: Any, facts: dict[str, Any], *, snapshot: str | None, writable: bool) -> None:
        self._image = image
        self._facts = facts
        self._snapshot = snapshot
        self._writable = writable
        self._opened: _bandsaw.NativeVolume | None = None
        self._lock = image._lock
        self._files: weakref.WeakSet[io.IOBase] = weakref.WeakSet()

    # Properties that are known without opening it.

    @property
    def facts(self) -> VolumeFacts:
        """The description of the volume in `Image.info`."""
        from ._reports import VolumeFacts, from_json

        return from_json(VolumeFacts, self._facts)

    @property
    def name(self) -> str:
        """The name; empty if the volume cannot be read."""
        return str(self._facts.get("name", ""))

    @property
    def file_system(self) -> str:
        """The name of the format: `HFS+`, `APFS`, ..."""
        return str(self._facts["file_system"])

    @property
    def partition(self) -> int | None:
        """The number of the partition; `None` on a disk without a map."""
        number: int | None = self._facts.get("partition")
        return number

    @property
    def number(self) -> int | None:
        """The number in an APFS container, from 1."""
        number: int | None = self._facts.get("details", {}).get("number")
        return number

    @property
    def readable(self) -> bool:
        """True if files can be read; of an encrypted volume, with its key."""
        return bool(self._facts["readable"])

    @property
    def snapshot(self) -> str | None:
        """The snapshot that is read."""
        return self._snapshot

    @property
    def snapshots(self) -> list[str]:
        """The names of the snapshots of an APFS volume."""
        return [one["name"] for one in self._facts.get("details", {}).get("snapshots", [])]

    def at(self, snapshot: str) -> Volume:
        """Returns the volume as it was in a snapshot, read-only."""
        return Volume(self._image, self._facts, snapshot=snapshot, writable=False)

    def __repr__(self) -> str:
        at = f"@{self._snapshot}" if self._snapshot is not None else ""
        return f"<bandsaw.Volume {self.name + at!r}, {self.file_system}>"

    # Opening and closing.

    @property
    def _native(self) -> _bandsaw.NativeVolume:
        opened = self._opened
        if opened is None:
            with self._lock:
                opened = self._opened
                if opened is None:
                    opened = self._image._native.open_volume(
                        self.partition, self.number, self._snapshot, self._writable
                    )
                    self._opened = opened
                    self._image._children.add(self)
        return opened

    @property
    def writable(self) -> bool:
        """True if the volume is opened for changes."""
        return self._writable

    def usage(self) -> dict[str, Any]:
        """Returns properties and usage as they are now: `size`, `free`, `files`, ..."""
        return self._native.info()

    def sync(self) -> None:
        """Makes all changes durable."""
        self._native.sync()

    def close(self) -> None:
        """Closes the volume and its files. One that was open for changes is marked as clean."""
        with self._lock:
            files = list(self._files)
        for file in files:
            file.close()
        with self._lock:
            opened, self._opened = self._opened, None
            # Before another thread opens the volume again.
            if opened is not None:
                opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Names.

    def path(self, *parts: str) -> VolumePath:
        """Returns a path in the volume, with the interface of `pathlib`."""
        from ._path import VolumePath

        return VolumePath(self, *parts)

    def __truediv__(self, other: str) -> VolumePath:
        return self.path(other)

    def _node(self, path: Name, follow: bool = True) -> tuple[int, int]:
        """Returns the number and the mode of an object."""
        if isinstance(path, _bandsaw.DirEntry) and not (follow and path.is_symlink()):
            return path.inode(), path.stat().st_mode
        found = self._native.stat(_text(path), follow)
        return found.st_ino, found.st_mode

    def stat(self, path: Name = "/", *, follow_symlinks: bool = True) -> Stat:
        """Returns the attributes of an object."""
        if isinstance(path, _bandsaw.DirEntry) and not (follow_symlinks and path.is_symlink()):
            return path.stat()
        return self._native.stat(_text(path), follow_symlinks)

    def lstat(self, path: Name) -> Stat:
        """Returns the attributes of an object; those of a symbolic link itself."""
        return self.stat(path, follow_symlinks=False)

    def exists(self, path: Name) -> bool:
        """Returns true if there is an object at a path; false for a symbolic link to nothing, or to itself."""
        try:
            self.stat(path)
        except (NotFound, SymlinkLoop):
            return False
        return True

    def readlink(self, path: Name) -> str:
        """Returns the target of a symbolic link."""
        node, mode = self._node(path, follow=False)
        if not _stat.S_ISLNK(mode):
            raise NotALink(errno.EINVAL, "not a symbolic link", _text(path))
        return self._native.readlink(node)

    # Folders.

    def scandir(self, path: Name = "/") -> Iterator[DirEntry]:
        """Returns an iterator over the entries of a folder, in the order of the volume.

        Memory does not depend on their number. A volume that is open for changes is read a folder at a time.
        """
        return self._native.entries(_text(path), False)

    def find(self, path: Name = "/") -> Iterator[DirEntry]:
        """Returns an iterator over everything below a folder. A folder comes before its contents."""
        return self._native.entries(_text(path), True)

    def listdir(self, path: Name = "/") -> list[str]:
        """Returns the names in a folder."""
        return [entry.name for entry in self.scandir(path)]

    def walk(
        self,
        top: Name = "/",
        topdown: bool = True,
        onerror: Callable[[Exception], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """Returns an iterator as `os.walk` does: folders may be removed from the list that is returned before their contents.

        Symbolic links are among the files. With `followlinks`, those to folders are among the folders, and are followed.
        """
        folder = "/" + _text(top).strip("/")
        pending: list[tuple[str, _Above | None] | tuple[str, list[str], list[str]]] = [(folder, None)]
        while pending:
            ahead = pending.pop()
            if len(ahead) == 3:
                yield ahead
                continue
            folder, above = ahead
            folders: list[str] = []
            files: list[str] = []
            try:
                here = self._enter(folder, above, followlinks)
                for entry in self.scandir(folder):
                    is_folder = entry.is_dir() or (followlinks and self._is_folder(entry))
                    (folders if is_folder else files).append(entry.name)
            except Exception as error:
                if onerror is not None:
                    onerror(error)
                continue
            if topdown:
                yield folder, folders, files
            else:
                pending.append((folder, folders, files))
            pending.extend((f"{folder.rstrip('/')}/{name}", here) for name in reversed(folders))

    def _enter(self, folder: str, above: _Above | None, followlinks: bool = False) -> _Above:
        """Returns the folders on the way to those in `folder`. In a damaged volume a folder may be in itself."""
        node = self._node(folder)[0]
        outer = above
        while outer is not None and not followlinks:
            if outer[0] == node:
                raise Corrupt(f"{folder}: the folder contains itself")
            outer = outer[1]
        return node, above

    def _is_folder(self, path: Name) -> bool:
        """Returns true for a folder, or a symbolic link to one."""
        try:
            return _stat.S_ISDIR(self._node(path)[1])
        except (NotFound, SymlinkLoop):
            return False

    def glob(self, pattern: str, top: Name = "/", *, case_sensitive: bool = True) -> Iterator[str]:
        """Returns an iterator over the paths below a folder that match a pattern, as `pathlib.Path.glob` does.

        `**` stands for any number of folders; with nothing after it, for these folders. Each path is returned once, and memory
        does not depend on their number. Both forms of Unicode match.
        """
        from unicodedata import normalize

        parts = [_pattern(part, case_sensitive) for part in pattern.split("/") if part not in ("", ".")]
        if not parts:
            raise ValueError("the pattern is empty")
        end, folders_only = len(parts), pattern.endswith("/")

        def closure(places: set[int]) -> frozenset[int]:
            """Adds the places after each `**`, which may stand for no folder."""
            ahead = list(places)
            while ahead:
                place = ahead.pop()
                if place < end and parts[place] is None and place + 1 not in places:
                    places.add(place + 1)
                    ahead.append(place + 1)
            return frozenset(places)

        # The places in the pattern that the path of an object may have reached: each folder is listed once.
        folder = "/" + _text(top).strip("/")
        places = closure({0})
        try:
            levels = [(self.scandir(folder), places, self._enter(folder, None))]
        except NotFound:
            return
        if end in places:
            yield folder
        while levels:
            entries, places, above = levels[-1]
            entry = next(entries, None)
            if entry is None:
                levels.pop()
                continue
            name, is_folder = normalize("NFC", entry.name), entry.is_dir()
            reached: set[int] = set()
            matched = False
            for place in places - {end}:
                part = parts[place]
                if part is None:
                    if is_folder:
                        reached.add(place)
                elif part.match(name):
                    reached.add(place + 1)
                    matched = True
            if matched and not is_folder and entry.is_symlink() and (reached != {end} or folders_only):
                is_folder = self._is_folder(entry)
            if is_folder:
                reached = set(closure(reached))
            if end in reached and (is_folder or not folders_only):
                yield entry.path
            if is_folder and reached - {end}:
                try:
                    # The folders above a link may be entered again: the pattern ends.
                    here = self._enter(entry.path, None if entry.is_symlink() else above)
                    levels.append((self.scandir(entry.path), frozenset(reached), here))
                except NotFound:
                    continue

    # Contents.

    @overload
    def open(
        self, path: Name, mode: Literal["rb"] = "rb", *, fork: str = "data", buffering: Literal[-1] = -1
    ) -> io.BufferedReader: ...
    @overload
    def open(
        self, path: Name, mode: Literal["rb", "wb", "xb", "ab", "r+b", "rb+"], *, fork: str = "data", buffering: Literal[0]
    ) -> DeviceFile: ...
    @overload
    def open(self, path: Name, mode: Literal["wb", "xb", "ab"], *, fork: str = "data") -> io.BufferedWriter: ...
    @overload
    def open(self, path: Name, mode: Literal["r+b", "rb+"], *, fork: str = "data") -> io.BufferedRandom: ...
    @overload
    def open(
        self,
        path: Name,
        mode: Literal["r", "w", "x", "a", "r+", "rt", "wt"],
        *,
        fork: str = "data",
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(
        self,
        path: Name,
        mode: str = "rb",
        *,
        fork: str = "data",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.IOBase: ...
    def open(
        self,
        path: Name,
        mode: str = "rb",
        *,
        fork: str = "data",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.IOBase:
        """Opens a file, as binary by default. `fork` is `data` or `resource`.

        A file that is opened with `w` or `x` appears, or replaces the one of its name, when it is closed. With `a` and `r+`
        it is changed in place. Unbuffered (`buffering=0`), a `DeviceFile` is returned.
        """
        kinds = [kind for kind in "rwxa" if kind in mode]
        if len(kinds) != 1 or set(mode) - set("rwxabt+") or ("b" in mode and "t" in mode):
            raise ValueError(f"invalid mode: {mode!r}")
        if buffering == 0 and "b" not in mode:
            raise ValueError("can't have unbuffered text I/O")
        file: io.IOBase = self._open_buffered(self._open_raw(path, kinds[0], "+" in mode, fork), kinds[0], "+" in mode, buffering)
        if "b" not in mode:
            file = io.TextIOWrapper(
                cast("io.BufferedRandom", file), encoding, errors, newline, line_buffering=buffering == 1
            )
        # The outermost object: its buffer is written when the volume is closed.
        with self._lock:
            self._files.add(file)
        return file

    def _open_buffered(self, raw: DeviceFile, kind: str, plus: bool, buffering: int) -> Any:
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        if buffering == 0:
            return raw
        if plus:
            return io.BufferedRandom(raw, size)
        if kind == "r":
            return io.BufferedReader(raw, size)
        return io.BufferedWriter(raw, max(size, PIECE))

    def _open_raw(self, path: Name, kind: str, plus: bool, fork: str) -> DeviceFile:
        name = _text(path)
        if kind in "wx":
            if fork != "data":
                raise Invalid("a new file has no resource fork yet: open it with r+b")
            new = self._native.new_file(name, kind == "w")
            return DeviceFile(new.open(), name, grows=True, new=new)
        if kind == "a" and not self.exists(path):
            new = self._native.new_file(name, False)
            return DeviceFile(new.open(), name, grows=True, new=new)
        node, mode = self._node(path)
        if _stat.S_ISDIR(mode):
            raise IsAFolder(errno.EISDIR, os.strerror(errno.EISDIR), name)
        writable = plus or kind == "a"
        raw = DeviceFile(self._native.open(node, fork, writable), name, grows=writable)
        if kind == "a":
            raw._append = True
            raw.seek(0, os.SEEK_END)
        return raw

    def read_bytes(self, path: Name, *, fork: str = "data") -> bytes:
        """Returns the contents of a fork."""
        if isinstance(path, _bandsaw.DirEntry):
            contents = self._native.read_entry(path, fork)
            if contents is not None:
                return contents
        node, mode = self._node(path)
        if _stat.S_ISDIR(mode):
            raise IsADirectoryError(21, os.strerror(21), _text(path))
        return self._native.read(node, fork)

    def read_text(self, path: Name, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the contents of a file as text."""
        return self.read_bytes(path).decode(encoding, errors)

    def xattrs(self, path: Name) -> dict[str, bytes]:
        """Returns the extended attributes of an object; those of a symbolic link itself."""
        node, _ = self._node(path, follow=False)
        native = self._native
        found = ((name, native.xattr(node, name)) for name in native.xattrs(node))
        return {name: value for name, value in found if value is not None}

    def extract(
        self,
        target: str | os.PathLike[str],
        path: Name = "/",
        *,
        tar: bool = False,
        overwrite: bool = False,
        special_files: bool = False,
        setuid: bool = False,
        progress: object = None,
    ) -> Extracted:
        """Extracts an object into a folder of the host, or with `tar` into an archive, as `bandsaw extract` does.

        Links, modes, dates and extended attributes are kept. What cannot be extracted is listed in the result.
        """
        from ._reports import Extracted, from_json

        done = self._native.extract(
            _text(path), os.fspath(target), tar, overwrite, special_files, setuid, progress
        )
        return from_json(Extracted, done)

    # Changes.

    def write_bytes(self, path: Name, data: Buffer, *, overwrite: bool = True) -> int:
        """Writes a file as a whole. It appears, or replaces the one of its name, in one step."""
        return self._native.write(_text(path), data, overwrite, None)

    def write_text(self, path: Name, data: str, encoding: str = "utf-8") -> int:
        """Writes a file as text."""
        self.write_bytes(path, data.encode(encoding))
        return len(data)

    def add(
        self,
        source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        path: Name = "/",
        *,
        name: str | None = None,
        overwrite: bool = False,
        progress: object = None,
    ) -> Added:
        """Copies files and folders of the host into a folder of the volume, with their attributes.

        An object has its own name there, or `name` if it is the only one. A folder that exists is merged.
        """
        from ._reports import Added, from_json

        if isinstance(source, (str, os.PathLike)):
            sources = [os.fspath(source)]
        else:
            sources = [os.fspath(one) for one in source]
        if name is not None and len(sources) != 1:
            raise ValueError("a name requires a single source")
        named = [(one, name or os.path.basename(os.path.abspath(one))) for one in sources]
        return from_json(Added, self._native.add(named, _text(path), overwrite, progress))

    def mkdir(self, path: Name, mode: int = 0o755, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Creates a folder."""
        text = _text(path)
        if not text.strip("/") and text:
            if exist_ok:
                return
            raise Exists(errno.EEXIST, os.strerror(errno.EEXIST), text)
        try:
            self._native.mkdir(text, mode & 0o7777)
        except FileNotFoundError:
            above = text.rstrip("/").rpartition("/")[0]
            if not parents or not above.strip("/"):
                raise
            self.mkdir(above, parents=True, exist_ok=True)
            self.mkdir(path, mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not _stat.S_ISDIR(self.stat(path).st_mode):
                raise

    def rename(self, source: Name, target: Name, *, replace: bool = False) -> None:
        """Moves an object. An existing one is replaced, in the same step, only if that is requested."""
        self._native.rename(_text(source), _text(target), replace)

    def remove(self, path: Name, *, recursive: bool = False, progress: object = None) -> None:
        """Removes a file, a link or an empty folder; all of a folder if that is requested."""
        self._native.remove(_text(path), recursive, progress)

    def symlink(self, target: str, path: Name) -> None:
        """Creates a symbolic link at `path`."""
        self._native.symlink(_text(path), target)

    def link(self, source: Name, path: Name) -> None:
        """Gives a file another name."""
        self._native.link(_text(source), _text(path))

    def touch(self, path: Name, *, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Creates an empty file with these permissions, or sets the dates of an existing one to now."""
        if exist_ok and self.exists(path):
            import time

            now = time.time_ns()
            self._set_times(path, modified=now, accessed=now)
        else:
            self._native.write(_text(path), b"", False, mode & 0o7777)

    def set_attributes(
        self,
        path: Name,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        flags: int | None = None,
        created: datetime | None = None,
        modified: datetime | None = None,
        accessed: datetime | None = None,
        backed_up: datetime | None = None,
        follow_symlinks: bool = False,
    ) -> None:
        """Sets attributes of an object; those that are not given stay."""
        node, _ = self._node(path, follow_symlinks)
        times = [_nanoseconds(time) for time in (created, modified, accessed, backed_up)]
        mode = None if mode is None else mode & 0o7777
        self._native.set_attributes(node, mode, uid, gid, flags, times)

    def _set_times(self, path: Name, *, modified: int, accessed: int) -> None:
        node, _ = self._node(path)
        self._native.set_attributes(node, None, None, None, None, [None, modified, accessed, None])

    def set_xattr(self, path: Name, name: str, value: Buffer) -> None:
        """Sets an extended attribute."""
        self._native.set_xattr(self._node(path, follow=False)[0], name, value)

    def remove_xattr(self, path: Name, name: str) -> None:
        """Removes an extended attribute."""
        self._native.remove_xattr(self._node(path, follow=False)[0], name)


def _text(path: Name) -> str:
    if isinstance(path, str):
        return path
    if isinstance(path, _bandsaw.DirEntry):
        return path.path
    from ._path import VolumePath

    if isinstance(path, VolumePath):
        return str(path)
    raise TypeError(f"expected a path in the volume, not {type(path).__name__}")


def _pattern(part: str, case_sensitive: bool) -> re.Pattern[str] | None:
    """Returns the expression for a part of a pattern; `None` for `**`."""
    import re
    from fnmatch import translate
    from unicodedata import normalize

    if part == "**":
        return None
    return re.compile(translate(normalize("NFC", part)), 0 if case_sensitive else re.IGNORECASE)


def _nanoseconds(time: datetime | None) -> int | None:
    if time is None:
        return None
    from datetime import datetime as DateTime
    from datetime import timedelta, timezone

    if time.tzinfo is None:
        raise ValueError("the date has no time zone")
    return (time - DateTime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1) * 1000
