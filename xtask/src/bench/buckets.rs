//! A bundle in a bucket of a local store, compared with plain requests to the same store (goal 35).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bandsaw::container::sparsebundle::{Bundle, CreateOptions};
use bandsaw::device::{Access, BlockDevice};
use bandsaw::store::{
    Bucket, BucketOptions, BucketPlace, CacheOptions, Credentials, Local, Objects, Piece, Remote,
    RemoteOptions,
};
use bandsaw::testing::Random;

use super::measure::{Case, Workload, time};
use super::scale::peak_kib;
use super::{Bench, MIB};

/// Size in bytes of a band, and of an object for comparison.
const BAND: u64 = 8 * MIB;
const BUCKET: &str = "bench";
/// Duration of random reads.
const RANDOM: Duration = Duration::from_secs(1);
/// Memory limit of a program, in megabytes.
const MEMORY: f64 = 256.0 * 1.048_576;

/// A running store, stopped on drop.
struct Store {
    script: PathBuf,
    folder: PathBuf,
    endpoint: String,
}

impl Store {
    /// Starts a store; `None` if Ceph is not installed.
    fn start(bench: &Bench) -> Result<Option<Self>> {
        let is_there = |program: &str| {
            ["/usr/bin", "/usr/sbin", "/usr/local/bin"]
                .iter()
                .any(|folder| Path::new(folder).join(program).exists())
        };
        if !["ceph", "ceph-mon", "ceph-osd", "radosgw"]
            .into_iter()
            .all(is_there)
        {
            return Ok(None);
        }
        let port = 20_000 + u16::try_from(std::process::id() % 20_000)?;
        let store = Self {
            script: crate::root().join("scripts/object-store"),
            folder: bench.dir.join("ceph"),
            endpoint: format!("http://127.0.0.1:{port}"),
        };
        store.run(&["start", store.folder()?, &port.to_string(), "1", "6"])?;
        store.run(&["bucket", store.folder()?, BUCKET])?;
        Ok(Some(store))
    }

    fn folder(&self) -> Result<&str> {
        self.folder
            .to_str()
            .context("a folder with a name in UTF-8")
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        let done = Command::new(&self.script).args(arguments).output()?;
        ensure!(
            done.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        Ok(())
    }

    fn objects(&self, prefix: &str) -> Result<Arc<dyn Objects>> {
        objects(&self.endpoint, prefix)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self
            .folder()
            .map(str::to_owned)
            .and_then(|folder| self.run(&["stop", &folder]))
        {
            eprintln!("{error}");
        }
    }
}

fn objects(endpoint: &str, prefix: &str) -> Result<Arc<dyn Objects>> {
    let credentials = Some(Credentials::new("AKtest", "SKtest12345678"));
    let options = BucketOptions {
        endpoint: Some(endpoint.to_owned()),
        credentials,
        ..BucketOptions::default()
    };
    Ok(Arc::new(Bucket::new(
        BucketPlace {
            bucket: BUCKET.to_owned(),
            prefix: prefix.to_owned(),
        },
        &options,
    )?))
}

fn prefix() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    format!("p{}", COUNTER.fetch_add(1, Ordering::Relaxed))
}

fn options(access: Access) -> RemoteOptions {
    RemoteOptions {
        access,
        ..RemoteOptions::default()
    }
}

/// Writes a bundle sequentially and flushes it; returns the time.
fn write(objects: Arc<dyn Objects>, size: u64, bytes: &[u8]) -> Result<Duration> {
    let remote = Remote::open(objects, &options(Access::ReadWrite))?;
    let bundle = Bundle::create(
        remote.clone(),
        &CreateOptions {
            len: size,
            band_size: Some(BAND),
        },
    )?;
    bundle.flush()?;
    let taken = time(|| {
        (0..size / MIB).try_for_each(|n| {
            bundle.write_at(n * MIB, &bytes[(n * MIB % BAND) as usize..][..MIB as usize])
        })?;
        Ok(bundle.flush()?)
    })?;
    drop(bundle);
    remote.close()?;
    Ok(taken)
}

/// Reads a bundle sequentially.
fn read(objects: Arc<dyn Objects>, size: u64) -> Result<Duration> {
    let bundle = Bundle::open(
        Remote::open(objects, &options(Access::ReadOnly))?,
        Access::ReadOnly,
    )?;
    let mut buf = vec![0; MIB as usize];
    time(|| Ok((0..size / MIB).try_for_each(|n| bundle.read_at(n * MIB, &mut buf))?))
}

/// Makes one request per object, with the concurrency of a bundle.
fn side_by_side(size: u64, request: &(dyn Fn(&str) -> Result<()> + Sync)) -> Result<Duration> {
    let next = AtomicU64::new(0);
    let work = || loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= size / BAND {
            return Ok(());
        }
        request(&format!("{number:x}"))?;
    };
    time(|| {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..RemoteOptions::default().connections)
                .map(|_| scope.spawn(work))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    })
}

