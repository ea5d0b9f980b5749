"""Whole images: facts beside those of the command, operations, progress and cancellation."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import bandsaw
from conftest import PASSPHRASE

needs_command = pytest.mark.skipif(
    not os.environ.get("BANDSAW_COMMAND"), reason="BANDSAW_COMMAND does not name the command"
)


def command(*arguments: object) -> dict[str, object]:
    """Runs the command with `--json`."""
    words = [os.environ["BANDSAW_COMMAND"], *map(str, arguments), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, input=PASSPHRASE)
    found = json.loads(done.stdout)
    assert found.pop("schema") == 2
    return dict(found)


@needs_command
@pytest.mark.parametrize(
    ("format", "fs"),
    [
        ("UDRW", "apfs"),
        ("UDSB", "hfs+"),
        ("UDSP", "hfs+j"),
        ("ASIF", "apfs"),
        ("UDZO", "hfs+"),
        ("ULFO", "apfs"),
        ("UDRO", None),
    ],
)
def test_facts_are_those_of_the_command(tmp_path: Path, examples: Path, format: str, fs: str | None) -> None:
    path = tmp_path / "image"
    source = examples / "source" if fs is not None else None
    first = "UDRW" if fs is None else format
    bandsaw.create(path, 40 << 20, format=first, fs=fs, source=source).close()
    if first != format:
        with bandsaw.open(path) as image:
            path = tmp_path / "blank"
            image.convert(path, format=format)
    with bandsaw.open(path) as image:
        assert image.info().to_json() == command("info", path)
        assert image.check().to_json() == command("check", path)
        assert image.checksum("md5") == command("checksum", "--type", "md5", path)["images"][0]["checksum"]  # type: ignore[index]
        if format in ("UDZO", "ULFO", "UDRO"):
            assert {**image.verify().to_json(), "path": str(path)} == command("verify", path)
        else:
            with pytest.raises(bandsaw.Unsupported):
                image.verify()


@needs_command
def test_facts_of_an_encrypted_image(examples: Path) -> None:
    path = examples / "Secret.dmg"
    with bandsaw.open(path, passphrase=PASSPHRASE) as image:
        info = image.info()
        assert info.encryption is not None
        assert info.encryption.key_slots[0].kind == "passphrase"
        assert info.to_json() == command("info", "--stdinpass", path)


def signed(image: bytes) -> bytes:
    """Returns the image with a code signature: hashes of pages of 4 KiB, no certificates."""
    body, trailer = image[:-512], bytearray(image[-512:])
    names = b"org.example.disk\0TEAM\0"
    pages = [hashlib.sha256(body[at : at + 4096]).digest() for at in range(0, len(body), 4096)]
    start, length = 64 + len(names), 64 + len(names) + 32 * len(pages)
    directory = struct.pack(">9I4B", 0xFADE0C02, length, 0x20300, 2, start, 64, 0, len(pages), len(body), 32, 2, 0, 12)
    directory += struct.pack(">6I", 0, 0, 64 + 17, 0, 0, 0)
    blob = struct.pack(">5I", 0xFADE0CC0, 20 + length, 1, 0, 20) + directory + names + b"".join(pages)
    trailer[0x128:0x138] = struct.pack(">QQ", len(body), len(blob))
    return body + blob + trailer


@needs_command
def test_a_code_signature(dmg: Path, tmp_path: Path) -> None:
    path = tmp_path / "signed.dmg"
    whole = signed(dmg.read_bytes())
    for changed in (False, True):
        # A byte of the signed hashes themselves.
        path.write_bytes(whole[:-513] + bytes([whole[-513] ^ 1]) + whole[-512:] if changed else whole)
        with bandsaw.open(path) as image:
            assert image.info().to_json() == command("info", path)
            verified = image.verify()
        assert verified.signature is not None
        assert (verified.signature.identifier, verified.signature.team) == ("org.example.disk", "TEAM")
        assert verified.intact == verified.signature.intact == (not changed)
        if not changed:
            assert {**verified.to_json(), "path": str(path)} == command("verify", path)


def test_reports_have_the_members_of_the_schemas() -> None:
    from bandsaw import _reports

    folder = Path(__file__).parents[3] / "docs/schema"
    if not folder.exists():
        pytest.skip("the schemas are not here")
    common = json.loads((folder / "common.json").read_text())["$defs"]

    def members(schema: dict[str, object]) -> set[str]:
        return set(schema["properties"]) - {"schema"}  # type: ignore[call-overload]

    import dataclasses

    def fields(kind: type) -> set[str]:
        tag = {"kind"} if isinstance(getattr(kind, "kind", None), str) else set()
        return {one.name for one in dataclasses.fields(kind)} | tag

    assert fields(_reports.ImageInfo) == members(json.loads((folder / "info.json").read_text())) - {"map"}
    assert fields(_reports.CheckReport) == members(json.loads((folder / "check.json").read_text()))
    for kind, name in [
        (_reports.Encryption, "encryption"),
        (_reports.Bucket, "bucket"),
        (_reports.Layer, "layer"),
        (_reports.PartitionMap, "partition_map"),
        (_reports.Partition, "partition"),
        (_reports.VolumeFacts, "volume"),
        (_reports.VolumeSnapshot, "volume_snapshot"),
        (_reports.ApfsContainer, "apfs_container"),
        (_reports.Orphans, "orphans"),
        (_reports.RefusedVolume, "refused_volume"),
        (_reports.Snapshot, "snapshot"),
    ]:
        assert fields(kind) == members(common[name]), name
    storages = {one["properties"]["kind"]["const"]: members(one) for one in common["storage"]["oneOf"]}
    for kind in (
        _reports.Raw,
        _reports.SparseBundle,
        _reports.SparseImage,
        _reports.Asif,
        _reports.Udif,
        _reports.ReadOnlyImage,
    ):
        assert fields(kind) == storages[kind.kind]
    details = {one["properties"]["kind"]["const"]: members(one) for one in common["volume_details"]["oneOf"]}
    for kind in (_reports.HfsDetails, _reports.ApfsDetails):
        assert fields(kind) == details[kind.kind]


def test_conversion(dmg: Path, tmp_path: Path) -> None:
    with bandsaw.open(dmg) as image:
        expected = image.checksum()
        for name in ("a.sparsebundle", "a.sparseimage", "a.asif", "a.dmg"):
            format = "ULMO" if name == "a.dmg" else None
            done = image.convert(tmp_path / name, format=format)
            assert done.read_size > 0
            with bandsaw.open(tmp_path / name) as copy:
                assert copy.checksum() == expected
        with pytest.raises(bandsaw.Exists):
            image.convert(tmp_path / "a.dmg")
        with pytest.raises(bandsaw.Invalid):
            image.convert(tmp_path / "nameless")
        image.convert(tmp_path / "secret.dmg", passphrase="p")
    with bandsaw.open(tmp_path / "secret.dmg", passphrase="p") as secret:
        assert secret.encrypted
        assert secret.checksum() == expected
        with pytest.raises(bandsaw.Invalid):
            secret.convert(tmp_path / "plain.dmg")
        secret.convert(tmp_path / "plain.dmg", decrypt=True)


def test_compaction_and_resize(tmp_path: Path) -> None:
    path = tmp_path / "a.sparsebundle"
    with bandsaw.create(path, 64 << 20, fs="hfs+", volname="A", band_size=1 << 20) as image:
        # Storage that no file uses.
        image.disk.pwrite(os.urandom(20 << 20), 30 << 20)
        done = image.compact()
        assert done.reclaimed >= 15 << 20
        assert done.allocated < 8 << 20
        limits = image.resize_limits()
        assert limits.min_size < limits.size == 64 << 20
        planned = image.resize(96 << 20, dry_run=True)
        assert image.size == 64 << 20
        assert [step.action for step in planned.steps][0] == "grow_disk"
        assert image.resize(96 << 20).size == 96 << 20
        assert image.size == 96 << 20
        image.volume().write_bytes("after", b"x")
        with pytest.raises(bandsaw.LimitExceeded):
            image.resize(1 << 20)
        assert image.resize(None).size < 64 << 20
        assert image.volume().read_bytes("after") == b"x"
        assert image.check().sound
    with bandsaw.open(path) as image, pytest.raises(bandsaw.ReadOnly):
        image.compact()


def test_repair_and_undo(tmp_path: Path, examples: Path) -> None:
    path = tmp_path / "a.img"
    bandsaw.create(path, 32 << 20, source=examples / "source", fs="hfs+", format="UDRW").close()
    good = path.read_bytes()
    # The primary header of the GPT.
    bad = bytearray(good)
    bad[512:600] = bytes(88)
    path.write_bytes(bad)
    with bandsaw.open(path) as image:
        assert image.check().conclusion in ("damaged", "warned")
        planned = image.repair(dry_run=True)
        assert (planned.outcome, planned.dry_run) == ("repaired", True)
        assert path.read_bytes() == bytes(bad)
        done = image.repair()
        assert done.outcome == "repaired"
        assert done.undo_path
        assert done.steps
        assert image.check().sound
        assert path.read_bytes() == good
        assert image.undo_repair().repairs == 1
        assert path.read_bytes() == bytes(bad)
        image.repair()
        assert image.commit_repair().repairs == 1
        assert image.repair().outcome == "nothing_to_do"


def test_creation(tmp_path: Path, examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bandsaw.create(tmp_path / "blank.img", 1 << 20, format="UDRW") as blank:
        assert blank.volumes == ()
        blank.disk.pwrite(b"boot", 0)
    with pytest.raises(bandsaw.Exists):
        bandsaw.create(tmp_path / "blank.img", 1 << 20, format="UDRW")
    with pytest.raises(bandsaw.Invalid):
        bandsaw.create(tmp_path / "blank.img2", 1 << 20)
    with pytest.raises(bandsaw.BandSize):
        bandsaw.create(tmp_path / "b.sparsebundle", 1 << 20, band_size=3)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("one.dmg", "two.dmg"):
        bandsaw.create(tmp_path / name, source=examples / "source", fs="hfs+", format="UDZO", volname="A").close()
    assert (tmp_path / "one.dmg").read_bytes() == (tmp_path / "two.dmg").read_bytes()


def test_defaults_are_those_of_the_command(tmp_path: Path) -> None:
    # APFS does not fit.
    with bandsaw.create(tmp_path / "small.img", 600 << 10, format="UDRW", volname="S") as image:
        assert image.volume().file_system.startswith("HFS")
    (tmp_path / "Tool 1.2").mkdir()
    with bandsaw.create(tmp_path / "tool.img", source=tmp_path / "Tool 1.2", format="UDRW") as image:
        assert (image.volume().name, image.volume().file_system[:4]) == ("Tool 1.2", "APFS")
    with bandsaw.create(tmp_path / "disk.img", 8 << 20, format="UDRW", fs="apfs") as image:
        assert image.volume().name == "untitled"
    # macOS opens sparse bundles with bands of multiples of 4096 bytes only.
    with pytest.raises(bandsaw.BandSize, match="the nearest are 2097152 and 2101248"):
        bandsaw.create(tmp_path / "b.sparsebundle", 1 << 20, band_size=2097664)


def test_progress(dmg: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.img"
    with bandsaw.create(large, 512 << 20, format="UDRW") as image:
        for at in range(0, 512 << 20, 8 << 20):
            image.disk.pwrite(os.urandom(1 << 20), at)
    reports: list[tuple[str, int, int]] = []
    threads: set[int] = set()

    def report(stage: str, done: int, total: int) -> None:
        threads.add(threading.get_ident())
        reports.append((stage, done, total))

    with bandsaw.open(large, format="UDRW") as image:
        image.checksum(progress=report)
        assert threads == {threading.get_ident()}
        assert reports[-1] == ("checksum", 512 << 20, 512 << 20)
        assert [done for _, done, _ in reports] == sorted(done for _, done, _ in reports)
        # The units are those of the stage that is named.
        reports.clear()
        for number in range(5):
            image.convert(tmp_path / f"{number}.asif", progress=report)
        before = ("", 0, 0)
        for name, done, total in reports:
            assert done <= total, (name, done, total)
            assert (name, total) != (before[0], before[2]) or done >= before[1] or done == 0
            before = (name, done, total)

        class Bar:
            total = 0
            done = 0
            stages: list[str] = []

            def set_description(self, text: str) -> None:
                self.stages.append(text)

            def reset(self, total: int) -> None:
                self.total, self.done = total, 0

            def update(self, more: int) -> None:
                self.done += more

        bar = Bar()
        image.checksum(progress=bar)
        assert (bar.stages, bar.done, bar.total) == (["checksum"], 512 << 20, 512 << 20)

        class Stop(Exception):
            pass

        def stop(stage: str, done: int, total: int) -> None:
            raise Stop

        with pytest.raises(Stop):
            image.convert(tmp_path / "never.dmg", format="ULMO", progress=stop)
    assert not (tmp_path / "never.dmg").exists()


def test_the_other_threads_run(tmp_path: Path) -> None:
    path = tmp_path / "a.img"
    with bandsaw.create(path, 256 << 20, format="UDRW") as image:
        image.disk.pwrite(os.urandom(64 << 20), 0)
        ticks = 0
        working = True

        def tick() -> None:
            nonlocal ticks
            while working:
                ticks += 1
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        for _ in range(5):
            image.checksum("sha512")
        working = False
        thread.join()
        assert ticks > 20


def test_an_interrupt_stops_at_a_safe_point(tmp_path: Path) -> None:
    program = f"""
import bandsaw, os, sys
path = {str(tmp_path / 'a.img')!r}
with bandsaw.create(path, 1 << 30, format="UDRW") as image:
    for at in range(0, 1 << 30, 1 << 26):
        image.disk.pwrite(os.urandom(1 << 20) * 64, at)
    print("ready", flush=True)
    try:
        image.convert({str(tmp_path / 'b.dmg')!r}, format="ULMO")
    except KeyboardInterrupt:
        sys.exit(42)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 42
    process.stdout.close()
    assert sorted(os.listdir(tmp_path)) == ["a.img"]


def test_the_map_of_a_notebook(bundle: Path, dmg: Path) -> None:
    import xml.etree.ElementTree as xml

    for path in (bundle, dmg):
        with bandsaw.open(path) as image:
            drawn = xml.fromstring(image._repr_svg_())
            cells = [one for one in drawn if one.tag.endswith("rect")]
            assert len(cells) > 4


def test_representations(bundle: Path) -> None:
    with bandsaw.open(bundle) as image:
        volume = image.volume()
        for one in (image, image.disk, volume, volume.path("a"), volume.stat(), next(iter(volume.scandir()))):
            assert "object at 0x" not in repr(one)
    assert "closed" in repr(image)
