"""Images for distribution with dmgbuild's settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bandsaw
from bandsaw import dmg
from conftest import needed


def test_settings_of_dmgbuild(tmp_path: Path, examples: Path) -> None:
    picture = tmp_path / "background.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    settings = tmp_path / "settings.py"
    settings.write_text(
        f"""
import os.path
application = defines.get("app", {str(examples / "source/Letters")!r})
format = "UDBZ"
files = [application, ({str(picture)!r}, "Read me.png")]
symlinks = {{"Applications": "/Applications"}}
icon_locations = {{os.path.basename(application): (140, 120), "Applications": (500, 120)}}
background = {str(picture)!r}
window_rect = ((100, 100), (640, 280))
icon_size = 128.0
text_size = 16
show_status_bar = False
default_view = "icon-view"
hide_extensions = ["Read me.png"]
license = {{"default-language": "en_US", "licenses": {{"en_US": b"Do as you like."}}}}
"""
    )
    target = tmp_path / "App.dmg"
    dmg.build_dmg(target, "App", settings)
    with bandsaw.open(target) as image:
        assert image.format == "UDBZ"
        volume = image.volume()
        assert volume.name == "App"
        names = set(volume.listdir())
        assert {"Letters", "Applications", "Read me.png", ".DS_Store", ".background"} <= names
        assert volume.readlink("Applications") == "/Applications"
        assert "LPic" in image.info().storage.resource_types  # type: ignore[union-attr]
        assert image.check().sound
    store = needed("ds_store")
    (tmp_path / "DS_Store").write_bytes(volume_bytes(target, ".DS_Store"))
    with store.DSStore.open(str(tmp_path / "DS_Store"), "r") as found:
        assert found["Applications"]["Iloc"][:2] == (500, 120)


def volume_bytes(path: Path, name: str) -> bytes:
    with bandsaw.open(path) as image:
        return image.volume().read_bytes(name)


def test_settings_are_checked(tmp_path: Path) -> None:
    target = tmp_path / "App.dmg"
    for settings, error in [
        ({"nonsense": 1}, bandsaw.Invalid),
        ({"badge_icon": "x.icns"}, bandsaw.Unsupported),
        ({"background": "builtin-arrow"}, bandsaw.Unsupported),
        ({"arrange_by": "luck"}, bandsaw.Invalid),
        ({"size": "some"}, bandsaw.Invalid),
        ({"default_view": "sideways"}, ValueError),
        ({"icon_size": "large"}, ValueError),
    ]:
        with pytest.raises(error):
            dmg.build(target, "App", settings=settings)
        assert not target.exists()
    with pytest.raises(bandsaw.Invalid):
        dmg.build(target)
    with pytest.warns(UserWarning, match="code_sign"):
        dmg.build(target, "App", settings={"code_sign": {"identity": "x"}, "background": "#aabbcc"})


def test_a_specification_of_appdmg(tmp_path: Path, examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "recipe"
    (folder / "build").mkdir(parents=True)
    (folder / "build/App.txt").write_bytes(b"app")
    (folder / "back.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    spec = {
        "title": "From appdmg",
        "background": "back.png",
        "format": "ULFO",
        "window": {"position": {"x": 10, "y": 20}, "size": {"width": 500, "height": 300}},
        "contents": [
            {"x": 448, "y": 344, "type": "link", "path": "/Applications"},
            {"x": 192, "y": 344, "type": "file", "path": "build/App.txt", "hide_extension": True},
            {"x": 7, "y": 8, "type": "file", "path": "build/App.txt", "name": "Second"},
            {"x": 5, "y": 6, "type": "position", "path": ".background"},
        ],
    }
    path = folder / "appdmg.json"
    path.write_text(json.dumps(spec))
    # Paths start at the folder of the file, not at the current one.
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "App.dmg"
    dmg.build(target, None, path)
    with bandsaw.open(target) as image:
        assert image.format == "ULFO"
        volume = image.volume()
        assert volume.name == "From appdmg"
        assert {"App.txt", "Applications", "Second", ".background"} <= set(volume.listdir())
        assert volume.readlink("Applications") == "/Applications"
        assert volume.read_bytes("Second") == b"app"
    for changes, message in [
        ({"title": None}, "missing 'title'"),
        ({"contents": None}, "missing 'contents'"),
        ({"contents": [{"path": "x", "x": 1}]}, "missing 'y'"),
        ({"contents": [{"path": "x", "x": 1, "y": 1, "type": "folder"}]}, "unknown type 'folder'"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"background": None, "background-color": "kinda blue"}, "invalid color"),
        ({"window": 5}, "appdmg.json"),
    ]:
        changed = {name: value for name, value in {**spec, **changes}.items() if value is not None}
        path.write_text(json.dumps(changed))
        with pytest.raises(bandsaw.Invalid, match=message):
            dmg.build(tmp_path / "none.dmg", None, path)
    # Neither is run as a program.
    (tmp_path / "spec.json").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(bandsaw.Invalid, match="spec.json"):
        dmg.build(tmp_path / "none.dmg", "A", tmp_path / "spec.json")
    (tmp_path / "spec.toml").write_text("icon_size = 64")
    with pytest.raises(bandsaw.Unsupported, match="bandsaw dmg --recipe"):
        dmg.build(tmp_path / "none.dmg", "A", tmp_path / "spec.toml")
    assert not (tmp_path / "none.dmg").exists()
    assert not (tmp_path / "ran").exists()


def test_the_setting_filename_has_precedence(tmp_path: Path, examples: Path) -> None:
    settings = tmp_path / "settings.py"
    settings.write_text(
        f"""
import os.path
assert filename == {str(tmp_path / 'given.dmg')!r} and volume_name == "App"
filename = os.path.join(os.path.dirname(filename), "stated.dmg")
files = [{str(examples / 'Letters')!r}]
"""
    )
    dmg.build(tmp_path / "given.dmg", "App", settings)
    assert (tmp_path / "stated.dmg").exists()
    assert not (tmp_path / "given.dmg").exists()
    dmg.build("/nowhere/given.dmg", "App", settings={"filename": tmp_path / "other.dmg"})
    assert (tmp_path / "other.dmg").exists()
    dmg.build(tmp_path / "given.dmg", "App", settings={"filename": None})
    assert (tmp_path / "given.dmg").exists()


def test_the_same_files_give_the_same_bytes(tmp_path: Path, examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("one.dmg", "two.dmg"):
        dmg.build(tmp_path / name, "App", settings={"folder": examples / "source"})
    assert (tmp_path / "one.dmg").read_bytes() == (tmp_path / "two.dmg").read_bytes()
