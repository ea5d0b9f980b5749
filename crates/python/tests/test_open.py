"""Opening: sources, keys, errors, closing."""

from __future__ import annotations

import gc
import io
import mmap
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import bandsaw
from conftest import PASSPHRASE, needed


def names(image: bandsaw.Image) -> list[str]:
    return sorted(entry.path for entry in image.volume().find())


LETTERS = ["/Letters", "/Letters/a.txt", "/Letters/b.txt"]


def test_a_path(bundle: Path) -> None:
    with bandsaw.open(bundle) as image:
        assert (image.format, image.size, image.closed, image.writable) == ("UDSB", 20 << 20, False, False)
        assert image.layers == ["sparse_bundle", "partition_map", "volumes"]
        assert names(image) == LETTERS
    assert image.closed
    image.close()


class Slow(io.RawIOBase):
    """A file object in Python that reads at most 1000 bytes at a time."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.inner = io.BytesIO(data)
        self.busy = threading.Lock()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self.inner.seek(offset, whence)

    def readinto(self, buffer: bytearray, /) -> int:  # type: ignore[override]
        assert self.busy.acquire(blocking=False), "two requests at a time"
        try:
            return self.inner.readinto(memoryview(buffer)[:1000])
        finally:
            self.busy.release()


class OnlyRead:
    """A file object without `readinto`."""

    def __init__(self, data: bytes) -> None:
        self.inner = io.BytesIO(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.inner.seek(offset, whence)

    def read(self, size: int) -> bytes:
        return self.inner.read(size)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda path: open(path, "rb"),
        lambda path: open(path, "rb", buffering=0),
        lambda path: io.BytesIO(path.read_bytes()),
        lambda path: path.read_bytes(),
        lambda path: bytearray(path.read_bytes()),
        lambda path: mmap.mmap(os.open(path, os.O_RDONLY), 0, prot=mmap.PROT_READ),
        lambda path: Slow(path.read_bytes()),
        lambda path: OnlyRead(path.read_bytes()),
    ],
    ids=["buffered", "raw", "BytesIO", "bytes", "bytearray", "mmap", "slow", "only-read"],
)
def test_objects(dmg: Path, wrap: Callable[[Path], object]) -> None:
    with bandsaw.open(dmg) as image:
        expected = image.checksum()
    with bandsaw.open(wrap(dmg)) as image:
        assert image.layers[0] == "file_object"
        assert names(image) == LETTERS
        assert image.checksum() == expected
        assert image.check().sound
        threads = [threading.Thread(target=lambda: image.disk.pread(-1, 0)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


WITHOUT_CLOSING = """
import gc, io, sys, time
import bandsaw

class Slow(io.RawIOBase):
    # Reads without the lock of the interpreter, for so long that others read ahead at the same time.
    def __init__(self, data):
        self.inner = io.BytesIO(data)

    def seek(self, offset, whence=0):
        return self.inner.seek(offset, whence)

    def readinto(self, buffer):
        time.sleep(0.002)
        return self.inner.readinto(buffer)

with open(sys.argv[1], "rb") as file:
    data = file.read()

def begin(**options):
    image = bandsaw.open(Slow(data), **options)
    for _ in range(12):
        assert len(image.disk.read(1 << 18)) == 1 << 18
    return image

for _ in range(10):
    begin()
for _ in range(5):
    # The last reference is that of a volume, a file, an entry or an iterator.
    volume = begin().volume()
    file = volume.open("data")
    assert len(file.read(3 << 20)) == 3 << 20
    entries = volume.scandir()
    entry = next(entries)
    del volume
    gc.collect()
    del file
    gc.collect()
    del entries, entry
