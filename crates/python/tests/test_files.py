"""File objects against `io.BytesIO`, and concurrent reads."""

from __future__ import annotations

import array
import ctypes
import io
import os
import random
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bandsaw

SIZE = 70_000
DATA = random.Random(1).randbytes(SIZE)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("seek"), st.integers(-SIZE, 2 * SIZE), st.sampled_from([0, 1, 2])),
        st.tuples(st.just("read"), st.integers(-1, SIZE)),
        st.tuples(st.just("readinto"), st.integers(0, SIZE)),
        st.tuples(st.just("tell")),
        st.tuples(st.just("write"), st.binary(max_size=5000)),
        st.tuples(st.just("truncate"), st.integers(0, 2 * SIZE)),
    ),
    max_size=20,
)


def run(file: io.IOBase, step: tuple[object, ...]) -> object:
    name, *arguments = step
    try:
        if name == "readinto":
            buffer = bytearray(arguments[0])  # type: ignore[arg-type]
            count = file.readinto(buffer)  # type: ignore[attr-defined]
            return count, bytes(buffer[:count])
        return getattr(file, str(name))(*arguments)
    except (ValueError, io.UnsupportedOperation) as error:
        return type(error)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bandsaw.Image:
    path = tmp_path_factory.mktemp("files") / "a.sparsebundle"
    image = bandsaw.create(path, 32 << 20, fs="hfs+", volname="A")
    image.volume().write_bytes("data", DATA)
    return image


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_reading_is_that_of_bytesio(image: bandsaw.Image, steps: list[tuple[object, ...]]) -> None:
    model = io.BytesIO(DATA)
    with image.volume().open("data", buffering=0) as file:
        for step in steps:
            if step[0] in ("write", "truncate"):
                continue
            assert run(file, step) == run(model, step), step


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_writing_is_that_of_bytesio(image: bandsaw.Image, steps: list[tuple[object, ...]]) -> None:
    volume = image.volume()
    volume.write_bytes("changed", DATA)
    model = io.BytesIO(DATA)
    with volume.open("changed", "r+b", buffering=0) as file:
        for step in steps:
            expected = run(model, step)
            if step[0] == "truncate":
                # `BytesIO` does not grow by a truncation; files do.
                size = int(str(step[1]))
                at = model.tell()
                if size > len(model.getvalue()):
                    model.seek(0, 2)
                    model.write(bytes(size - len(model.getvalue())))
                    model.seek(at)
                expected = size
            assert run(file, step) == expected, step
    assert volume.read_bytes("changed") == model.getvalue()


def test_modes(image: bandsaw.Image) -> None:
    volume = image.volume()
    with volume.open("text.txt", "w", encoding="utf-8", newline="\n") as text:
        text.write("Grüße\n")
        assert not volume.exists("text.txt")
    assert volume.read_text("text.txt") == "Grüße\n"
    with pytest.raises(bandsaw.Exists):
        volume.open("text.txt", "xb")
    with volume.open("text.txt", "ab") as file:
        file.write(b"more\n")
    with volume.open("text.txt", "r") as text:
        assert text.read() == "Grüße\nmore\n"
    with volume.open("text.txt", "r+b") as both:
        both.seek(6)
        assert both.read(1) == b"e"
        both.seek(0)
        both.write(b"g")
    assert volume.read_bytes("text.txt").startswith(b"gr")
    with volume.open("text.txt", "r+b", fork="data", buffering=0) as raw:
        assert raw.truncate(3) == 3
    assert volume.stat("text.txt").st_size == 3
    for mode in ("", "rw", "q", "rbt"):
        with pytest.raises(ValueError):
            volume.open("text.txt", mode)
    with pytest.raises(IsADirectoryError):
        volume.open("/")
    with pytest.raises(FileNotFoundError):
        volume.open("nothing")
    with volume.open("text.txt") as reader, pytest.raises(io.UnsupportedOperation):
        reader.write(b"x")  # type: ignore[attr-defined]


def test_a_file_that_is_replaced_keeps_its_attributes(image: bandsaw.Image) -> None:
    volume = image.volume()
    volume.write_bytes("kept", b"one")
    volume.set_attributes("kept", mode=0o751, uid=7, gid=8)
    volume.set_xattr("kept", "com.example", b"value")
    before = volume.stat("kept")
    with volume.open("kept", "wb") as file:
        file.write(b"two")
    after = volume.stat("kept")
    assert volume.read_bytes("kept") == b"two"
    assert (after.st_mode & 0o7777, after.st_uid, after.st_gid) == (0o751, 7, 8)
    assert after.st_birthtime_ns == before.st_birthtime_ns
    assert volume.xattrs("kept") == {"com.example": b"value"}


def test_closing_the_image_writes_the_buffers(tmp_path: Path) -> None:
    with bandsaw.create(tmp_path / "a.sparsebundle", 32 << 20, fs="hfs+", volname="A") as image:
        file = image.volume().open("late", "w")
        file.write("late")
    with bandsaw.open(tmp_path / "a.sparsebundle", writable=True) as image:
        assert image.volume().read_text("late") == "late"
        with pytest.raises((bandsaw.LimitExceeded, OSError)), image.volume().open("huge", "wb", buffering=0) as raw:
            for _ in range(40):
                raw.write(bytes(1 << 20))
        assert image.volume().listdir() == ["late"]


