//! Lines of a bodyfile, as sleuthkit's `fls -m` writes them.
//!
//! `MD5|name|inode|mode_as_string|UID|GID|size|atime|mtime|ctime|crtime`, times in whole seconds.
//! Source: `man mactime` and `tsk_fs_meta_make_ls`, sleuthkit 4.11.

use std::fmt::Write;

use crate::record::FileRecord;
use crate::time::parse;

/// Returns the line of an object, with its end.
pub(crate) fn line(volume: &str, of: &FileRecord) -> String {
    let mut name = clean(&format!("/{volume}{}", of.path));
    if let Some(target) = &of.target {
        name.push_str(" -> ");
        name.push_str(&clean(target));
    }
    let seconds = |time: &Option<String>| {
        let time = time.as_deref().and_then(parse);
        time.map_or(0, |time| time.seconds)
    };
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}|{name}|{}|{}|{}|{}|{}|{}|{}|{}|{}",
        of.md5.as_deref().unwrap_or("0"),
        of.id,
        mode(of),
        of.uid,
        of.gid,
        of.size.unwrap_or(0),
        seconds(&of.accessed),
        seconds(&of.modified),
        seconds(&of.changed),
        seconds(&of.created),
    );
    text
}

/// Replaces what would end a field or a line, as sleuthkit does with control characters.
fn clean(name: &str) -> String {
    let replaced = |c: char| c.is_control() || c == '|';
    name.replace(replaced, "^")
}

/// Returns kind and permissions: `r/rrwxr-xr-x`.
fn mode(of: &FileRecord) -> String {
    let kind = match &*of.kind {
        "file" => 'r',
        "folder" => 'd',
        "symlink" => 'l',
        "fifo" => 'p',
        "socket" => 's',
        "character_device" => 'c',
        "block_device" => 'b',
        _ => '-',
    };
    let mode = u16::from_str_radix(&of.mode, 8).unwrap_or(0);
    let mut text = format!("{kind}/{kind}");
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_a_field_or_line() {
        let record = FileRecord {
            path: "/a|b\nc".into(),
            kind: "symlink".into(),
            mode: "4755".into(),
            target: Some("x|y".into()),
            created: Some("1970-01-01T00:00:07.000000001Z".into()),
            ..FileRecord::default()
        };
        assert_eq!(
            line("V", &record),
            "0|/V/a^b^c -> x^y|0|l/lrwsr-xr-x|0|0|0|0|0|0|7\n"
        );
    }
}
