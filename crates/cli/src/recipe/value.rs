//! A value of a recipe and its conversions.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bandsaw::ops::finder::Window;
use bandsaw::{Error, Result};
use serde_json::Value as Json;

use super::LAYER;

/// A value and its key; paths in it are relative to a folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value<'a> {
    pub(super) key: &'a str,
    pub(super) json: &'a Json,
    pub(super) folder: &'a Path,
}

impl<'a> Value<'a> {
    /// Returns an error about the value.
    pub(super) fn refused(&self, message: impl Into<String>) -> Error {
        Error::invalid(LAYER, message.into()).named(self.key)
    }

    pub(super) fn is_null(&self) -> bool {
        self.json.is_null()
    }

    /// Returns the result of `take`, or `None` for null, which dmgbuild uses for missing values.
    pub(super) fn some<T>(&self, take: impl FnOnce(&Self) -> Result<T>) -> Result<Option<T>> {
        if self.is_null() {
            Ok(None)
        } else {
            take(self).map(Some)
        }
    }

    pub(super) fn text(&self) -> Result<&'a str> {
        self.json
            .as_str()
            .ok_or_else(|| self.refused("expected text"))
    }

    /// Returns text in the form that an option of the command has.
    pub(super) fn parse<T: FromStr<Err = Error>>(&self) -> Result<T> {
        self.text()?.parse()
    }

    /// Returns a path, relative to the folder of the recipe.
    pub(super) fn path(&self) -> Result<PathBuf> {
        Ok(self.folder.join(self.text()?))
    }

    pub(super) fn truth(&self) -> Result<bool> {
        self.json
            .as_bool()
            .ok_or_else(|| self.refused("expected true or false"))
    }

    pub(super) fn number(&self) -> Result<f64> {
        self.json
            .as_f64()
            .ok_or_else(|| self.refused("expected a number"))
    }

    /// Returns a number of points, rounded down.
    pub(super) fn points(&self) -> Result<u32> {
        let number = self.number()?;
        let fits = (0.0..=f64::from(u32::MAX)).contains(&number);
        if fits {
            Ok(number as u32)
        } else {
            Err(self.refused("expected a number of at least 0"))
        }
    }

    /// Returns a whole number from 1.
    pub(super) fn number_up_to(&self, most: u8) -> Result<u8> {
        let number = self
            .json
            .as_u64()
            .and_then(|number| u8::try_from(number).ok());
        let number = number.filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| self.refused(format!("expected a whole number from 1 to {most}")))
    }

    /// Returns the values of a list, each with the key of the list.
    pub(super) fn list(&self) -> Result<Vec<Self>> {
        let list = self
            .json
            .as_array()
            .ok_or_else(|| self.refused("expected a list"))?;
        Ok(list.iter().map(|json| Self { json, ..*self }).collect())
    }

    pub(super) fn texts(&self) -> Result<Vec<String>> {
        self.list()?
            .iter()
            .map(|value| Ok(value.text()?.to_owned()))
            .collect()
    }

    /// Returns both values of a list of two.
    pub(super) fn pair<T>(&self, take: impl Fn(&Self) -> Result<T>) -> Result<(T, T)> {
        match &self.list()?[..] {
            [first, second] => Ok((take(first)?, take(second)?)),
            _ => Err(self.refused("expected a list of two")),
        }
    }

    /// Returns the keys and values of a table.
    pub(super) fn table(&self) -> Result<Vec<(&'a str, Self)>> {
        let table = self
            .json
            .as_object()
            .ok_or_else(|| self.refused("expected a table"))?;
        Ok(table
            .iter()
            .map(|(key, json)| (key.as_str(), Self { json, ..*self }))
            .collect())
    }

    /// Returns the value of `key` in a table.
    pub(super) fn get(&self, key: &str) -> Option<Self> {
        self.json.get(key).map(|json| Self { json, ..*self })
    }

    /// Reads appdmg's table of a window, or the text of `--window`.
    pub(super) fn window(&self) -> Result<Window> {
        if let Json::String(text) = self.json {
            return super::window(text);
        }
        self.table()?;
        let part = |table: &str, key: &str, default: u32| {
            let part = self.get(table).and_then(|table| table.get(key));
            part.map_or(Ok(default), |value| value.points())
        };
        let Window {
            x,
            y,
            width,
            height,
        } = Window::default();
        Ok(Window {
            x: part("position", "x", x)?,
            y: part("position", "y", y)?,
            width: part("size", "width", width)?,
            height: part("size", "height", height)?,
        })
    }
}
