//! Errors and codes in the words of `docs/json.md`.

use serde::{Serialize, Serializer};

use crate::Error;
use crate::error::Place;

/// An error.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorInfo {
    /// The stable name of its kind.
    pub kind: &'static str,
    /// The code of the cause, if a caller can act on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The exit code of the command, which adds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
    /// The text for people.
    pub message: String,
    /// The code of the layer, or of an option.
    pub layer: String,
    /// The file of the host, or the folder of an image, in which the error occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The file in `path`, if that is a folder such as a sparse bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The position in the layer, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The name of the item in the layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The advice of the command, which adds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ErrorInfo {
    /// Returns the error with its whole text.
    pub fn new(error: &Error) -> Self {
        let (offset, name) = place(error);
        Self {
            kind: error.kind().name(),
            reason: error.reason().map(|reason| code(reason.name())),
            exit: None,
            message: error.to_string(),
            layer: layer_code(error.layer()),
            path: error.file().map(str::to_owned),
            part: error.part().map(str::to_owned),
            offset,
            name,
            hint: None,
        }
    }

    /// Returns the error with its message alone, where its place is shown beside it.
    pub fn brief(error: &Error) -> Self {
        Self {
            message: error.message().to_owned(),
            path: None,
            part: None,
            ..Self::new(error)
        }
    }
}

/// Returns the place of an error: a position in bytes, or a name.
pub(super) fn place(error: &Error) -> (Option<u64>, Option<String>) {
    match error.place() {
        Place::None => (None, None),
        Place::Offset(offset) => (Some(*offset), None),
        Place::Name(name) => (None, Some(name.clone())),
    }
}

/// Returns a code of the library in the form of the JSON vocabulary: `in_use` for `in-use`.
pub fn code(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns the code of a layer or option: `gpt_header` for `gpt header`, `passfile` for
/// `--passfile`.
pub fn layer_code(layer: &str) -> String {
    let layer = layer.to_lowercase().replace('+', "_plus");
    let words = layer.split(|character: char| !character.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join("_")
}

/// A text for people, as an object, so that fields such as codes can be added.
#[derive(Debug, Clone, Serialize)]
pub struct Message {
    pub message: String,
}

impl Message {
    /// Returns the object for a text.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

/// Writes each of some texts as a [`Message`].
pub fn messages<S: Serializer>(
    texts: &[impl AsRef<str>],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(texts.iter().map(|text| Message::new(text.as_ref())))
}
