//! The output of the command: results on standard output, everything else on standard error.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;

use bandsaw::address::Secrets;
use bandsaw::open::Image;
use bandsaw::ops::describe::Message;
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::global_args::{Color, Global};
use crate::text::{Quoting, printable};

/// The number of the JSON vocabulary in `docs/json.md`, which changes with its words.
pub(crate) const SCHEMA: u32 = 2;

/// A document of `--json`.
#[derive(Serialize)]
struct Document<'a, T> {
    schema: u32,
    #[serde(flatten)]
    contents: &'a T,
}

impl<'a, T> Document<'a, T> {
    fn new(contents: &'a T) -> Self {
        Self {
            schema: SCHEMA,
            contents,
        }
    }
}

/// A warning under `--json`.
#[derive(Serialize)]
struct Warning {
    warning: Message,
}

/// The output settings.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    terminal: bool,
    /// True if standard output has other data than results.
    aside: bool,
    color_out: bool,
    color_err: bool,
    /// True if standard output has percentages for programs.
    percentages: bool,
    /// The quoting style of names in an image.
    quoting: Option<Quoting>,
    /// True if progress may be printed as lines.
    logs_progress: bool,
    /// Secrets in addresses on the command line, which must not be printed.
    secrets: Arc<Secrets>,
}

