//! `bandsaw hdiutil` and `bandsaw diskutil`: the command lines of Apple's programs, without links
//! of their names.

use std::ffi::OsString;

use clap::Args;

/// Emulate macOS's hdiutil, for programs that call it
///
/// The same happens if this program is called hdiutil, through a link. Verbs, options, sizes,
/// property lists and exit codes are those of hdiutil. `bandsaw hdiutil help` lists the verbs;
/// `bandsaw hdiutil help -markdown` describes them and the options that are not supported.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw hdiutil create -size 10g -fs HFS+ -volname Docs Docs.sparsebundle
  bandsaw hdiutil create -srcfolder build -volname App -ov App.dmg
  ln -s $(command -v bandsaw) ~/bin/hdiutil                 for programs that call hdiutil")]
pub(crate) struct Hdiutil {
    /// A verb of hdiutil and its arguments
    #[arg(
        value_name = "WORDS",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<OsString>,
}

/// Emulate `diskutil image` of macOS 26
///
/// The same happens if this program is called diskutil, through a link. `bandsaw hdiutil help
/// -markdown` describes the verbs and their options.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw diskutil image create blank --format ASIF --size 10g Disk.asif
  bandsaw diskutil image info Disk.asif --plist
  bandsaw diskutil image resize Disk.asif --size 20g")]
pub(crate) struct Diskutil {
    /// A verb of diskutil with its arguments, such as `image info`
    #[arg(
        value_name = "WORDS",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<OsString>,
}
