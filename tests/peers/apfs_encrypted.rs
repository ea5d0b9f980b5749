//! Our encrypted APFS volumes, opened and read by libfsapfs through its Python module: neither the
//! tools of Debian 12 nor 7-Zip open encrypted volumes.

use std::collections::BTreeMap;
use std::path::Path;

use bandsaw::crypt::Secret;
use bandsaw::device::Access;
use bandsaw::fs::{LockedVolume, VolumeEncryption, VolumeKey};
use bandsaw::open::{self, Keys, OpenOptions, VolumeQuery};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::Silent;
use bandsaw::testing::Random;

use crate::apfs_readers::our_files;
use crate::common::changing::operate;
use crate::programs::{Program, run_text};
use crate::suite::Suite;
use crate::{scratch, tree};

const FSAPFS: Program = Program::PeerModule("pyfsapfs");
const PASSPHRASE: &str = "correct horse é";
const RECOVERY_KEY: &str = "ABCD-EFGH-2345-6789-JKLM-NPQR";

/// Script that prints the checksums of all regular files by path, or `null` if the volume stays
/// locked.
const SCRIPT: &str = "
import hashlib, json, pyfsapfs, sys
container = pyfsapfs.container()
container.open(sys.argv[1])
volume = container.get_volume(0)
assert volume.is_locked()
{'passphrase': volume.set_password, 'recovery': volume.set_recovery_password}[sys.argv[2]](sys.argv[3])
files = {}
def walk(folder, path):
    for entry in folder.sub_file_entries:
        name, kind = path + '/' + entry.name, entry.file_mode & 0o170000
        if kind == 0o040000:
            walk(entry, name)
        elif kind == 0o100000:
            files[name] = hashlib.sha256(entry.read_buffer(entry.size) if entry.size else b'').hexdigest()
if volume.unlock():
    walk(volume.get_root_directory(), '')
print(json.dumps(files if not volume.is_locked() else None))
";

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("libfsapfs on encrypted volumes", &[FSAPFS])
        .test("reads_built_and_changed", reads_built_and_changed);
}

/// Returns the files that libfsapfs reads with a passphrase or recovery key; `None` if the volume
/// stays locked.
fn theirs(image: &Path, way: &str, secret: &str) -> Option<BTreeMap<String, String>> {
    let report = run_text(
        FSAPFS
            .command()
            .args(["-c", SCRIPT])
            .arg(image)
            .args([way, secret]),
    );
    serde_json::from_str(&report).expect("what it prints is JSON")
}

/// Checks that both read the same files with both keys.
fn compare(image: &Path) {
    let opened = open::open(image, &OpenOptions::default()).expect("opening an image");
    let passphrase = Secret::new(PASSPHRASE.into());
    let recovery = Recovery;
    for (way, secret, keys) in [
        ("passphrase", PASSPHRASE, &passphrase as &dyn Keys),
        ("recovery", RECOVERY_KEY, &recovery as &dyn Keys),
    ] {
        let fs = opened
            .file_system_as(
                None,
                VolumeQuery {
                    snapshot: None,
                    keys: Some(keys),
                },
            )
            .expect("too many encrypted volumes");
        let (ours, theirs) = (
            our_files(&*fs),
            theirs(image, way, secret).expect("their volume opens"),
        );
        assert!(
            !ours.is_empty() && ours == theirs,
            "{way}: {:?} and {:?}",
            ours.keys(),
            theirs.keys()
        );
    }
    assert!(theirs(image, "passphrase", "wrong").is_none());
}

#[derive(Debug)]
struct Recovery;

impl Keys for Recovery {
    fn key(&self, _: &bandsaw::crypt::Description) -> bandsaw::Result<Option<bandsaw::crypt::Key>> {
        Ok(None)
    }

    fn archive_keys(
        &self,
        _: &bandsaw::crypt::aea::ArchiveDescription,
    ) -> bandsaw::Result<bandsaw::crypt::aea::ArchiveKeys> {
        Ok(Default::default())
    }

    fn volume_key(&self, _: &LockedVolume) -> bandsaw::Result<Option<VolumeKey>> {
        Ok(Some(VolumeKey::Recovery(Secret::new(RECOVERY_KEY.into()))))
    }
}

fn reads_built_and_changed() {
    for (seed, format) in (0..).zip([NewFormat::Apfs, NewFormat::ApfsCaseSensitive]) {
        let folder = scratch();
        let (source, image) = (
            folder.path().join("source"),
            folder.path().join("encrypted.img"),
        );
        tree::write(&source, format == NewFormat::ApfsCaseSensitive);
        let volume = NewVolume {
            layout: Layout::None,
            name: "Vault".into(),
            format,
            block_size: None,
            source: Source::Folder(source),
        };
        let encryption = VolumeEncryption {
            passphrase: Secret::new(PASSPHRASE.into()),
            recovery_key: Some(Secret::new(RECOVERY_KEY.into())),
            hint: Some("a horse".into()),
            iterations: 150_000,
        };
        let (volume, volume_encryption) = (Some(volume), Some(encryption));
        let options = CreateOptions {
            len: Some(64 << 20),
            volume,
            volume_encryption,
            ..CreateOptions::default()
        };
        create(&image, options, &Silent).expect("making an image");
        compare(&image);
        let mut random = Random::new(seed);
        let options = OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        };
        let opened = open::open(&image, &options).expect("opening an image");
        let keys = Secret::new(PASSPHRASE.into());
        let fs = opened
            .file_system_mut_as(None, Some(&keys))
            .expect("a volume that can be changed");
        for _ in 0..300 {
            operate(&*fs, &mut random);
        }
        fs.unmount().expect("an unmount");
        drop((fs, opened));
        compare(&image);
    }
}
