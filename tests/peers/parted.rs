//! `parted`: the only other tool that still writes Apple's partition map.

use bandsaw::container::Format;
use bandsaw::open::OpenOptions;
use bandsaw::ops::create::{Layout, Source};
use bandsaw::ops::repair::{Mode, Options, repair};
use bandsaw::partition::Scheme;
use bandsaw::progress::Silent;

use crate::disk::{blank, our_view, partitions, with_our_gpt};
use crate::programs::{Program, everything, output, run_text};
use crate::suite::Suite;
use crate::volume;

const PARTED: Program = Program::Command(&["parted"]);

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("parted", &[PARTED])
        .test("reads_our_gpt", reads_our_gpt)
        .test("reads_our_layouts", reads_our_layouts)
        .test("we_read_its_apm", we_read_its_apm)
        .test(
            "has_no_questions_after_our_repair",
            has_no_questions_after_our_repair,
        );
}

fn reads_our_gpt() {
    let (_scratch, disk) = with_our_gpt(512);
    // One line per partition: number:start:end, inclusive:size:file system:name:flags;
    let report = run_text(
        PARTED
            .command()
            .args(["--script", "--machine"])
            .arg(&disk)
            .args(["unit", "B", "print"]),
    );
    for (number, partition) in (1..).zip(partitions(512)) {
        let range = &partition.range;
        let line = format!(
            "\n{number}:{}B:{}B:{}B::{}:",
            range.start,
            range.end - 1,
            range.end - range.start,
            partition.name
        );
        assert!(report.contains(&line), "no {line:?} in\n{report}");
    }
}

/// Each map with one partition, and the volume in it.
fn reads_our_layouts() {
    let scratch = crate::scratch();
    for (layout, label, number) in [
        (Layout::Gptspud, "gpt", 1),
        (Layout::Spud, "mac", 2),
        (Layout::MbrSpud, "msdos", 1),
    ] {
        let path = scratch.path().join(format!("{layout}.img"));
        volume::create_of(
            Some(32 << 20),
            Source::Empty,
            &path,
            Format::Udrw,
            false,
            layout,
        );
        let report = run_text(
            PARTED
                .command()
                .args(["--script", "--machine"])
                .arg(&path)
                .args(["unit", "B", "print"]),
        );
        let range = &our_view(&path).partitions[number - 1].range.clone();
        let line = format!(
            "\n{number}:{}B:{}B:{}B:hfs+:",
            range.start,
            range.end - 1,
            range.end - range.start
        );
        assert!(
            report.contains(&format!(":512:512:{label}:")) && report.contains(&line),
            "{layout}: no {line:?} in\n{report}"
        );
    }
}

/// In script mode it uses its defaults and only prints its questions.
fn has_no_questions_after_our_repair() {
    for len in [
        crate::disk::DISK_LEN + (7 << 20),
        crate::disk::DISK_LEN - 20 * 512,
    ] {
        let (_scratch, disk) = with_our_gpt(512);
        std::fs::OpenOptions::new()
            .write(true)
            .open(&disk)
            .and_then(|file| file.set_len(len))
            .expect("another length");
        let print = || {
            everything(&output(
                PARTED
                    .command()
                    .arg("--script")
                    .arg(&disk)
                    .args(["unit", "s", "print"]),
            ))
        };
        let before = print();
        assert!(
            before.contains("Error") || before.contains("Warning"),
            "{before}"
        );
        repair(
            &disk,
            &OpenOptions::default(),
            &Options {
                mode: Mode::Apply,
                ..Options::default()
            },
            &Silent,
        )
        .expect("repairing");
        let after = print();
        assert!(
            !after.contains("Error") && !after.contains("Warning") && after.contains("gpt"),
            "{after}"
        );
    }
}

fn we_read_its_apm() {
    let (_scratch, disk) = blank();
    let mut parted = PARTED.command();
    parted.arg("--script").arg(&disk).args(["mklabel", "mac"]);
    parted.args([
        "mkpart", "Docs", "hfs+", "1MiB", "20MiB", "mkpart", "More", "hfs+", "20MiB", "60MiB",
    ]);
    run_text(&mut parted);

    let map = our_view(&disk);
    assert_eq!((map.scheme, map.block), (Scheme::Apm, 512));
    let volumes = map
        .partitions
        .iter()
        .filter(|partition| partition.kind == "Apple_HFS");
    let volumes: Vec<_> = volumes
        .map(|partition| {
            (
                partition.number,
                partition.range.clone(),
                partition.name.as_str(),
            )
        })
        .collect();
    assert_eq!(
        volumes,
        [
            (2, 1 << 20..20 << 20, "Docs"),
            (3, 20 << 20..60 << 20, "More")
        ]
    );
}
