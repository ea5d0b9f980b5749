//! The statements of the scripts.

use super::super::refused;
use super::finder::Disk;
use super::tokens::{Line, Token, Words, lines};
use super::value::Value;
use crate::failure::{Failure, Outcome};

/// A limit for loops, which wait for the Finder.
const MAX_TURNS: u32 = 1000;
/// A limit for nested expressions and blocks.
pub(super) const MAX_LEVELS: usize = 50;

/// The properties that can be set.
const PROPERTIES: [&str; 17] = [
    "current view",
    "toolbar visible",
    "statusbar visible",
    "status bar visible",
    "pathbar visible",
    "sidebar width",
    "bounds",
    "icon size",
    "text size",
    "arrangement",
    "shows item info",
    "shows icon preview",
    "label position",
    "background color",
    "background picture",
    "extension hidden",
    "position",
];

/// A script, parsed into words.
#[derive(Debug)]
pub(super) struct Script {
    lines: Vec<Line>,
}

impl Script {
    /// Splits a script into words. Fails for syntax that is not supported, before anything is run.
    pub(super) fn parse(text: &str) -> Outcome<Self> {
        Ok(Self {
            lines: lines(text)?,
        })
    }

    /// Runs the script with these arguments; `log` writes to standard error, and the script has no
    /// result. Settings of a volume before an error are not saved.
    pub(super) fn run(&self, arguments: Vec<String>) -> Outcome {
        let mut run = Run {
            lines: &self.lines,
            at: 0,
            arguments: Value::List(arguments.into_iter().map(Value::Text).collect()),
            variables: Vec::new(),
            targets: Vec::new(),
            disks: Vec::new(),
        };
        run.block(0)?;
        run.save()
    }
}

/// The end of a block.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Block,
    Else,
    /// The end of the script, or `return`.
    Script,
}

#[derive(Debug)]
pub(super) struct Run<'a> {
    lines: &'a [Line],
    /// The next line.
    at: usize,
    arguments: Value,
    pub(super) variables: Vec<(String, Value)>,
    /// The objects of the surrounding `tell` statements.
    pub(super) targets: Vec<Value>,
    pub(super) disks: Vec<Disk>,
}

