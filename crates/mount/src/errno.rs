//! Mapping of the library's errors to error numbers.

use std::io;

use bandsaw::{Error, Kind, Reason};
use fuser::Errno;

/// Returns the default error number of an error.
pub(crate) fn of(error: &Error) -> Errno {
    match error.kind() {
        Kind::Io => of_host(error),
        Kind::Corrupt => Errno::EIO,
        Kind::Unsupported => Errno::EOPNOTSUPP,
        Kind::WrongKey => Errno::EACCES,
        Kind::ReadOnly => Errno::EROFS,
        Kind::NotFound => Errno::ENOENT,
        Kind::Conflict => Errno::EEXIST,
        Kind::Limit if error.reason() == Some(Reason::NameTooLong) => Errno::ENAMETOOLONG,
        Kind::Limit => Errno::ENOSPC,
        Kind::OutOfRange | Kind::Invalid => Errno::EINVAL,
        Kind::Cancelled => Errno::EINTR,
        _ => Errno::EIO,
    }
}

/// Maps a host error: ENOSPC and EDQUOT are passed on because programs can react to a full disk, which a
/// limit on the length of files is as well; all others become EIO.
fn of_host(error: &Error) -> Errno {
    match error.root_io_kind() {
        Some(io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge) => Errno::ENOSPC,
        Some(io::ErrorKind::QuotaExceeded) => Errno::EDQUOT,
        _ => Errno::EIO,
    }
}

/// Returns true if the image's owner should be notified: the fault is in the image or the host, not
/// in the request.
pub(crate) fn is_worth_a_note(error: &Error) -> bool {
    matches!(error.kind(), Kind::Io | Kind::Corrupt | Kind::Undecided)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_learn_what_they_can_do_something_about() {
        let host = |kind: io::ErrorKind| of(&Error::io("test", "write", io::Error::from(kind)));
        assert_eq!(host(io::ErrorKind::StorageFull), Errno::ENOSPC);
        assert_eq!(host(io::ErrorKind::PermissionDenied), Errno::EIO);
        let full = Error::io("file", "write", io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(
            of(&Error::new(Kind::Io, "hfs+ journal", "cannot be written").caused_by(full)),
            Errno::ENOSPC
        );
        assert_eq!(
            of(&Error::new(Kind::Limit, "hfs+ space", "full")),
            Errno::ENOSPC
        );
        assert_eq!(
            of(&Error::limit("test", "long").because(Reason::NameTooLong)),
            Errno::ENAMETOOLONG
        );
        assert_eq!(of(&Error::read_only("test")), Errno::EROFS);
        assert!(
            is_worth_a_note(&Error::corrupt("test", 0, "x"))
                && !is_worth_a_note(&Error::not_found("test", "x"))
        );
    }
}
