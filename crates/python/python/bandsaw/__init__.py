"""Apple's disk images and the volumes inside them.

>>> import bandsaw
>>> with bandsaw.open(example("Docs.sparsebundle")) as image:
...     print(image.format, image.size)
...     for path in sorted(entry.path for entry in image.volume().find()):
...         print(path)
UDSB 20971520
/Letters
/Letters/a.txt
/Letters/b.txt
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _bandsaw, errors
from ._bandsaw import DirEntry, Stat, __version__
from ._files import DeviceFile, Disk, Extent
from ._image import Image, create, open
from ._volume import Volume
from .errors import *  # noqa: F403

if TYPE_CHECKING:
    from . import dmg as dmg
    from ._path import VolumePath as VolumePath

__all__ = [
    "DeviceFile",
    "DirEntry",
    "Disk",
    "Extent",
    "Image",
    "Stat",
    "Volume",
    "VolumePath",
    "__version__",
    "create",
    "dmg",
    "errors",
    "open",
]
__all__ += errors.__all__


def __getattr__(name: str) -> object:
    # Loaded when it is used: most programs only read.
    if name == "dmg":
        from importlib import import_module

        return import_module(".dmg", __name__)
    if name == "VolumePath":
        from ._path import VolumePath

        return VolumePath
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
