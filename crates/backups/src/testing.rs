//! Entry point for fuzzing: the property lists of a bundle and of a backup volume.

use crate::lists::{BundleLists, manifest, parse, quota};

/// Reads a list. The first byte selects its kind.
pub fn time_machine_lists(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else {
        return;
    };
    let kind = usize::from(*kind) % (BundleLists::LISTS.len() + 2);
    if let Some((_, take)) = BundleLists::LISTS.get(kind) {
        let mut lists = BundleLists::default();
        if let Ok(list) = parse(bytes) {
            let _ = take(&mut lists, &list);
        }
        // Every entry takes some bytes of the list.
        assert!(lists.history.len() <= bytes.len());
        let _ = lists.last_backup();
    } else if kind == BundleLists::LISTS.len() {
        let _ = parse(bytes).and_then(|list| quota(&list));
    } else if let Ok(found) = manifest(bytes) {
        assert!(found.len() <= bytes.len());
    }
}

/// Returns a list of each kind, as XML.
pub fn seeds() -> Vec<Vec<u8>> {
    let key = |name: &str, value: &str| format!("<key>{name}</key>{value}");
    let date = "<date>2026-11-01T14:30:12Z</date>";
    let backup = [
        key("com.apple.backupd.SnapshotCompletionDate", date),
        key(
            "com.apple.backupd.SnapshotName",
            "<string>2026-11-01-143012.backup</string>",
        ),
    ];
    let backup = format!("<dict>{}</dict>", backup.concat());
    let machine = [
        key("VerificationDate", date),
        key("VerificationState", "<integer>2</integer>"),
        key("com.apple.backupd.HostUUID", "<string>EB3EA526</string>"),
        key("com.apple.backupd.ModelID", "<string>Mac14,2</string>"),
    ];
    let sizes = key("physicalSize", "<integer>4096</integer>");
    let changed = key("changed", &format!("<dict>{sizes}</dict>"));
    let stats = key("stats", &format!("<dict>{changed}</dict>"));
    let history = format!("<array>{}</array>", backup.repeat(2));
    let bodies = [
        format!("<dict>{}</dict>", machine.concat()),
        format!("<dict>{}</dict>", key("Running", "<true/>")),
        format!("<dict>{}</dict>", key("Snapshots", &history)),
        format!(
            "<dict>{}</dict>",
            key("GlobalQuota", "<integer>1000000</integer>")
        ),
        format!("<array>{date}<dict>{stats}</dict></array>"),
    ];
    let seed = |(kind, body): (u8, String)| {
        let text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<plist version=\"1.0\">{body}</plist>\n"
        );
        [&[kind], text.as_bytes()].concat()
    };
    (0..).zip(bodies).map(seed).collect()
}
