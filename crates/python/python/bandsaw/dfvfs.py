"""A back end for dfVFS: images of the type indicator MODI are opened by this package instead of pymodi.

    import bandsaw.dfvfs
    bandsaw.dfvfs.register()

Then path specifications of MODI, those that the scanner makes included, also open ULFO and ULMO, encrypted images (with the
credential `password` in the key chain), Apple sparse images and, by the path of their folder, sparse bundles.
"""

from __future__ import annotations

import os
from typing import Any

from dfvfs.credentials import credentials
from dfvfs.credentials import manager as credentials_manager
from dfvfs.file_io import file_object_io
from dfvfs.lib import definitions, errors
from dfvfs.path import modi_path_spec as _modi_path_spec
from dfvfs.resolver import resolver
from dfvfs.resolver_helpers import manager, resolver_helper

import bandsaw

__all__ = ["BandsawFile", "BandsawResolverHelper", "register"]


class BandsawFile(file_object_io.FileObjectIO):  # type: ignore[misc]
    """The disk of an image as a file-like object of dfVFS."""

    def __init__(self, resolver_context: Any, path_spec: Any) -> None:
        super().__init__(resolver_context, path_spec)
        self._image: bandsaw.Image | None = None

    def _Close(self) -> None:
        super()._Close()
        image, self._image = self._image, None
        if image is not None:
            image.close()

    def _OpenFileObject(self, path_spec: Any) -> Any:
        if not path_spec.HasParent():
            raise errors.PathSpecError("Unsupported path specification without parent.")
        parent = path_spec.parent
        location = getattr(parent, "location", None)
        source: Any
        if parent.type_indicator == definitions.TYPE_INDICATOR_OS and location and os.path.isdir(location):
            source = location
        else:
            source = resolver.Resolver.OpenFileObject(parent, resolver_context=self._resolver_context)
        passphrase = resolver.Resolver.key_chain.GetCredential(path_spec, "password")
        try:
            self._image = bandsaw.open(source, passphrase=passphrase)
        except bandsaw.Error as error:
            if isinstance(error, OSError):
                raise
            raise OSError(str(error)) from error
        return self._image.open_disk()

    def get_size(self) -> int:
        if not self._is_open:
            raise OSError("Not opened.")
        disk: Any = self._file_object
        size: int = disk.size
        return size


class BandsawCredentials(credentials.Credentials):  # type: ignore[misc]
    """The credentials of images in the key chain."""

    CREDENTIALS = frozenset(["password"])
    TYPE_INDICATOR = _modi_path_spec.MODIPathSpec.TYPE_INDICATOR


class BandsawResolverHelper(resolver_helper.ResolverHelper):  # type: ignore[misc]
    """The resolver helper for images."""

    TYPE_INDICATOR = _modi_path_spec.MODIPathSpec.TYPE_INDICATOR

    def NewFileObject(self, resolver_context: Any, path_spec: Any) -> Any:
        return BandsawFile(resolver_context, path_spec)


def register() -> None:
    """Makes dfVFS open images by this package. Safe to call again."""
    own = BandsawResolverHelper()
    try:
        known = manager.ResolverHelperManager.GetHelper(own.type_indicator)
    except KeyError:
        known = None
    if isinstance(known, BandsawResolverHelper):
        return
    if known is not None:
        manager.ResolverHelperManager.DeregisterHelper(known)
    manager.ResolverHelperManager.RegisterHelper(own)
    try:
        credentials_manager.CredentialsManager.RegisterCredentials(BandsawCredentials())
    except KeyError:
        # Another package knows credentials of this type already.
        pass
