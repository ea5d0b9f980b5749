//! Requests that fail, are lost, or are delayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bandsaw::container::sparsebundle::Bundle;
use bandsaw::device::{Access, BlockDevice, BlockDeviceExt};
use bandsaw::store::{Objects, ObjectsExt, Put, Remote, RemoteOptions, Store};
use bandsaw::testing::Random;
use bandsaw::testing::object_faults::{FaultyObjects, Request, Slip};
use bandsaw::{Kind, Result};

use super::through::{Call, Porter, Through};
use super::{BUNDLE, load, memory, options, reader, store, thief, writer};

/// Each request fails once, or its response is lost, or it is executed twice. Acknowledged data is
/// stored.
#[test]
fn requests_fail() {
    for slip in [Slip::Lost, Slip::AnswerLost, Slip::Twice] {
        for request in [
            Request::Put,
            Request::Read,
            Request::Remove,
            Request::List,
            Request::Stat,
        ] {
            for n in 1..24 {
                let inner = memory();
                let faulty = FaultyObjects::new(inner.clone());
                faulty.plan(request, n, slip);
                let objects: Arc<dyn Objects> = faulty.clone();
                let mut acknowledged = None;
                let mut tried = None;
                if let Ok(remote) = writer(&objects) {
                    for value in 1..5_u8 {
                        tried = Some(vec![value; 70_000]);
                        match store(&remote, "a", &[value; 70_000]) {
                            Ok(()) => acknowledged = tried.clone(),
                            Err(_) => assert!(
                                remote.put("a", b"", Put::Replace).is_err()
                                    || remote.sync().is_err()
                            ),
                        }
                    }
                }
                faulty.clear();
                let found = load(&thief(&inner).unwrap(), "a");
                assert!(
                    found == acknowledged || found == tried,
                    "{request:?} {n} {slip:?}"
                );
                if faulty.happened() == 0 {
                    break;
                }
            }
        }
    }
}

/// Failed requests that may still be executed, much later.
#[derive(Debug)]
struct Late(bandsaw::sync::Mutex<(Random, Vec<Delayed>)>);

#[derive(Debug)]
enum Delayed {
    Put(String, Vec<u8>, Put),
    Copy(String, String),
    Remove(String),
}

impl Porter for Late {
    /// Delays some requests, and executes some delayed ones.
    fn meets(&self, call: Call<'_>, inner: &dyn Objects) -> Result<()> {
        let request = match call {
            Call::Put(key, bytes, cond) => Delayed::Put(key.into(), bytes.into(), cond),
            Call::Copy(from, to) => Delayed::Copy(from.into(), to.into()),
            Call::Remove(key) => Delayed::Remove(key.into()),
            Call::Read | Call::Stat | Call::List => return Ok(()),
        };
        let mut state = self.0.lock();
        while !state.1.is_empty() && state.0.one_in(3) {
            let (random, held) = &mut *state;
            let one = held.swap_remove(random.within(0..held.len() as u64) as usize);
            let _nobody_listens = match one {
                Delayed::Put(key, bytes, cond) => inner.put(&key, &bytes, cond).map(drop),
                Delayed::Copy(from, to) => inner.copy(&from, &to),
                Delayed::Remove(key) => inner.remove(&key).map(drop),
            };
        }
        if state.0.one_in(40) {
            state.1.push(request);
            return Err(bandsaw::Error::new(Kind::Io, "late", "no answer"));
        }
        Ok(())
    }
}

