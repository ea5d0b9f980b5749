//! Checks of APFS containers made by other software.

use crate::common::corpus;
use crate::common::opened;
use bandsaw::crypt::Secret;
use bandsaw::fs::VolumeKey;
use bandsaw::open::VolumeFormat;
use bandsaw::problem::{Problems, Severity};
use bandsaw::progress::Silent;
use bandsaw::{Error, Kind};

/// Excerpts: the container is longer than the image, which is the only damage.
const CUT_SHORT: [&str; 3] = [
    "apfs-container-chain",
    "apfs-content",
    "newtua-apfs-decmpfs",
];
/// An image whose newest checkpoint was corrupted on purpose.
const DAMAGED: &str = "apfs-corrupt";

#[test]
fn containers_made_by_macos_are_in_order() {
    let Some(images) = corpus::images("containers_made_by_macos_are_in_order") else {
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
        for volume in opened
            .volumes()
            .iter()
            .filter(|volume| volume.format == VolumeFormat::Apfs)
        {
            let name = image.path();
            let container = volume.container().unwrap();
            let passphrase = image.text("volume_password");
            let locked = || Error::new(Kind::WrongKey, "test", "not known");
            let key = |known: bool| {
                let passphrase = passphrase.filter(|_| known).ok_or_else(locked)?;
                Ok(VolumeKey::Passphrase(Secret::new(
                    passphrase.as_bytes().to_vec(),
                )))
            };
            for known in [true, false]
                .into_iter()
                .filter(|known| *known || passphrase.is_some())
            {
                let mut problems = Problems::default();
                let unseen = container
                    .check("here", &|_| key(known), &mut problems, &Silent)
                    .unwrap();
                assert_eq!(
                    unseen.len(),
                    usize::from(passphrase.is_some() && !known),
                    "{name}: {unseen:?}"
                );
                let expected =
                    CUT_SHORT.iter().any(|cut| name.contains(cut)) || name.contains(DAMAGED);
                let worst = problems.worst().filter(|worst| *worst > Severity::Note);
                assert_eq!(
                    worst,
                    expected.then_some(Severity::Damage),
                    "{name}: {problems:#?}"
                );
                assert_eq!(
                    problems.count(Severity::Damage),
                    u64::from(expected),
                    "{name}: {problems:#?}"
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 0);
}
