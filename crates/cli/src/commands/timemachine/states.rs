//! `bandsaw timemachine states`: the states of a bundle.

use bandsaw::size;
use bandsaw::{Error, Kind};
use bandsaw_states::{Condition, State};
use clap::Args;
use serde::Serialize;

use super::{StatesArgs, timestamp};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::text::{Table, counted, rfc3339};

/// List the states of a bundle, the oldest first
///
/// Each has its date, size, the bytes that were copied for it, and the result of its check. A state
/// is an image: `bandsaw ls BUNDLE/.bandsaw/states/DATE` lists its files. --verify reads every file
/// and compares it with its hash. The exit code is 5 if a state is damaged.
#[derive(Debug, Args)]
pub(super) struct States {
    #[command(flatten)]
    at: StatesArgs,
    /// Read all files and compare them with their hashes
    #[arg(long)]
    verify: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct StatesReport {
    path: String,
    states: Vec<StateJson>,
}

#[derive(Serialize)]
struct StateJson {
    name: String,
    path: String,
    /// `whole`, `incomplete`, `other_format`, `unreadable` or `damaged`.
    condition: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copied_size: Option<u64>,
}

impl States {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let (bundle, shelf) = self.at.open()?;
        let bar = Bar::new(output);
        let mut states = Vec::new();
        for state in shelf.list()? {
            let mut json = StateJson::new(&state, shelf.path(&state.id).display().to_string());
            if let (true, Some(manifest)) = (self.verify, state.manifest()) {
                let damaged = shelf.verify(&state.id, manifest, &bar)?;
                if let Some(first) = damaged.first() {
                    json.condition = "damaged";
                    let files = counted(damaged.len() as u64, "file", "files");
                    json.message = Some(format!("{files}, {first} first"));
                }
            }
            states.push(json);
        }
        drop(bar);
        let report = StatesReport {
            path: bundle.path().display().to_string(),
            states,
        };
        output.result(&report, |out| {
            let mut table = Table::new([false, true, true, false]);
            for state in &report.states {
                let bytes =
                    |n: Option<u64>| n.map_or_else(String::new, |n| size::display(n).to_string());
                let check = match (&state.message, state.check) {
                    (Some(message), _) => format!("{}: {message}", state.condition),
                    (None, check) => check.unwrap_or(state.condition).to_owned(),
                };
                table.row([
                    output.name(&state.name),
                    bytes(state.size),
                    bytes(state.copied_size),
                    output.text(&check),
                ]);
            }
            write!(out, "{}", table.lines(""))
        })?;
        let bad = report
            .states
            .iter()
            .find(|state| state.condition != "whole");
        match bad {
            None => Ok(()),
            Some(state) => {
                let message = format!("the state {} is {}", state.name, state.condition);
                let error = Error::new(Kind::Corrupt, "states", message).in_file(bundle.path());
                Err(Failure::from(error))
            }
        }
    }
}

impl StateJson {
    fn new(state: &State, path: String) -> Self {
        let (condition, message) = match &state.condition {
            Condition::Whole(_) => ("whole", None),
            Condition::Incomplete(why) => ("incomplete", Some(why.clone())),
            Condition::OtherFormat(version) => (
                "other_format",
                Some(format!("version {version} is not supported")),
            ),
            Condition::Unreadable(error) => ("unreadable", Some(error.to_string())),
        };
        let whole = state.manifest();
        Self {
            name: state.id.clone(),
            path,
            condition,
            message,
            created: whole.map(|manifest| rfc3339(timestamp(manifest.listed))),
            check: whole.map(|manifest| manifest.check.name()),
            size: whole.map(bandsaw_states::Manifest::size),
            copied_size: whole.map(|manifest| manifest.copied),
        }
    }
}
