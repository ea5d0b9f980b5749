//! Parsers of the output of macOS's commands. Separate from the calls, so that they are tested on
//! every host.

use super::Mount;

/// Parses `pmset -g batt`, which begins with `Now drawing from 'AC Power'` or `'Battery Power'`.
pub(super) fn on_battery(output: &str) -> Option<bool> {
    let source = output.lines().next()?.split('\'').nth(1)?;
    Some(source == "Battery Power")
}

/// Parses one line of `mount`: `/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)`.
pub(super) fn mount(line: &str) -> Option<Mount> {
    let (source, rest) = line.split_once(" on ")?;
    let (path, options) = rest.rsplit_once(" (")?;
    let kind = options.trim_end_matches(')').split(',').next()?;
    Some(Mount {
        path: path.into(),
        source: source.to_owned(),
        kind: kind.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_source_is_read() {
        let text = "Now drawing from 'Battery Power'\n -InternalBattery-0 (id=1)\t87%; discharging; 5:02 remaining\n";
        assert_eq!(on_battery(text), Some(true));
        assert_eq!(on_battery("Now drawing from 'AC Power'\n"), Some(false));
        assert_eq!(on_battery(""), None);
    }

    #[test]
    fn a_mount_line_is_read() {
        let mounted = mount("/dev/disk5s1 on /Volumes/My (old) disk (hfs, local, nodev)").unwrap();
        let expected = Mount {
            path: "/Volumes/My (old) disk".into(),
            source: "/dev/disk5s1".into(),
            kind: "hfs".into(),
        };
        assert_eq!(mounted, expected);
        assert_eq!(mount("nonsense"), None);
    }
}
