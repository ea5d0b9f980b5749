//! Headings of options in the help.

use clap::Arg;

/// The headings of shared options.
pub(crate) const OUTPUT: &str = "Output";
pub(crate) const OPENING: &str = "Opening images";
pub(crate) const IMAGES: &str = "Encrypted images";
pub(crate) const VOLUMES: &str = "Encrypted volumes";
pub(crate) const NEW_PASSPHRASES: &str = "New passphrases";
pub(crate) const BUCKETS: &str = "Buckets (s3://) and https";

const SHARED: [&str; 6] = [OUTPUT, OPENING, IMAGES, VOLUMES, NEW_PASSPHRASES, BUCKETS];

/// The heading of options that only `--help` lists for verbs that do more than compressing.
pub(crate) const COMPRESSION: &str = "Compression of files";

/// Returns true for options that most verbs share.
pub(crate) fn is_shared(option: &Arg) -> bool {
    option
        .get_help_heading()
        .is_some_and(|heading| SHARED.contains(&heading))
}
