"""Measures the package beside the command and other libraries: medians of pairs in one run, as ratios.

python bench.py [--files 50000] [--pairs 5] [--command target/release/bandsaw]

Needs the wheel as users build it (`PROFILE=release`), dissect.apfs, pyfsapfs and pyfshfs.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bandsaw

PIECE = 1 << 20


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def pairs(count: int, theirs: Callable[[], object], ours: Callable[[], object]) -> tuple[float, float, float]:
    """Returns the median of the ratio of each pair, and the medians of both times."""
    times = [(seconds(theirs), seconds(ours)) for _ in range(count + 1)][1:]
    ratios = [one / other for one, other in times]
    return statistics.median(ratios), *(statistics.median(column) for column in zip(*times, strict=True))


def row(what: str, goal: float, found: tuple[float, float, float]) -> None:
    ratio, theirs, ours = found
    verdict = "met" if ratio >= goal else "missed"
    print(f"| {what} | {theirs:.3f} s | {ours:.3f} s | {ratio:.2f} | {goal} | {verdict} |", flush=True)


def read_disk(image: bandsaw.Image) -> None:
    buffer = bytearray(8 << 20)
    with image.open_disk() as disk:
        while disk.readinto(buffer):
            pass


def read_all(file: Any) -> None:
    buffer = bytearray(PIECE)
    file.seek(0)
    while file.readinto(buffer):
        pass


class Evidence(io.RawIOBase):
    """A file object in Python, as a reader of another container has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = open(path, "rb", buffering=0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self.file.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int | None:
        return self.file.readinto(buffer)


def libyal_list(entry: Any) -> int:
    count = 0
    for at in range(entry.get_number_of_sub_file_entries()):
        child = entry.get_sub_file_entry(at)
        child.get_name(), child.get_size(), child.get_file_mode(), child.get_modification_time_as_integer()
        child.get_owner_identifier(), child.get_creation_time_as_integer()
        count += 1 + libyal_list(child)
    return count


def libyal_read(entry: Any) -> int:
    count = 0
    for at in range(entry.get_number_of_sub_file_entries()):
        child = entry.get_sub_file_entry(at)
        if child.get_file_mode() & 0o170000 == 0o100000:
            count += len(child.read_buffer(child.get_size()))
        count += libyal_read(child)
    return count


def dissect_list(node: Any) -> int:
    count = 0
    for entry in node.iterdir():
        inode = entry.inode
        entry.name, inode.size, inode.mode, inode.mtime, inode.uid, inode.btime
        count += 1
        if entry.is_dir():
            count += dissect_list(inode)
    return count


def dissect_read(node: Any) -> int:
    count = 0
    for entry in node.iterdir():
        inode = entry.inode
        if entry.is_dir():
            count += dissect_read(inode)
        else:
            count += len(inode.open().read())
    return count


def ours_list(volume: bandsaw.Volume) -> int:
    count = 0
    for entry in volume.find():
        of = entry.stat()
        entry.path, of.st_size, of.st_mode, of.st_mtime_ns, of.st_uid, of.st_birthtime_ns
        count += 1
    return count


def ours_read(volume: bandsaw.Volume) -> int:
    return sum(len(volume.read_bytes(entry)) for entry in volume.find() if entry.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--size", type=int, default=512, help="MiB of the disks that are read")
    parser.add_argument("--command", default=os.environ.get("BANDSAW_COMMAND"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bandsaw-bench.") as folder:
        measure(Path(folder), options)


def measure(folder: Path, options: argparse.Namespace) -> None:
    print("| what | other | bandsaw | ratio | goal | |\n| --- | --- | --- | --- | --- | --- |")
    raw = folder / "disk.img"
    size = options.size << 20
    with bandsaw.create(raw, size, format="UDRW") as image:
        text = b"".join(b"%d bottles of beer on the wall, %d bottles of beer\n" % (n, n) for n in range(400_000))
        for at in range(0, size, 16 << 20):
            image.disk.pwrite((os.urandom(1 << 20) + text)[: 16 << 20], at)
    images = {"a UDZO image": folder / "disk.dmg", "an encrypted bundle": folder / "disk.sparsebundle"}
    with bandsaw.open(raw, format="UDRW") as image:
        image.convert(images["a UDZO image"], format="UDZO")
        image.convert(images["an encrypted bundle"], passphrase="p")
    if options.command:
        for name, path in images.items():
            key = ["--stdinpass", "--decrypt"] if path.suffix == ".sparsebundle" else []

            def command(path: Path = path, key: list[str] = key) -> None:
                words = [options.command, "convert", path, "-", *key]
                reader = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                assert reader.stdin is not None and reader.stdout is not None
                reader.stdin.write(b"p")
                reader.stdin.close()
                buffer = bytearray(8 << 20)
                total = 0
                while count := reader.stdout.readinto(buffer):  # type: ignore[attr-defined]
                    total += count
                assert reader.wait() == 0 and total == size, total

            def ours(path: Path = path) -> None:
                with bandsaw.open(path, passphrase="p") as image:
                    read_disk(image)

            row(f"read {name} through `disk`, beside the command", 0.95, pairs(options.pairs, command, ours))

    with Evidence(raw) as below, bandsaw.open(below, format="UDRW") as image:

        def above(image: bandsaw.Image = image) -> None:
            with image.open_disk() as disk:
                read_all(disk)

        row("`disk` over a Python file object, beside the object", 0.7, pairs(options.pairs, lambda: read_all(below), above))

    source = folder / "source"
    for number in range(options.files):
        where = source / f"{number // 500:03}"
        if number % 500 == 0:
            where.mkdir(parents=True)
        (where / f"file {number}.txt").write_bytes(b"%d" % number * 200)
    for fs in ("apfs", "hfs+"):
        path = folder / f"{fs}.img"
        bandsaw.create(path, format="UDRW", fs=fs, source=source, volname="Files").close()
        with bandsaw.open(path) as image:
            partition = image.partitions.partitions[0]  # type: ignore[union-attr]
            data = image.disk.pread(partition.size, partition.offset)
            count = ours_list(image.volume())

        def ours_open(work: Callable[[bandsaw.Volume], int], data: bytes = data) -> Callable[[], None]:
            def run() -> None:
                with bandsaw.open(data, format="UDRW") as image:
                    work(image.volume())

            return run

        peers: list[tuple[str, float, Callable[[], None], Callable[[], None]]] = []
        if fs == "apfs":
            import pyfsapfs
            from dissect.apfs import APFS

            def libyal(work: Callable[[Any], int], data: bytes = data) -> Callable[[], None]:
                def run() -> None:
                    container = pyfsapfs.container()
                    container.open_file_object(io.BytesIO(data))
                    work(container.get_volume(0).get_root_directory())

                return run

            def dissect(work: Callable[[Any], int], data: bytes = data) -> Callable[[], None]:
                return lambda: work(APFS(io.BytesIO(data)).volumes[0].get("/")) and None

            peers = [
                ("dissect.apfs", 20, dissect(dissect_list), dissect(dissect_read)),
                ("pyfsapfs", 5, libyal(libyal_list), libyal(libyal_read)),
            ]
        else:
            import pyfshfs

            def hfs(work: Callable[[Any], int], data: bytes = data) -> Callable[[], None]:
                def run() -> None:
                    volume = pyfshfs.volume()
                    volume.open_file_object(io.BytesIO(data))
                    work(volume.get_root_directory())

                return run

            peers = [("pyfshfs", 5, hfs(libyal_list), hfs(libyal_read))]
        for name, goal, list_all, read_files in peers:
            found = pairs(options.pairs, list_all, ours_open(ours_list))
            row(f"list {count} objects of {fs.upper()}, beside {name}", goal, found)
            found = pairs(options.pairs, read_files, ours_open(ours_read))
            row(f"read {options.files} files of {fs.upper()}, beside {name}", 3, found)


if __name__ == "__main__":
    main()
