//! Conformance: every device and every store is run through the suite, or a reason stands here.

use super::covered::{Covered, is_shipped};
use super::{Fault, Text};

/// Files that implement a device or a store, each with the test that runs the suite on it, or the
/// reason why none does.
const COVERED: &[&str] = &[
    "crates/bench/src/images/nbd.rs: a client of benchmarks, compared with what was written",
    "crates/core/src/crypt/aea/device.rs: tests/containers_suites.rs",
    "crates/core/src/crypt/device.rs: tests/encrypted_suites.rs",
    "crates/core/src/decmpfs/contents.rs: tests/layer_suites.rs",
    "crates/core/src/decmpfs/zeros.rs: tests/layer_suites.rs",
    "crates/core/src/device/cow.rs: tests/layer_suites.rs",
    "crates/core/src/device/memory.rs: tests/conformance.rs",
    "crates/core/src/device/read_only.rs: tests/layer_suites.rs",
    "crates/core/src/device/slice.rs: tests/conformance.rs",
    "crates/core/src/store/local/file/mod.rs: tests/conformance.rs",
    "crates/core/src/store/local/mod.rs: tests/conformance.rs",
    "crates/core/src/store/memory.rs: tests/conformance.rs",
    "crates/core/src/store/prefix.rs: tests/conformance.rs",
    "crates/core/src/store/single.rs: tests/conformance.rs",
    "crates/core/src/store/staged.rs: tests/layer_suites.rs",
    "crates/core/src/store/windows.rs: compiled here; the tests run on Unix",
    "crates/evidence/src/locator.rs: a read-only view that tells places; manifests are compared with the bytes at these",
    "crates/fs/src/clusters/write/file.rs: tests/layer_suites.rs",
    "crates/fs/src/clusters/contents.rs: crates/fs/src/clusters/tests.rs",
    "crates/fs/src/core_storage/device.rs: crates/fs/src/core_storage/tests.rs",
    "crates/fs/src/apfs/build/encryption.rs: written once, in order, by the builder",
    "crates/fs/src/apfs/stream.rs: tests/layer_suites.rs",
    "crates/fs/src/apfs/write/file.rs: tests/layer_suites.rs",
    "crates/fs/src/extent_device.rs: tests/layer_suites.rs",
    "crates/fs/src/hfsplus/journal/replayed.rs: tests/hfsplus_crash.rs reads every journal through it",
    "crates/fs/src/hfsplus/repair/rewrite.rs: a file of the volume header, with tests beside it",
    "crates/fs/src/write_buffer.rs: private pages of a writer, with tests beside it",
    "crates/fs/src/hfsplus/write/file.rs: tests/layer_suites.rs",
    "crates/fs/src/recovered/masked.rs: read-only, with tests beside it",
    "crates/fs/src/udf/contents.rs: crates/fs/src/udf/tests.rs",
    "crates/python/src/file_object.rs: tests of the wheel read and write through it",
    "src/container/apple_archive/stream.rs: tests beside it",
    "src/container/asif/mod.rs: tests/asif/mod.rs",
    "src/container/mapped/mod.rs: tests/read_only_images.rs",
    "src/container/raw.rs: tests/containers_suites.rs",
    "src/container/sparsebundle/disk.rs: tests/containers_suites.rs",
    "src/container/sparseimage/mod.rs: tests/sparseimage.rs",
    "src/container/stack/mod.rs: tests/stack.rs",
    "src/container/udif/read.rs: tests/layer_suites.rs",
    "src/open/gate/guarded.rs: tests/gate.rs: its contract is to refuse",
    "src/ops/convert/used.rs: read once, in order, by conversion",
    "src/ops/planned_disk.rs: tests/create.rs compares it with the disk that is built",
    "src/store/ranges.rs: tests beside it",
    "src/store/remote/file.rs: tests/remote/mod.rs",
    "src/store/remote/store.rs: tests/remote/mod.rs",
];

/// Returns the faults of the whole tree: a device or store that is not in the table, and entries
/// whose file has none, or whose test does not exist.
pub(super) fn check(files: &[Text]) -> Vec<Fault> {
    let covered = Covered {
        table: COVERED,
        place: "xtask/src/tidy/suites.rs",
        what: "a device or store that no conformance suite covers",
        is_wanted: implementation,
        words: &[""],
    };
    covered.check(files)
}

/// Returns the line of shipped code that implements a device or a store.
fn implementation(file: &Text) -> Option<usize> {
    let is_implementation = |line: &str| {
        line.starts_with("impl")
            && (line.contains(" BlockDevice for ") || line.contains(" Store for "))
    };
    let mut lines = (1..).zip(file.text.lines());
    let found = lines.find(|(_, line)| is_implementation(line));
    found
        .filter(|_| is_shipped(&file.path))
        .map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn devices_need_an_entry() {
        let device = "impl BlockDevice for New {";
        for (path, line, faults) in [
            ("src/new.rs", device, 1),
            ("src/new.rs", "impl<S: Store> Store for New<S> {", 1),
            ("src/new.rs", "impl Clone for New {", 0),
            ("tests/new.rs", device, 0),
            ("src/new/tests.rs", device, 0),
            ("crates/core/src/device/memory.rs", "struct Memory;", 1),
        ] {
            assert_eq!(check(&[text(path, line)]).len(), faults, "{path}: {line}");
        }
    }
}
