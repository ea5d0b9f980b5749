//! Detection of folders that contain themselves.

use crate::{Error, Kind, NodeId, Result};

/// The folders above the current one, to detect one that contains itself, as hard links to folders
/// could cause on a damaged volume.
#[derive(Debug, Default)]
pub struct Ancestors(Vec<NodeId>);

impl Ancestors {
    /// Enters a folder that is `depth` folders below the first, and leaves those that do not contain it.
    /// A folder that contains itself is an error.
    pub fn enter(&mut self, folder: NodeId, depth: usize) -> Result<()> {
        self.0.truncate(depth);
        self.check(folder)?;
        self.0.push(folder);
        Ok(())
    }

    /// Returns an error if the folder is the last one that was entered, or contains it.
    pub fn check(&self, folder: NodeId) -> Result<()> {
        if self.0.contains(&folder) {
            let message = "the folder contains itself";
            return Err(Error::new(Kind::Corrupt, "folder", message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_itself_ends_the_walk() {
        let mut ancestors = Ancestors::default();
        ancestors.enter(NodeId(2), 0).unwrap();
        ancestors.enter(NodeId(16), 1).unwrap();
        assert_eq!(
            ancestors.check(NodeId(16)).unwrap_err().kind(),
            Kind::Corrupt
        );
        assert_eq!(
            ancestors.enter(NodeId(2), 2).unwrap_err().kind(),
            Kind::Corrupt
        );
        ancestors.enter(NodeId(17), 1).unwrap();
        ancestors.check(NodeId(16)).unwrap();
    }
}