/// A color or weight of text on terminals.
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
    /// Returns the output that the global options, the terminal and `NO_COLOR` ask for.
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
            logs_progress: global.progress,
            secrets: Arc::new(secrets(std::env::args_os())),
        }
    }

    /// Returns the output for an error under `--json` before the options are known.
    pub(crate) fn for_json() -> Self {
        Self::new(&Global {
            json: true,
            quiet: false,
            color: Color::Never,
            quoting: None,
            progress: false,
        })
    }

    /// Returns the same output, with lines `PERCENTAGE:n` on standard output if `percentages` is
    /// true.
    pub(crate) fn for_programs(self, percentages: bool) -> Self {
        Self {
            percentages,
            ..self
        }
    }

    /// Returns true if standard output has percentages.
    pub(crate) fn prints_percentages(&self) -> bool {
        self.percentages
    }

    /// Returns true if results are printed for programs.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Returns true if notes for people are printed on standard error.
    pub(crate) fn notes(&self) -> bool {
        !self.quiet && !self.json
    }

    /// Returns true if a progress bar may be shown.
    pub(crate) fn shows_progress(&self) -> bool {
        self.notes() && io::stderr().is_terminal()
    }

    /// Returns true if progress is printed as lines.
    pub(crate) fn logs_progress(&self) -> bool {
        self.logs_progress && self.notes() && !io::stderr().is_terminal()
    }

    /// Returns true if standard output is a terminal.
    pub(crate) fn terminal(&self) -> bool {
        self.terminal
    }

    /// Returns the same output with results on standard error, as an archive goes to standard output.
    pub(crate) fn aside(&self) -> Self {
        Self {
            aside: true,
            color_out: self.color_err,
            ..self.clone()
        }
    }

    /// Refuses `--json` for a verb whose output is not a result.
    pub(crate) fn refuse_json(&self, verb: &str) -> Outcome {
        if self.json {
            Err(Failure::usage(
                "--json",
                format!("{verb} has no JSON output"),
            ))
        } else {
            Ok(())
        }
    }

    /// Returns a name from an image in the style of `--quoting`, by default unchanged for a pipe.
    /// On a terminal control characters are always escaped.
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

    /// Returns a sentence that may contain names from an image; control characters are escaped on a
    /// terminal, and if `--quoting` is given.
    pub(crate) fn text(&self, text: &str) -> String {
        let literal = matches!(self.quoting, None | Some(Quoting::Literal));
        let text = &*self.secrets.mask(text);
        if self.terminal || !literal {
            printable(text).into_owned()
        } else {
            text.to_owned()
        }
    }

    /// Returns text for standard output in a style, if colors are enabled.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        style.paint(text, self.color_out)
    }

    /// Prints `value` under `--json`, and otherwise the output of `text`.
    pub(crate) fn result<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Outcome {
        if self.aside {
            return self.result_aside(value, text);
        }
        let mut out = self.stdout();
        if self.json {
            writeln!(out, "{}", self.document(value)?)?;
        } else {
            text(&mut out)?;
        }
        Ok(out.flush()?)
    }

    /// Returns the document of a result as JSON.
    pub(crate) fn document<T: Serialize>(&self, value: &T) -> Outcome<String> {
        let text = serde_json::to_string_pretty(&Document::new(value)).map_err(io::Error::from)?;
        Ok(self.secrets.mask(&text))
    }

    /// Prints the result of a verb that is silent for people, as `rm` and `mv` are.
    pub(crate) fn silent<T: Serialize>(&self, value: &T) -> Outcome {
        if self.json {
            self.result(value, |_| Ok(()))
        } else {
            Ok(())
        }
    }

    /// Prints the result of a verb that changes something; nothing under `--quiet`.
    pub(crate) fn done<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Outcome {
        if self.quiet && !self.json {
            Ok(())
        } else {
            self.result(value, text)
        }
    }

    fn result_aside<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Outcome {
        if self.json {
            self.json_line(value);
        } else {
            text(&mut io::stderr().lock())?;
        }
        Ok(())
    }

    /// Returns standard output, buffered. The caller flushes it, so that a full disk is detected.
    pub(crate) fn stdout(&self) -> impl Write + use<> {
        BufWriter::with_capacity(64 << 10, io::stdout().lock())
    }

    /// Prints a warning.
    pub(crate) fn warn(&self, text: &str) {
        if !self.quiet {
            self.warn_of_loss(text);
        }
    }

    /// Prints all warnings about an image.
    pub(crate) fn warn_of(&self, image: &Image) {
        for warning in image.warnings() {
            match image.is_of_loss(warning) {
                true => self.warn_of_loss(warning),
                false => self.warn(warning),
            }
        }
    }

    /// Prints a warning that contents are missing or damaged, also under `--quiet`.
    pub(crate) fn warn_of_loss(&self, text: &str) {
        if self.json {
            self.json_line(&Warning {
                warning: Message::new(text),
            });
        } else {
            self.print_line(Style::Hint, "warning", &printable(text));
        }
    }

    /// Prints a remark that is no warning.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet && !self.json {
            self.print_line(Style::Dim, "note", &printable(text));
        }
    }

    /// Prints a plan before it is carried out.
    #[cfg(feature = "bench")]
    pub(crate) fn print_plan(&self, text: &str) {
        if !self.quiet && !self.json {
            let _ = writeln!(io::stderr(), "{}", printable(&self.secrets.mask(text)));
        }
    }

    /// Prints an error and a hint.
    pub(crate) fn error(&self, text: &str, hint: Option<&str>) {
        self.print_line(Style::Problem, "error", text);
        if let Some(hint) = hint {
            self.print_line(Style::Hint, " hint", hint);
        }
    }

    /// Prints a line for programs on standard error.
    pub(crate) fn json_line(&self, report: &impl Serialize) {
        // If standard error fails too, only the exit code is left.
        let report = serde_json::to_string(&Document::new(report)).unwrap_or_default();
        let _ = writeln!(io::stderr(), "{}", self.secrets.mask(&report));
    }

    fn print_line(&self, style: Style, label: &str, text: &str) {
        let _ = writeln!(
            io::stderr(),
            "{}: {}",
            style.paint(label, self.color_err),
            self.secrets.mask(text)
        );
    }
}

/// Returns the secrets in addresses among these words, which must not be printed.
fn secrets(words: impl Iterator<Item = OsString>) -> Secrets {
    let mut secrets = Secrets::default();
    words.for_each(|word| secrets.add(&word.to_string_lossy()));
    secrets
}

/// Returns true if an environment variable is set and not empty, as no-color.org requires.
fn set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}
