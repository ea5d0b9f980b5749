"""Objects that are shared by threads. Without a global interpreter lock these run in parallel."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import bandsaw

THREADS = 8
DATA = os.urandom(300_000)
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def hammer(work: Callable[[int], object], rounds: int) -> None:
    """Calls `work` with the number of the thread, `rounds` times in each of the threads at the same time."""
    failures: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        try:
            start.wait()
            for _ in range(rounds):
                work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.fixture(params=["hfs+", "apfs"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An image with a file and 200 more in folders."""
    path = tmp_path / "Shared.sparsebundle"
    with bandsaw.create(path, 32 << 20, fs=request.param, volname="Shared") as image:
        volume = image.volume()
        volume.write_bytes("data", DATA)
        for folder in range(10):
            volume.mkdir(f"/{folder}")
            for number in range(20):
                volume.write_bytes(f"/{folder}/{number}", b"%d" % number)
    return path


@pytest.mark.skipif(not FREE_THREADED, reason="the interpreter has a global lock")
def test_the_lock_of_the_interpreter_stays_disabled() -> None:
    program = "import bandsaw, bandsaw.dmg, sys; print(sys._is_gil_enabled())"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    command = [sys.executable, "-W", "error", "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert (found.stdout.strip(), found.stderr) == ("False", "")


def test_one_image_is_read(shared: Path) -> None:
    with bandsaw.open(shared) as image:
        volume = image.volume()
        disk = image.disk.pread(-1, 0)
        checksum = image.checksum()
        paths = sorted(entry.path for entry in volume.find())
        buffer = bytearray(4096)

        def work(number: int) -> None:
            at = number * 4096
            assert image.disk.pread(8192, at) == disk[at : at + 8192]
            assert image.disk.pread_into(buffer, 512) == len(buffer)
            with image.open_disk() as own:
                own.seek(at)
                assert own.read(100) == disk[at : at + 100]
            assert image.volume("Shared") is volume
            assert image.info().volumes[0].name == "Shared"
            assert sum(extent.length for extent in image.extents()) == len(disk)
            assert volume.read_bytes("data") == DATA
            with volume.open("data") as file:
                assert file.read(1000) == DATA[:1000]
            assert volume.stat("data").st_size == len(DATA)
            assert volume.xattrs("data") == {}
            assert sorted(entry.path for entry in volume.find()) == paths
            with pytest.raises(FileNotFoundError):
                volume.stat("missing")
            if number == 0:
                assert image.checksum() == checksum

        hammer(work, 5)
        assert buffer == disk[512 : 512 + len(buffer)]
        entries = volume.find()
        found: list[str] = []
        hammer(lambda _: found.extend(entry.path for entry in entries), 1)
        assert sorted(found) == paths


def test_one_image_is_closed_and_opened_by_all(shared: Path) -> None:
    with bandsaw.open(shared, writable=True) as image:

        def work(number: int) -> None:
            try:
                if number == 0:
                    assert image.check().sound
                elif number == 1:
                    image.volume().close()
                else:
                    assert image.volume().read_bytes("data") == DATA
                    image.open_disk().pread(512, 0)
            except bandsaw.InUse:
                assert number == 0
            except bandsaw.Conflict as error:
                # Requests to the volume that was closed have not ended yet.
                assert "close it first" in str(error), error
            except ValueError as error:
                assert "closed" in str(error), error

        hammer(work, 10)
        assert image.volume().read_bytes("data") == DATA
    hammer(lambda _: image.close(), 1)


def test_a_volume_is_closed_with_the_image_that_was_opened_again(shared: Path) -> None:
    with bandsaw.open(shared, writable=True) as image:
        volume = image.volume()
        assert image.check().sound
        volume.write_bytes("/after", b"after")
    with bandsaw.open(shared, writable=True) as image:
        assert image.volume().read_bytes("/after") == b"after"
        assert volume.name == "Shared"


def test_one_volume_is_changed(shared: Path) -> None:
    with bandsaw.open(shared, writable=True) as image:
        volume = image.volume()
        file = volume.open("data", "r+b", buffering=0)

        def work(number: int) -> None:
            volume.write_bytes(f"/new{number}", DATA[:number], overwrite=True)
            volume.rename(f"/new{number}", f"/{number}/moved{number}", replace=True)
            volume.set_xattr(f"/{number}", "test", b"%d" % number)
            part = bytes([number]) * 4096
            assert file.pwrite(part, number * 4096) == len(part)
            assert file.pread(len(part), number * 4096) == part
            try:
                with volume.open("/common", "wb") as common:
                    common.write(part)
                volume.remove("/common")
            except FileNotFoundError:
                pass  # removed by another thread

        hammer(work, 10)
        file.close()
        assert image.check().sound
        volume = image.volume()
        for number in range(THREADS):
            assert volume.read_bytes(f"/{number}/moved{number}") == DATA[:number]
            assert volume.xattrs(f"/{number}") == {"test": b"%d" % number}
        assert volume.read_bytes("data")[: THREADS * 4096 + 1] == (
            b"".join(bytes([number]) * 4096 for number in range(THREADS)) + DATA[THREADS * 4096 :][:1]
        )
        assert sorted(volume.listdir()) == sorted([*map(str, range(10)), "data", *hidden(volume)])


def hidden(volume: bandsaw.Volume) -> list[str]:
    """Returns what the file system keeps in its root."""
    return [name for name in volume.listdir() if name.startswith(".")]


def test_one_image_is_converted(shared: Path, tmp_path: Path) -> None:
    with bandsaw.open(shared) as image:
        checksum = image.checksum()
        stages: list[set[str]] = [set() for _ in range(THREADS)]

        def work(number: int) -> None:
            target = tmp_path / f"{number}.dmg"
            image.convert(target, format="UDZO", progress=lambda stage, done, total: stages[number].add(stage))
            with bandsaw.open(target) as copy:
                assert copy.checksum() == checksum

        hammer(work, 1)
