//! The Sleuth Kit: `mmls` for partition maps; for volumes, `fsstat`, `fls`, which prints everything
//! but attributes, and `tsk_recover`, which copies every file that is not empty. `icat` copies one
//! file.

use std::collections::HashMap;
use std::path::Path;

use bandsaw::fs::FileSystem;

use crate::disk::{partitions, with_our_gpt};
use crate::ours;
use crate::programs::{Program, output, run, run_text};
use crate::suite::Suite;
use crate::tree::{Item, Kind, Listing, assert_same, decomposed, is_private, sha256};
use crate::volume::{self, Volume};

const MMLS: Program = Program::Command(&["mmls"]);
const FLS: Program = Program::Command(&["fls"]);
const FSSTAT: Program = Program::Command(&["fsstat"]);
const ICAT: Program = Program::Command(&["icat"]);
const TSK_RECOVER: Program = Program::Command(&["tsk_recover"]);

/// A file with an attribute in extents, whose contents it cannot read.
const UNREADABLE: &str = "Attributes/very long";

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("sleuthkit", &[MMLS, FSSTAT, FLS, ICAT, TSK_RECOVER])
        .test("reads_our_gpt", reads_our_gpt)
        .test("describes_the_volume", describes_the_volume)
        .test("reads_all", reads_all);
}

fn reads_our_gpt() {
    for block in [512, 4096] {
        let (_scratch, disk) = with_our_gpt(block);
        let report = run_text(
            MMLS.command()
                .args(["-t", "gpt", "-b", &block.to_string()])
                .arg(&disk),
        );
        for (slot, partition) in partitions(block).iter().enumerate() {
            let sector = |at| at / u64::from(block);
            let (first, end) = (sector(partition.range.start), sector(partition.range.end));
            let line = format!(
                "  {slot:03}       {first:010}   {:010}   {:010}   {}\n",
                end - 1,
                end - first,
                partition.name
            );
            assert!(report.contains(&line), "no {line:?} in\n{report}");
        }
    }
}

fn describes_the_volume() {
    for volume in volume::all() {
        let report = run_text(on(volume, &mut FSSTAT.command()));
        let ours = ours::open(&volume.disk, volume.range.clone()).volume();
        // The header counts the journal's two files, which are not listed.
        let hidden = if ours.journaled { 2 } else { 0 };
        for line in [
            format!(
                "File System Version: {}",
                if volume.case_sensitive {
                    "HFSX"
                } else {
                    "HFS+"
                }
            ),
            format!("Volume Name: {}", decomposed(volume::NAME)),
            "Volume Unmounted Properly".to_owned(),
            format!("Number of files: {}", ours.files + hidden),
            format!("Number of folders: {}", ours.folders),
            format!("Allocation Block Size: {}", ours.block_size),
            format!(
                "Number of Free Blocks: {}",
                ours.free / u64::from(ours.block_size)
            ),
        ] {
            assert!(
                report.contains(&format!("{line}\n")),
                "no {line:?} in\n{report}"
            );
        }
    }
}

fn reads_all() {
    for volume in volume::all() {
        let scratch = crate::scratch();
        // It reports an error for the unreadable file.
        output(on(volume, TSK_RECOVER.command().arg("-a")).arg(scratch.path()));
        let listed = run_text(on(volume, FLS.command().args(["-r", "-m", ""])));
        let expected = volume.files.iter().map(|(path, item)| {
            let (path, mut item) = (
                path.replace('\t', "^"),
                Item {
                    xattrs: [].into(),
                    ..item.clone()
                },
            );
            if let (UNREADABLE, Kind::File { sha256, .. }) = (path.as_str(), &mut item.kind) {
                sha256.clear();
            }
            (path, item)
        });
        assert_same(&expected.collect(), &listing(&listed, scratch.path()));

        let largest = listed
            .lines()
            .find(|line| line.starts_with("0|/Sizes/30 MB|"))
            .expect("it is listed");
        let number = largest.split('|').nth(2).expect("a number");
        let contents = run(on(volume, &mut ICAT.command()).arg(number));
        assert_eq!(
            volume.files["Sizes/30 MB"].kind,
            Kind::File {
                len: 30_000_000,
                sha256: sha256(&contents)
            }
        );
    }
}

/// Adds the volume's offset and disk to a command.
fn on<'a>(
    volume: &Volume,
    command: &'a mut std::process::Command,
) -> &'a mut std::process::Command {
    command
        .args(["-o", &(volume.range.start / 512).to_string()])
        .arg(&volume.disk)
}

/// Parses lines of `fls -m`:
/// sum|path|number|kind/mode|owner|group|length|accessed|modified|changed|created.
fn listing(report: &str, recovered: &Path) -> Listing {
    let all = report
        .lines()
        .map(|line| line.split('|').collect::<Vec<_>>());
    let entries: Vec<_> = all
        .filter(|fields| !is_private(fields[1]) && !fields[1].starts_with("/$"))
        .collect();
    let mut names: HashMap<&str, u64> = HashMap::new();
    for fields in &entries {
        *names.entry(fields[2]).or_default() += 1;
    }
    let item = |fields: &Vec<&str>| {
        let (path, target) = fields[1].split_once(" -> ").unwrap_or((fields[1], ""));
        let path = path.trim_start_matches('/');
        let kind = match &fields[3][..2] {
            "d/" => Kind::Folder,
            "l/" => Kind::Symlink(target.into()),
            "p/" => Kind::Fifo,
            "r/" => {
                let contents = std::fs::read(recovered.join(path)).unwrap_or_default();
                let readable = path != UNREADABLE;
                let sha256 = if readable {
                    sha256(&contents)
                } else {
                    String::new()
                };
                Kind::File {
                    len: fields[6].parse().expect("a length"),
                    sha256,
                }
            }
            other => panic!("kind {other}: {fields:?}"),
        };
        let modified = fields[8].parse().expect("a date");
        let links = names[fields[2]];
        (
            path.to_owned(),
            Item {
                mode: mode(&fields[3][3..]),
                modified,
                links,
                ..Item::of(kind)
            },
        )
    };
    entries.iter().map(item).collect()
}

/// Parses mode bits such as `rwxr-sr-t`.
fn mode(letters: &str) -> u32 {
    let special = [(2, 0o4000), (5, 0o2000), (8, 0o1000)];
    letters.bytes().enumerate().fold(0, |mode, (at, letter)| {
        let plain = 0o400 >> at;
        let extra = special
            .iter()
            .find(|(place, _)| *place == at)
            .map_or(0, |(_, bit)| *bit);
        mode | match letter {
            b'-' => 0,
            b'S' | b'T' => extra,
            b's' | b't' => plain | extra,
            _ => plain,
        }
    })
}
