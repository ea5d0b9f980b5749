//! What the command says, and where: facts on standard output, everything else on standard error.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;

use bandsaw::address::Secrets;
use serde::Serialize;

use crate::args::{Color, Global};
use crate::failure::{Failure, Outcome};
use crate::text::{Quoting, printable};

/// A warning under `--json`.
#[derive(Serialize)]
struct Warning<'a> {
    schema: u32,
    warning: &'a str,
}

/// How the user wants to be told.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    terminal: bool,
    /// Standard output carries something else than facts.
    aside: bool,
    color_out: bool,
    color_err: bool,
    /// True if programs read on standard output how far work has come.
    percentages: bool,
    /// How names from an image are written.
    quoting: Option<Quoting>,
    /// What addresses of images on the command line hold that may not be shown.
    secrets: Arc<Secrets>,
}

/// A colour or weight of text on terminals.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Style {
    Bold,
    Dim,
    Folder,
    Symlink,
    Problem,
    Hint,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Folder => "1;34",
            Self::Symlink => "36",
            Self::Problem => "1;31",
            Self::Hint => "33",
        }
    }

    fn paint(self, text: &str, on: bool) -> String {
        if on {
            format!("\x1b[{}m{text}\x1b[0m", self.code())
        } else {
            text.to_owned()
        }
    }
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let terminal = io::stdout().is_terminal();
        let colored = |is_terminal: bool| match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                is_terminal
                    && !set("NO_COLOR")
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        };
        Self {
            json: global.json,
            quiet: global.quiet,
            terminal,
            aside: false,
            color_out: colored(terminal),
            color_err: colored(io::stderr().is_terminal()),
            percentages: false,
            quoting: global.quoting,
            secrets: Arc::new(secrets(std::env::args_os())),
        }
    }

    /// The same, with lines `PERCENTAGE:n` on standard output if programs want them.
    pub(crate) fn for_programs(self, percentages: bool) -> Self {
        Self {
            percentages,
            ..self
        }
    }

    /// Returns whether work tells on standard output how far it has come.
    pub(crate) fn tells_percentages(&self) -> bool {
        self.percentages
    }

    /// Returns whether facts are printed for programs.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Returns whether a progress bar may be shown.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && !self.json && io::stderr().is_terminal()
    }

    /// Returns whether standard output is a terminal.
    pub(crate) fn terminal(&self) -> bool {
        self.terminal
    }

    /// The same, but facts go to standard error, because an archive goes to standard output.
    pub(crate) fn aside(&self) -> Self {
        Self {
            aside: true,
            color_out: self.color_err,
            ..self.clone()
        }
    }

    /// Refuses `--json` for a verb whose output is not facts.
    pub(crate) fn refuse_json(&self, verb: &str) -> Outcome {
        if self.json {
            Err(Failure::usage(
                "--json",
                format!("{verb} prints no facts, so it has no JSON form"),
            ))
        } else {
            Ok(())
        }
    }

    /// A name from an image as `--quoting` has it; without that as it is for a pipe. On a terminal
    /// that it could steer, control characters are spelled out in any case.
    pub(crate) fn name(&self, name: &str) -> String {
        let name = self.secrets.mask(name);
        let quoted = self
            .quoting
            .map_or(Cow::Borrowed(&*name), |quoting| quoting.write(&name));
        if self.terminal {
            printable(&quoted).into_owned()
        } else {
            quoted.into_owned()
        }
    }

    /// A sentence that may hold names from an image: control characters are spelled out on a
    /// terminal, and where `--quoting` asks.
    pub(crate) fn text(&self, text: &str) -> String {
        let literal = matches!(self.quoting, None | Some(Quoting::Literal));
        let text = &*self.secrets.mask(text);
        if self.terminal || !literal {
            printable(text).into_owned()
        } else {
            text.to_owned()
        }
    }

    /// Text for standard output in a style, where colours are wanted.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        style.paint(text, self.color_out)
    }

    /// Prints `facts` under `--json`, and else what `text` writes.
    pub(crate) fn facts<T: Serialize>(
        &self,
        facts: &T,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Outcome {
        if self.aside {
            return self.facts_aside(facts, text);
        }
        let mut out = self.stdout();
        if self.json {
            let facts = serde_json::to_string_pretty(facts).map_err(io::Error::from)?;
            writeln!(out, "{}", self.secrets.mask(&facts))?;
        } else {
            text(&mut out)?;
        }
        Ok(out.flush()?)
    }

    /// The same for a verb whose work is not to print: nothing under `--quiet`.
    pub(crate) fn done<T: Serialize>(
        &self,
        facts: &T,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Outcome {
        if self.quiet && !self.json {
            Ok(())
        } else {
            self.facts(facts, text)
        }
    }

    fn facts_aside<T: Serialize>(
        &self,
        facts: &T,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Outcome {
        if self.json {
            self.json_line(facts);
        } else {
            text(&mut io::stderr().lock())?;
        }
        Ok(())
    }

    /// Standard output, buffered; the caller flushes it, so that a full disk is not missed.
    pub(crate) fn stdout(&self) -> impl Write + use<> {
        BufWriter::with_capacity(64 << 10, io::stdout().lock())
    }

    /// Something the user should know although all went well.
    pub(crate) fn warn(&self, text: &str) {
        if self.quiet {
            return;
        }
        if self.json {
            self.json_line(&Warning {
                schema: 1,
                warning: text,
            });
        } else {
            self.tell(Style::Hint, "warning", &printable(text));
        }
    }

    /// What is about to be done, before it is.
    pub(crate) fn tell_plan(&self, text: &str) {
        if !self.quiet && !self.json {
            let _ = writeln!(io::stderr(), "{}", printable(&self.secrets.mask(text)));
        }
    }

    /// What failed, and what to do next.
    pub(crate) fn error(&self, text: &str, hint: Option<&str>) {
        self.tell(Style::Problem, "error", text);
        if let Some(hint) = hint {
            self.tell(Style::Hint, " hint", hint);
        }
    }

    /// A line for programs on standard error.
    pub(crate) fn json_line(&self, report: &impl Serialize) {
        // Standard error is the last resort: when it fails too, the exit code remains.
        let report = serde_json::to_string(report).unwrap_or_default();
        let _ = writeln!(io::stderr(), "{}", self.secrets.mask(&report));
    }

    fn tell(&self, style: Style, label: &str, text: &str) {
        let _ = writeln!(
            io::stderr(),
            "{}: {}",
            style.paint(label, self.color_err),
            self.secrets.mask(text)
        );
    }
}

/// What addresses among these words hold that may not be shown.
fn secrets(words: impl Iterator<Item = OsString>) -> Secrets {
    let mut secrets = Secrets::default();
    words.for_each(|word| secrets.add(&word.to_string_lossy()));
    secrets
}

/// Returns whether an environment variable is there and not empty, as no-color.org wants it.
fn set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}
