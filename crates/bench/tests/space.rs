//! The space protocol on a bundle and an encrypted sparse image, at a size that is fast without
//! optimization. `scripts/test` runs it on every container at a hundredth of the original size and
//! checks the bounds: here an index of fixed size would be a large part of them.

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::Silent;
use bandsaw_bench::images::space::{Case, run};

/// Maximum bytes of a container's tables, even for a small disk: an ASIF image allocates them in
/// chunks of 1 MiB.
const TABLES: u64 = 8 << 20;

#[test]
fn space_freed_in_the_volume_is_returned_to_the_host() {
    for (format, key_bits, file_system) in [
        (Format::Udsb, 0, NewFormat::HfsPlus),
        (Format::Udsp, 256, NewFormat::HfsPlus),
        (Format::Udsb, 0, NewFormat::Apfs),
    ] {
        let case = Case {
            format,
            key_bits,
            file_system,
            scale: 8000,
            seed: 1,
        };
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let measured = run(&scratch.path().join("image"), &case, &Silent).unwrap();
        assert!(
            measured.full <= measured.max_when_full() + TABLES,
            "{case}: {measured:?}"
        );
        assert!(
            measured.compacted <= measured.max_when_empty() + TABLES,
            "{case}: {measured:?}"
        );
        assert!(
            measured.compacted < measured.full / 2,
            "{case}: {measured:?}"
        );
    }
}
