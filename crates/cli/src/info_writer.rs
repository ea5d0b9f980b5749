//! A sheet of names and values for people.

use std::io::{self, Write};

use bandsaw::size;

use crate::output::{Output, Style};

/// The width of the column of names.
pub(crate) const NAME: usize = 11;

/// A writer of names and values.
pub(crate) struct InfoWriter<'a> {
    pub(crate) output: &'a Output,
    out: &'a mut dyn Write,
}

impl<'a> InfoWriter<'a> {
    pub(crate) fn new(output: &'a Output, out: &'a mut dyn Write) -> Self {
        Self { output, out }
    }

    /// Whole lines.
    pub(crate) fn lines(&mut self, lines: &str) -> io::Result<()> {
        write!(self.out, "{lines}")
    }

    pub(crate) fn heading(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", self.output.paint(Style::Bold, text))
    }

    /// Prints an indented line with a name and its value. Text from an image must be escaped before.
    pub(crate) fn fact(&mut self, name: &str, value: &str) -> io::Result<()> {
        writeln!(
            self.out,
            "  {}{value}",
            self.output.paint(Style::Dim, &format!("{name:NAME$}"))
        )
    }
}

/// Describes space that is pending.
pub(crate) fn held(pending: u64) -> String {
    format!("{} pending: held by older checkpoints", exact(pending))
}

/// Formats a size as `8 MiB (8388608 bytes)`.
pub(crate) fn exact(bytes: u64) -> String {
    format!("{:#}", size::display(bytes))
}
