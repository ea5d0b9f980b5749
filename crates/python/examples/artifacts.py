"""Collects the property lists that identify a Mac and its users, as mac_apt does: finds them by path in any image, and reads
them as file objects.

python examples/artifacts.py IMAGE [PASSPHRASE]
"""

from __future__ import annotations

import plistlib
import sys
from collections.abc import Iterator
from typing import Any

import bandsaw

PATTERNS = [
    "System/Library/CoreServices/SystemVersion.plist",
    "Library/Preferences/SystemConfiguration/preferences.plist",
    "private/var/db/dslocal/nodes/Default/users/*.plist",
    "Users/*/Library/Preferences/*.plist",
]


def artifacts(image: bandsaw.Image) -> Iterator[tuple[str, str, Any]]:
    """Returns volume, path and contents of each property list; the error, if it is damaged."""
    for volume in image.volumes:
        if not volume.readable:
            continue
        for pattern in PATTERNS:
            for path in volume.glob(pattern):
                try:
                    with volume.open(path) as file:
                        yield volume.name, path, plistlib.load(file)
                except (bandsaw.Error, plistlib.InvalidFileException, ValueError) as error:
                    yield volume.name, path, error


def main() -> None:
    passphrase = sys.argv[2] if len(sys.argv) > 2 else None
    with bandsaw.open(sys.argv[1], passphrase=passphrase) as image:
        for volume, path, contents in artifacts(image):
            print(f"{volume}:{path}: {contents if isinstance(contents, Exception) else sorted(contents)}")


if __name__ == "__main__":
    main()