/// Goal 35: sequential and random transfers, and memory.
pub(super) fn bundles(bench: &Bench) -> Result<Vec<Case>> {
    let Some(store) = Store::start(bench)? else {
        eprintln!("  skipped: Ceph is missing");
        return Ok(Vec::new());
    };
    let size = bench.scaled(512 * MIB).next_multiple_of(BAND);
    let bytes = Random::new(35).bytes(BAND as usize);
    let case = |name: &str, reference: &str, at_least, work| Case {
        goal: 35,
        name: name.to_owned(),
        reference: reference.to_owned(),
        at_least,
        pairs: Vec::new(),
        work,
    };
    let gone = |objects: &dyn Objects| -> Result<()> {
        let mut keys = Vec::new();
        objects.list("", &mut |key, _| {
            keys.push(key.to_owned());
            Ok(())
        })?;
        keys.iter()
            .try_for_each(|key| Ok(objects.remove(key).map(drop)?))
    };
    let plain = store.objects("plain")?;
    let body = Arc::new(bytes.clone());
    let put =
        |key: &str| Ok(plain.put_gathered(key, vec![Piece::new(body.clone(), BAND as usize)])?);
    let get = |key: &str| {
        let found = plain.read_at(key, 0, &mut vec![0; BAND as usize])?;
        ensure!(found == Some(BAND as usize), "{key} is short");
        Ok(())
    };
    let writing = case(
        "a bundle in a bucket, written from front to back and flushed",
        "PUT of 8 MiB objects, as many at a time",
        0.9,
        Workload::Bytes(size),
    );
    let writing = writing.measure(
        bench.rounds,
        || {
            let objects = store.objects(&prefix())?;
            let taken = write(objects.clone(), size, &bytes)?;
            gone(&*objects)?;
            Ok(taken)
        },
        || side_by_side(size, &put),
    )?;
    let kept = store.objects("kept")?;
    write(kept.clone(), size, &bytes)?;
    let reading = case(
        "a bundle in a bucket, read from front to back",
        "GET of 8 MiB objects, as many at a time",
        0.9,
        Workload::Bytes(size),
    );
    let reading = reading.measure(
        bench.rounds,
        || read(kept.clone(), size),
        || side_by_side(size, &get),
    )?;
    gone(&*plain)?;
    let cached = random_reads(
        bench,
        &kept,
        size,
        case(
            "4 KiB read at random from a cache of 1 GiB, 1 thread",
            "a bundle on the same disk",
            0.8,
            Workload::Requests(100_000),
        ),
    )?;
    let memory = case(
        "peak memory of a program that writes a bundle in a bucket, and reads it",
        "256 MiB",
        1.0,
        Workload::Memory,
    );
    let memory = memory.measure_costs(bench.rounds.min(3), || peak(&store, size), || Ok(MEMORY))?;
    gone(&*kept)?;
    Ok(vec![writing, reading, cached, memory])
}

/// Measures random reads from a cache, compared with those of a bundle on this host.
fn random_reads(bench: &Bench, objects: &Arc<dyn Objects>, size: u64, case: Case) -> Result<Case> {
    let (folder, local) = (
        bench.dir.join("cache"),
        bench.dir.join("local.sparsebundle"),
    );
    std::fs::create_dir(&folder)?;
    let cache = CacheOptions::new(
        Arc::new(Local::new(&folder)),
        folder.display().to_string(),
        1 << 30,
    );
    // Less memory than the data read, so that most comes from the disk.
    let cached = RemoteOptions {
        cache: Some(cache),
        memory: 32 * MIB,
        ..options(Access::ReadOnly)
    };
    let cached = Bundle::open(Remote::open(objects.clone(), &cached)?, Access::ReadOnly)?;
    let store = Arc::new(Local::new(&local));
    let plain = Bundle::create(
        store,
        &CreateOptions {
            len: size,
            band_size: Some(BAND),
        },
    )?;
    let mut buf = vec![0; MIB as usize];
    for n in 0..size / MIB {
        cached.read_at(n * MIB, &mut buf)?;
        plain.write_at(n * MIB, &buf)?;
    }
    plain.flush()?;
    let random = |disk: &dyn BlockDevice| {
        let (mut random, mut buf, mut count) = (Random::new(7), [0; 4096], 0_u64);
        let begun = Instant::now();
        while begun.elapsed() < RANDOM {
            for _ in 0..100 {
                disk.read_at(random.within(0..size / 4096) * 4096, &mut buf)?;
            }
            count += 100;
        }
        Ok(begun.elapsed().as_secs_f64() * 100_000.0 / count as f64)
    };
    let case = case.measure_costs(bench.rounds, || random(&cached), || random(&plain))?;
    drop((cached, plain));
    [folder, local].iter().for_each(|path| super::remove(path));
    Ok(case)
}

/// Returns the peak memory of a separate process, in megabytes.
fn peak(store: &Store, size: u64) -> Result<f64> {
    let place = format!("{} {} {size}", store.endpoint, prefix());
    let out = Command::new(std::env::current_exe()?)
        .args(["bench", "--probe-bucket", &place])
        .output()?;
    ensure!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let kib: f64 = String::from_utf8(out.stdout)?
        .trim()
        .parse()
        .context("peak memory in KiB")?;
    Ok(kib * 1024.0 / 1e6)
}

/// Writes a bundle at `place` (endpoint, prefix and bytes), reads it, and prints the peak memory of
/// the process in KiB.
pub(super) fn probe(place: &str) -> Result<()> {
    let [endpoint, prefix, size] = place.split(' ').collect::<Vec<_>>()[..] else {
        anyhow::bail!("no place: {place}")
    };
    let (objects, size) = (objects(endpoint, prefix)?, size.parse()?);
    write(objects.clone(), size, &Random::new(36).bytes(BAND as usize))?;
    read(objects, size)?;
    println!("{}", peak_kib()?);
    Ok(())
}
