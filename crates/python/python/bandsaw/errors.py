"""Exceptions. All derive from `Error`; those for which the system has a number also derive from `OSError`.

>>> import bandsaw
>>> try:
...     bandsaw.open("missing.dmg")
... except FileNotFoundError as error:
...     print(type(error).__name__, error.kind, error.layer)
NoSuchImage not_found image
"""

from __future__ import annotations

import errno as _errno
import os as _os

__all__ = [
    "ArchiveKeyNeeded",
    "ArchivePrivateKeyNeeded",
    "BandSize",
    "Cancelled",
    "CaseIgnored",
    "Conflict",
    "Corrupt",
    "DamagedVolume",
    "Error",
    "Exists",
    "InUse",
    "Invalid",
    "IoError",
    "IsAFolder",
    "KeysChanged",
    "LayerAlone",
    "LayersChanged",
    "LimitExceeded",
    "NameTooLong",
    "NoSpace",
    "NoSuchAttribute",
    "NoSuchImage",
    "NoSuchPath",
    "NoSuchSnapshot",
    "NoSuchState",
    "NoSuchVolume",
    "NoVolumes",
    "NotABundle",
    "NotAFolder",
    "NotALink",
    "NotAnArchive",
    "NotFound",
    "OnBattery",
    "OutOfRange",
    "PartialExists",
    "PassphraseNeeded",
    "PrivateKeyNeeded",
    "ReadOnly",
    "RepairInterrupted",
    "SameName",
    "Signed",
    "SignerKeyNeeded",
    "SymlinkLoop",
    "Truncated",
    "Undecided",
    "UnknownContents",
    "UnknownFormat",
    "Unsupported",
    "VolumeLocked",
    "WrongArchiveKey",
    "WrongKey",
    "WrongVolumeKey",
]


class Error(Exception):
    """An error of Bandsaw."""

    kind: str = "other"
    """The kind, as in the JSON output: `corrupt`, `not_found`, ..."""
    reason: str | None = None
    """The cause, if a caller can act on it: `passphrase_needed`, ..."""
    layer: str | None = None
    """The layer or structure that reported the error: `gpt_header`, ..."""
    offset: int | None = None
    """The place in that layer, in bytes."""
    name: str | None = None
    """The place by name: a band, a path in a volume."""
    path: str | None = None
    """The file in which the error occurred."""
    message: str = ""
    """The text without path, layer and place."""
    alternatives: tuple[tuple[str, str], ...] = ()
    """Of `Undecided`: values for `assume`, each with its evidence."""

    def __str__(self) -> str:
        text: object = self.__dict__.get("_text")
        return text if isinstance(text, str) else super().__str__()


class IoError(Error, OSError):
    """A system call failed, or a file object below the image raised (see `__cause__`)."""


class Corrupt(Error):
    """Bytes violate the format."""


class Truncated(Corrupt):
    """The end of the image is missing."""


class NotAnArchive(Corrupt):
    """The source is neither a folder nor a tar archive."""


class DamagedVolume(Corrupt):
    """The check before the first change found damage in the volume."""


class RepairInterrupted(Corrupt):
    """A repair was interrupted and must be undone first."""


class Unsupported(Error):
    """Allowed by the format, but not supported."""


class UnknownFormat(Unsupported):
    """The file is not a recognized disk image."""


class UnknownContents(Unsupported):
    """The disk is not blank, and nothing in it is recognized."""


class NotABundle(Unsupported):
    """The folder is not a sparse bundle."""


class WrongKey(Error, PermissionError):
    """A passphrase or key is wrong or missing."""


class PassphraseNeeded(WrongKey):
    """The image is encrypted, and no passphrase was given."""


class PrivateKeyNeeded(WrongKey):
    """The image is encrypted for certificates only, and no private key was given."""


class ArchiveKeyNeeded(WrongKey):
    """The image is in an encrypted archive, whose key was not given."""


class ArchivePrivateKeyNeeded(WrongKey):
    """The image is in an archive that is encrypted for a private key, which was not given."""


