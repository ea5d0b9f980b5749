//! `scripts/on-a-mac` with stand-ins that replay what Apple's tools printed: the order of its phases,
//! the archive, and that evidence that is missing or wrong fails the run. The images that it judges
//! are made by the real command.
//!
//! The stand-ins print the devices and the facts of volumes that go-apfs-v3 recorded on macOS 27
//! (`acceptance/testdata/native/macos-27`: `commands.json`).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Output;

use crate::common::{Scratch, stderr};

/// The beginning of every stand-in. Lines of `$BREAK`, each a tool, a verb, `fail`, `silent` or
/// `wrong`, and a part of the name of an image, break it.
const HEAD: &str = r#"
tool=${0##*/}
verb=${1:-run}
case $tool in fsck_*) verb=run ;; esac
echo "$tool $*" >> "$CALLS"
image=$(cat "$STATE/image" 2>/dev/null)
case $verb in create | convert | verify | imageinfo | attach) image=$* ;; esac
how=
while read -r broken_tool broken_verb broken_how part; do
    [ "$broken_tool $broken_verb" = "$tool $verb" ] || continue
    case "$image" in *"$part"*) how=$broken_how ;; esac
done <<< "$BREAK"
case $how in
fail) echo "$tool: $verb failed - Input/output error" >&2; exit 1 ;;
silent) exit 0 ;;
esac
is_hfs() { case "$image" in *hfs*) return 0 ;; *) return 1 ;; esac; }
"#;

const HDIUTIL: &str = r#"
echo "hdiutil: WARNING: 'hdiutil $verb ...' is deprecated." >&2
entity() {
    echo "<dict><key>x</key>"
    echo "<key>content-hint</key>"
    echo "<string>$1</string>"
    echo "<key>dev-entry</key>"
    echo "<string>/dev/$2</string>"
    echo "</dict>"
}
for last; do :; done
case $verb in
create)
    case "$*" in
    *SPARSEBUNDLE*) mkdir "$last.sparsebundle" ;;
    *SPARSE*) : > "$last.sparseimage" ;;
    *) : > "$last.dmg" ;;
    esac
    echo "created: $last"
    ;;
attach)
    entities=$(
        entity GUID_partition_scheme disk4
        if [ "$how" = wrong ]; then
            entity Apple_Free disk4s9
        elif is_hfs; then
            entity Apple_HFS disk4s1
        else
            entity Apple_APFS disk4s1
            entity 41504653-0000-11AA-AA11-00306543ECAC disk5s1
            entity EF57347C-0000-11AA-AA11-00306543ECAC disk5
        fi
    )
    printf '<plist>\n<dict>\n<array>\n%s\n</array>\n</dict>\n</plist>\n' "$entities"
    folder=
    before=
    for word; do
        [ "$before" != -mountpoint ] || folder=$word
        before=$word
    done
    echo "$last" > "$STATE/image"
    rm -f "$STATE/written"
    [ -n "$folder" ] || exit 0
    rm -rf "$folder/folder"
    case "$*" in
    *-readonly*native-*) cp -a "$STATE/${last##*/}" "$folder/folder" ;;
    *-readonly*) "$BANDSAW" extract "$last:/folder" "$folder/folder" ;;
    *) echo "$folder/folder" > "$STATE/written" ;;
    esac
    ;;
detach)
    if [ -f "$STATE/written" ]; then cp -a "$(cat "$STATE/written")" "$STATE/${image##*/}"; fi
    rm -f "$STATE/image" "$STATE/written"
    echo '"disk4" ejected.'
    ;;
*) echo "$verb done" ;;
esac
"#;

