"""Disk images for distribution, with the settings of dmgbuild. Nothing is mounted, and no Mac is needed.

>>> from bandsaw import dmg
>>> dmg.build(scratch / "App.dmg", "App", settings={"files": [example("Letters")], "icon_size": 96})
>>> import bandsaw
>>> with bandsaw.open(scratch / "App.dmg") as image:
...     image.format, sorted(image.volume().listdir())
('UDZO', ['.DS_Store', 'Letters'])
"""

from __future__ import annotations

import json
import os
import re
import runpy
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import _bandsaw
from .errors import Invalid, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["build", "build_dmg"]

_LOOK = frozenset(
    {
        "arrange_by",
        "default_view",
        "grid_offset",
        "grid_spacing",
        "hide",
        "hide_extensions",
        "icon",
        "icon_locations",
        "icon_size",
        "label_pos",
        "list_calculate_all_sizes",
        "list_icon_size",
        "list_text_size",
        "scroll_position",
        "show_icon_preview",
        "show_item_info",
        "show_pathbar",
        "show_sidebar",
        "show_status_bar",
        "show_tab_view",
        "show_toolbar",
        "sidebar_width",
        "text_size",
        "window_rect",
    }
)

_WITHOUT_EFFECT = frozenset(
    {
        "code_sign",
        "defines",
        "detach_retries",
        "include_icon_view_settings",
        "include_list_view_settings",
        "list_column_sort_directions",
        "list_column_widths",
        "list_columns",
        "list_scroll_position",
        "list_sort_by",
        "list_use_relative_dates",
        "shrink",
    }
)

_ARRANGE = {"date-modified", "date-created", "date-added", "date-last-opened", "name", "size", "kind", "label"}

_COLORS = {
    "aqua": "00ffff",
    "black": "000000",
    "blue": "0000ff",
    "fuchsia": "ff00ff",
    "gray": "808080",
    "green": "008000",
    "lime": "00ff00",
    "maroon": "800000",
    "navy": "000080",
    "olive": "808000",
    "purple": "800080",
    "red": "ff0000",
    "silver": "c0c0c0",
    "teal": "008080",
    "white": "ffffff",
    "yellow": "ffff00",
}


def build(
    filename: str | os.PathLike[str],
    volume_name: str | None = None,
    settings_file: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    defines: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
    progress: object = None,
) -> None:
    """Builds an image from dmgbuild's settings.

    Args:
        filename: The image; the setting `filename` has precedence.
        volume_name: The name of the volume; the setting `volume_name` has precedence.
        settings_file: A file of settings in Python, which is run as dmgbuild does, with `defines`; or, if its name ends in
            `.json`, a specification of appdmg, in which paths start at its folder.
        settings: Settings, which have precedence over those of the file. Besides those of dmgbuild, `folder` adds the
            contents of a folder.
        defines: The dictionary `defines` for the file.
        overwrite: True to replace an existing image.
        progress: A function of the stage, the units done and their total, or an object like that of tqdm.

    The format is UDZO unless a setting states it. Settings without an effect on these images are named in a warning. The
    badge of an icon and the built-in pictures raise `Unsupported`.
    """
    all_settings: dict[str, Any] = {}
    if settings_file is not None:
        path = os.fspath(settings_file)
        extension = os.path.splitext(path)[1].lower()
        if extension == ".json":
            all_settings.update(_appdmg(path))
        elif extension == ".toml":
            raise Unsupported(f"{path}: recipes in TOML are read by the command: bandsaw dmg --recipe")
        else:
            known_names = {
                "defines": dict(defines or {}),
                "filename": os.fspath(filename),
                "settings_file": path,
                "volume_name": volume_name,
            }
            run = runpy.run_path(path, init_globals=known_names)
            known = _LOOK | _WITHOUT_EFFECT | _OWN
            all_settings.update((name, value) for name, value in run.items() if name in known and name != "defines")
    for name, value in (settings or {}).items():
        all_settings[name.replace("-", "_")] = value
    target = all_settings.get("filename") or filename
    _build(os.fspath(target), volume_name, all_settings, overwrite, progress)


