"""Reports as data classes, with the names of the JSON output (`docs/json.md`)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

__all__ = [
    "Added",
    "ApfsContainer",
    "ApfsDetails",
    "Asif",
    "Bucket",
    "CheckReport",
    "CheckedLayer",
    "Compacted",
    "Converted",
    "Encryption",
    "Extracted",
    "Finding",
    "HfsDetails",
    "ImageInfo",
    "KeySlot",
    "Layer",
    "Loss",
    "Message",
    "Orphans",
    "Partition",
    "PartitionMap",
    "Problem",
    "ReadOnlyImage",
    "RepairReport",
    "RepairStep",
    "ResizeLimits",
    "ResizeReport",
    "ResizeStep",
    "Snapshot",
    "SparseBundle",
    "SparseImage",
    "StoredChecksum",
    "Udif",
    "UndoReport",
    "VerifyReport",
    "VolumeFacts",
    "VolumeSnapshot",
]


class Report:
    """A report. `to_json` returns what the command prints, as dictionaries and lists."""

    def to_json(self) -> dict[str, Any]:
        """Returns the members that are set, in the form of the JSON output."""
        found: dict[str, Any] = {}
        kind = getattr(type(self), "kind", None)
        if isinstance(kind, str):
            found["kind"] = kind
        for one in dataclasses.fields(self):  # type: ignore[arg-type]
            value = _to_json(getattr(self, one.name))
            if value is not None:
                found[one.name] = value
        return found


@dataclass(frozen=True)
class Message(Report):
    """A text for people."""

    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Problem(Report):
    """An error in a report, with the members of `bandsaw.Error`."""

    kind: str
    message: str
    layer: str
    reason: str | None = None
    path: str | None = None
    offset: int | None = None
    name: str | None = None


@dataclass(frozen=True)
class KeySlot(Report):
    """A key slot of an encrypted image, by kind: `passphrase`, `public_key` or `unknown`."""

    number: int
    kind: str
    iterations: int | None = None
    key_wrap: str | None = None
    id: str | None = None
    bits: int | None = None
    kind_number: int | None = None
    message: str | None = None


@dataclass(frozen=True)
class Encryption(Report):
    """The encryption of an image."""

    version: int
    key_bits: int
    block_size: int
    uuid: str
    size: int
    key_slots: list[KeySlot]
    max_key_slots: int
    locked: bool


@dataclass(frozen=True)
class Archive(Report):
    """The encrypted or signed archive that contains an image. `signature` is `none`, `verified` or `unverified`."""

    profile: int
    profile_name: str
    encrypted: bool
    signature: str
    metadata_size: int
    locked: bool
    metadata: list[str] | None = None
    contents_size: int | None = None
    compression: str | None = None
    checksum: str | None = None
    segment_size: int | None = None
    segments_per_cluster: int | None = None
    segments: int | None = None


@dataclass(frozen=True)
class Bucket(Report):
    """The state of a bundle in a bucket."""

    writers: int
    lagging: int
    snapshots: int
    writer: str | None = None


@dataclass(frozen=True)
class Raw(Report):
    """A raw image: the disk, byte for byte."""

    kind = "raw"


@dataclass(frozen=True)
class SparseBundle(Report):
    """A sparse bundle."""

    kind = "sparse_bundle"
    version: int
    band_size: int
    bands: int
    allocated_bands: int
    rebanding: bool
    bands_size: int


@dataclass(frozen=True)
class SparseImage(Report):
    """A sparse image."""

    kind = "sparse_image"
    band_size: int
    bands: int
    allocated_bands: int
    unused_slots: int
    nodes: int
    file_size: int


@dataclass(frozen=True)
class Asif(Report):
    """An Apple sparse image."""

    kind = "asif"
    uuid: str
    layer_role: str
    sector_size: int
    chunk_size: int
    data_chunks: int
    table_chunks: int
    bitmap_chunks: int
    chunks: int
    file_size: int
    user_metadata: list[str]
    stable_uuid: str | None = None
    parent: str | None = None
    changes_refused: Message | None = None
    metadata_changes_refused: Message | None = None


@dataclass(frozen=True)
class CodeSignature(Report):
    """A code signature: its place, and what it says. `None` for what could not be read."""

    offset: int
    size: int
    identifier: str | None = None
    team: str | None = None
    algorithms: list[str] | None = None
    certified: bool | None = None
    ticket: bool | None = None


@dataclass(frozen=True)
class Udif(Report):
    """A UDIF image (`.dmg`)."""

    kind = "udif"
    chunks: int
    max_chunk_size: int
    stored_size: int
    decoded_size: int
    tables: int
    segments: int
    signed: bool
    resource_types: list[str]
    signature: CodeSignature | None = None


@dataclass(frozen=True)
class ReadOnlyImage(Report):
    """An image of another format that is only read. `facts` are for people, by name."""

    kind = "read_only_image"
    facts: dict[str, str]


@dataclass(frozen=True)
class Layer(Report):
    """A layer over an image."""

    path: str
    size: int
    allocated: int
    uuid: str
    layer_role: str
    sector_size: int
    chunk_size: int
    data_chunks: int
    table_chunks: int
    bitmap_chunks: int
    chunks: int
    file_size: int
    user_metadata: list[str]
    stable_uuid: str | None = None
    parent: str | None = None
    changes_refused: Message | None = None
    metadata_changes_refused: Message | None = None


@dataclass(frozen=True)
class Partition(Report):
    """A partition of a disk. `offset` and `size` are in bytes."""

    number: int
    partition_type: str
    partition_type_id: str
    name: str
    offset: int
    size: int
    flags: int
    uuid: str | None = None


@dataclass(frozen=True)
class PartitionMap(Report):
    """The partition map of a disk: `gpt`, `apm` or `mbr`."""

    scheme: str
    block_size: int
    partitions: list[Partition]
    uuid: str | None = None


@dataclass(frozen=True)
class HfsDetails(Report):
    """Properties of HFS+ volumes alone."""

    kind = "hfs_plus"
    journaled: bool
    clean: bool


@dataclass(frozen=True)
class VolumeSnapshot(Report):
    """A snapshot of an APFS volume."""

    name: str
    xid: int
    created: str | None = None


@dataclass(frozen=True)
class ApfsContainer(Report):
    """The container of an APFS volume."""

    uuid: str
    used: int
    pending: int
    free: int
    checkpoint: int
    checkpoints: list[int]


@dataclass(frozen=True)
class ApfsDetails(Report):
    """Properties of APFS volumes alone."""

    kind = "apfs"
    number: int
    encrypted: bool
    hardware_key: bool
    sealed: bool
    reserve: int
    formatted_by: str
    snapshots: list[VolumeSnapshot]
    container: ApfsContainer
    role: str | None = None
    quota: int | None = None


@dataclass(frozen=True)
class VolumeFacts(Report):
    """A volume. What follows `problem` is set if its file system could be read."""

    file_system: str
    offset: int
    size: int
    readable: bool
    partition: int | None = None
    problem: Problem | None = None
    name: str | None = None
    uuid: str | None = None
    used: int | None = None
    free: int | None = None
    pending: int | None = None
    block_size: int | None = None
    files: int | None = None
    folders: int | None = None
    case_sensitive: bool | None = None
    created: str | None = None
    modified: str | None = None
    details: HfsDetails | ApfsDetails | None = None


@dataclass(frozen=True)
class ImageInfo(Report):
    """An image: `bandsaw info --json`."""

    path: str
    layers: list[Layer]
    volumes: list[VolumeFacts]
    warnings: list[Message]
    format: str | None = None
    description: str | None = None
    size: int | None = None
    allocated: int | None = None
    archive: Archive | None = None
    encryption: Encryption | None = None
    bucket: Bucket | None = None
    storage: Raw | SparseBundle | SparseImage | Asif | Udif | ReadOnlyImage | None = None
    partition_map: PartitionMap | None = None
    contents: str | None = None


@dataclass(frozen=True)
class CheckedLayer(Report):
    """A layer, with the verdict of its check: `checked`, `broken`, `unknown` or `skipped`."""

    description: str
    verdict: str
    message: str | None = None


@dataclass(frozen=True)
class Finding(Report):
    """A problem that a check found. `severity` is `damage`, `warning` or `note`."""

    severity: str
    layer: str
    message: str
    within: str | None = None
    offset: int | None = None
    name: str | None = None
    volume_path: str | None = None
    other_volume_path: str | None = None


@dataclass(frozen=True)
class CheckReport(Report):
    """The result of a check. `conclusion` is `damaged`, `unknown`, `warned`, `unchecked` or `sound`."""

    path: str
    conclusion: str
    damage_count: int
    warning_count: int
    note_count: int
    layers: list[CheckedLayer]
    problems: list[Finding]
    omitted_count: int
    worst: str | None = None
    contents: str | None = None

    @property
    def sound(self) -> bool:
        """True if nothing worse than a note was found, and all that can be checked was checked."""
        return self.conclusion == "sound"


@dataclass(frozen=True)
class StoredChecksum(Report):
    """A checksum that an image stores. `intact` is `None` if nothing was compared."""

    name: str
    algorithm: str
    stored: str | None = None
    computed: str | None = None
    intact: bool | None = None


@dataclass(frozen=True)
class Signature(Report):
    """A code signature. `verified` tells that its hashes were compared, `intact` that they agree; certificates are not verified."""

    offset: int
    size: int
    verified: bool
    identifier: str | None = None
    team: str | None = None
    algorithms: list[str] | None = None
    certified: bool | None = None
    ticket: bool | None = None
    intact: bool | None = None


@dataclass(frozen=True)
class VerifyReport(Report):
    """The comparison of an image with its checksums."""

    format: str
    intact: bool
    checksums: list[StoredChecksum]
    signature: Signature | None = None


@dataclass(frozen=True)
class Converted(Report):
    """The bytes that a conversion read and wrote."""

    read_size: int
    written_size: int


@dataclass(frozen=True)
class Orphans(Report):
    """Stored data that belongs to no part of the disk; `kept` is the reason if it was not removed."""

    size: int
    places: list[Message]
    kept: Message | None = None


@dataclass(frozen=True)
class RefusedVolume(Report):
    """A volume whose free space was not freed."""

    error: Problem
    partition: int | None = None


@dataclass(frozen=True)
class Compacted(Report):
    """The result of a compaction, in bytes of storage."""

    allocated_before: int
    allocated: int
    reclaimed: int
    zeros: int
    holes: bool
    orphans: Orphans
    refused: list[RefusedVolume]


@dataclass(frozen=True)
class ResizeLimits(Report):
    """The limits of the size of a disk, in bytes."""

    min_size: int
    size: int
    max_size: int


@dataclass(frozen=True)
class ResizeStep(Report):
    """A step of a resize."""

    action: str
    message: str
    partition: int | None = None
    file_system: str | None = None
    size_before: int | None = None
    size: int | None = None


@dataclass(frozen=True)
class ResizeReport(Report):
    """The result of a resize."""

    dry_run: bool
    size_before: int
    size: int
    steps: list[ResizeStep]


@dataclass(frozen=True)
class RepairStep(Report):
    """A step of a repair, with the paths that it concerns."""

    layer: str
    message: str
    affected: list[str]


@dataclass(frozen=True)
class Alternative(Report):
    """A possible assumption, with its evidence."""

    assume: str
    message: str


@dataclass(frozen=True)
class Loss(Report):
    """A file, or a part of one, that a repair does not keep."""

    volume: str
    volume_path: str
    loss: str
    message: str


@dataclass(frozen=True)
class RepairReport(Report):
    """The result of a repair. `outcome` is `repaired`, `nothing_to_do`, `undecided` or `loss_refused`."""

    path: str
    dry_run: bool
    outcome: str
    problems: list[Problem]
    steps: list[RepairStep]
    refused: list[Problem]
    alternatives: list[Alternative]
    losses: list[Loss]
    possible_losses: list[Loss]
    remaining: list[Problem]
    rolled_back_files: int | None = None
    undecided: Problem | None = None
    undo_path: str | None = None
    losses_path: str | None = None
    conclusion: str | None = None
    contents: str | None = None


@dataclass(frozen=True)
class UndoReport(Report):
    """Repairs that were undone, or whose undo data was removed. `kept` earlier repairs were not undone, because the
    image changed after them, as `kept_because` says."""

    repairs: int
    files: int
    size: int
    kept: int = 0
    kept_because: str | None = None


@dataclass(frozen=True)
class Snapshot(Report):
    """A snapshot of a sparse bundle."""

    name: str
    created: str


@dataclass(frozen=True)
class Added(Report):
    """The result of a copy into a volume."""

    files: int
    folders: int
    symlinks: int
    size: int


@dataclass(frozen=True)
class Extracted(Report):
    """The result of an extraction. `problems` lists at most 1000 objects that could not be, or not completely."""

    files: int
    folders: int
    symlinks: int
    size: int
    problem_count: int = 0
    note_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)


T = TypeVar("T")

_hints: dict[type, dict[str, Any]] = {}


def from_json(kind: type[T], data: dict[str, Any]) -> T:
    """Makes a report from the dictionaries of the native part."""
    if kind not in _hints:
        _hints[kind] = get_type_hints(kind)
    hints = _hints[kind]
    names = {one.name for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: _value(hints[name], value) for name, value in data.items() if name in names})


def _value(hint: Any, value: Any) -> Any:
    if isinstance(value, list):
        # A list that may be absent is a union.
        lists = [one for one in (hint, *get_args(hint)) if get_origin(one) is list]
        (member,) = get_args(lists[0])
        return [_value(member, one) for one in value]
    if not isinstance(value, dict) or get_origin(hint) is dict:
        return value
    kinds = [one for one in get_args(hint) or (hint,) if isinstance(one, type) and dataclasses.is_dataclass(one)]
    if len(kinds) > 1:
        kinds = [one for one in kinds if getattr(one, "kind", None) == value["kind"]]
    return from_json(kinds[0], value)


def _to_json(value: Any) -> Any:
    if isinstance(value, Report):
        return value.to_json()
    if isinstance(value, list):
        return [_to_json(one) for one in value]
    return value
