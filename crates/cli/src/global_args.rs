//! The options of every verb.

use clap::{Args, ValueEnum};

use crate::headings::OUTPUT;
use crate::text::Quoting;

/// The largest width of help, in columns.
pub(crate) const TERM_WIDTH: usize = 100;

/// The options of every verb.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Print results as JSON, with sizes in bytes
    ///
    /// Bytes of a host path that are not UTF-8 are written as `\xFF`, also without this option.
    #[arg(long, global = true, help_heading = OUTPUT, display_order = 900)]
    pub(crate) json: bool,
    /// Print only the result: no progress, warnings or summaries
    ///
    /// Warnings that contents are missing or damaged are printed nevertheless.
    #[arg(long, short, global = true, help_heading = OUTPUT, display_order = 901)]
    pub(crate) quiet: bool,
    /// Color the output: auto, always or never
    ///
    /// `auto` colors terminals, unless NO_COLOR is set.
    #[arg(
        long,
        global = true,
        help_heading = OUTPUT,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        hide_possible_values = true,
        display_order = 902
    )]
    pub(crate) color: Color,
    /// Quote file names as ls does
    ///
    /// STYLE is literal, escape, c, shell or shell-escape. By default names are literal in a pipe,
    /// where they may contain line breaks and control characters; on a terminal these are always
    /// escaped.
    #[arg(
        long,
        global = true,
        help_heading = OUTPUT,
        value_enum,
        value_name = "STYLE",
        hide_possible_values = true,
        display_order = 903
    )]
    pub(crate) quoting: Option<Quoting>,
    /// Print progress as lines, at most one in 10 seconds, for logs
    ///
    /// On a terminal a bar is shown instead.
    #[arg(long, global = true, help_heading = OUTPUT, display_order = 904)]
    pub(crate) progress: bool,
}

/// The times at which output is colored.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}