def test_buffers(image: bandsaw.Image) -> None:
    with image.volume().open("data", buffering=0) as file:
        exact = bytearray(100)
        assert file.pread_into(exact, 5) == 100
        assert exact == DATA[5:105]
        view = memoryview(bytearray(100))[10:20]
        assert file.pread_into(view, 5) == 10
        assert view == DATA[5:15]
        for wrong in (b"read-only", memoryview(bytearray(100))[::2], "text", 5):
            with pytest.raises((BufferError, TypeError)):
                file.pread_into(wrong, 0)  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            file.pread(1, -1)
        assert file.pread(10, SIZE) == b""
        assert file.pread(10, 1 << 62) == b""
        assert file.tell() == 0


def test_buffers_of_other_elements(image: bandsaw.Image) -> None:
    volume = image.volume()
    with volume.open("data", buffering=0) as file:
        for buffer in (
            array.array("H", bytes(200)),
            array.array("d", bytes(200)),
            memoryview(bytearray(200)).cast("I"),
            memoryview(bytearray(200)).cast("B", (10, 20)),
            (ctypes.c_uint16 * 100)(),
        ):
            file.seek(5)
            assert file.readinto(buffer) == 200
            assert bytes(memoryview(buffer).cast("B")) == DATA[5:205]
            assert file.tell() == 205
            assert file.pread_into(buffer, 7) == 200
            assert bytes(memoryview(buffer).cast("B")) == DATA[7:207]
        with io.BufferedReader(image.open_disk()) as disk:
            words = array.array("Q", bytes(64))
            disk.seek(512)
            assert disk.readinto(words) == 64
            assert words.tobytes()[:8] == b"EFI PART"
        # Bytes of a file are no references to objects.
        with pytest.raises(BufferError):
            file.pread_into((ctypes.py_object * 2)(), 0)
        with pytest.raises(BufferError):
            file.readinto(memoryview(array.array("H", bytes(200)))[::2])
    numbers = array.array("H", range(1000))
    assert volume.write_bytes("numbers", numbers) == 2000
    assert volume.read_bytes("numbers") == numbers.tobytes()
    with volume.open("numbers", "r+b", buffering=0) as file:
        assert file.write(array.array("I", [1, 2])) == 8
        assert file.tell() == 8
        assert file.pwrite(memoryview(numbers).cast("B").cast("H"), 10) == 2000
        with pytest.raises(BufferError):
            file.write(memoryview(numbers)[::2])
        with pytest.raises(BufferError):
            file.pwrite(memoryview(numbers)[::-1], 0)
    assert volume.read_bytes("numbers")[:10] == array.array("I", [1, 2]).tobytes() + numbers.tobytes()[8:10]
    assert volume.read_bytes("numbers")[10:] == numbers.tobytes()
    volume.set_xattr("numbers", "com.example", numbers[:4])
    assert volume.xattrs("numbers") == {"com.example": numbers[:4].tobytes()}
    with pytest.raises(BufferError):
        volume.write_bytes("refused", memoryview(numbers)[::2])
    assert not volume.exists("refused")
    volume.remove("numbers")


def test_an_image_in_an_array(tmp_path: Path, examples: Path) -> None:
    path = tmp_path / "a.img"
    bandsaw.create(path, 4 << 20, source=examples / "source", fs="hfs+", format="UDRW").close()
    with bandsaw.open(path) as image, bandsaw.open(array.array("Q", path.read_bytes())) as other:
        assert other.size == image.size
        assert other.checksum() == image.checksum()


def test_extents(image: bandsaw.Image) -> None:
    extents = list(image.extents())
    assert extents[0].offset == 0
    for one, next_one in zip(extents, extents[1:], strict=False):
        assert one.offset + one.length == next_one.offset
        assert one.kind != next_one.kind
    assert extents[-1].offset + extents[-1].length == image.size
    assert {one.kind for one in extents} <= {"hole", "zero", "data"}
    assert list(image.extents(512, 1024)) == [(512, 512, "data")]


def test_threads_share_a_file(image: bandsaw.Image) -> None:
    failures: list[BaseException] = []
    with image.volume().open("data", buffering=0) as file:

        def work(seed: int) -> None:
            draw = random.Random(seed)
            try:
                for _ in range(200):
                    at, size = draw.randrange(SIZE), draw.randrange(5000)
                    assert file.pread(size, at) == DATA[at : at + size]
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_the_disk_is_what_the_command_converts(image: bandsaw.Image, tmp_path: Path) -> None:
    image.volume().sync()
    image.convert(tmp_path / "copy.img", format="UDRW")
    assert image.disk.pread(-1, 0) == (tmp_path / "copy.img").read_bytes()
    with image.open_disk() as one, image.open_disk() as other:
        one.seek(512)
        assert (one.read(8), other.tell()) == (b"EFI PART", 0)
    assert image.disk.seek(-512, os.SEEK_END) == image.size - 512
