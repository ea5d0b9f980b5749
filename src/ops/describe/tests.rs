//! The vocabulary of `docs/json.md`, table by table.

use super::check::{CheckedLayerInfo, ProblemInfo};
use super::crypt::KeySlotInfo;
use super::error::{ErrorInfo, code, layer_code};
use super::operations::{ChecksumInfo, OrphanInfo, ResizeStepInfo};
use crate::container::udif::{Checksum, ChecksumResult};
use crate::container::{Orphan, StoredChecksum};
use crate::crypt::KeySlot;
use crate::error::{Place, Subject};
use crate::open::{CheckedLayer, LayerVerdict, VolumeFormat};
use crate::ops::compact::OrphanReport;
use crate::ops::resize::ResizeStep;
use crate::problem::{Problem, Severity};
use crate::{Error, Kind, Reason};

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

#[test]
fn layers_and_reasons_have_codes() {
    for (layer, expected) in [
        ("gpt header", "gpt_header"),
        ("hfs+ catalog", "hfs_plus_catalog"),
        ("--passfile", "passfile"),
        ("ASIF", "asif"),
        ("", ""),
    ] {
        assert_eq!(layer_code(layer), expected);
    }
    assert_eq!(code(Reason::VolumeFull.name()), "volume_full");
}

#[test]
fn an_error_is_described_with_its_place() {
    let error = Error::corrupt("gpt header", 512, "odd").in_file("a.img");
    assert_eq!(
        json(&ErrorInfo::new(&error)),
        r#"{"kind":"corrupt","message":"a.img: gpt header: at byte 512: odd","layer":"gpt_header","path":"a.img","offset":512}"#
    );
    let error = Error::not_found("folder", "b")
        .because(Reason::NoSuchPath)
        .in_folder("a", "c");
    assert_eq!(
        json(&ErrorInfo::new(&error)),
        r#"{"kind":"not_found","reason":"no_such_path","message":"a: c: b: does not exist","layer":"folder","path":"a","part":"c","name":"b"}"#
    );
    assert_eq!(
        json(&ErrorInfo::brief(&error)),
        r#"{"kind":"not_found","reason":"no_such_path","message":"does not exist","layer":"folder","name":"b"}"#
    );
}

#[test]
fn a_problem_is_described_with_its_files() {
    let cause = Error::invalid("x", "too long");
    let problem = Problem {
        severity: Severity::Damage,
        error: Error::corrupt("hfs+ extents", 7, "shared")
            .about(Subject::Path("/a".into()))
            .about(Subject::Number(9))
            .about(Subject::Path("/b".into()))
            .in_file("partition 1")
            .caused_by(cause),
    };
    assert_eq!(
        json(&ProblemInfo::new(&problem)),
        r#"{"severity":"damage","layer":"hfs_plus_extents","within":"partition 1","offset":7,"volume_path":"/a","other_volume_path":"/b","message":"shared: x: too long"}"#
    );
}

#[test]
fn each_verdict_has_a_name() {
    let unknown = Error::unsupported("volume", "unsupported: XFS");
    for (verdict, name, message) in [
        (LayerVerdict::Checked, "checked", None),
        (LayerVerdict::Broken, "broken", None),
        (LayerVerdict::Skipped, "skipped", None),
        (
            LayerVerdict::Unknown(unknown),
            "unknown",
            Some("unsupported: XFS"),
        ),
    ] {
        let layer = "GPT".to_owned();
        let info = CheckedLayerInfo::new(&CheckedLayer { layer, verdict });
        assert_eq!(
            (&*info.description, info.verdict, info.message.as_deref()),
            ("GPT", name, message)
        );
    }
}

#[test]
fn each_checksum_says_whether_it_agrees() {
    let crc = Checksum::Crc32(0xAB);
    for (stored, computed, algorithm, intact) in [
        (crc, Some(0xAB), "crc32", Some(true)),
        (crc, Some(0xAC), "crc32", Some(false)),
        (crc, None, "crc32", None),
        (Checksum::None, Some(1), "none", None),
        (Checksum::Other(4), None, "other", None),
    ] {
        let info = ChecksumInfo::new(&StoredChecksum::from(&ChecksumResult {
            of: "tables".to_owned(),
            stored,
            computed,
            area: None,
        }));
        assert_eq!((info.algorithm, info.intact), (algorithm, intact));
        let is_crc = stored == crc;
        assert_eq!(info.stored, is_crc.then(|| "000000ab".to_owned()));
        assert_eq!(info.computed.is_some(), computed.is_some());
    }
}

#[test]
fn each_step_of_a_resize_has_its_sizes() {
    let (from, to) = (1, 2);
    let format = VolumeFormat::Hfsx;
    for (step, action, partition, file_system) in [
        (ResizeStep::GrowDisk { from, to }, "grow_disk", None, None),
        (
            ResizeStep::ShrinkDisk { from, to },
            "shrink_disk",
            None,
            None,
        ),
        (
            ResizeStep::ResizePartition {
                number: 3,
                from,
                to,
            },
            "resize_partition",
            Some(3),
            None,
        ),
        (
            ResizeStep::ResizeVolume { format, from, to },
            "resize_volume",
            None,
            Some("HFSX"),
        ),
    ] {
        let info = ResizeStepInfo::new(step);
        assert_eq!(
            (info.action, info.partition, info.file_system.as_deref()),
            (action, partition, file_system)
        );
        assert_eq!((info.size_before, info.size), (Some(from), Some(to)));
    }
    assert_eq!(
        json(&ResizeStepInfo::new(ResizeStep::MoveBackupMap)),
        r#"{"action":"move_backup_map","message":"the backup of the map moves to the end"}"#
    );
}

#[test]
fn orphans_are_described_with_their_places() {
    let orphan = |what: &str, place, len| Orphan {
        what: what.to_owned(),
        place,
        len,
        is_past_end: false,
    };
    let mut report = OrphanReport::default();
    report.found = vec![
        orphan("slot 6", Place::Offset(512), 3),
        orphan("no band", Place::Name("bands/f".into()), 4),
        orphan("rest", Place::None, 5),
    ];
    assert_eq!(
        json(&OrphanInfo::new(&report)),
        r#"{"size":12,"places":[{"message":"slot 6 at byte 512"},{"message":"bands/f: no band"},{"message":"rest"}]}"#
    );
    report.kept = Some("in doubt".to_owned());
    let kept = OrphanInfo::new(&report).kept.unwrap();
    assert_eq!(kept.message, "in doubt");
}

#[test]
fn key_slots_are_numbered() {
    let owner = KeySlot::PublicKey {
        id: vec![0xA1; 20],
        bits: 2048,
    };
    let [info] = <[KeySlotInfo; 1]>::try_from(KeySlotInfo::all(&[owner])).unwrap();
    assert_eq!(info.number, 1);
    let text = json(&info);
    assert!(text.contains(&"a1".repeat(20)), "{text}");
    assert!(text.contains("2048"), "{text}");
}

#[test]
fn errors_of_all_kinds_have_the_name_of_the_kind() {
    for kind in [Kind::Io, Kind::WrongKey, Kind::Undecided, Kind::Cancelled] {
        let info = ErrorInfo::new(&Error::new(kind, "layer", "why"));
        assert_eq!(info.kind, kind.name());
    }
}
