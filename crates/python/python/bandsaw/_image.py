"""Images: opening, creation, and what is done with an image as a whole."""

from __future__ import annotations

import atexit
import io
import os
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from . import _bandsaw
from ._files import Disk, Extent
from ._volume import Volume
from .errors import Invalid, InUse, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self

    from ._files import DeviceFile
    from ._reports import (
        CheckReport,
        Compacted,
        Converted,
        ImageInfo,
        PartitionMap,
        RepairReport,
        ResizeLimits,
        ResizeReport,
        Snapshot,
        UndoReport,
        VerifyReport,
    )

__all__ = ["Image", "create", "open"]


def open(
    source: Any,
    *,
    passphrase: str | bytes | None = None,
    key: str | bytes | os.PathLike[str] | None = None,
    signer: str | bytes | os.PathLike[str] | None = None,
    shadow: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    snapshot: str | None = None,
    writable: bool = False,
    format: str | None = None,
    checkpoint: int | None = None,
    logical_volume: str | None = None,
    physical_volumes: Sequence[str | os.PathLike[str]] = (),
    system_files: bool = False,
) -> Image:
    """Opens an image.

    Args:
        source: A path, a URL (`s3://`, `https://`), bytes or another buffer, or a binary file object. A file object is used
            by one thread at a time, and must stay open as long as the image, which is closed with the interpreter if not before.
        passphrase: The passphrase of the image, or of an encrypted volume in it.
        key: The private key of a certificate (PEM, as text or the path of a file), the recovery key of a volume, or the key of
            an encrypted archive (32 bytes, or their base64 or hexadecimal digits) or the private key that opens it (PEM).
        signer: The public key of P-256 (PEM or DER) with which the signature of an archive is verified. Without it, an
            archive that is only signed is read, and `warnings` says that the signature was not verified.
        shadow: Files of layers over the image, from the bottom. With `writable`, changes go to the last, which is made if it
            is missing, and the image stays as it is.
        snapshot: A snapshot of a sparse bundle, or of the APFS volumes of another image, to read.
        writable: True to open the image for changes. Where sources of the image disagree, this raises `Undecided`.
        format: The format, by hdiutil's code (`UDRW`), instead of detection.
        checkpoint: The transaction number of an older checkpoint of an APFS container to read.
        logical_volume: The name or UUID of a logical volume of Core Storage, whose contents are then the disk.
        physical_volumes: Images of the other disks of a Core Storage group.
        system_files: True to show the journal files of HFS+ volumes.

    Raises:
        bandsaw.Error: A subclass, see `bandsaw.errors`.

    >>> with open(example("Secret.dmg"), passphrase="correct horse") as image:
    ...     image.encrypted, image.volume().listdir()
    (True, ['secret.txt'])
    """
    name, object, descriptor = _source(source)
    if object is not None and writable:
        from .errors import ReadOnly

        raise ReadOnly(30, "an image in a file object cannot be changed", name)
    of_volumes = snapshot
    if snapshot is not None and object is None and (os.path.isdir(name) or name.startswith("s3://")):
        name, of_volumes = f"{name}@{snapshot}", None
    shadows = [] if shadow is None else [shadow] if isinstance(shadow, (str, os.PathLike)) else list(shadow)
    native = _bandsaw.NativeImage(
        name,
        object,
        descriptor,
        writable=writable,
        format=format,
        passphrase=_secret(passphrase),
        key=_key(key),
        signer=_key(signer),
        shadows=[os.fspath(one) for one in shadows],
        checkpoint=checkpoint,
        logical_volume=logical_volume,
        physical_volumes=[os.fspath(one) for one in physical_volumes],
        system_files=system_files,
    )
    image = Image(native, of_volumes)
    if object is not None:
        _over_objects.add(image)
    return image


_over_objects: weakref.WeakSet[Image] = weakref.WeakSet()
"""Images over objects of Python. Their threads read ahead through the interpreter, and must have ended before it does."""