/// Three writers take turns in random order, on a store whose failed requests may still be executed
/// later. No plain name is written before such requests are over, so only the objects of commits
/// matter.
#[test]
fn requests_come_late() {
    for seed in 0..40 {
        let inner = memory();
        let late = Late(bandsaw::sync::Mutex::new((Random::new(seed), Vec::new())));
        let objects: Arc<dyn Objects> = Through::new(&inner, late);
        let open = || {
            let options = RemoteOptions {
                steal: true,
                grace: Duration::from_secs(3600),
                ..options(Access::ReadWrite)
            };
            Remote::open(objects.clone(), &options)
        };
        let mut random = Random::new(seed ^ 0x5eed);
        let mut writers: [Option<Arc<Remote>>; 3] = [const { None }; 3];
        // The last acknowledged contents, and those that may have been stored since without an
        // acknowledgment.
        let (mut acknowledged, mut tried): (Option<Vec<u8>>, Vec<Vec<u8>>) = (None, Vec::new());
        let mut newest = 0;
        for step in 0..80_u64 {
            let one = &mut writers[random.within(0..3) as usize];
            match (&one, random.within(0..8)) {
                (None, _) => {
                    *one = open().ok();
                    if let Some(remote) = one {
                        assert!(
                            remote.generation() > newest,
                            "seed {seed}, step {step}: a generation twice"
                        );
                        newest = remote.generation();
                        let found = load(remote, "a");
                        let fits = found == acknowledged
                            || found.as_ref().is_some_and(|found| tried.contains(found));
                        assert!(fits, "seed {seed}, step {step}: a flush was lost");
                        (acknowledged, tried) = (found, Vec::new());
                    }
                }
                (Some(_), 0) => *one = None,
                (Some(remote), _) => {
                    let value = [step.to_le_bytes().as_slice(), &[1; 100]].concat();
                    tried.push(value.clone());
                    if store(remote, "a", &value).is_ok() {
                        assert_eq!(
                            remote.generation(),
                            newest,
                            "seed {seed}, step {step}: a stale writer was believed"
                        );
                        (acknowledged, tried) = (Some(value), Vec::new());
                    }
                    if random.one_in(5) {
                        let _ = remote.delete_snapshot("s");
                        let _ = remote.create_snapshot("s");
                    }
                }
            }
        }
        drop(writers);
        let found = load(&thief(&inner).unwrap(), "a");
        assert!(
            found == acknowledged || tried.iter().any(|tried| Some(tried) == found.as_ref()),
            "seed {seed}"
        );
    }
}

/// A store that becomes unreachable after a number of requests.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) left: AtomicI64,
}

impl Gone {
    pub(super) fn after(left: i64, inner: &Arc<dyn Objects>) -> Arc<Through<Self>> {
        Through::new(
            inner,
            Self {
                left: AtomicI64::new(left),
            },
        )
    }
}

impl Porter for Gone {
    fn meets(&self, _call: Call<'_>, _inner: &dyn Objects) -> Result<()> {
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(bandsaw::Error::new(Kind::Io, "gone", "no answer"));
        }
        Ok(())
    }
}

/// The writer is cut off after every number of requests, in flushes and in checkpoints. The state
/// found is one that was flushed: the last acknowledged one, or the one in progress.
#[test]
fn cut_off_after_every_request() {
    let objects = memory();
    let first = Bundle::create(writer(&objects).unwrap(), &BUNDLE).unwrap();
    first.flush().unwrap();
    drop(first);
    let mut states = vec![vec![0; BUNDLE.len as usize]];
    for left in 8..150 {
        let gone: Arc<dyn Objects> = Gone::after(left, &objects);
        let mut random = Random::new(left as u64);
        if let Ok(remote) = thief(&gone)
            && let Ok(bundle) = Bundle::open(remote.clone(), Access::ReadWrite)
        {
            for round in 0..4 {
                let mut next = states.last().unwrap().clone();
                let mut change = || -> Result<()> {
                    for _ in 0..3 {
                        let at = random.within(0..BUNDLE.len - 90_000);
                        let bytes = random.bytes(random.clone().within(1..90_000) as usize);
                        next[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                        bundle.write_at(at, &bytes)?;
                    }
                    bundle.flush()
                };
                let done = change();
                if done.is_ok() {
                    states.clear();
                }
                states.push(next);
                if done.is_err() {
                    break;
                }
                if round == 2 {
                    let _cut_off = remote.checkpoint(&|_| Ok(()));
                }
            }
        }
        let seen = Bundle::open(reader(&objects).unwrap(), Access::ReadOnly).unwrap();
        let found = seen.read_vec(0, BUNDLE.len as usize).unwrap();
        assert!(states.contains(&found), "cut off after {left} requests");
        states = vec![found];
    }
}