class SignerKeyNeeded(WrongKey):
    """The image is in an encrypted and signed archive, and the public key of its signer was not given."""


class WrongArchiveKey(WrongKey):
    """The key or public key of an encrypted archive is wrong, or its header is damaged."""


class VolumeLocked(WrongKey):
    """A volume is encrypted, and no key for it was given."""


class WrongVolumeKey(WrongKey):
    """The key that was given for an encrypted volume is wrong."""


class OutOfRange(Error):
    """A range exceeds the end of a device."""


class ReadOnly(Error, OSError):
    """A change was requested of something opened or stored read-only."""


class Signed(ReadOnly):
    """The image has a code signature, which the change would invalidate."""


class NotFound(Error, FileNotFoundError):
    """A file, volume or attribute does not exist."""


class NoVolumes(NotFound):
    """The image holds no volume that can be read."""


class NoSuchImage(NotFound):
    """The image does not exist."""


class LayerAlone(NotFound):
    """The image is a layer of a stack, and the images below it were not named."""


class NotAFolder(NotFound, NotADirectoryError):
    """A part of a path in a volume, or an object to list, is not a folder."""


class NoSuchVolume(NotFound):
    """The image has no such volume."""


class NoSuchPath(NotFound):
    """The volume has no such path."""


class NoSuchSnapshot(NotFound):
    """The bundle or volume has no such snapshot."""


class NoSuchState(NotFound):
    """The bundle has no such state, or none at all."""


class NoSuchAttribute(NotFound):
    """The object has no such extended attribute."""


class Conflict(Error, OSError):
    """Something is in use, or was changed at the same time."""


class Exists(Conflict, FileExistsError):
    """Something exists already."""


class IsAFolder(Conflict, IsADirectoryError):
    """A folder is where a file is expected."""


class InUse(Conflict):
    """Another process, or another object of this one, has the image open."""


class PartialExists(Conflict):
    """The name for the unfinished image is taken."""


class CaseIgnored(Conflict):
    """Two names differ only in case, and the volume ignores case."""


class SameName(Conflict):
    """The names of two sources are the same on the volume."""


class LayersChanged(Conflict):
    """A layer was made over another image, or the image below it was changed since."""


class OnBattery(Conflict):
    """The computer runs on battery power, which `battery_allowed` permits."""


class LimitExceeded(Error):
    """A valid number that exceeds a limit of the format, the volume or memory."""


class NameTooLong(LimitExceeded, OSError):
    """A name is longer than the volume allows."""


class NoSpace(LimitExceeded, OSError):
    """The volume is full."""


class SymlinkLoop(LimitExceeded, OSError):
    """A path leads through too many symbolic links: more than 40, as in Linux."""


class Invalid(Error, ValueError):
    """An argument is invalid."""


class NotALink(OSError, Invalid):
    """The object is not a symbolic link."""


class BandSize(Invalid):
    """The format does not support bands of this size; the message names the nearest sizes."""


class Undecided(Error):
    """Sources of an image disagree and the evidence does not decide; see `alternatives`."""


class KeysChanged(Error):
    """A change of keys failed after the new ones were written: they are in force, or may be."""


class Cancelled(Error):
    """The operation was cancelled."""


_BY_KIND: dict[str, type[Error]] = {
    "io": IoError,
    "corrupt": Corrupt,
    "unsupported": Unsupported,
    "wrong_key": WrongKey,
    "out_of_range": OutOfRange,
    "read_only": ReadOnly,
    "not_found": NotFound,
    "conflict": Conflict,
    "limit": LimitExceeded,
    "invalid": Invalid,
    "undecided": Undecided,
    "cancelled": Cancelled,
}

