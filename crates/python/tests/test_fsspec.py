"""The file system of fsspec, with pandas, dask and DuckDB where they are installed."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import bandsaw
from conftest import needed

fsspec = needed("fsspec")


def test_reading(bundle: Path) -> None:
    fs = fsspec.filesystem("bandsaw", fo=str(bundle))
    assert fs.ls("", detail=False) == ["/Letters"]
    assert fs.find("/") == ["/Letters/a.txt", "/Letters/b.txt"]
    assert fs.cat("/Letters/*.txt") == {"/Letters/a.txt": b"Dear A\n", "/Letters/b.txt": b"Dear B\n"}
    assert fs.cat_file("Letters/a.txt", 5, 6) == b"A"
    assert fs.cat_file("Letters/a.txt", -2) == b"A\n"
    assert fs.info("/Letters/a.txt")["size"] == 7
    assert fs.isdir("Letters") and fs.isfile("Letters/a.txt") and not fs.exists("nothing")
    assert fs.glob("**/*.txt") == ["/Letters/a.txt", "/Letters/b.txt"]
    assert [name for _, _, names in fs.walk("/") for name in names] == ["a.txt", "b.txt"]
    with fs.open("Letters/a.txt") as file:
        assert file.read() == b"Dear A\n"
    fs.close()


def test_urls(bundle: Path, dmg: Path) -> None:
    with fsspec.open("bandsaw://Letters/a.txt", fo=str(bundle)) as file:
        assert file.read() == b"Dear A\n"
    with fsspec.open(f"bandsaw://Letters/b.txt::file://{dmg}") as file:
        assert file.read() == b"Dear B\n"
    memory = fsspec.filesystem("memory")
    memory.pipe("/Docs.dmg", dmg.read_bytes())
    with fsspec.open("bandsaw://Letters/b.txt::memory://Docs.dmg") as file:
        assert file.read() == b"Dear B\n"


def test_writing(tmp_path: Path) -> None:
    path = tmp_path / "a.sparsebundle"
    bandsaw.create(path, 32 << 20, volname="A").close()
    fs = fsspec.filesystem("bandsaw", fo=str(path), writable=True)
    fs.pipe({"/x/one": b"1", "/x/two": b"2"})
    fs.mkdir("y")
    fs.mv("/x/one", "/y/one")
    fs.cp_file("/y/one", "/y/copy")
    with fs.open("/y/three", "wb") as file:
        file.write(b"3")
    assert fs.find("/") == ["/x/two", "/y/copy", "/y/one", "/y/three"]
    fs.rm("/x", recursive=True)
    assert not fs.exists("/x")
    fs.close()
    with bandsaw.open(path) as image:
        assert image.check().sound
        assert image.volume().read_bytes("y/copy") == b"1"


def test_pandas(tmp_path: Path) -> None:
    pandas = needed("pandas")
    path = tmp_path / "a.sparsebundle"
    with bandsaw.create(path, 32 << 20, volname="A") as image:
        image.volume().write_bytes("table.csv", b"name,size\na,1\nb,2\n")
    options = {"fo": str(path)}
    assert pandas.read_csv("bandsaw://table.csv", storage_options=options)["size"].sum() == 3


def test_dask(tmp_path: Path) -> None:
    bag = needed("dask.bag")
    path = tmp_path / "a.sparsebundle"
    with bandsaw.create(path, 32 << 20, volname="A") as image:
        volume = image.volume()
        volume.mkdir("logs")
        volume.write_bytes("logs/one.txt", b"a\nb\n")
        volume.write_bytes("logs/two.txt", b"c\n")
    lines = bag.read_text("bandsaw://logs/*.txt", storage_options={"fo": str(path)})
    assert lines.npartitions == 2
    assert sorted(lines.map(str.strip).compute(scheduler="threads")) == ["a", "b", "c"]
    # Other processes, as dask's, open the image again.
    again = pickle.loads(pickle.dumps(fsspec.filesystem("bandsaw", fo=str(path))))
    assert again.cat_file("logs/two.txt") == b"c\n"


def test_duckdb(tmp_path: Path) -> None:
    duckdb = needed("duckdb")
    path = tmp_path / "a.sparsebundle"
    with bandsaw.create(path, 32 << 20, volname="A") as image:
        image.volume().write_bytes("table.csv", b"name,size\na,1\nb,2\n")
    connection = duckdb.connect()
    connection.register_filesystem(fsspec.filesystem("bandsaw", fo=str(path)))
    assert connection.execute("select sum(size) from read_csv('bandsaw://table.csv')").fetchone()[0] == 3