def _close_at_exit() -> None:
    for image in list(_over_objects):
        image.close()


atexit.register(_close_at_exit)
# The threads are not those of a child process.
os.register_at_fork(after_in_child=_over_objects.clear)


def _source(source: Any) -> tuple[str, Any, int | None]:
    """Returns the name of a source, the object if it is one, and the descriptor of the host file behind it."""
    if isinstance(source, (str, os.PathLike)):
        name: str | bytes = os.fspath(source)
        return os.fsdecode(name), None, None
    name = getattr(source, "name", None) or f"<{type(source).__name__}>"
    if not isinstance(name, str):
        name = f"<{type(source).__name__}>"
    if isinstance(source, io.TextIOBase):
        raise TypeError("expected a binary file object: open the file with mode 'rb'")
    raw = source.raw if type(source) is io.BufferedReader else source
    # Other classes may do more than to read the file.
    descriptor = raw.fileno() if type(raw) is io.FileIO else None
    return f"<file object {name}>", source, descriptor


def _secret(secret: str | bytes | None) -> bytes | None:
    return secret.encode() if isinstance(secret, str) else secret


def _key(key: str | bytes | os.PathLike[str] | None) -> bytes | None:
    if isinstance(key, os.PathLike):
        with io.open(key, "rb") as file:
            return file.read()
    return _secret(key)


