//! The findings of a check, and the objects that they are about.

use zerocopy::big_endian::U16;

pub(in crate::hfsplus) use crate::check_report::Report;
pub(super) use crate::check_report::wrong;
use crate::hfsplus::layout::Cnid;
use crate::hfsplus::unicode::decode_name;
use bandsaw_core::error::Subject;

/// Returns the object with this number as the subject of a finding.
pub(super) fn numbered(id: Cnid) -> Subject {
    Subject::Number(id.0.into())
}

/// Returns the entry `name` of a folder as the subject of a finding.
pub(super) fn entry_in(folder: Cnid, name: &[U16]) -> Subject {
    Subject::Entry(folder.0.into(), decode_name(name))
}
