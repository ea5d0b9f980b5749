"""File objects over devices of the native part."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from . import _bandsaw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

__all__ = ["DeviceFile", "Disk", "Extent"]

PIECE = 1 << 20
"""Bytes of a buffered read."""


class Extent(tuple[int, int, str]):
    """A contiguous range of one kind of data: `(offset, length, kind)`."""

    __slots__ = ()

    @property
    def offset(self) -> int:
        """The first byte."""
        return self[0]

    @property
    def length(self) -> int:
        """The number of bytes."""
        return self[1]

    @property
    def kind(self) -> str:
        """`hole` (nothing is stored), `zero` (the format states zeros) or `data`."""
        return self[2]

    def __repr__(self) -> str:
        return f"Extent(offset={self.offset}, length={self.length}, kind={self.kind!r})"


class DeviceFile(io.RawIOBase):
    """A raw binary file over a device: a fork of a file, or the disk of an image.

    `pread`, `pread_into` and `pwrite` take a position and may be called by several threads at the same time.
    """

    def __init__(
        self,
        device: _bandsaw.Device,
        name: str = "",
        *,
        grows: bool = False,
        new: _bandsaw.NewFile | None = None,
    ) -> None:
        super().__init__()
        self._device = device
        self._grows = grows
        self._new = new
        self._at = 0
        self._append = False
        self.name = name

    @property
    def mode(self) -> str:
        """`rb` or `rb+`."""
        return "rb+" if self.writable() else "rb"

    @property
    def size(self) -> int:
        """The length in bytes."""
        return self._device.size

    @property
    def block_size(self) -> int:
        """The size of a sector in bytes."""
        return self._device.block_size

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def readable(self) -> bool:
        self._check_open()
        return True

    def seekable(self) -> bool:
        self._check_open()
        return True

    def writable(self) -> bool:
        self._check_open()
        return self._device.writable

    def tell(self) -> int:
        self._check_open()
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check_open()
        if whence == os.SEEK_SET:
            if offset < 0:
                raise ValueError(f"negative seek position {offset}")
            at = offset
        elif whence == os.SEEK_CUR:
            at = max(0, self._at + offset)
        elif whence == os.SEEK_END:
            at = max(0, self._device.size + offset)
        else:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        self._at = at
        return at

    def readinto(self, buffer: Buffer, /) -> int:
        """Fills a buffer without a copy, and returns the number of bytes."""
        count = self.pread_into(buffer, self._at)
        self._at += count
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        """Returns at most `size` bytes; all up to the end if it is negative."""
        data = self.pread(-1 if size is None else size, self._at)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        """Returns all bytes up to the end."""
        return self.read(-1)

    def pread(self, size: int, offset: int) -> bytes:
        """Returns at most `size` bytes at `offset`; the position stays."""
        self._check_open()
        return self._device.pread(size, _position(offset))

    def pread_into(self, buffer: Buffer, offset: int) -> int:
        """Fills a writable buffer from `offset`; the position stays. Returns the number of bytes."""
        self._check_open()
        return self._device.pread_into(buffer, _position(offset))

    def write(self, data: Buffer, /) -> int:
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        if self._append:
            self._at = self._device.size
        count = self.pwrite(data, self._at)
        self._at += count
        return count

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Writes all bytes at `offset`; the position stays."""
        self._check_open()
        try:
            return self._device.pwrite(data, _position(offset), self._grows)
        except Exception:
            # A new file that is not complete gets no name.
            self._new = None
            raise

    def truncate(self, size: int | None = None, /) -> int:
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        size = self._at if size is None else _position(size)
        self._device.truncate(size)
        return size

    def flush(self) -> None:
        """Makes everything written durable."""
        self._check_open()
        if self._device.writable and self._new is None:
            self._device.flush()

    def extents(self, start: int = 0, end: int | None = None) -> Iterator[Extent]:
        """Returns an iterator over the extents of a range. Adjacent ones of one kind are joined."""
        self._check_open()
        size = self._device.size
        end = size if end is None else min(end, size)
        at, begin, last = start, start, ""
        while at < end:
            kind, length = self._device.extent(at, end)
            if kind != last:
                if at > begin:
                    yield Extent((begin, at - begin, last))
                begin, last = at, kind
            at += length
        if at > begin:
            yield Extent((begin, at - begin, last))

    def close(self) -> None:
        if self.closed:
            return
        try:
            super().close()
        finally:
            self._device.close()
        new, self._new = self._new, None
        if new is not None:
            new.finish()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.size} bytes"
        return f"<bandsaw.{type(self).__name__} {self.name!r}, {state}>"


class Disk(DeviceFile):
    """The disk of an image as a raw binary file.

    >>> import bandsaw
    >>> with bandsaw.open(example("Docs.sparsebundle")) as image:
    ...     image.disk.pread(8, 512)
    b'EFI PART'
    """

    def discard(self, start: int, end: int) -> None:
        """Deallocates a range of an image that is open for changes. It then reads as zeros."""
        self._check_open()
        self._device.discard(start, end)


def _position(offset: int) -> int:
    if offset < 0:
        raise ValueError(f"negative position {offset}")
    return offset
