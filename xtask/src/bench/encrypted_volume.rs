//! Reads of a file on an encrypted APFS volume, compared with a plain one (goal 34).

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use bandsaw::crypt::Secret;
use bandsaw::device::BlockDevice;
use bandsaw::fs::{FileSystemExt, Fork};
use bandsaw::open::{OpenOptions, VolumeQuery, open};

use super::crypt::openssl;
use super::measure::{Case, Workload};
use super::stream::{Pass, stream};
use super::{Bench, MIB, PASSPHRASE};

/// Minimum share of a plain volume's rate.
const LEAST: f64 = 0.8;

/// Measures one long file, read sequentially by one reader and by two. Decryption may cost a fifth
/// of the rate, unless the cores decrypt more slowly than that.
pub(super) fn reads(bench: &Bench) -> Result<Vec<Case>> {
    let size = bench.scaled(512 * MIB);
    let folder = bench.dir.join("one");
    std::fs::create_dir_all(&folder)?;
    let piece: Vec<u8> = (0..MIB).map(|at| (at * 131 + 7) as u8).collect();
    let mut file = File::create(folder.join("file"))?;
    (0..size / MIB).try_for_each(|_| file.write_all(&piece))?;
    drop(file);
    std::fs::write(bench.dir.join("passphrase"), PASSPHRASE)?;
    let plain = build(bench, "plain.img", "")?;
    let how = "--encrypt-volume --volume-passfile passphrase";
    let encrypted = build(bench, "encrypted.img", how)?;
    let size = plain.info().len;

    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let by_cipher = bench.has("openssl", "apt install openssl");
    let reference = match by_cipher {
        true => {
            "0.8 of the plain volume's, or of openssl speed aes-128-xts on all cores what is less"
        }
        false => "0.8 of the plain volume's",
    };
    let mut cases = Vec::new();
    for readers in [1, 2] {
        let read = |file: &Arc<dyn BlockDevice>| stream(file, Pass::Read, size, MIB, readers);
        let wanted = || -> Result<f64> {
            let cipher = match by_cipher {
                true => openssl(bench, "aes-128-xts", size)?,
                false => 0.0,
            };
            Ok((read(&plain)? / LEAST).max(cipher / cores))
        };
        let name = format!("a file of an encrypted volume, {readers} reader(s)");
        let case = Case::new(34, name, reference, 1.0, Workload::Bytes(size));
        cases.push(case.measure(bench.rounds, || read(&encrypted), wanted)?);
    }
    Ok(cases)
}

/// Builds a volume from the folder; returns its only file.
fn build(bench: &Bench, image: &str, how: &str) -> Result<Arc<dyn BlockDevice>> {
    bench.run(&format!(
        "bandsaw create {image} --format udrw --fs apfs --volname Bench --layout none --from one {how}"
    ))?;
    let passphrase = Secret::new(PASSPHRASE.into());
    let query = VolumeQuery {
        snapshot: None,
        keys: Some(&passphrase),
    };
    let opened = open(&bench.dir.join(image), &OpenOptions::default())?;
    let fs = opened.file_system_as(None, query)?;
    let file = fs.resolve("/file")?;
    Ok(fs.open(file.id, Fork::Data)?)
}
