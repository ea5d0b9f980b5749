//! The contents of the volume: appdmg's `contents`, dmgbuild's `files` and `symlinks`.

use std::path::Path;

use bandsaw::Result;
use bandsaw::ops::import::Item;

use super::Recipe;
use super::value::Value;

/// Reads a path, or a path with its name in the volume.
pub(super) fn files(value: &Value<'_>) -> Result<Vec<Item>> {
    let file = |value: &Value<'_>| {
        let (from, to) = match value.json.is_array() {
            true => match &value.list()?[..] {
                [from, to] => (*from, Some(*to)),
                _ => return Err(value.refused("expected a path, or a path and a name")),
            },
            false => (*value, None),
        };
        let name = to.map_or_else(|| name_of(&from), |to| Ok(to.text()?.to_owned()))?;
        Ok(Item::At {
            from: from.path()?,
            to: name,
        })
    };
    value.list()?.iter().map(file).collect()
}

/// Reads names of links and their targets.
pub(super) fn links(value: &Value<'_>) -> Result<Vec<Item>> {
    let link = |(name, target): &(&str, Value<'_>)| {
        Ok(Item::Link {
            at: (*name).to_owned(),
            target: target.text()?.to_owned(),
        })
    };
    value.table()?.iter().map(link).collect()
}

/// Reads files, links and positions.
pub(super) fn contents(recipe: &mut Recipe, value: &Value<'_>) -> Result<()> {
    for entry in value.list()? {
        let needed = |key: &str| {
            entry
                .get(key)
                .ok_or_else(|| entry.refused(format!("an entry has no {key}")))
        };
        let path = needed("path")?;
        let name = entry
            .get("name")
            .map_or_else(|| name_of(&path), |name| Ok(name.text()?.to_owned()))?;
        match entry.get("type").map_or(Ok("file"), |kind| kind.text())? {
            "file" => recipe.items.push(Item::At {
                from: path.path()?,
                to: name.clone(),
            }),
            "link" => recipe.items.push(Item::Link {
                at: name.clone(),
                target: path.text()?.to_owned(),
            }),
            "position" => {}
            other => {
                return Err(entry.refused(format!(
                    "unknown type {other} of an entry: expected file, link or position"
                )));
            }
        }
        for (key, names) in [
            ("hidden", &mut recipe.look.hidden),
            ("hide_extension", &mut recipe.look.without_extension),
        ] {
            if entry.get(key).map_or(Ok(false), |value| value.truth())? {
                names.push(name.clone());
            }
        }
        recipe
            .look
            .places
            .insert(name, (needed("x")?.points()?, needed("y")?.points()?));
    }
    Ok(())
}

/// Returns the last part of a path.
fn name_of(path: &Value<'_>) -> Result<String> {
    let name = Path::new(path.text()?)
        .file_name()
        .and_then(|name| name.to_str());
    name.map(str::to_owned)
        .ok_or_else(|| path.refused("expected a path that ends in a name"))
}