impl Run<'_> {
    /// Runs lines up to the end of the block.
    fn block(&mut self, level: usize) -> Outcome<End> {
        if level > MAX_LEVELS {
            return Err(refused("too many nested blocks"));
        }
        let lines = self.lines;
        while let Some(line) = lines.get(self.at) {
            self.at += 1;
            match line.tokens[..] {
                [ref end, ..] if end.is("end") => return Ok(End::Block),
                [ref word] if word.is("else") => return Ok(End::Else),
                [ref word, ..] if word.is("return") => return Ok(End::Script),
                _ => {}
            }
            let ended = self
                .statement(&line.tokens, level)
                .map_err(|failure| of_line(failure, line))?;
            if ended == End::Script {
                return Ok(ended);
            }
        }
        Ok(End::Script)
    }

    /// Skips lines up to the end of the block.
    fn skip(&mut self) -> End {
        let mut depth = 0;
        let lines = self.lines;
        while let Some(line) = lines.get(self.at) {
            self.at += 1;
            let first = &line.tokens[0];
            if first.is("end") {
                if depth == 0 {
                    return End::Block;
                }
                depth -= 1;
            } else if first.is("else") && line.tokens.len() == 1 && depth == 0 {
                return End::Else;
            } else if opens(&line.tokens) {
                depth += 1;
            }
        }
        End::Script
    }

    /// Runs a statement, and the block that it begins. Returns whether the script goes on.
    fn statement(&mut self, tokens: &[Token], level: usize) -> Outcome<End> {
        let mut words = Words { tokens, at: 0 };
        let goes_on = Ok(End::Block);
        if words.takes("on run") {
            self.parameters(&mut words)?;
            return self.block(level + 1);
        }
        if words.takes("tell") {
            let target = self.value(&mut words, level)?;
            self.targets.push(target);
            let done = if words.takes("to") {
                self.statement(words.rest(), level + 1)
            } else {
                words.end().and_then(|()| self.block(level + 1))
            };
            self.targets.pop();
            if done.is_ok() {
                self.save()?;
            }
            return done;
        }
        if words.takes("if") {
            let is_true = self.value(&mut words, level)?.yes()?;
            words.expect("then")?;
            if !words.rest().is_empty() {
                return match is_true {
                    true => self.statement(words.rest(), level + 1),
                    false => goes_on,
                };
            }
            let ended = match is_true {
                true => self.block(level + 1)?,
                false => self.skip(),
            };
            return match (ended, is_true) {
                (End::Else, true) => Ok(self.skip()),
                (End::Else, false) => self.block(level + 1),
                (ended, _) => Ok(ended),
            };
        }
        if words.takes("repeat") {
            return self.repeat(&mut words, level);
        }
        if words.takes("set") {
            self.set(&mut words, level)?;
        } else if words.takes("log") {
            let text = self.value(&mut words, level)?.text()?;
            eprintln!("{text}");
        } else if words.takes("delay") {
            // Nothing happens meanwhile.
            self.value(&mut words, level)?.number()?;
        } else if ["open", "close", "activate", "update"]
            .iter()
            .any(|verb| words.takes(verb))
        {
            // A window is neither shown nor remembered; its settings are saved in any case.
            words.takes("without registering applications");
            if !words.rest().is_empty() {
                self.value(&mut words, level)?;
            }
        } else {
            return Err(refused("not supported"));
        }
        words.end()?;
        goes_on
    }

    /// Binds the arguments: all of them to one name, or each to one of a list.
    fn parameters(&mut self, words: &mut Words<'_>) -> Outcome {
        let Value::List(mut arguments) = self.arguments.clone() else {
            return Ok(());
        };
        let is_list = words.takes("{");
        let in_brackets = !is_list && words.takes("(");
        if is_list {
            while !words.takes("}") {
                let name = words.name()?;
                if arguments.is_empty() {
                    return Err(refused(format!("the argument {name} is missing")));
                }
                let argument = arguments.remove(0);
                self.assign(name, argument);
                words.takes(",");
            }
        } else if !words.rest().is_empty() {
            let name = words.name()?;
            self.assign(name, Value::List(arguments));
            if in_brackets {
                words.expect(")")?;
            }
        }
        words.end()
    }

    fn repeat(&mut self, words: &mut Words<'_>, level: usize) -> Outcome<End> {
        let (until, start) = (words.takes("until"), self.at);
        let is_condition = until || words.takes("while");
        let condition = words.at;
        for turn in 0..MAX_TURNS {
            words.at = condition;
            self.at = start;
            let value = self.value(words, level)?;
            let goes_on = match is_condition {
                true => value.yes()? != until,
                false => {
                    words.expect("times")?;
                    f64::from(turn) < value.number()?
                }
            };
            words.end()?;
            if !goes_on {
                return Ok(self.skip());
            }
            if self.block(level + 1)? == End::Script {
                return Ok(End::Script);
            }
        }
        Err(refused(format!(
            "repeated {MAX_TURNS} times without an end"
        )))
    }

    /// Sets a property of an object, or a variable.
    fn set(&mut self, words: &mut Words<'_>, level: usize) -> Outcome {
        words.takes("the");
        let Some(property) = PROPERTIES.iter().find(|property| words.takes(property)) else {
            let name = words.name()?;
            words.expect("to")?;
            let value = self.value(words, level)?;
            self.assign(name, value);
            return Ok(());
        };
        let named = match words.takes("of") {
            true => Some(self.value(words, level)?),
            false => None,
        };
        words.expect("to")?;
        let value = self.value(words, level)?;
        let target = named.or_else(|| self.targets.last().cloned());
        let Some(Value::Part(disk, part)) = target else {
            return Err(refused(format!("no object has the property {property}")));
        };
        let property = match *property {
            "status bar visible" => "statusbar visible",
            property => property,
        };
        self.disks[disk].set(&part, property, &value)
    }

    fn assign(&mut self, name: String, value: Value) {
        self.variables
            .retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        self.variables.push((name, value));
    }

    pub(super) fn save(&mut self) -> Outcome {
        self.disks.iter_mut().try_for_each(Disk::save)
    }
}

/// Returns true if a block begins with this statement.
fn opens(tokens: &[Token]) -> bool {
    let has = |word: &str| tokens.iter().any(|token| token.is(word));
    match &tokens[0] {
        first if first.is("tell") => !has("to"),
        first if first.is("if") => tokens.last().is_some_and(|last| last.is("then")),
        first => ["on", "repeat", "try", "with", "using"]
            .iter()
            .any(|word| first.is(word)),
    }
}

/// Names the line of a failure.
fn of_line(failure: Failure, line: &Line) -> Failure {
    let message = failure.message();
    let message = message.strip_prefix("arguments: ").unwrap_or(&message);
    // A line of a block was named already.
    if message.starts_with("line ") {
        return failure;
    }
    refused(format!("line {}: {}: {message}", line.number, line.text))
}
