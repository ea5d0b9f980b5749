//! `bandsaw hdiutil` and `bandsaw diskutil`: the faces of Apple's programs, also without links of
//! their names.

use std::ffi::OsString;

use clap::Args;

/// Understand the words of macOS's hdiutil, for programs that call it
///
/// The same happens when this program is called by the name hdiutil, through a link. Verbs,
/// options, sizes, property lists and exit codes are those of hdiutil; docs/hdiutil.md lists them,
/// and what is refused. `bandsaw hdiutil help` lists the verbs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw hdiutil create -size 10g -fs HFS+ -volname Docs Docs.sparsebundle
  bandsaw hdiutil create -srcfolder build -volname App -ov App.dmg
  ln -s $(command -v bandsaw) ~/bin/hdiutil                 for programs that call hdiutil")]
pub(crate) struct Hdiutil {
    /// A verb of hdiutil's and what belongs to it
    #[arg(
        value_name = "WORDS",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<OsString>,
}

/// Understand the words of macOS 26's `diskutil image`
///
/// The same happens when this program is called by the name diskutil, through a link.
/// docs/hdiutil.md lists the verbs, and what becomes of their options.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw diskutil image create blank --format ASIF --size 10g Disk.asif
  bandsaw diskutil image info Disk.asif --plist
  bandsaw diskutil image resize Disk.asif --size 20g")]
pub(crate) struct Diskutil {
    /// image, a verb of it, and what belongs to that
    #[arg(
        value_name = "WORDS",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<OsString>,
}
