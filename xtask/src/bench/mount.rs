//! FUSE mounts with one client, fio (goal 16): a bundle's disk as a file, and a volume, compared
//! with bindfs on a plain file and with sparsebundlefs.
//!
//! Requests use direct I/O, so that each reaches the server instead of the kernel's cache.

use anyhow::{Context, Result};

use super::fio::Load;
use super::measure::Case;
use super::programs::finish;
use super::stream::filled;
use super::{Bench, MIB};

/// A file in a mount, which is unmounted on drop.
struct Shown<'a> {
    bench: &'a Bench,
    /// Name of the folder and of the file in it.
    folder: String,
    file: &'static str,
}

impl<'a> Shown<'a> {
    fn begin(bench: &'a Bench, name: &str, file: &'static str, line: &str) -> Result<Self> {
        let folder = format!("{name}.mnt");
        std::fs::create_dir_all(bench.dir.join(&folder))?;
        let mut command = bench.command(&format!("{line} @/{folder}"));
        finish(command.env("XDG_RUNTIME_DIR", &bench.dir))
            .with_context(|| format!("{name} does not mount"))?;
        Ok(Self {
            bench,
            folder,
            file,
        })
    }

    /// Runs fio; returns the seconds of its work.
    fn run(&self, load: &Load, size: u64) -> Result<f64> {
        let Self { folder, file, .. } = self;
        let on = format!(
            "--ioengine=psync --direct=1 --readonly --norandommap --filename=@/{folder}/{file}"
        );
        load.run(self.bench, &on, size)
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let _ = self
            .bench
            .run(&format!("fusermount3 -u -z @/{}", self.folder));
    }
}

const LOADS: [Load; 4] = [
    Load::new("read", "1m", 1, 1),
    Load::new("read", "64k", 1, 1),
    Load::new("read", "1m", 1, 2),
    Load::new("randread", "4k", 1, 1),
];

/// Goal 16: FUSE mounts.
pub(super) fn fuse(bench: &Bench) -> Result<Vec<Case>> {
    if !bench.has(
        "fio bindfs fusermount3 /dev/fuse",
        "apt install fio bindfs fuse3",
    ) {
        return Ok(Vec::new());
    }
    let size = bench.scaled(512 * MIB);
    filled(bench, "fuse.sparsebundle", size, false)?;
    std::fs::create_dir_all(bench.dir.join("fuse.plain"))?;
    let bytes: Vec<u8> = (0..size).map(|at| (at * 131 + 7) as u8).collect();
    std::fs::write(bench.dir.join("fuse.plain/file"), &bytes)?;
    let len = size + size / 4 + 64 * MIB;
    bench.run(&format!(
        "bandsaw create volume.sparsebundle --size {len} --fs hfs+ --overwrite --quiet"
    ))?;
    bench.run("bandsaw cp fuse.plain/file volume.sparsebundle:/file --quiet")?;

    let ours = "bandsaw mount --read-only --quiet";
    let as_disk = format!("{ours} --as-disk --image-format udsb fuse.sparsebundle");
    let disk = Shown::begin(bench, "disk", "fuse.img", &as_disk)?;
    let volume = format!("{ours} volume.sparsebundle");
    let volume = Shown::begin(bench, "volume", "file", &volume)?;
    let bindfs = Shown::begin(bench, "bindfs", "file", "bindfs @/fuse.plain")?;
    let other = match bench.has("sparsebundlefs", "scripts/install-test-tools") {
        true => {
            let line = "sparsebundlefs fuse.sparsebundle";
            Some(Shown::begin(
                bench,
                "sparsebundlefs",
                "sparsebundle.dmg",
                line,
            )?)
        }
        false => None,
    };
    let mut cases = Vec::new();
    for load in &LOADS {
        let mut compare =
            |what: &str, ours: &Shown<'_>, reference: &str, theirs: &Shown<'_>, least| {
                let name = format!(
                    "FUSE, {what}: {} {}, {} job(s)",
                    load.rw, load.block, load.jobs
                );
                let case = Case::new(16, name, reference, least, load.work(size));
                let (ours, theirs) = (|| ours.run(load, size), || theirs.run(load, size));
                cases.push(case.measure(bench.rounds, ours, theirs)?);
                anyhow::Ok(())
            };
        let plain = "bindfs on a plain file";
        compare("a bundle's disk", &disk, plain, &bindfs, 1.0)?;
        compare("a file of HFS+", &volume, plain, &bindfs, 1.0)?;
        if let Some(other) = &other {
            let least = if load.is_random() { 2.0 } else { 3.0 };
            compare("a bundle's disk", &disk, "sparsebundlefs", other, least)?;
        }
    }
    Ok(cases)
}
