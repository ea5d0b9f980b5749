//! The space protocol over a bundle and an encrypted sparse image, at a size for which nothing has
//! to be optimised. Over every container, at a hundredth of its own size, where the bounds are held
//! to, `scripts/test` runs it: here an index of fixed size would be a large part of them.

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::Silent;
use bandsaw_bench::images::space::{Case, run};

/// Bytes that the tables of a container may take however small the disk is: an ASIF image has them
/// in chunks of 1 MiB.
const TABLES: u64 = 8 << 20;

#[test]
fn what_is_freed_inside_returns_outside() {
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
            measured.full <= measured.most_when_full() + TABLES,
            "{case}: {measured:?}"
        );
        assert!(
            measured.compacted <= measured.most_when_empty() + TABLES,
            "{case}: {measured:?}"
        );
        assert!(
            measured.compacted < measured.full / 2,
            "{case}: {measured:?}"
        );
    }
}