class Image:
    """An open image, a context manager. It may be used by several threads at the same time.

    A method that makes a new image or opens it again (`check`, `repair`, `resize`, snapshots) closes open volumes and files first. If
    the image is open for changes, `InUse` is raised while a request of another thread has not ended.
    """

    def __init__(self, native: _bandsaw.NativeImage, snapshot: str | None) -> None:
        self._native = native
        self._snapshot = snapshot
        self._lock = threading.RLock()
        self._children: weakref.WeakSet[Volume | DeviceFile] = weakref.WeakSet()
        self._disk: Disk | None = None
        self._volumes: tuple[Volume, ...] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"<bandsaw.Image {self.path!r}, closed>"
        return f"<bandsaw.Image {self.path!r}, {self.format}, {self.size} bytes>"

    def _repr_svg_(self) -> str:
        """The map of the bands, in a notebook."""
        from ._svg import band_map

        return band_map(self)

    # Its properties.

    @property
    def path(self) -> str:
        """The path or URL; the name of a file object in angle brackets."""
        return os.fsdecode(self._native.path)

    @property
    def closed(self) -> bool:
        """True if the image is closed."""
        return self._native.closed

    @property
    def writable(self) -> bool:
        """True if the image was opened for changes."""
        return self._native.writable

    @property
    def format(self) -> str:
        """The format, by hdiutil's code: `UDRW`, `UDSB`, `UDSP`, `ASIF`, `UDZO`, ..."""
        return self._native.format

    @property
    def encrypted(self) -> bool:
        """True if the image is encrypted. Encryption of a volume in it does not count."""
        return self._native.encrypted

    @property
    def warnings(self) -> list[str]:
        """Oddities that do not prevent its use."""
        return self._native.warnings

    @property
    def layers(self) -> list[str]:
        """The kinds of its layers, from the bottom: `file`, `encryption`, `udif`, `partition_map`, `volumes`, ..."""
        return self._native.layers

    @property
    def size(self) -> int:
        """The length of the disk in bytes."""
        return self.disk.size

    def info(self, *, progress: object = None) -> ImageInfo:
        """Returns all facts, as `bandsaw info --json` does.

        >>> with open(example("Docs.sparsebundle")) as image:
        ...     info = image.info()
        >>> info.format, info.storage.kind, info.partition_map.scheme
        ('UDSB', 'sparse_bundle', 'gpt')
        >>> [volume.name for volume in info.volumes]
        ['Docs']
        """
        from ._reports import ImageInfo, from_json

        return from_json(ImageInfo, self._native.info(progress))

    @property
    def partitions(self) -> PartitionMap | None:
        """The partition map; `None` on a disk without one."""
        return self.info().partition_map

    # The disk and its volumes.

    @property
    def disk(self) -> Disk:
        """The disk as a raw binary file. Each use returns the same object, until it is closed."""
        with self._lock:
            if self._disk is None or self._disk.closed:
                self._disk = self.open_disk()
            return self._disk

    def open_disk(self) -> Disk:
        """Returns the disk as a file of its own, with a position of its own."""
        with self._lock:
            disk = Disk(self._native.disk(), self.path)
            self._children.add(disk)
            return disk

    def extents(self, start: int = 0, end: int | None = None) -> Iterator[Extent]:
        """Returns an iterator over the extents of the disk: `(offset, length, kind)`."""
        return self.disk.extents(start, end)

    @property
    def volumes(self) -> tuple[Volume, ...]:
        """The volumes, those that cannot be read included.

        Of the volumes of an APFS container that is open for changes, one can be used at a time: close it before the next.
        """
        with self._lock:
            if self._volumes is None:
                self._volumes = tuple(
                    Volume(self, facts, snapshot=self._snapshot, writable=self.writable)
                    for facts in self._native.volumes()
                )
            return self._volumes

    def volume(self, name: str | None = None, *, snapshot: str | None = None) -> Volume:
        """Returns a volume by name; without one, the first that can be read.

        Of an APFS container that is the first volume which does not merely serve to start a Mac.
        """
        if name is None:
            supported = [volume for volume in self.volumes if volume.readable and volume.file_system in _READ]
            helpers = {"Preboot", "Recovery", "VM", "Update"}
            usual = [one for one in supported if one._facts.get("details", {}).get("role") not in helpers]
            found = (usual or supported)[:1]
        else:
            found = [volume for volume in self.volumes if volume.name == name][:1]
        if not found:
            what = "no readable volume" if name is None else f"no volume {name!r}"
            raise NotFound(2, what, self.path)
        return found[0] if snapshot is None else found[0].at(snapshot)

    # Operations.

    def checksum(self, algorithm: str = "sha256", *, progress: object = None) -> str:
        """Returns the checksum of the disk in hexadecimal: `crc32`, `md5`, `sha1`, `sha256`, `sha384` or `sha512`.

        The same disk has the same checksum in every format.
        """
        return self._native.checksum(algorithm, progress)

    def verify(self, *, progress: object = None) -> VerifyReport:
        """Compares the image with the checksums that it stores. Images without any raise `Unsupported`."""
        from ._reports import VerifyReport, from_json

        return from_json(VerifyReport, self._native.verify(progress))

    def check(self, *, contents: bool = False, progress: object = None) -> CheckReport:
        """Checks the structure of every layer. With `contents`, compressed files are decoded too."""
        from ._reports import CheckReport, from_json

        if not self.writable:
            return from_json(CheckReport, self._native.check(contents, progress))
        with self._released():
            return from_json(CheckReport, self._native.check(contents, progress))

    def convert(
        self,
        target: str | os.PathLike[str],
        *,
        format: str | None = None,
        band_size: int | None = None,
        level: int | None = None,
        overwrite: bool = False,
        skip_free: bool = False,
        passphrase: str | bytes | None = None,
        decrypt: bool = False,
        verify: bool = True,
        remove_signature: bool = False,
        progress: object = None,
    ) -> Converted:
        """Creates an image with the same disk. The format follows from the name of the target, or is stated.

        With `passphrase` the new image is encrypted. A plain copy of an encrypted image requires `decrypt`.
        """
        from ._reports import Converted, from_json

        if self.encrypted and passphrase is None and not decrypt:
            raise Invalid("the image is encrypted: give a passphrase for the copy, or decrypt=True")
        done = self._native.convert(
            os.fspath(target),
            format=format,
            band_size=band_size,
            level=level,
            overwrite=overwrite,
            skip_free=skip_free,
            passphrase=_secret(passphrase),
            verify=verify,
            remove_signature=remove_signature,
            progress=progress,
        )
        return from_json(Converted, done)

    def compact(
        self, *, zeros: bool | None = None, battery_allowed: bool = False, progress: object = None
    ) -> Compacted:
        """Frees storage that the volumes do not use. Volumes are closed first.

        `zeros` also frees runs of zeros that are in use; `None` does so if no volume is of a known format.
        """
        from ._reports import Compacted, from_json

        self._close_children()
        return from_json(Compacted, self._native.compact(zeros, battery_allowed, progress))

    def resize_limits(self, *, partition: int | None = None) -> ResizeLimits:
        """Returns the smallest and the largest size of the disk."""
        from ._reports import ResizeLimits, from_json

        return from_json(ResizeLimits, self._native.limits(partition))

    def resize(
        self,
        size: int | None,
        *,
        parts: str = "all",
        partition: int | None = None,
        dry_run: bool = False,
        progress: object = None,
    ) -> ResizeReport:
        """Resizes disk, partition and volume together, to a size in bytes, or with `None` to the smallest.

        `parts` is `all`, `image` (the disk alone) or `partition` (within the disk).
        """
        from ._reports import ResizeReport, from_json

        with self._lock:
            self._close_children()
            try:
                return from_json(ResizeReport, self._native.resize(size, parts, partition, dry_run, progress))
            finally:
                if not dry_run and self.writable:
                    self._native.release()
                    self._reopen()

    def repair(
        self,
        *,
        dry_run: bool = False,
        accept_loss: bool = False,
        assume: Sequence[str] = (),
        undo_dir: str | os.PathLike[str] | None = None,
        progress: object = None,
    ) -> RepairReport:
        """Repairs what independent sources of the image agree on, and keeps undo data beside the image.

        Nothing is changed with `dry_run`, if sources disagree (`outcome` is `undecided`; choose one of the `alternatives`
        with `assume`), or if files would be lost (`loss_refused`) that `accept_loss` does not give up.
        """
        from ._reports import RepairReport, from_json

        with self._released():
            done = self._native.repair(dry_run, accept_loss, list(assume), undo_dir, _temporary(), progress)
        return from_json(RepairReport, done)

    def undo_repair(self, *, undo_dir: str | os.PathLike[str] | None = None) -> UndoReport:
        """Restores the image to its state before its repairs, bit for bit. Refused if it has changed since."""
        return self._finish_repair(True, undo_dir)

    def commit_repair(self, *, undo_dir: str | os.PathLike[str] | None = None) -> UndoReport:
        """Removes the undo data of repairs."""
        return self._finish_repair(False, undo_dir)

    def _finish_repair(self, undo: bool, undo_dir: str | os.PathLike[str] | None) -> UndoReport:
        from ._reports import UndoReport, from_json

        with self._released():
            return from_json(UndoReport, self._native.finish_repair(undo, undo_dir, _temporary()))

    # Snapshots of sparse bundles.

    @property
    def snapshots(self) -> list[Snapshot]:
        """The snapshots of a sparse bundle, the oldest first. Those of APFS are in `Volume.snapshots`."""
        from ._reports import Snapshot, from_json

        return [from_json(Snapshot, one) for one in self._native.snapshots()]

    def create_snapshot(self, name: str, *, progress: object = None) -> None:
        """Creates a snapshot of a sparse bundle."""
        with self._released():
            self._native.change_snapshot("create", name, progress)

    def restore_snapshot(self, name: str, *, progress: object = None) -> None:
        """Restores a sparse bundle to the state of a snapshot. The present state is lost."""
        with self._released():
            self._native.change_snapshot("restore", name, progress)

    def delete_snapshot(self, name: str) -> None:
        """Deletes a snapshot of a sparse bundle."""
        with self._released():
            self._native.change_snapshot("delete", name, None)

    # Closing.

    def close(self) -> None:
        """Closes the image with its volumes and files. Errors of the last writes are raised here."""
        if self._native.closed:
            return
        try:
            self._close_children()
        finally:
            self._native.release()

    def _close_children(self) -> None:
        with self._lock:
            children, self._volumes, self._disk = list(self._children), None, None
            self._children.clear()
        failed: Exception | None = None
        for child in children:
            try:
                child.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    @contextmanager
    def _released(self) -> Iterator[None]:
        """Closes the image for an operation that opens it, and opens it again."""
        with self._lock:
            self._close_children()
            self._native.release()
            try:
                yield
            except BaseException:
                # The first error is the one to raise.
                try:
                    self._reopen()
                except Exception:
                    pass
                raise
            self._reopen()

    def _reopen(self) -> None:
        """Opens the image again, once the last requests of other threads have ended."""
        end = time.monotonic() + 5
        while True:
            try:
                return self._native.reopen()
            except InUse:
                if time.monotonic() > end:
                    raise
            time.sleep(0.01)


