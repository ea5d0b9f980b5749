//! Checks of HFS+ volumes made by other software.

use crate::common::corpus;
use crate::common::opened;
use bandsaw::fs::FreeMapExt;
use bandsaw::fs::hfsplus::{self, Probed, probe};
use bandsaw::problem::Severity;
use bandsaw::progress::Silent;

#[test]
fn volumes_made_by_macos_are_in_order() {
    let Some(images) = corpus::images("volumes_made_by_macos_are_in_order") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut checked = 0;
    for image in images
        .iter()
        .filter(|image| opened::KINDS.contains(&image.format()))
    {
        let Some(Ok(opened)) = opened::open(image, scratch.path()) else {
            continue;
        };
        for volume in opened.volumes() {
            let device = volume.device().clone();
            if !matches!(
                probe(&*device),
                Ok(Some(Probed::HfsPlus | Probed::Hfsx | Probed::Wrapped))
            ) {
                continue;
            }
            let findings = hfsplus::check(device, &Silent).unwrap();
            let (image, at) = (image.path(), volume.range.start);
            assert!(
                findings
                    .iter()
                    .all(|problem| problem.severity < Severity::Warning),
                "{image} at {at}: {findings:#?}"
            );
            checked += 1;

            let map = volume.free_map().unwrap().unwrap();
            let free: u64 = map
                .free_runs(0..u64::MAX)
                .map(|run| run.unwrap())
                .map(|run| run.end - run.start)
                .sum();
            assert_eq!(
                free,
                volume.open().unwrap().volume().free,
                "{image} at {at}"
            );
        }
    }
    assert!(checked > 0);
}
