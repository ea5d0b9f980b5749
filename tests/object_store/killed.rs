//! Killed processes: writers at random moments, servers of an open bundle; and racing writers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bandsaw::Kind;
use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::device::{Access, BlockDevice, BlockDeviceExt};
use bandsaw::store::{
    Bucket, BucketOptions, BucketPlace, CacheOptions, Credentials, FlushTo, Local, Objects, Remote,
    RemoteOptions,
};
use bandsaw::testing::Random;

use super::new_prefix;
use crate::common::ceph::Ceph;

/// Environment variable with the job of a child process: `write ENDPOINT PREFIX CACHE FLUSH FIRST`,
/// `race ENDPOINT PREFIX ROUNDS`.
const JOB: &str = "BANDSAW_OBJECT_STORE_JOB";
/// Environment variable with the number of kills, instead of the few of an ordinary run.
const KILLS: &str = "BANDSAW_OBJECT_STORE_ROUNDS";
/// Environment variable with the number of rounds of a race.
const RACES: &str = "BANDSAW_OBJECT_STORE_RACES";

const SIZE: BundleOptions = BundleOptions {
    len: 32 << 20,
    band_size: Some(1 << 20),
};

fn rounds(variable: &str, few: u64) -> u64 {
    std::env::var(variable).map_or(few, |rounds| rounds.parse().unwrap())
}

fn open(endpoint: &str, prefix: &str, options: &RemoteOptions) -> bandsaw::Result<Arc<Remote>> {
    let credentials = Some(Credentials::new(Ceph::KEY, Ceph::SECRET));
    let bucket = BucketOptions {
        endpoint: Some(endpoint.to_owned()),
        credentials,
        ..BucketOptions::default()
    };
    let objects = Bucket::new(
        BucketPlace {
            bucket: "test".to_owned(),
            prefix: prefix.to_owned(),
        },
        &bucket,
    )?;
    Remote::open(Arc::new(objects) as Arc<dyn Objects>, options)
}

fn thief() -> RemoteOptions {
    RemoteOptions {
        access: Access::ReadWrite,
        steal: true,
        part: 1 << 20,
        memory: 16 << 20,
        ..RemoteOptions::default()
    }
}

fn cached(folder: &str, flush: &str) -> RemoteOptions {
    let flush = if flush == "local" {
        FlushTo::Local
    } else {
        FlushTo::Store
    };
    let cache = CacheOptions::new(Arc::new(Local::new(folder)), folder, 32 << 20);
    let cache = CacheOptions {
        flush,
        upload_after: Duration::from_millis(150),
        ..cache
    };
    RemoteOptions {
        cache: Some(cache),
        ..thief()
    }
}

fn child(job: &[&str]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "object_store::killed::job", "--nocapture"])
        .env(JOB, job.join("\n"));
    command.stdout(Stdio::piped()).spawn().unwrap() // what it complains of is seen
}

/// Entry point of a child process; does nothing unless one of these tests started it.
#[test]
fn job() {
    let Ok(job) = std::env::var(JOB) else { return };
    let words: Vec<&str> = job.lines().collect();
    match words[..] {
        ["write", endpoint, prefix, cache, flush, first] => write(
            endpoint,
            prefix,
            &cached(cache, flush),
            first.parse().unwrap(),
        ),
        ["race", endpoint, prefix, rounds] => race(endpoint, prefix, rounds.parse().unwrap()),
        _ => panic!("no such job: {words:?}"),
    }
}

/// Returns the sectors written in a step, each filled with its number.
fn step(number: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut random = Random::new(number);
    let writes: Vec<_> = (0..5)
        .map(|_| {
            (
                random.within(0..SIZE.len / 512 - 800),
                random.within(1..800),
            )
        })
        .collect();
    writes.into_iter()
}

fn write(endpoint: &str, prefix: &str, options: &RemoteOptions, first: u64) {
    let bundle = Bundle::open(open(endpoint, prefix, options).unwrap(), Access::ReadWrite).unwrap();
    println!("opened {first}");
    for number in first.. {
        for (sector, count) in step(number) {
            bundle
                .write_at(
                    sector * 512,
                    &number.to_le_bytes().repeat(64 * count as usize),
                )
                .unwrap();
        }
        bundle.flush().unwrap();
        println!("flushed {number}");
    }
}

