//! Renames: every file that gives files other names is under a crash test, or a reason stands here.
//!
//! A rename is the moment at which new contents take the place of old ones, so a missing flush or
//! sync before or after it loses data only when the power fails, and no other test sees it.

use super::covered::{Covered, is_shipped};
use super::{Fault, Text};

/// Files of production code that rename, each with the test that lets the power fail or kills the
/// process, or the reason why there is none.
const COVERED: &[&str] = &[
    "crates/backups/src/convert/mod.rs: tests/apfs_crash.rs: within a volume",
    "crates/cli/src/commands/convert.rs: the complete, flushed copy replaces its source in one step",
    "crates/cli/src/commands/timemachine/convert.rs: crates/cli/tests/tm_convert.rs: a new, flushed image takes its place in one step",
    "crates/cli/src/commands/timemachine/create.rs: a new, flushed bundle takes its place in one step",
    "crates/cli/src/commands/web/install.rs: a new, synced file takes its place in one step",
    "crates/cli/src/hdiutil/makehybrid.rs: a new file of another program, which can be made again",
    "crates/cli/src/new_file.rs: a flushed file takes its place in one step",
    "crates/cli/src/shims/ditto/copy.rs: a copy, whose original stays",
    "crates/cli/src/shims/ditto/zip.rs: a copy, whose archive stays",
    "crates/cli/src/shims/osascript/finder.rs: a flushed file takes its place in one step",
    "crates/core/src/platform/unix.rs: a system call, which its callers sync",
    "crates/core/src/platform/windows.rs: a system call, which its callers sync",
    "crates/core/src/store/local/file/mod.rs: records the path of an open file, renames nothing",
    "crates/core/src/store/local/folders.rs: records the path of an open folder, renames nothing",
    "crates/core/src/store/local/host.rs: the store of this host, for which the simulation stands in crash tests",
    "crates/core/src/store/local/mod.rs: the store of this host, for which the simulation stands in crash tests",
    "crates/core/src/store/local/replace.rs: the store of this host, for which the simulation stands in crash tests",
    "crates/core/src/store/prefix.rs: hands the rename to another store",
    "crates/fs/src/clusters/write/mod.rs: crates/fs/tests/fat_changes.rs: within a volume",
    "crates/fs/src/open_volume_methods.rs: tests/hfsplus_crash.rs: within a volume",
    "crates/mount/src/volume/change.rs: tests/hfsplus_crash.rs: within a volume",
    "crates/python/src/changes.rs: tests/hfsplus_crash.rs: within a volume",
    "crates/states/src/forget.rs: crates/states/tests/power_cut.rs",
    "crates/states/src/keep.rs: crates/states/tests/power_cut.rs",
    "crates/states/src/private_cache.rs: a cache, which is ignored if it is damaged",
    "crates/states/src/scrub/repair.rs: crates/states/src/scrub/tests/power_cut.rs",
    "crates/states/src/shelf.rs: crates/states/tests/power_cut.rs",
    "crates/states/src/swap.rs: crates/states/tests/power_cut.rs",
    "crates/states/src/transfer/bucket.rs: names in a bucket, which change in one commit; crates/states/tests/bucket.rs loses requests",
    "crates/states/src/transfer/receive.rs: crates/states/tests/power_cut.rs",
    "crates/web/src/restore.rs: a copy, whose image stays; it takes its place in one step when it is durable",
    "crates/web/src/upload.rs: an uploaded, synced file takes its place in one step; its sender has it",
    "src/container/sparsebundle/rebanding/mod.rs: src/container/sparsebundle/rebanding/tests.rs",
    "src/container/sparsebundle/repair.rs: tests/repair/mod.rs",
    "src/open/place.rs: crates/cli/tests/signals.rs: a new image, flushed before it takes its place",
    "src/ops/compress/host.rs: calls of macOS alone, not yet run on a Mac",
    "src/ops/export/existing.rs: a copy, whose volume stays; the next run compares it",
    "src/ops/rename.rs: tests/hfsplus_crash.rs: within a volume",
    "src/ops/repair/revert.rs: tests/repair/undo.rs",
    "src/ops/repair/undo.rs: tests/repair/undo.rs",
    "src/ops/repair/undo_store.rs: tests/repair/undo.rs",
    "src/ops/snapshot/folder.rs: src/ops/snapshot/tests/power_cut.rs",
];

/// Calls that give a file another name.
const CALLS: [&str; 5] = [
    ".rename(",
    "fs::rename(",
    "renameat(",
    "renameat_with(",
    ".rename_folder(",
];

/// Returns the faults of the whole tree: a file that renames and is not in the table, and entries
/// whose file renames nothing, or whose test does not exist or lets nothing crash.
pub(super) fn check(files: &[Text]) -> Vec<Fault> {
    let covered = Covered {
        table: COVERED,
        place: "xtask/src/tidy/renames.rs",
        what: "a rename that no crash test covers",
        is_wanted: first_rename,
        words: &["PowerCut", "crash", "kill", "KILL"],
    };
    covered.check(files)
}

/// Returns the first line of shipped code that renames.
fn first_rename(file: &Text) -> Option<usize> {
    let mut code = file.code();
    let found = code.find(|(_, line)| CALLS.iter().any(|call| line.contains(call)));
    found
        .filter(|_| is_shipped(&file.path))
        .map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn renames_need_an_entry() {
        let rename = "fs::rename(from, to)?;";
        for (path, line, faults) in [
            ("src/new.rs", rename, 1),
            ("src/new.rs", "store.rename(&from, &to)", 1),
            ("src/new.rs", "    .rename_folder(from, to)?", 1),
            ("src/new.rs", "// as fs::rename(from, to)", 0),
            ("src/new.rs", "fn rename(from: &str)", 0),
            ("src/new/tests.rs", rename, 0),
            ("tests/new.rs", rename, 0),
            ("xtask/src/new.rs", rename, 0),
            ("docs/new.md", rename, 0),
            ("src/new.rs", "#[cfg(test)]\nfs::rename(from, to)", 0),
            // Its test is missing.
            ("crates/states/src/swap.rs", rename, 1),
            ("crates/states/src/swap.rs", "struct Swap;", 1),
            ("crates/core/src/store/prefix.rs", "a.rename(b, c)", 0),
        ] {
            assert_eq!(check(&[text(path, line)]).len(), faults, "{path}: {line}");
        }
    }

    #[test]
    fn the_test_of_an_entry_lets_something_crash() {
        let swap = || text("crates/states/src/swap.rs", "store.rename(a, b)?;");
        let test = |line| text("crates/states/tests/power_cut.rs", line);
        assert_eq!(
            check(&[swap(), test("let cut = PowerCut::default();")]).len(),
            0
        );
        assert_eq!(check(&[swap(), test("fn works() {}")]).len(), 1);
    }
}
