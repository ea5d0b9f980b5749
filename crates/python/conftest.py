"""Fixtures: images that the package makes, and names of the documented examples."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bandsaw

PASSPHRASE = "correct horse"


def needed(name: str) -> Any:
    """Returns a module, or skips the test if it is not installed. One that is installed and fails is a failure."""
    at = ""
    for part in name.split("."):
        at = f"{at}.{part}" if at else part
        if importlib.util.find_spec(at) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
    return importlib.import_module(name)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out the modules of the package for libraries that are not installed."""
    requirements = {"dfvfs.py": "dfvfs", "dissect.py": "dissect", "bandsaw_plugin.py": "dissect", "fsspec.py": "fsspec"}
    name = requirements.get(collection_path.name)
    return True if name is not None and importlib.util.find_spec(name) is None else None


def make_tree(folder: Path) -> Path:
    """Makes a folder with what an Apple volume holds."""
    letters = folder / "Letters"
    letters.mkdir(parents=True)
    (letters / "a.txt").write_bytes(b"Dear A\n")
    (letters / "b.txt").write_bytes(b"Dear B\n")
    return folder


def make_example(folder: Path) -> Path:
    """Makes the images of the documented examples."""
    tree = make_tree(folder / "source")
    make_tree(folder)
    bandsaw.create(folder / "Docs.sparsebundle", 20 << 20, source=tree, volname="Docs").close()
    bandsaw.create(folder / "Docs.dmg", source=tree, volname="Docs", fs="hfs+", format="UDZO").close()
    secret = folder / "secret"
    secret.mkdir()
    (secret / "secret.txt").write_bytes(b"secret\n")
    bandsaw.create(
        folder / "Secret.dmg", source=secret, fs="hfs+", volname="Secret", format="UDZO", passphrase=PASSPHRASE
    ).close()
    return folder


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_example(tmp_path_factory.mktemp("examples"))


@pytest.fixture(autouse=True)
def names_of_examples(request: pytest.FixtureRequest) -> None:
    """Defines the names that the documented examples use."""
    if isinstance(request.node, pytest.DoctestItem):
        folder = request.getfixturevalue("examples")
        names = request.getfixturevalue("doctest_namespace")
        names["example"] = lambda one: folder / one
        names["scratch"] = request.getfixturevalue("tmp_path")


@pytest.fixture
def bundle(examples: Path) -> Path:
    return examples / "Docs.sparsebundle"


@pytest.fixture
def dmg(examples: Path) -> Path:
    return examples / "Docs.dmg"


@pytest.fixture(params=["hfs+", "apfs"])
def writable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[bandsaw.Image]:
    """An image with an empty volume, open for changes."""
    with bandsaw.create(tmp_path / "New.sparsebundle", 32 << 20, fs=request.param, volname="New") as image:
        yield image


@pytest.fixture
def descriptors() -> Callable[[], int]:
    """Returns the number of open file descriptors."""

    def count() -> int:
        return len(os.listdir("/dev/fd"))

    return count
