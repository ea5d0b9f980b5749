"""Forensic stacks over file objects of the package: dissect.target, pytsk3, dfVFS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bandsaw
from conftest import needed

LETTERS = {"/Letters/a.txt": b"Dear A\n", "/Letters/b.txt": b"Dear B\n"}


@pytest.fixture(params=["sparsebundle", "sparseimage", "dmg", "asif"])
def evidence(request: pytest.FixtureRequest, tmp_path: Path, examples: Path) -> Path:
    path = tmp_path / f"evidence.{request.param}"
    format = "UDZO" if request.param == "dmg" else None
    bandsaw.create(path, 32 << 20, format=format, source=examples / "source", fs="hfs+", volname="Docs").close()
    return path


def test_dissect_target(evidence: Path) -> None:
    needed("dissect.target")
    from dissect.target import Target

    import bandsaw.dissect

    bandsaw.dissect.register()
    bandsaw.dissect.register()
    target = Target.open(evidence)
    (disk,) = target.disks
    assert disk.__type__ == "bandsaw"
    (filesystem,) = target.filesystems
    assert filesystem.__type__ == "bandsaw"
    root = filesystem.path("/")
    assert sorted(path.name for path in root.joinpath("Letters").iterdir()) == ["a.txt", "b.txt"]
    for path, contents in LETTERS.items():
        assert filesystem.path(path).read_bytes() == contents
        assert filesystem.path(path).stat().st_size == 7
    assert [names for _, _, names in filesystem.walk("/Letters")] == [["a.txt", "b.txt"]]
    with pytest.raises(FileNotFoundError):
        filesystem.path("/nothing").read_bytes()


def test_dissect_target_with_apfs(tmp_path: Path) -> None:
    needed("dissect.target")
    from dissect.target import Target

    import bandsaw.dissect

    bandsaw.dissect.register()
    path = tmp_path / "two.dmg"
    bandsaw.create(path, 1 << 30, format="UDRW", volname="One", volumes=["Two"]).close()
    with bandsaw.open(path, writable=True) as image:
        with image.volume("Two") as volume:
            volume.write_bytes("x", b"two")
        image.volume("One").symlink("y", "link")
        image.volume("One").write_bytes("y", b"one")
    target = Target.open(path)
    found = {one.bandsaw_volume.name: one for one in target.filesystems if one.__type__ == "bandsaw"}
    assert set(found) == {"One", "Two"}
    assert found["Two"].path("/x").read_bytes() == b"two"
    assert found["One"].path("/link").read_bytes() == b"one"
    assert found["One"].path("/link").is_symlink()


def test_tools_of_dissect(evidence: Path) -> None:
    needed("dissect.target")
    folder = subprocess.run(
        [sys.executable, "-m", "bandsaw.dissect"], check=True, capture_output=True, text=True
    ).stdout.strip()
    tool = Path(sys.executable).with_name("target-fs")
    environment = {**os.environ, "DISSECT_PLUGINS": folder}
    done = subprocess.run([tool, evidence, "cat", "/Letters/a.txt"], capture_output=True, env=environment)
    assert done.stdout == b"Dear A\n", done.stderr.decode()


def test_pytsk3(evidence: Path) -> None:
    pytsk3 = needed("pytsk3")

    class DiskInfo(pytsk3.Img_Info):  # type: ignore[misc,name-defined]
        def __init__(self, disk: bandsaw.Disk) -> None:
            self.disk = disk
            super().__init__(url="")

        def read(self, offset: int, size: int) -> bytes:
            return self.disk.pread(size, offset)

        def get_size(self) -> int:
            return self.disk.size

    with bandsaw.open(evidence) as image:
        info = DiskInfo(image.disk)
        fs = pytsk3.FS_Info(info, offset=image.partitions.partitions[0].offset)  # type: ignore[union-attr]
        for path, contents in LETTERS.items():
            file = fs.open(path)
            assert file.read_random(0, file.info.meta.size) == contents


def test_dfvfs(evidence: Path) -> None:
    needed("dfvfs")
    from dfvfs.lib import definitions
    from dfvfs.path.factory import Factory
    from dfvfs.resolver import resolver

    import bandsaw.dfvfs

    bandsaw.dfvfs.register()
    bandsaw.dfvfs.register()
    spec = Factory.NewPathSpec(definitions.TYPE_INDICATOR_OS, location=str(evidence))
    spec = Factory.NewPathSpec(definitions.TYPE_INDICATOR_MODI, parent=spec)
    disk = resolver.Resolver.OpenFileObject(spec)
    with bandsaw.open(evidence) as image:
        assert disk.get_size() == image.size
        partition = image.partitions.partitions[0]  # type: ignore[union-attr]
    disk.seek(512)
    assert disk.read(8) == b"EFI PART"
    spec = Factory.NewPathSpec(
        definitions.TYPE_INDICATOR_DATA_RANGE, range_offset=partition.offset, range_size=partition.size, parent=spec
    )
    spec = Factory.NewPathSpec(definitions.TYPE_INDICATOR_HFS, location="/Letters/a.txt", parent=spec)
    assert resolver.Resolver.OpenFileObject(spec).read() == b"Dear A\n"


def test_dfvfs_with_a_passphrase(examples: Path) -> None:
    needed("dfvfs")
    from dfvfs.lib import definitions, errors
    from dfvfs.path.factory import Factory
    from dfvfs.resolver import resolver

    import bandsaw.dfvfs
    from conftest import PASSPHRASE

    bandsaw.dfvfs.register()
    spec = Factory.NewPathSpec(definitions.TYPE_INDICATOR_OS, location=str(examples / "Secret.dmg"))
    spec = Factory.NewPathSpec(definitions.TYPE_INDICATOR_MODI, parent=spec)
    with pytest.raises(errors.BackEndError):
        resolver.Resolver.OpenFileObject(spec)
    resolver.Resolver.key_chain.SetCredential(spec, "password", PASSPHRASE)
    disk = resolver.Resolver.OpenFileObject(spec)
    disk.seek(512)
    assert disk.read(8) == b"EFI PART"