build_dmg = build
"""The name in dmgbuild."""

_OWN = frozenset(
    {
        "background",
        "badge_icon",
        "compression_level",
        "filename",
        "files",
        "filesystem",
        "folder",
        "format",
        "license",
        "size",
        "symlinks",
        "volume_name",
    }
)


def _build(filename: str, volume_name: str | None, settings: dict[str, Any], overwrite: bool, progress: object) -> None:
    unknown = sorted(set(settings) - _LOOK - _OWN - _WITHOUT_EFFECT)
    if unknown:
        raise Invalid(f"unknown setting {unknown[0]}")
    if settings.get("badge_icon"):
        raise Unsupported("badge_icon is not supported: create an .icns file and use the setting icon")
    for ignored in sorted(_WITHOUT_EFFECT & set(settings)):
        if settings[ignored]:
            warnings.warn(f"the setting {ignored} is ignored", stacklevel=3)
    look = {name: _setting(name, settings[name]) for name in _LOOK & set(settings) if settings[name] is not None}
    _set_background(look, settings.get("background"))
    items = _items(settings)
    name = settings.get("volume_name") or volume_name
    if not name:
        raise Invalid("the name of the volume is missing")
    from ._image import _epoch

    _bandsaw.build_dmg(
        filename,
        name=name,
        format=settings.get("format"),
        fs=settings.get("filesystem"),
        size=_size(settings.get("size")),
        level=settings.get("compression_level") or None,
        overwrite=overwrite,
        items=items,
        look=look,
        license_text=_license(settings.get("license")),
        epoch=_epoch(),
        progress=progress,
    )


_APPDMG = frozenset(
    {
        "$schema",
        "background",
        "background-color",
        "badge-icon",
        "code-sign",
        "compression-level",
        "contents",
        "filesystem",
        "format",
        "icon",
        "icon-size",
        "license",
        "title",
        "window",
    }
)
"""The keys of a specification of appdmg, and those that dmgbuild adds."""


def _appdmg(path: str) -> dict[str, Any]:
    """Returns the settings that a specification of appdmg states, with the defaults of appdmg."""
    with open(path, "rb") as file:
        try:
            spec = json.load(file)
        except ValueError as error:
            raise Invalid(f"{path}: {error}") from None
    try:
        return _settings_of_appdmg(spec, os.path.dirname(path))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        missing = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise Invalid(f"{path}: not a specification of appdmg: {missing}") from None


def _settings_of_appdmg(spec: Any, folder: str) -> dict[str, Any]:
    if not isinstance(spec, dict):
        raise TypeError("expected an object")
    unknown = sorted(set(spec) - _APPDMG)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")

    def in_folder(path: str) -> str:
        return os.path.join(folder, path)

    names = ("badge-icon", "code-sign", "compression-level", "filesystem", "format")
    settings = {name.replace("-", "_"): spec[name] for name in names if name in spec}
    settings["volume_name"] = spec["title"]
    settings["icon_size"] = spec.get("icon-size", 80)
    for name in ("icon", "license"):
        if spec.get(name) is not None:
            # A license may also be dmgbuild's dictionary of languages.
            settings[name] = in_folder(spec[name]) if isinstance(spec[name], str) else spec[name]
    background = spec.get("background")
    if background is not None:
        is_file = _color(background) is None and not background.startswith("builtin-")
        settings["background"] = in_folder(background) if is_file else background
    elif spec.get("background-color") is not None:
        if _color(spec["background-color"]) is None:
            raise ValueError(f"invalid color {spec['background-color']!r}")
        settings["background"] = spec["background-color"]
    if "window" in spec:
        place, size = spec["window"].get("position", {}), spec["window"].get("size", {})
        settings["window_rect"] = (
            (place.get("x", 100), place.get("y", 100)),
            (size.get("width", 640), size.get("height", 480)),
        )
    files: list[tuple[str, str]] = []
    symlinks: dict[str, str] = {}
    places: dict[str, tuple[int, int]] = {}
    hidden: list[str] = []
    without_extension: list[str] = []
    for entry in spec["contents"]:
        kind, path = entry.get("type", "file"), entry["path"]
        name = entry.get("name") or os.path.basename(path.rstrip("/"))
        if kind == "file":
            files.append((in_folder(path), name))
        elif kind == "link":
            symlinks[name] = path
        elif kind != "position":
            raise ValueError(f"unknown type {kind!r} of an entry: expected 'file', 'link' or 'position'")
        places[name] = (entry["x"], entry["y"])
        if entry.get("hidden"):
            hidden.append(name)
        if entry.get("hide_extension"):
            without_extension.append(name)
    settings.update(
        files=files, symlinks=symlinks, icon_locations=places, hide=hidden, hide_extensions=without_extension
    )
    return settings


