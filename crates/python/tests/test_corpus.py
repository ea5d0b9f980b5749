"""The corpus of real images, and other readers of the same files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

import bandsaw
from conftest import needed

CORPUS = os.environ.get("BANDSAW_CORPUS")
pytestmark = pytest.mark.skipif(not CORPUS, reason="BANDSAW_CORPUS does not name the corpus")


def images() -> list[Path]:
    """Files and bundles of the corpus that the package opens without a key."""
    found = []
    for folder, folders, files in os.walk(CORPUS or "/nonexistent"):
        bundles = [name for name in folders if name.endswith(".sparsebundle")]
        for name in bundles:
            folders.remove(name)
        found += [Path(folder, name) for name in bundles + files if not name.endswith((".md", ".json", ".txt"))]
    return sorted(found)


def relative(path: Path) -> str:
    return str(path.relative_to(CORPUS or "/"))


@pytest.mark.parametrize("path", images(), ids=relative)
def test_every_image_opens_or_says_why(path: Path) -> None:
    try:
        image = bandsaw.open(path)
    except bandsaw.Error as error:
        assert error.kind != "other"
        assert error.message
        return
    with image:
        info = image.info()
        assert info.format == image.format
        assert info.size == image.size
        for volume in image.volumes:
            if not volume.readable or volume.facts.problem is not None:
                continue
            try:
                count = sum(1 for _ in zip(range(2000), volume.find(), strict=False))
            except bandsaw.VolumeLocked:
                continue
            except bandsaw.Corrupt:
                assert not image.check().sound
                continue
            assert count or volume.usage()["files"] == 0


@pytest.mark.parametrize("path", images(), ids=relative)
def test_disks_are_those_of_pymodi(path: Path) -> None:
    pymodi = needed("pymodi")
    if path.is_dir():
        pytest.skip("pymodi reads bundles by their bands")
    try:
        image = bandsaw.open(path)
    except bandsaw.Error as error:
        pytest.skip(f"does not open: {error.kind}")
    with image:
        if image.size > 1 << 28 or image.encrypted:
            pytest.skip("large or encrypted")
        handle = pymodi.handle()
        try:
            handle.open(str(path))
            size = handle.get_media_size()
            theirs = hashlib.sha256()
            left = size
            while left:
                piece = handle.read(min(left, 1 << 20))
                if not piece:
                    break
                theirs.update(piece)
                left -= len(piece)
        except OSError as error:
            pytest.skip(f"pymodi does not read it: {str(error).splitlines()[0][:80]}")
        finally:
            if handle:
                try:
                    handle.close()
                except OSError:
                    pass
        if left:
            pytest.skip("pymodi reads a part only")
        if size < image.size:
            # pymodi ends a disk at its last table.
            ours = hashlib.sha256(image.disk.pread(size, 0)).hexdigest()
            assert not any(image.disk.pread(-1, size))
        else:
            ours = image.checksum()
        assert theirs.hexdigest() == ours
