"""Images that were changed at random: an exception or an answer, never an abort, a hang or a panic."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import bandsaw


def exercise(data: bytes) -> None:
    try:
        with bandsaw.open(data) as image:
            image.info()
            for volume in image.volumes:
                for number, entry in enumerate(volume.find()):
                    if entry.is_file() and entry.size < 1 << 24:
                        volume.read_bytes(entry)
                    volume.xattrs(entry)
                    if number > 200:
                        break
            image.disk.pread(1 << 16, 0)
            image.check()
    except (bandsaw.Error, MemoryError):
        pass


@pytest.fixture(scope="module", params=[("hfs+", "UDZO"), ("apfs", "UDRW"), ("hfs+j", "UDSP"), ("apfs", "ASIF")])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, examples: Path) -> bytes:
    fs, format = request.param
    path = tmp_path_factory.mktemp("hostile") / "image"
    bandsaw.create(path, 8 << 20, source=examples / "source", fs=fs, format=format).close()
    return path.read_bytes()


def test_changed_bytes(sound: bytes) -> None:
    draw = random.Random(len(sound))
    used = [at for at in range(0, len(sound), 512) if any(sound[at : at + 512])]
    for _ in range(int(os.environ.get("BANDSAW_HOSTILE", "60"))):
        data = bytearray(sound)
        for _ in range(draw.randrange(1, 8)):
            at = draw.choice(used) + draw.randrange(512)
            value = draw.choice([bytes(1), b"\xff", draw.randbytes(1), b"\xff" * 4, draw.randbytes(8)])
            data[at : at + len(value)] = value
        exercise(bytes(data[: len(sound)]))


def test_truncation(sound: bytes) -> None:
    draw = random.Random(2)
    for length in [0, 1, 511, 512, 4096, *(draw.randrange(len(sound)) for _ in range(20))]:
        exercise(sound[:length])


def test_noise() -> None:
    draw = random.Random(3)
    for magic in (b"koly", b"shdw", b"sprs", b"encrcdsa", b"cdsaencr", b"EFI PART", b"NXSB", b""):
        exercise(magic + draw.randbytes(8192))


def test_reads_beyond_memory(tmp_path: Path) -> None:
    with bandsaw.create(tmp_path / "huge.sparsebundle", 1 << 60, format="UDSB") as image:
        assert image.size == 1 << 60
        with pytest.raises((MemoryError, bandsaw.LimitExceeded, OverflowError)):
            image.disk.read()
        assert image.disk.pread(16, (1 << 60) - 8) == bytes(8)
        assert [one.kind for one in image.extents()] == ["hole"]