_BY_REASON: dict[str, type[Error]] = {
    "unknown_format": UnknownFormat,
    "unknown_contents": UnknownContents,
    "not_a_bundle": NotABundle,
    "truncated": Truncated,
    "passphrase_needed": PassphraseNeeded,
    "private_key_needed": PrivateKeyNeeded,
    "archive_key_needed": ArchiveKeyNeeded,
    "archive_private_key_needed": ArchivePrivateKeyNeeded,
    "signer_key_needed": SignerKeyNeeded,
    "wrong_archive_key": WrongArchiveKey,
    "volume_locked": VolumeLocked,
    "signed": Signed,
    "in_use": InUse,
    "damaged_volume": DamagedVolume,
    "repair_interrupted": RepairInterrupted,
    "band_size": BandSize,
    "partial_exists": PartialExists,
    "keys_changed": KeysChanged,
    "no_volumes": NoVolumes,
    "case_ignored": CaseIgnored,
    "same_name": SameName,
    "exists": Exists,
    "no_such_image": NoSuchImage,
    "layer_alone": LayerAlone,
    "no_such_volume": NoSuchVolume,
    "no_such_path": NoSuchPath,
    "no_such_snapshot": NoSuchSnapshot,
    "no_such_state": NoSuchState,
    "no_such_attribute": NoSuchAttribute,
    "name_too_long": NameTooLong,
    "layers_changed": LayersChanged,
    "not_an_archive": NotAnArchive,
    "on_battery": OnBattery,
    "volume_full": NoSpace,
    "wrong_volume_key": WrongVolumeKey,
}

_BY_PROBLEM: dict[str, type[Error]] = {
    "is_a_folder": IsAFolder,
    "not_a_folder": NotAFolder,
    "symlink_loop": SymlinkLoop,
}
"""Problems with a path in a volume."""

for _kind, _class in _BY_KIND.items():
    _class.kind = _kind
for _reason, _class in _BY_REASON.items():
    _class.reason = _reason

_NUMBERS: list[tuple[type[Error], int]] = [
    (IsAFolder, _errno.EISDIR),
    (NameTooLong, _errno.ENAMETOOLONG),
    (NoSpace, _errno.ENOSPC),
    (NotAFolder, _errno.ENOTDIR),
    (SymlinkLoop, _errno.ELOOP),
    (Exists, _errno.EEXIST),
    (InUse, _errno.EBUSY),
    (Conflict, _errno.EBUSY),
    (NotFound, _errno.ENOENT),
    (ReadOnly, _errno.EROFS),
    (WrongKey, _errno.EACCES),
    (IoError, _errno.EIO),
]

_io_classes: dict[type[OSError], type[Error]] = {}


def _io_class(number: int | None) -> type[Error]:
    """Returns `IoError`, or a subclass that is also the class that Python has for the number."""
    special = type(OSError(number, "")) if number is not None else OSError
    if special is OSError:
        return IoError
    if special not in _io_classes:
        name = f"Io{special.__name__}"
        _io_classes[special] = type(name, (IoError, special), {"__module__": __name__, "__doc__": special.__doc__})
    return _io_classes[special]


def _build(
    *,
    kind: str,
    reason: str | None,
    problem: str | None,
    layer: str,
    offset: int | None,
    name: str | None,
    path: str | None,
    message: str,
    text: str,
    errno: int | None,
    alternatives: list[tuple[str, str]],
) -> Error:
    """Makes the exception for an error of the native part."""
    found = _BY_REASON.get(reason) if reason is not None else None
    if found is None and problem is not None:
        found = _BY_PROBLEM.get(problem)
    if found is None:
        found = _BY_KIND.get(kind, Error)
        if kind == "conflict" and "already exists" in message:
            found = Exists
        elif kind == "io":
            found = _io_class(errno)
    if issubclass(found, OSError):
        number = errno
        if number is None:
            number = next((one for of, one in _NUMBERS if issubclass(found, of)), _errno.EIO)
        error: Error = found(number, _os.strerror(number) if kind == "io" and errno is not None else message, path)
    else:
        error = found(message)
    error.kind = kind
    error.reason = reason
    error.layer = layer
    error.offset = offset
    error.name = name
    error.path = path
    error.message = message
    error.alternatives = tuple(alternatives)
    error.__dict__["_text"] = text
    return error