/// A writer is killed repeatedly. All data whose flush it reported is stored, and nothing that it
/// did not write.
pub(super) fn writers_are_killed(ceph: &Ceph) {
    for flush in ["store", "local"] {
        let (prefix, folder) = (new_prefix(), tempfile::tempdir().unwrap());
        let cache = folder.path().to_str().unwrap();
        let made =
            Bundle::create(open(&ceph.endpoint(), &prefix, &thief()).unwrap(), &SIZE).unwrap();
        made.flush().unwrap();
        drop(made);
        let mut random = Random::new(21);
        // Possible contents of each sector: unacknowledged writes may still be in transit to the
        // store.
        let mut sectors: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let (mut next, mut kept) = (1, 0);
        for round in 0..rounds(KILLS, 3) {
            let mut writer = child(&[
                "write",
                &ceph.endpoint(),
                &prefix,
                cache,
                flush,
                &next.to_string(),
            ]);
            let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
            let mut said = lines
                .map_while(Result::ok)
                .filter(|line| line.contains("opened") || line.contains("flushed"));
            said.next().expect("it opens");
            let process = writer.id();
            let pause = Duration::from_millis(random.within(0..700));
            let killer = thread::spawn(move || {
                thread::sleep(pause);
                Command::new("kill")
                    .args(["-9", &process.to_string()])
                    .status()
                    .unwrap()
            });
            let flushed = said
                .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
                .last()
                .unwrap_or(next - 1);
            killer.join().unwrap();
            writer.wait().unwrap();
            kept += flushed + 1 - next;
            // One further step may have been flushed without being reported, and another one
            // started.
            for number in next..=flushed + 2 {
                for (first, count) in step(number) {
                    for sector in first..first + count {
                        let versions = sectors.entry(sector).or_insert_with(|| vec![0]);
                        if number <= flushed {
                            versions.clear();
                        }
                        versions.push(number);
                    }
                }
            }
            let access = if random.one_in(2) {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            };
            let seeing = RemoteOptions {
                access,
                ..cached(cache, flush)
            };
            let bundle = Bundle::open(
                open(&ceph.endpoint(), &prefix, &seeing).unwrap(),
                Access::ReadOnly,
            )
            .unwrap();
            let found = bundle.read_vec(0, SIZE.len as usize).unwrap();
            for (sector, versions) in &sectors {
                let now = &found[*sector as usize * 512..][..512];
                let number = u64::from_le_bytes(now[..8].try_into().unwrap());
                assert!(
                    versions.contains(&number),
                    "{flush}, round {round}, sector {sector}: {number}, not one of {versions:?}"
                );
                assert!(
                    now == number.to_le_bytes().repeat(64),
                    "{flush}, round {round}, sector {sector}: torn"
                );
            }
            next = flushed + 3;
        }
        eprintln!("{kept} flushes to the {flush} survived");
        assert!(kept > 0, "nothing was flushed");
    }
}

fn race(endpoint: &str, prefix: &str, rounds: u64) {
    for _ in 0..rounds {
        let Ok(remote) = open(endpoint, prefix, &thief()) else {
            continue;
        };
        for value in 0..2_u8 {
            use bandsaw::store::{Put, Store};
            let stored = remote
                .put("bands/0", &[value; 700], Put::Replace)
                .and_then(|_| remote.sync());
            match stored {
                Ok(()) => println!("flushed {}", remote.generation()),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Conflict, "{error}");
                    break;
                }
            }
        }
    }
    println!("done 0");
}

/// Two processes take over a bundle from each other. In no generation do both get a flush
/// acknowledged.
pub(super) fn two_processes_race(ceph: &Ceph) {
    let (prefix, rounds) = (new_prefix(), rounds(RACES, 12).to_string());
    drop(open(&ceph.endpoint(), &prefix, &thief()).unwrap());
    let mut racers = [(); 2].map(|()| child(&["race", &ceph.endpoint(), &prefix, &rounds]));
    let mut acknowledged: BTreeMap<u64, usize> = BTreeMap::new();
    for (me, racer) in racers.iter_mut().enumerate() {
        let lines: Vec<String> = BufReader::new(racer.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .collect();
        assert!(racer.wait().unwrap().success());
        assert!(
            lines.iter().any(|line| line.ends_with("done 0")),
            "{lines:?}"
        );
        for generation in lines
            .iter()
            .filter(|line| line.contains("flushed"))
            .filter_map(|line| line.rsplit(' ').next())
        {
            let other = acknowledged.insert(generation.parse().unwrap(), me);
            assert!(
                other.is_none_or(|other| other == me),
                "both had a flush acknowledged in generation {generation}"
            );
        }
    }
    eprintln!(
        "{} generations had a flush acknowledged",
        acknowledged.len()
    );
    assert!(acknowledged.len() > 3);
}

/// The gateway is killed and restarted, then one of two OSDs is killed, each during writes.
pub(super) fn servers_are_killed(ceph: &Ceph) {
    let prefix = new_prefix();
    let remote = open(&ceph.endpoint(), &prefix, &thief()).unwrap();
    let bundle = Bundle::create(remote, &SIZE).unwrap();
    let mut expected = vec![0; SIZE.len as usize];
    let mut random = Random::new(31);
    let mut change = |bundle: &Bundle| {
        for _ in 0..3 {
            let at = random.within(0..SIZE.len / 512 - 6000) * 512;
            let bytes = random.bytes(512 * random.clone().within(1000..6000) as usize);
            bundle.write_at(at, &bytes).unwrap();
            expected[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        bundle.flush().unwrap();
        expected.clone()
    };
    change(&bundle);
    thread::scope(|scope| {
        let writing = scope.spawn(|| change(&bundle));
        ceph.daemon("rgw", "kill");
        ceph.daemon("rgw", "start");
        writing.join().unwrap();
    });
    let expected = thread::scope(|scope| {
        let writing = scope.spawn(|| {
            change(&bundle);
            change(&bundle)
        });
        ceph.daemon("osd.1", "kill");
        writing.join().unwrap()
    });
    drop(bundle);
    let seen = open(&ceph.endpoint(), &prefix, &RemoteOptions::default()).unwrap();
    let seen = Bundle::open(seen, Access::ReadOnly).unwrap();
    assert!(seen.read_vec(0, expected.len()).unwrap() == expected);
}
