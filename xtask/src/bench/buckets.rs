//! A bundle in a bucket of a local store, compared with plain requests to the same store (goal 35).

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::device::{Access, BlockDevice};
use bandsaw::store::{
    Bucket, BucketOptions, BucketPlace, CacheOptions, Credentials, Local, Objects, ObjectsExt, Put,
    Remote, RemoteOptions, SharedBytes,
};
use bandsaw::testing::Random;

use super::measure::{Case, Workload, time};
use super::programs::probed;
use super::{Bench, MIB};

/// Size in bytes of a band, and of an object for comparison.
const BAND: u64 = 8 * MIB;
const BUCKET: &str = "bench";
/// Duration of random reads.
const RANDOM: Duration = Duration::from_secs(1);
/// Memory limit of a program, in megabytes.
const MEMORY: f64 = 256.0 * 1.048_576;

/// A running store, stopped on drop.
struct Store<'a> {
    bench: &'a Bench,
    endpoint: String,
}

impl<'a> Store<'a> {
    fn start(bench: &'a Bench) -> Result<Self> {
        let port = 20_000 + u16::try_from(std::process::id() % 20_000)?;
        let store = Self {
            bench,
            endpoint: format!("http://127.0.0.1:{port}"),
        };
        store.run("start", &format!("{port} 1 6"))?;
        store.run("bucket", BUCKET)?;
        Ok(store)
    }

    fn run(&self, verb: &str, arguments: &str) -> Result<()> {
        let done = Command::new(crate::root().join("scripts/object-store"))
            .arg(verb)
            .arg(self.bench.dir.join("ceph"))
            .args(arguments.split_whitespace())
            .output()?;
        ensure!(
            done.status.success(),
            "object-store {verb}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        Ok(())
    }

    fn objects(&self, prefix: &str) -> Result<Arc<dyn Objects>> {
        objects(&self.endpoint, prefix)
    }
}

impl Drop for Store<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.run("stop", "") {
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
fn write(objects: Arc<dyn Objects>, size: u64, bytes: &[u8]) -> Result<f64> {
    let remote = Remote::open(objects, &options(Access::ReadWrite))?;
    let bundle = Bundle::create(remote.clone(), &sized(size))?;
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

fn sized(len: u64) -> BundleOptions {
    BundleOptions {
        len,
        band_size: Some(BAND),
    }
}

/// Reads a bundle sequentially.
fn read(objects: Arc<dyn Objects>, size: u64) -> Result<f64> {
    let remote = Remote::open(objects, &options(Access::ReadOnly))?;
    let bundle = Bundle::open(remote, Access::ReadOnly)?;
    let mut buf = vec![0; MIB as usize];
    time(|| Ok((0..size / MIB).try_for_each(|n| bundle.read_at(n * MIB, &mut buf))?))
}

/// Makes one request per object, with the concurrency of a bundle.
fn side_by_side(size: u64, request: &(dyn Fn(&str) -> Result<()> + Sync)) -> Result<f64> {
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
    let programs = "/usr/bin/ceph /usr/bin/ceph-mon /usr/bin/ceph-osd /usr/bin/radosgw";
    if !bench.has(programs, "scripts/install-test-tools") {
        return Ok(Vec::new());
    }
    let store = Store::start(bench)?;
    let size = bench.scaled(512 * MIB).next_multiple_of(BAND);
    let bytes = Random::new(35).bytes(BAND as usize);
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
    let put = |key: &str| {
        let pieces = vec![SharedBytes::new(body.clone(), BAND as usize)];
        Ok(plain.put_gathered(key, pieces, Put::Replace).map(drop)?)
    };
    let get = |key: &str| {
        let found = plain.read_at(key, 0, &mut vec![0; BAND as usize])?;
        ensure!(found == Some(BAND as usize), "{key} is short");
        Ok(())
    };
    let bundle = |how: &str, request: &str| {
        let name = format!("a bundle in a bucket, {how}");
        let reference = format!("{request} of 8 MiB objects, as many at a time");
        Case::new(35, name, reference, 0.9, Workload::Bytes(size))
    };
    let writing = bundle("written from front to back and flushed", "PUT").measure(
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
    let reading = bundle("read from front to back", "GET").measure(
        bench.rounds,
        || read(kept.clone(), size),
        || side_by_side(size, &get),
    )?;
    gone(&*plain)?;
    let cached = random_reads(bench, &kept, size)?;
    let name = "peak memory of a program that writes a bundle in a bucket, and reads it";
    let peak = || {
        let place = format!("{} {} {size}", store.endpoint, prefix());
        Ok(probed("bucket", &place)?.1)
    };
    let memory = Case::new(35, name, "256 MiB", 1.0, Workload::Memory);
    let memory = memory.measure(bench.rounds.min(3), peak, || Ok(MEMORY))?;
    Ok(vec![writing, reading, cached, memory])
}

/// Measures random reads from a cache, compared with those of a bundle on this host.
fn random_reads(bench: &Bench, objects: &Arc<dyn Objects>, size: u64) -> Result<Case> {
    let folder = bench.dir.join("cache");
    std::fs::create_dir(&folder)?;
    let store = Arc::new(Local::new(&folder));
    let cache = CacheOptions::new(store, folder.display().to_string(), 1 << 30);
    // Less memory than the data read, so that most comes from the disk.
    let cached = RemoteOptions {
        cache: Some(cache),
        memory: 32 * MIB,
        ..options(Access::ReadOnly)
    };
    let cached = Bundle::open(Remote::open(objects.clone(), &cached)?, Access::ReadOnly)?;
    let store = Arc::new(Local::new(bench.dir.join("local.sparsebundle")));
    let plain = Bundle::create(store, &sized(size))?;
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
    let name = "4 KiB read at random from a cache of 1 GiB, 1 thread";
    let reference = "a bundle on the same disk";
    let case = Case::new(35, name, reference, 0.8, Workload::Requests(100_000));
    case.measure(bench.rounds, || random(&cached), || random(&plain))
}

/// Writes a bundle at `place` (endpoint, prefix and bytes), and reads it.
pub(super) fn probe(place: &str) -> Result<f64> {
    let [endpoint, prefix, size] = place.split(' ').collect::<Vec<_>>()[..] else {
        anyhow::bail!("no place: {place}")
    };
    let (objects, size) = (objects(endpoint, prefix)?, size.parse()?);
    let written = write(objects.clone(), size, &Random::new(36).bytes(BAND as usize))?;
    Ok(written + read(objects, size)?)
}
