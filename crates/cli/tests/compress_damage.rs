//! Compressed files whose contents or sizes are damaged.

use serde_json::Value;

use crate::common::Scratch;
use crate::compress::text;

/// Returns the place in an image of the fork of a file of so many zlib chunks.
fn fork_of(image: &[u8], chunks: u32) -> usize {
    let is_fork = |at: &usize| {
        image[*at..].starts_with(&[0, 0, 1, 0])
            && image[*at + 0x104..].starts_with(&chunks.to_le_bytes())
    };
    (0..image.len() - 4096)
        .step_by(4096)
        .find(is_fork)
        .expect("the fork")
}

#[test]
fn files_that_do_not_decode_are_reported() {
    let scratch = Scratch::new();
    scratch.write("in/folder/long.txt", text(1_000_000));
    scratch.write("in/other.txt", text(300_000));
    std::fs::hard_link(
        scratch.path("in/folder/long.txt"),
        scratch.path("in/again.txt"),
    )
    .unwrap();
    for fs in ["hfs+", "apfs"] {
        scratch.ok(&[
            "create",
            "v.img",
            "--overwrite",
            "--fs",
            fs,
            "--volname",
            "V",
            "--from",
            "in",
            "--compress",
            "zlib",
        ]);
        assert!(
            scratch
                .ok(&["check", "--contents", "v.img"])
                .contains("checked  compressed files")
        );
        let mut image = std::fs::read(scratch.path("v.img")).unwrap();
        let fork = fork_of(&image, 16);
        image[fork + 0x108 + 16 * 8 + 60_000..][..40].fill(0xA5);
        std::fs::write(scratch.path("v.img"), image).unwrap();
        scratch.ok(&["check", "v.img"]);
        let output = scratch.run(&["check", "--contents", "--json", "v.img"]);
        assert_eq!(output.status.code(), Some(5), "{fs}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            report["damage_count"], 1,
            "one file, however many names: {report}"
        );
        let problem = &report["problems"][0];
        let name = problem["name"].as_str().unwrap();
        assert!(
            name == "/folder/long.txt" || name == "/again.txt",
            "{report}"
        );
        assert!(
            problem["message"].as_str().unwrap().contains("chunk"),
            "{report}"
        );
    }
}

/// Rewrites the size in the header of every compressed file of a raw image, with the sum of the
/// block where it is of APFS.
fn set_sizes(image: &[u8], sum: bool, change: impl Fn(u64) -> u64) -> Vec<u8> {
    let mut bytes = image.to_vec();
    let found: Vec<usize> = bytes
        .windows(4)
        .enumerate()
        .filter(|(_, four)| four == b"fpmc")
        .map(|(at, _)| at)
        .collect();
    assert!(!found.is_empty());
    for at in found {
        let size = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap());
        bytes[at + 8..at + 16].copy_from_slice(&change(size).to_le_bytes());
        if sum {
            let block = &mut bytes[at / 4096 * 4096..][..4096];
            let (mut low, mut high) = (0_u64, 0_u64);
            for word in block[8..].chunks_exact(4) {
                low = (low + u64::from(u32::from_le_bytes(word.try_into().unwrap()))) % 0xFFFF_FFFF;
                high = (high + low) % 0xFFFF_FFFF;
            }
            let first = 0xFFFF_FFFF - (low + high) % 0xFFFF_FFFF;
            let second = 0xFFFF_FFFF - (low + first) % 0xFFFF_FFFF;
            block[..8].copy_from_slice(&(second << 32 | first).to_le_bytes());
        }
    }
    bytes
}

#[test]
fn sizes_that_disagree_with_the_contents_are_damage() {
    let scratch = Scratch::new();
    let plain = text(200_000);
    scratch.write("in/long.txt", &plain);
    scratch.write("in/short.txt", &plain[..3000]);
    for (fs, kind) in [
        ("hfs+", "zlib"),
        ("hfs+", "lzvn"),
        ("hfs+", "lzfse"),
        ("apfs", "zlib"),
    ] {
        let args = [
            "create",
            "v.img",
            "--overwrite",
            "--fs",
            fs,
            "--layout",
            "none",
            "--volname",
            "V",
            "--from",
            "in",
        ];
        scratch.ok(&[&args[..], &["--compress", kind]].concat());
        let sound = std::fs::read(scratch.path("v.img")).unwrap();
        for change in [|_| 0, |size| size - 1, |size| size + 1] {
            scratch.write("v.img", set_sizes(&sound, fs == "apfs", change));
            for name in ["long.txt", "short.txt"] {
                let address = format!("v.img:/{name}");
                let cat = scratch.run(&["cat", &address]);
                assert_eq!(cat.status.code(), Some(5), "{fs} {kind} {name}");
                assert_eq!(
                    scratch.run(&["decompress", &address]).status.code(),
                    Some(5),
                    "{fs} {kind} {name}"
                );
                assert!(
                    scratch
                        .ok(&["compress", "--estimate", "-v", &address])
                        .contains("already compressed"),
                    "{fs} {kind}"
                );
            }
            let report = scratch.run(&["check", "--contents", "v.img"]);
            let report = String::from_utf8_lossy(&report.stdout).into_owned()
                + &String::from_utf8_lossy(&report.stderr);
            assert_eq!(
                report.matches("cannot decompress the contents").count(),
                2,
                "{fs} {kind}: {report}"
            );
        }
        scratch.write("v.img", &sound);
        scratch.ok(&["check", "--contents", "v.img"]);
        // A header that is none hides the contents from macOS: nothing may make that last.
        let at = sound.windows(4).position(|four| four == b"fpmc").unwrap();
        if fs == "hfs+" {
            let mut broken = sound.clone();
            broken[at] = b'F';
            scratch.write("v.img", &broken);
            assert_eq!(
                scratch.run(&["decompress", "v.img:/"]).status.code(),
                Some(5)
            );
            assert_eq!(
                scratch.run(&["check", "--contents", "v.img"]).status.code(),
                Some(5)
            );
        }
    }
}