kept = begin()
print("done")
"""


def test_images_that_are_not_closed(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    # Compressible: stored chunks are not decoded ahead.
    (folder / "data").write_bytes(os.urandom(4 << 20).hex().encode())
    path = tmp_path / "a.dmg"
    bandsaw.create(path, source=folder, fs="hfs+", format="UDZO", volname="A").close()
    # Neither the collection of an image nor the end of the interpreter waits for threads that wait for the interpreter.
    done = subprocess.run([sys.executable, "-c", WITHOUT_CLOSING, path], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_an_image_that_is_closed_during_an_operation(dmg: Path) -> None:
    for _ in range(10):
        image = bandsaw.open(Slow(dmg.read_bytes()))
        disk = image.disk
        outcomes: list[object] = []

        def work(image: bandsaw.Image = image, outcomes: list[object] = outcomes) -> None:
            try:
                outcomes.append(image.checksum())
            except ValueError as error:
                outcomes.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        disk.read(1 << 16)
        image.close()
        thread.join(timeout=60)
        assert not thread.is_alive()
        assert len(outcomes) == 1


def test_an_image_in_an_image(bundle: Path, dmg: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer.sparsebundle"
    with bandsaw.create(outer, 32 << 20, fs="hfs+", volname="Outer") as image:
        image.volume().add(dmg)
    with bandsaw.open(outer) as image, image.volume().open("Docs.dmg") as file, bandsaw.open(file) as inner:
        assert names(inner) == LETTERS


def test_errors_of_a_file_object_are_the_cause(dmg: Path) -> None:
    class Broken(Slow):
        broken = False

        def readinto(self, buffer: bytearray, /) -> int:  # type: ignore[override]
            if self.broken:
                raise ConnectionError("the evidence server is gone")
            return super().readinto(buffer)

    source = Broken(dmg.read_bytes())
    with bandsaw.open(source) as image:
        source.broken = True
        with pytest.raises(bandsaw.IoError) as caught:
            image.disk.readall()
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert caught.value.layer == "file_object"
    assert isinstance(caught.value, OSError)


def test_file_objects_cannot_be_changed(dmg: Path) -> None:
    with pytest.raises(bandsaw.ReadOnly):
        bandsaw.open(io.BytesIO(dmg.read_bytes()), writable=True)
    with pytest.raises(TypeError):
        bandsaw.open(12)
    with pytest.raises(TypeError):
        bandsaw.open(io.StringIO("text"))


def test_a_file_object_may_be_closed_before_the_image(dmg: Path) -> None:
    with open(dmg, "rb") as file:
        image = bandsaw.open(file)
    assert names(image) == LETTERS
    image.close()


def test_passphrases(examples: Path) -> None:
    path = examples / "Secret.dmg"
    with pytest.raises(bandsaw.PassphraseNeeded) as caught:
        bandsaw.open(path)
    assert (caught.value.kind, caught.value.reason, caught.value.path) == (
        "wrong_key",
        "passphrase_needed",
        str(path),
    )
    assert isinstance(caught.value, PermissionError)
    with pytest.raises(bandsaw.WrongKey) as wrong:
        bandsaw.open(path, passphrase="wrong")
    assert not isinstance(wrong.value, bandsaw.PassphraseNeeded)
    for passphrase in (PASSPHRASE, PASSPHRASE.encode()):
        with bandsaw.open(path, passphrase=passphrase) as image:
            assert image.encrypted
            assert image.volume().read_bytes("secret.txt") == b"secret\n"


def test_encrypted_volumes(tmp_path: Path, examples: Path) -> None:
    command = os.environ.get("BANDSAW_COMMAND")
    if not command:
        pytest.skip("BANDSAW_COMMAND does not name the command")
    path = tmp_path / "vault.dmg"
    subprocess.run(
        [command, "create", path, "--format", "udrw", "--size", "32m", "--volname", "Vault", "--encrypt-volume",
         "--volume-stdinpass", "--from", examples / "source"],
        check=True, capture_output=True, input=b"open sesame",
    )  # fmt: skip
    with bandsaw.open(path) as image:
        (volume,) = image.volumes
        assert volume.facts.details.encrypted  # type: ignore[union-attr]
        with pytest.raises(bandsaw.VolumeLocked):
            volume.listdir()
    with bandsaw.open(path, passphrase="open sesame") as image:
        assert names(image) == LETTERS


def test_errors(tmp_path: Path, bundle: Path) -> None:
    with pytest.raises(bandsaw.NotFound) as missing:
        bandsaw.open(tmp_path / "missing.dmg")
    assert missing.value.filename == str(tmp_path / "missing.dmg")
    assert missing.value.errno == 2
    assert "does not exist" in str(missing.value)

    text = tmp_path / "letter.txt"
    text.write_bytes(b"not an image\n" * 100)
    with pytest.raises(bandsaw.UnknownFormat) as unknown:
        bandsaw.open(text)
    assert (unknown.value.kind, unknown.value.reason) == ("unsupported", "unknown_format")
    assert not isinstance(unknown.value, OSError)
    with pytest.raises(bandsaw.NotABundle):
        bandsaw.open(tmp_path)
    with pytest.raises(bandsaw.Invalid):
        bandsaw.open(text, format="nonsense")

    locked = tmp_path / "locked.img"
    locked.write_bytes(bytes(1 << 20))
    if os.getuid() != 0:
        locked.chmod(0)
        with pytest.raises(PermissionError):
            bandsaw.open(locked)

    with bandsaw.open(bundle) as image, pytest.raises(bandsaw.NotFound):
        image.volume("Nobody")


def test_corruption_has_a_place(tmp_path: Path, dmg: Path) -> None:
    damaged = bytearray(dmg.read_bytes())
    with bandsaw.open(dmg) as image:
        assert image.verify().intact
    damaged[100:200] = bytes(100)
    path = tmp_path / "damaged.dmg"
    path.write_bytes(damaged)
    with pytest.raises(bandsaw.Corrupt) as caught:
        bandsaw.open(path)
    assert caught.value.layer
    assert caught.value.offset is not None or caught.value.name is not None
    with pytest.raises(bandsaw.Error):
        bandsaw.open(bytes(damaged[: len(damaged) // 2]))


def test_all_classes_of_errors_are_known() -> None:
    source = Path(__file__).parents[3] / "crates/core/src/error/mod.rs"
    if not source.exists():
        pytest.skip("the sources of the library are not here")
    text = source.read_text()
    reasons = {line.split('"')[1].replace("-", "_") for line in text.splitlines() if ' = "' in line and line.startswith("    ")}
    assert reasons == set(bandsaw.errors._BY_REASON)


def test_one_writer_or_many_readers(tmp_path: Path) -> None:
    path = tmp_path / "a.sparseimage"
    with bandsaw.create(path, 16 << 20, fs="hfs+", volname="A") as image:
        with pytest.raises(bandsaw.InUse) as caught:
            bandsaw.open(path)
        assert caught.value.errno == 16
        assert image.volume().listdir() == []
    with bandsaw.open(path), bandsaw.open(path):
        pass


def test_closed_objects(bundle: Path) -> None:
    image = bandsaw.open(bundle)
    volume = image.volume()
    file = volume.open("Letters/a.txt")
    disk = image.disk
    image.close()
    assert file.closed
    assert disk.closed
    for use in (lambda: image.size, volume.listdir, lambda: file.read(1), lambda: disk.read(1), image.info):
        with pytest.raises(ValueError):
            use()


def test_snapshots_of_bundles(tmp_path: Path) -> None:
    path = tmp_path / "a.sparsebundle"
    with bandsaw.create(path, 16 << 20, fs="hfs+", volname="A") as image:
        image.volume().write_bytes("first", b"1")
        image.create_snapshot("monday")
        assert [one.name for one in image.snapshots] == ["monday"]
        image.volume().write_bytes("second", b"2")
        assert sorted(image.volume().listdir()) == ["first", "second"]
        with pytest.raises(bandsaw.Exists):
            image.create_snapshot("monday")
    with bandsaw.open(path, snapshot="monday") as old:
        assert old.volume().listdir() == ["first"]
    with bandsaw.open(path, writable=True) as image:
        image.restore_snapshot("monday")
        assert image.volume().listdir() == ["first"]
        image.delete_snapshot("monday")
        assert image.snapshots == []


def test_shadow_files(bundle: Path, tmp_path: Path) -> None:
    shadow = tmp_path / "over.asif"
    with bandsaw.open(bundle) as image:
        before = image.checksum()
    with bandsaw.open(bundle, shadow=shadow, writable=True) as image:
        image.volume().write_bytes("new.txt", b"new")
    with bandsaw.open(bundle) as image:
        assert image.checksum() == before
    with bandsaw.open(bundle, shadow=shadow) as image:
        assert image.volume().read_bytes("new.txt") == b"new"


def test_nothing_is_left_open(dmg: Path, descriptors: Callable[[], int]) -> None:
    data = io.BytesIO(dmg.read_bytes())

    def once() -> None:
        with bandsaw.open(dmg) as image:
            image.disk.pread(512, 0)
            image.volume().read_bytes("Letters/a.txt")
        with bandsaw.open(data) as image:
            image.volume().listdir()
        with pytest.raises(bandsaw.Error):
            bandsaw.open(b"nothing" * 1000)

    for _ in range(20):
        once()
    gc.collect()
    before = descriptors()
    tracemalloc.start()
    begin = tracemalloc.take_snapshot()
    # Two opens a round, and one that fails.
    rounds = 5000
    for _ in range(rounds):
        once()
    gc.collect()
    grown = sum(max(0, one.size_diff) for one in tracemalloc.take_snapshot().compare_to(begin, "filename"))
    tracemalloc.stop()
    assert descriptors() == before
    assert grown < 200_000, f"{grown} bytes after {rounds} rounds"


IMPORTED = """
import sys
before = set(sys.modules)
import bandsaw
print(*sorted(set(sys.modules) - before))
"""


def test_the_import_is_quick() -> None:
    """The time is spent on modules: those that are loaded are these, and those that the interpreter loads anyway or are small."""
    loaded = subprocess.run([sys.executable, "-I", "-c", IMPORTED], check=True, capture_output=True, text=True)
    modules = set(loaded.stdout.split())
    own = {name for name in modules if name.partition(".")[0] == "bandsaw"}
    assert own == {
        "bandsaw",
        "bandsaw._bandsaw",
        "bandsaw._files",
        "bandsaw._image",
        "bandsaw._volume",
        "bandsaw.errors",
    }
    usual = {
        "__future__", "_collections", "_functools", "_operator", "_typing", "_weakrefset", "atexit", "collections", "collections.abc",
        "contextlib", "errno", "functools", "itertools", "keyword", "operator", "reprlib", "threading", "time", "types",
        "typing", "typing.io", "typing.re", "weakref",
    }  # fmt: skip
    assert modules - own <= usual | _of_typing(), modules - own - usual


def _of_typing() -> set[str]:
    """Returns the modules that `typing` loads, which differ between versions."""
    code = "import sys; before = set(sys.modules); import typing, threading; print(*sorted(set(sys.modules) - before))"
    return set(subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_logical_volumes_of_core_storage_are_named(dmg: Path, tmp_path: Path) -> None:
    with pytest.raises(bandsaw.Error, match="no Core Storage volume"):
        bandsaw.open(dmg, logical_volume="Macintosh HD")
    with bandsaw.create(tmp_path / "plain.img", 8 << 20, format="UDRW"):
        pass
    with pytest.raises(bandsaw.ReadOnly, match="can only be read"):
        bandsaw.open(tmp_path / "plain.img", logical_volume="Macintosh HD", writable=True)
    with pytest.raises(bandsaw.Error):
        bandsaw.open(dmg, physical_volumes=[tmp_path / "absent.img"])


def test_an_encrypted_archive(dmg: Path, tmp_path: Path) -> None:
    needed("aea.murmur")
    aea = needed("aea")
    key, path = bytes(range(32)), tmp_path / "x.dmg.aea"
    path.write_bytes(aea.encode(dmg.read_bytes(), symmetric_key=key))
    with bandsaw.open(dmg) as plain:
        expected = names(plain)
    key_file = tmp_path / "key"
    key_file.write_text(key.hex())
    for given in (key, key.hex(), key_file):
        with bandsaw.open(path, key=given) as image:
            assert names(image) == expected
            assert image.encrypted and "archive" in image.layers
            archive = image.info().archive
            assert archive is not None and (archive.profile, archive.compression) == (1, "lzfse")
    with bandsaw.open(io.BytesIO(path.read_bytes()), key=key) as image:
        assert names(image) == expected
    with pytest.raises(bandsaw.errors.ArchiveKeyNeeded):
        bandsaw.open(path)
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
    private = ec.generate_private_key(ec.SECP256R1())
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    owned = tmp_path / "owned.dmg.aea"
    owned.write_bytes(aea.encode(dmg.read_bytes(), recipient_pub=public))
    with bandsaw.open(owned, key=pem.decode()) as image:
        assert names(image) == expected
    with pytest.raises(bandsaw.errors.ArchivePrivateKeyNeeded):
        bandsaw.open(owned)
    with pytest.raises(bandsaw.errors.WrongArchiveKey):
        bandsaw.open(path, key=bytes(32))