_READ = frozenset({"APFS", "HFS", "HFS+", "HFSX"})


def create(
    path: str | os.PathLike[str],
    size: int | None = None,
    *,
    format: str | None = None,
    source: str | os.PathLike[str] | None = None,
    fs: str | None = None,
    volname: str | None = None,
    volumes: Sequence[str] = (),
    layout: str | None = None,
    block_size: int | None = None,
    band_size: int | None = None,
    sector_size: int | None = None,
    level: int | None = None,
    passphrase: str | bytes | None = None,
    overwrite: bool = False,
    writable: bool = True,
    progress: object = None,
) -> Image:
    """Creates an image and opens it.

    Args:
        path: The image. Its format follows from the extension unless `format` states it.
        size: The length of the disk in bytes. It may be left out if files are given.
        format: The format, by hdiutil's code.
        source: A folder or tar archive with the files of the volume.
        fs: The file system: `apfs` (default, where it fits), `hfs+`, `hfs+j`, ... The disk is blank without this, a
            source and a name.
        volname: The name of the volume. The default is the name of the folder or archive, or `untitled`.
        volumes: Names of further, empty volumes of an APFS container.
        layout: The partition layout: `gptspud` (default), `spud`, `mbrspud` or `none`.
        block_size: Bytes of an allocation block of the volume.
        band_size: Bytes of a band, a multiple of 4096 in sparse bundles.
        sector_size: Bytes of a sector: 512 or 4096.
        level: The level of UDZO, 1 to 9.
        passphrase: Encrypts the image.
        overwrite: True to replace an existing image.
        writable: False to open the new image for reading; so are formats that cannot be changed.

    With `SOURCE_DATE_EPOCH` in the environment, the same files give the same bytes.

    >>> with create(scratch / "New.sparsebundle", 16 << 20, volname="New") as image:
    ...     image.volume().write_text("/hello.txt", "Hello")
    ...     image.volume().read_text("hello.txt")
    5
    'Hello'
    """
    volume: dict[str, Any] | None = None
    if source is not None or fs is not None or volname is not None or volumes:
        volume = {
            "name": volname,
            "fs": fs,
            "layout": layout,
            "block_size": block_size,
            "source": None if source is None else os.fspath(source),
            "others": list(volumes),
        }
    _bandsaw.create(
        os.fspath(path),
        format=format,
        size=size,
        band_size=band_size,
        sector_size=sector_size,
        level=level,
        overwrite=overwrite,
        volume=volume,
        passphrase=_secret(passphrase),
        epoch=_epoch(),
        progress=progress,
    )
    image = open(path, passphrase=passphrase)
    if writable and image.format in _CHANGEABLE:
        image.close()
        image = open(path, passphrase=passphrase, writable=True)
    return image


def _temporary() -> str:
    """Returns the folder for temporary files."""
    import tempfile

    return tempfile.gettempdir()


_CHANGEABLE = frozenset({"UDRW", "UDSB", "UDSP", "ASIF"})


def _epoch() -> int | None:
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise Invalid("SOURCE_DATE_EPOCH: expected seconds since 1970") from None
