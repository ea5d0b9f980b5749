//! A step of a repair.

use std::fmt;

/// Number of files that the text of a step names.
const NAMED: usize = 3;

/// A kind of change that a repair makes, with the files that it concerns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairStep {
    /// The change.
    pub text: String,
    /// The paths of the files and folders, or other names, in order.
    pub files: Vec<String>,
}

impl From<String> for RepairStep {
    /// Returns a step that concerns no single file.
    fn from(text: String) -> Self {
        let files = Vec::new();
        Self { text, files }
    }
}

impl From<&str> for RepairStep {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl fmt::Display for RepairStep {
    /// Writes the change and the first files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        for (at, file) in self.files.iter().take(NAMED).enumerate() {
            write!(f, "{} {file}", if at == 0 { ":" } else { "," })?;
        }
        match self.files.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