const DISKUTIL: &str = r#"
[ "$verb" = info ] || { echo "$verb done"; exit 0; }
type=apfs
is_hfs && type=hfs
name=${type}
case "$image" in *case-sensitive* | *hfsx*) name="Case-sensitive $type" ;; esac
[ "$how" != wrong ] || name=FAT
cat << END
<key>FilesystemName</key>
<string>$name</string>
<key>FilesystemType</key>
<string>$type</string>
<key>MountPoint</key>
<string>$3</string>
<key>VolumeAllocationBlockSize</key>
<integer>4096</integer>
<key>VolumeName</key>
<string>Sample</string>
END
"#;

/// Checks the partition of the attached image, and nothing else.
const FSCK: &str = r#"
[ "${*: -1}" = /dev/disk4s1 ] || exit 8
case $tool in fsck_hfs) is_hfs ;; *) ! is_hfs ;; esac || exit 8
echo "** The volume appears to be OK"
"#;

const XATTR: &str = r#"[ "$how" = wrong ] && echo other || echo value"#;

/// Prints a wrong sum for what was read from a volume, if broken so.
const SHASUM: &str = r#"
sum=$(sha256sum)
[ "$how" = wrong ] && sum=0${sum:1}
echo "$sum"
"#;

fn tool(scratch: &Scratch, name: &str, body: &str) {
    let path = scratch.write(&format!("bin/{name}"), format!("#!/bin/bash\n{body}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(scratch: &Scratch, args: &[&str], broken: &str) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/on-a-mac");
    let path = format!(
        "{}:{}",
        scratch.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let state = scratch.path("state");
    let _ = fs::remove_dir_all(&state);
    fs::create_dir(&state).unwrap();
    assert_cmd::Command::new(script)
        .args(args)
        .arg(scratch.path("all.tar.gz"))
        .env("PATH", path)
        .env("TMPDIR", scratch.path(""))
        .env("CARGO_TARGET_DIR", scratch.path("target"))
        .env("CALLS", scratch.path("calls"))
        .env("STATE", state)
        .env("BREAK", broken)
        .env("BANDSAW", env!("CARGO_BIN_EXE_bandsaw"))
        .env("ON_A_MAC_FAKES", "1")
        .output()
        .unwrap()
}

fn fakes() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("bin")).unwrap();
    fs::create_dir_all(scratch.path("target/release")).unwrap();
    let built = scratch.path("target/release/bandsaw");
    symlink(env!("CARGO_BIN_EXE_bandsaw"), built).unwrap();
    let says = "echo $tool $*";
    for (name, body) in [
        ("hdiutil", HDIUTIL),
        ("diskutil", DISKUTIL),
        ("fsck_apfs", FSCK),
        ("fsck_hfs", FSCK),
        ("xattr", XATTR),
        ("shasum", SHASUM),
        ("sw_vers", says),
        ("cargo", says),
    ] {
        tool(&scratch, name, &format!("{HEAD}{body}"));
    }
    scratch
}

