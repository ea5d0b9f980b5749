//! The expressions of the scripts.

use std::path::Path;

use super::super::refused;
use super::finder::Disk;
use super::script::{MAX_LEVELS, Run};
use super::tokens::{Token, Words};
use super::value::{CONSTANTS, Part, Value};
use crate::failure::Outcome;

impl Run<'_> {
    /// Evaluates an expression: conversions bind weakest but for comparisons.
    pub(super) fn value(&mut self, words: &mut Words<'_>, level: usize) -> Outcome<Value> {
        if level > MAX_LEVELS {
            return Err(refused("too many nested expressions"));
        }
        let left = self.converted(words, level + 1)?;
        let unequal = words.takes("is not") || words.takes("\u{2260}");
        let equal =
            !unequal && (words.takes("=") || words.takes("is equal to") || words.takes("is"));
        if !equal && !unequal {
            return Ok(left);
        }
        let right = self.converted(words, level + 1)?;
        Ok(Value::Yes((left == right) == equal))
    }

    fn converted(&mut self, words: &mut Words<'_>, level: usize) -> Outcome<Value> {
        let mut value = self.joined(words, level)?;
        while words.takes("as") {
            value = match () {
                () if words.takes("string") || words.takes("text") => Value::Text(value.text()?),
                () if words.takes("integer") || words.takes("number") => {
                    Value::Number(value.number()?)
                }
                // A file is the same by each of its names.
                () if words.takes("alias") => value,
                () => return Err(refused("this conversion is not supported")),
            };
        }
        Ok(value)
    }

    fn joined(&mut self, words: &mut Words<'_>, level: usize) -> Outcome<Value> {
        let mut value = self.sum(words, level)?;
        while words.takes("&") {
            let right = self.sum(words, level)?;
            value = Value::Text(value.text()? + &right.text()?);
        }
        Ok(value)
    }

    fn sum(&mut self, words: &mut Words<'_>, level: usize) -> Outcome<Value> {
        let mut value = self.product(words, level)?;
        loop {
            let sign = match () {
                () if words.takes("+") => 1.0,
                () if words.takes("-") => -1.0,
                () => return Ok(value),
            };
            let right = self.product(words, level)?;
            value = Value::Number(value.number()? + sign * right.number()?);
        }
    }

    fn product(&mut self, words: &mut Words<'_>, level: usize) -> Outcome<Value> {
        let mut value = self.term(words, level)?;
        loop {
            let divides = words.takes("/");
            if !divides && !words.takes("*") {
                return Ok(value);
            }
            let right = self.term(words, level)?.number()?;
            let left = value.number()?;
            value = Value::Number(if divides { left / right } else { left * right });
        }
    }

    pub(super) fn term(&mut self, words: &mut Words<'_>, level: usize) -> Outcome<Value> {
        words.takes("the");
        if let Some(constant) = CONSTANTS.iter().find(|word| words.takes(word)) {
            // `icon view options` is an object.
            if *constant != "icon view" || !words.takes("options") {
                return Ok(Value::Word(constant));
            }
            let (disk, _) = self.owner(words, level)?;
            return Ok(Value::Part(disk, Part::ViewOptions));
        }
        if words.takes("(") {
            let value = self.value(words, level + 1)?;
            words.expect(")")?;
            return Ok(value);
        }
        if words.takes("{") {
            let mut list = Vec::new();
            while !words.takes("}") {
                list.push(self.value(words, level + 1)?);
                if !words.takes(",") {
                    words.expect("}")?;
                    break;
                }
            }
            return Ok(Value::List(list));
        }
        if words.takes("-") {
            return Ok(Value::Number(-self.term(words, level + 1)?.number()?));
        }
        if words.takes("do shell script") {
            let command = self.converted(words, level + 1)?.text()?;
            return self.shell(&command);
        }
        if words.takes("true") {
            return Ok(Value::Yes(true));
        }
        if words.takes("false") {
            return Ok(Value::Yes(false));
        }
        if words.takes("missing value") {
            return Ok(Value::Nothing);
        }
        if words.takes("application") {
            let name = self.term(words, level + 1)?.text()?;
            return match name.eq_ignore_ascii_case("Finder") {
                true => Ok(Value::Finder),
                false => Err(refused(format!("application {name} is not supported"))),
            };
        }
        if words.takes("disk") {
            let name = self.term(words, level + 1)?.text()?;
            return self.disk(&name).map(|disk| Value::Part(disk, Part::Disk));
        }
        if words.takes("container window") {
            let (disk, _) = self.owner(words, level)?;
            return Ok(Value::Part(disk, Part::Window));
        }
        if words.takes("every item") {
            let (disk, _) = self.owner(words, level)?;
            return Ok(Value::Part(disk, Part::EveryItem));
        }
        if words.takes("POSIX file") || words.takes("alias") {
            return Ok(Value::File(self.term(words, level + 1)?.text()?));
        }
        let is_file = words.takes("file");
        if is_file || words.takes("item") || words.takes("folder") {
            let name = self.term(words, level + 1)?;
            let (disk, list) = self.owner(words, level)?;
            if let (Value::Number(number), Some(list)) = (&name, list) {
                let value = list.get((*number as usize).wrapping_sub(1));
                return value
                    .cloned()
                    .ok_or_else(|| refused(format!("there is no item {number}")));
            }
            let name = name.text()?;
            // A file in a folder is named with colons, one in the root as any item.
            return Ok(match is_file && name.contains(':') {
                true => Value::Part(disk, Part::File(name)),
                false => Value::Part(disk, Part::Item(name)),
            });
        }
        match words.next() {
            Some(Token::Text(text)) => Ok(Value::Text(text.clone())),
            Some(Token::Number(number)) => Ok(Value::Number(*number)),
            Some(Token::Word(name)) => {
                let known = self
                    .variables
                    .iter()
                    .find(|(known, _)| known.eq_ignore_ascii_case(name));
                known
                    .map(|(_, value)| value.clone())
                    .ok_or_else(|| refused(format!("{name} is not supported")))
            }
            Some(Token::Sign(sign)) => Err(refused(format!("{sign} is not supported"))),
            None => Err(refused("the statement is incomplete")),
        }
    }

    /// Returns the volume of the object after `of`, or of the surrounding `tell`; or the list after
    /// `of`.
    pub(super) fn owner(
        &mut self,
        words: &mut Words<'_>,
        level: usize,
    ) -> Outcome<(usize, Option<Vec<Value>>)> {
        let named = match words.takes("of") {
            true => Some(self.term(words, level + 1)?),
            false => None,
        };
        let disk = |value: &Value| match value {
            Value::Part(disk, _) => Some(*disk),
            _ => None,
        };
        let found = match named {
            Some(Value::List(list)) => return Ok((0, Some(list))),
            Some(value) => disk(&value),
            None => self.targets.iter().rev().find_map(disk),
        };
        found
            .map(|disk| (disk, None))
            .ok_or_else(|| refused("the object belongs to no disk"))
    }

    pub(super) fn disk(&mut self, name: &str) -> Outcome<usize> {
        let disk = Disk::find(name)?;
        let known = self
            .disks
            .iter()
            .position(|known| known.folder == disk.folder);
        Ok(known.unwrap_or_else(|| {
            self.disks.push(disk);
            self.disks.len() - 1
        }))
    }

    /// Answers the one shell command of these scripts, which asks for the Finder's file.
    fn shell(&mut self, command: &str) -> Outcome<Value> {
        let path = command
            .strip_prefix("[ -f ")
            .and_then(|rest| rest.strip_suffix(" ]; echo $?"))
            .map(|path| path.trim().trim_matches(['"', '\'']));
        let Some(path) = path.map(Path::new) else {
            return Err(refused(format!(
                "do shell script is not supported: {command}"
            )));
        };
        self.save()?;
        // Written by the script itself; a volume that tells `.DS_STORE` apart is no obstacle.
        let name = path.file_name().unwrap_or_default();
        let is_store = name.eq_ignore_ascii_case(".DS_Store")
            && self
                .disks
                .iter()
                .any(|disk| disk.folder.join(".DS_Store").is_file());
        let exists = path.is_file() || is_store;
        Ok(Value::Text(u8::from(!exists).to_string()))
    }
}
