"""Images for distribution with dmgbuild's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

import bandsaw
from bandsaw import dmg


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
    store = pytest.importorskip("ds_store")
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


def test_the_same_files_give_the_same_bytes(tmp_path: Path, examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("one.dmg", "two.dmg"):
        dmg.build(tmp_path / name, "App", settings={"folder": examples / "source"})
    assert (tmp_path / "one.dmg").read_bytes() == (tmp_path / "two.dmg").read_bytes()
