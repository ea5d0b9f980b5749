//! JSON of a code signature.

use bandsaw::container::udif::{CodeSignature, Udif};
use serde::Serialize;

use crate::output::Output;

/// A code signature: its place, and what it says.
#[derive(Debug, Serialize)]
pub(crate) struct SignatureJson {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    #[serde(flatten)]
    pub(crate) contents: Option<SignatureContents>,
}

/// The contents of a signature that could be read.
#[derive(Debug, Serialize)]
pub(crate) struct SignatureContents {
    identifier: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    team: Option<String>,
    algorithms: Vec<&'static str>,
    /// True if certificates vouch for it.
    certified: bool,
    /// True if a notarization ticket is attached.
    ticket: bool,
}

impl SignatureJson {
    /// Reads the signature of an image. A form that is not known is no damage.
    pub(crate) fn of(udif: &Udif) -> Option<(Self, Option<CodeSignature>)> {
        let range = udif.signature()?;
        let known = udif.code_signature().ok().flatten();
        let contents = known.as_ref().map(|known| SignatureContents {
            identifier: known.identifier.clone(),
            team: known.team.clone(),
            algorithms: known.hashes.clone(),
            certified: known.certified,
            ticket: known.ticket,
        });
        let json = Self {
            offset: range.start,
            size: range.end - range.start,
            contents,
        };
        Some((json, known))
    }
}

impl SignatureContents {
    /// Returns the facts in a line.
    pub(crate) fn text(&self, output: &Output) -> String {
        let mut parts = vec![output.name(&self.identifier)];
        let team = self.team.as_ref();
        parts.extend(team.map(|team| format!("team {}", output.name(team))));
        parts.push(self.algorithms.join(" and "));
        parts.push(match self.certified {
            true => "certificates not verified".to_owned(),
            false => "ad hoc".to_owned(),
        });
        parts.extend(self.ticket.then(|| "with a ticket".to_owned()));
        parts.join(", ")
    }
}