def _setting(name: str, value: Any) -> Any:
    if name == "window_rect":
        (x, y), (width, height) = value
        return ((int(x), int(y)), (int(width), int(height)))
    if name == "icon_locations":
        return {str(one): (int(x), int(y)) for one, (x, y) in value.items()}
    if name == "sidebar_width":
        return int(value)
    if name == "icon":
        return os.fspath(value)
    if name in ("hide", "hide_extensions"):
        return [str(one) for one in value]
    if name == "arrange_by" and value not in _ARRANGE:
        raise Invalid(f"unknown order {value!r} of icons")
    if name in ("grid_offset", "scroll_position"):
        x, y = value
        return (float(x), float(y))
    return value


def _items(settings: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Returns files and links, the contents of a folder first: it determines the owner and the mode of the root."""
    items: list[tuple[str, str, str]] = []
    if settings.get("folder") is not None:
        items.append(("contents", os.fspath(settings["folder"]), ""))
    files: Iterable[Any] = settings.get("files") or ()
    for one in files:
        source, own = one if isinstance(one, tuple) else (one, None)
        path = os.fspath(source)
        items.append(("file", path, own or os.path.basename(path.rstrip("/"))))
    symlinks: Mapping[str, str] = settings.get("symlinks") or {}
    items.extend(("link", target, name) for name, target in symlinks.items())
    return items


def _set_background(look: dict[str, Any], background: Any) -> None:
    if background is None:
        return
    text = os.fspath(background)
    color = _color(text)
    if color is not None:
        look["background_color"] = color
    elif text.startswith("builtin-"):
        raise Unsupported("the built-in pictures of dmgbuild are not available: name a file")
    else:
        look["background"] = text


def _color(text: str) -> list[float] | None:
    """Returns red, green and blue from 0 to 1 of a color in the notation of style sheets."""
    digits = _COLORS.get(text.lower(), text[1:] if text.startswith("#") else "")
    if re.fullmatch("[0-9a-fA-F]{3}", digits):
        digits = "".join(2 * digit for digit in digits)
    if re.fullmatch("[0-9a-fA-F]{6}", digits):
        return [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    of_numbers = re.fullmatch(r"rgb\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)", text)
    if of_numbers:
        return [int(number) / 255 for number in of_numbers.groups()]
    return None


def _size(size: Any) -> int | None:
    """Returns a size in bytes of text such as `100M`."""
    if size is None or isinstance(size, int):
        return size
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", str(size), re.IGNORECASE)
    if not found:
        raise Invalid(f"invalid size {size!r}: expected bytes, or text such as 100M")
    unit = 1024 ** " kmgt".index(found.group(2).lower() or " ")
    return -(-int(float(found.group(1)) * unit) // 512) * 512


def _license(license: Any) -> bytes | None:
    """Returns the text of a license: a file, or dmgbuild's dictionary of languages, of which the default one is used."""
    if license is None:
        return None
    if isinstance(license, Mapping):
        languages: Mapping[str, Any] = license.get("licenses") or {}
        if not languages:
            raise Invalid("the setting license has no licenses")
        if len(languages) > 1:
            warnings.warn("of several licenses only that of the default language is taken", stacklevel=4)
        license = languages.get(license.get("default-language", ""), next(iter(languages.values())))
    if isinstance(license, bytes):
        return license
    if not os.path.exists(license):
        return str(license).encode()
    with open(license, "rb") as file:
        return file.read()
