"""A file system of fsspec, so that pandas, dask, DuckDB and others read and write files in images.

>>> import fsspec
>>> fs = fsspec.filesystem("bandsaw", fo=example("Docs.sparsebundle"))
>>> fs.ls("/Letters", detail=False)
['/Letters/a.txt', '/Letters/b.txt']
>>> with fsspec.open("bandsaw://Letters/a.txt", fo=example("Docs.sparsebundle")) as file:
...     file.read()
b'Dear A\\n'
>>> fs.close()

An image on another file system of fsspec is opened by chaining: `bandsaw://Letters/a.txt::s3://bucket/Docs.dmg`.
"""

from __future__ import annotations

import stat as _stat
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.spec import AbstractFileSystem

from ._image import Image
from ._image import open as open_image

if TYPE_CHECKING:
    from ._bandsaw import Stat

__all__ = ["BandsawFileSystem"]

_TYPES = {"folder": "directory", "symlink": "link"}


class BandsawFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of a volume in an image.

    Args:
        fo: The image: a path, a URL, a file object, or an open `bandsaw.Image`.
        volume: The name of the volume; the first that can be read without one.
        snapshot: A snapshot of the bundle or of the volume.
        writable: True to open the image for changes.
        target_protocol: The file system of fsspec with the image.
        target_options: Its options.
        passphrase, key, shadow, format, checkpoint: As for `bandsaw.open`.
    """

    protocol = "bandsaw"
    root_marker = "/"
    cachable = False

    def __init__(
        self,
        fo: Any = "",
        volume: str | None = None,
        snapshot: str | None = None,
        writable: bool = False,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        passphrase: str | bytes | None = None,
        key: str | bytes | None = None,
        signer: str | bytes | None = None,
        shadow: Any = None,
        format: str | None = None,
        checkpoint: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._file: Any = None
        if isinstance(fo, Image):
            self.image = fo
        else:
            if isinstance(fo, str) and target_protocol not in (None, "file", "local"):
                self._file = fsspec.filesystem(target_protocol, **(target_options or {})).open(fo, "rb")
                fo = self._file
            self.image = open_image(
                fo,
                passphrase=passphrase,
                key=key,
                signer=signer,
                shadow=shadow,
                snapshot=snapshot if volume is None else None,
                writable=writable,
                format=format,
                checkpoint=checkpoint,
            )
        self.volume = self.image.volume(volume, snapshot=snapshot if volume is not None else None)

    def close(self) -> None:
        """Closes the image."""
        self.image.close()
        if self._file is not None:
            self._file.close()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(path)
        if text.startswith("bandsaw://"):
            text = text[len("bandsaw://") :]
        return "/" + text.strip("/")

    @property
    def fsid(self) -> str:
        return f"bandsaw_{self.image.path}_{self.volume.name}"

    def _info(self, path: str, of: Stat) -> dict[str, Any]:
        return {
            "name": path,
            "type": _TYPES.get(of.kind, "file" if of.kind == "file" else "other"),
            "size": 0 if of.kind == "folder" else of.st_size,
            "created": of.st_birthtime,
            "mtime": of.st_mtime,
            "mode": of.st_mode,
            "uid": of.st_uid,
            "gid": of.st_gid,
            "ino": of.st_ino,
            "nlink": of.st_nlink,
            "islink": of.kind == "symlink",
        }

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return self._info(path, self.volume.stat(path))

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self.volume.exists(self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if not _stat.S_ISDIR(self.volume.stat(path).st_mode):
            return [self.info(path)] if detail else [path]
        entries = sorted(self.volume.scandir(path), key=lambda entry: entry.name)
        if not detail:
            return [entry.path for entry in entries]
        return [self._info(entry.path, entry.stat()) for entry in entries]

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        return self.volume.open(self._strip_protocol(path), mode)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.volume.read_bytes(path)
        with self.volume.open(path, "rb", buffering=0) as file:
            size = file.size
            begin = 0 if start is None else start if start >= 0 else max(0, size + start)
            stop = size if end is None else end if end >= 0 else size + end
            return file.pread(max(0, stop - begin), begin)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        self.makedirs(self._parent(path), exist_ok=True)
        self.volume.write_bytes(path, value, overwrite=mode != "create")

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        self.volume.mkdir(self._strip_protocol(path), parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if path == "/":
            return
        self.volume.mkdir(path, parents=True, exist_ok=exist_ok)

    def _rm(self, path: str) -> None:
        self.volume.remove(self._strip_protocol(path))

    def rmdir(self, path: str) -> None:
        self.volume.remove(self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in path if isinstance(path, list) else [path]:
            self.volume.remove(self._strip_protocol(one), recursive=recursive)

    def mv(
        self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any
    ) -> None:
        self.volume.rename(self._strip_protocol(path1), self._strip_protocol(path2), replace=True)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self.pipe_file(path2, self.cat_file(path1))

    def created(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.volume.stat(self._strip_protocol(path)).st_birthtime, timezone.utc)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.volume.stat(self._strip_protocol(path)).st_mtime, timezone.utc)
