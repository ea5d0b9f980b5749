//! States of a volume, as queries name them.

/// A state of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VolumeState {
    /// The backup of this number.
    Backup(usize),
    /// The snapshot of this name. `None`: the current state.
    Snapshot(Option<String>),
}

impl VolumeState {
    /// Returns the text for queries.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Backup(number) => format!("backup {number}"),
            Self::Snapshot(Some(name)) => format!("snapshot {name}"),
            Self::Snapshot(None) => "now".to_owned(),
        }
    }

    /// Reads the text of a query.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("backup", number)) => Some(Self::Backup(number.parse().ok()?)),
            Some(("snapshot", name)) => Some(Self::Snapshot(Some(name.to_owned()))),
            _ => (text == "now").then_some(Self::Snapshot(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_again() {
        for state in [
            VolumeState::Backup(12),
            VolumeState::Snapshot(Some("before update".to_owned())),
            VolumeState::Snapshot(None),
        ] {
            assert_eq!(VolumeState::parse(&state.text()), Some(state));
        }
        for text in ["", "backup", "backup x", "backup -1", "snapshot", "then"] {
            assert_eq!(VolumeState::parse(text), None, "{text}");
        }
    }
}