/// Returns the faults that a run prints, without the program's name.
fn faults(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_prefix("on-a-mac: "))
        .filter(|line| !line.ends_with(" steps") && !line.ends_with(".tar.gz"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_collector_observes_first_and_misses_nothing() {
    let scratch = fakes();
    let output = run(&scratch, &[], "");
    assert!(
        output.status.success(),
        "{:?} {}",
        faults(&output),
        stderr(&output)
    );
    // Everything that observes macOS is over before Bandsaw is built.
    let calls = fs::read_to_string(scratch.path("calls")).unwrap();
    let built = calls.find("cargo build").unwrap();
    assert!(calls[..built].contains("imageinfo") && calls[..built].contains("fsck_hfs -fn"));
    assert!(!calls[..built].contains("ours-"), "{calls}");
    assert!(calls[built..].contains("ours-hfsx-udzo.dmg"), "{calls}");
    assert!(!calls[built..].contains("native-"), "{calls}");
    // Every image is detached again, and nothing is left behind.
    let count = |what: &str| calls.matches(what).count();
    assert_eq!(count("hdiutil attach"), count("hdiutil detach"));
    assert!(
        !scratch
            .names()
            .iter()
            .any(|name| name.starts_with("on-a-mac."))
    );

    // An image that Apple's tools refuse, or read otherwise, fails the run.
    let broken = "shasum -a wrong ours-apfs-udsb
        diskutil info wrong ours-hfsp-udrw
        fsck_hfs run fail ours-hfsx-udzo
        hdiutil verify fail ours-apfs-udzo";
    let output = run(&scratch, &[], broken);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        faults(&output),
        [
            "ours-apfs-udsb-same: status 1",
            "ours-apfs-udzo-verify: status 1",
            "ours-hfsp-udrw-like: status 1",
            "ours-hfsx-udzo-fsck: status 1",
        ]
    );
    // Without a build nothing is judged, and every step is missed.
    let output = run(&scratch, &[], "cargo build fail");
    assert_eq!(output.status.code(), Some(1));
    let printed = faults(&output);
    assert_eq!(printed[0], "build-command: status 1");
    assert!(
        printed.contains(&"build-tests: not run".to_owned()),
        "{printed:?}"
    );
    assert!(printed.contains(&"ours-hfsx-udzo-like: not run".to_owned()));
    assert_eq!(printed.len(), 2 + 12 * 14 + 4, "{printed:#?}");
}

/// Each observation in turn is refused, empty or another.
#[test]
fn evidence_that_is_missing_or_wrong_fails_the_run() {
    let all = [
        ("sw_vers run silent", "system-version: no evidence"),
        (
            "hdiutil create fail native-apfs",
            "native-apfs-create: status 1",
        ),
        (
            "hdiutil attach fail native-hfsp",
            "native-hfsp-write: status 1",
        ),
        (
            "hdiutil attach silent native-hfsp",
            "native-hfsp-attach: no evidence",
        ),
        (
            "hdiutil attach wrong native-hfsp",
            "native-hfsp-fsck: status 8",
        ),
        (
            "hdiutil detach fail native-apfs",
            "native-apfs-written: status 1",
        ),
        (
            "hdiutil imageinfo silent native-sparse.",
            "native-sparse-imageinfo: no evidence",
        ),
        (
            "hdiutil imageinfo fail packed",
            "native-apfs-packed: status 1",
        ),
        (
            "hdiutil convert fail native-apfs",
            "native-apfs-convert: status 1",
        ),
        (
            "hdiutil verify fail native-hfsp",
            "native-hfsp-verify: status 1",
        ),
        (
            "diskutil info silent native-apfs",
            "native-apfs-info: no evidence",
        ),
        (
            "diskutil info fail native-apfs",
            "native-apfs-facts: status 1",
        ),
        (
            "diskutil list silent native-apfs",
            "native-apfs-list: no evidence",
        ),
        (
            "fsck_apfs run fail sparsebundle",
            "native-sparsebundle-fsck: status 1",
        ),
        (
            "fsck_apfs run silent sparsebundle",
            "native-sparsebundle-fsck: no evidence",
        ),
        ("xattr -p wrong native-hfsp", "native-hfsp-value: status 1"),
        ("xattr -w fail native-hfsp", "native-hfsp-fill: status 1"),
        ("shasum -a wrong native-hfsp", "native-hfsp-same: status 1"),
        ("shasum -a silent native-hfsp", "native-hfsp-same: status 1"),
    ];
    // An observation alone is complete.
    let scratch = fakes();
    let output = run(&scratch, &["--observe"], "");
    assert!(output.status.success(), "{:?}", faults(&output));
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let scratch = fakes();
                while let Some((broken, fault)) =
                    all.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let output = run(&scratch, &["--observe"], broken);
                    let printed = faults(&output);
                    assert_eq!(output.status.code(), Some(1), "{broken}");
                    assert!(
                        printed.iter().any(|printed| printed == fault),
                        "{broken}: {printed:?}"
                    );
                    assert!(scratch.path("all.tar.gz").exists());
                }
            });
        }
    });
}
