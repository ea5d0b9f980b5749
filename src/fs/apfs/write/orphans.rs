//! Files without a name: they are kept in the folder beside the root as long as they are open (§8).

use super::entries::IsOpen;
use super::inode::Inode;
use super::volume::Volume;
use crate::Result;
use crate::fs::FileSystem;
use crate::fs::NodeId;
use crate::fs::apfs::layout::FileId;

/// The end of the name that such a file has in that folder.
const ENDING: &str = "-dead";

impl Volume {
    /// Keeps a file that has lost its last name.
    pub(super) fn orphan(&mut self, inode: &mut Inode) -> Result<()> {
        let mut private = self.inode(FileId::PRIVATE_DIR)?;
        let name = name_of(inode.id);
        inode.raw.parent_id = private.id.into();
        inode.set_name(&name);
        self.enter(&mut private, &name, inode, None)?;
        self.put_inode(&private)?;
        self.put_inode(inode)?;
        // It counts as gone already.
        self.count(inode, -1);
        Ok(())
    }

    /// Removes files without a name for good unless they are open.
    pub(super) fn reap(&mut self, is_open: IsOpen<'_>) -> Result<()> {
        for id in self.orphans.clone() {
            if is_open(id) {
                continue;
            }
            self.change(false, |volume| {
                let mut private = volume.inode(FileId::PRIVATE_DIR)?;
                let name = name_of(id);
                if let Some(entry) = volume.entry(private.id, &name)?.filter(|entry| entry.id() == id) {
                    let inode = volume.inode(id)?;
                    volume.leave(&mut private, &entry)?;
                    volume.put_inode(&private)?;
                    volume.discard(&inode)?;
                }
                Ok(())
            })?;
            self.orphans.retain(|orphan| *orphan != id);
        }
        Ok(())
    }

    /// Those that a crash has left.
    pub(super) fn find_orphans(&mut self) -> Result<()> {
        let mut found = Vec::new();
        self.read.list(NodeId(FileId::PRIVATE_DIR.0), &mut |entry| {
            let id = FileId(entry.attributes.id.0);
            if entry.name.ends_with(ENDING) && entry.name == name_of(id) {
                found.push(id);
            }
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        self.orphans = found;
        Ok(())
    }
}

fn name_of(id: FileId) -> String {
    format!("{id:#x}{ENDING}")
}
