//! The list of tests and the programs that each requires. A test whose program is absent is
//! reported as ignored and counted; with `BANDSAW_REQUIRE_PEERS=1` it fails. A heavy test is run
//! with `--include-ignored` only, as those of other suites are.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libtest_mimic::{Arguments, Trial};

use crate::common::corpus;
use crate::programs::Program;

/// All tests, in the order they were added.
pub(crate) struct Suite {
    trials: Vec<Trial>,
    peers: Vec<Arc<Peer>>,
    required: bool,
    /// True if heavy tests run, too.
    full: bool,
}

/// One program, or several that are used together, and its availability.
struct Peer {
    name: &'static str,
    absent: Option<String>,
    /// The reason why its tests are heavy.
    heavy: Option<&'static str>,
    ran: AtomicBool,
}

/// Builder that adds tests of a peer.
pub(crate) struct PeerTests<'a> {
    suite: &'a mut Suite,
    peer: Arc<Peer>,
}

impl Suite {
    pub(crate) fn new() -> Self {
        let required = std::env::var_os("BANDSAW_REQUIRE_PEERS").is_some_and(|value| value == "1");
        Self {
            trials: Vec::new(),
            peers: Vec::new(),
            required,
            full: {
                let arguments = Arguments::from_args();
                arguments.include_ignored || arguments.ignored
            },
        }
    }

    /// Returns a builder for the tests with `name`, which require all of `programs`.
    pub(crate) fn peer(&mut self, name: &'static str, programs: &[Program]) -> PeerTests<'_> {
        self.add_peer(name, programs, None)
    }

    /// Returns a builder as [`peer`](Self::peer) does, for tests that run in the tier `full` only:
    /// they take long, or their programs take hundreds of megabytes. `reason` says which.
    pub(crate) fn heavy_peer(
        &mut self,
        name: &'static str,
        reason: &'static str,
        programs: &[Program],
    ) -> PeerTests<'_> {
        self.add_peer(name, programs, Some(reason))
    }

    fn add_peer(
        &mut self,
        name: &'static str,
        programs: &[Program],
        heavy: Option<&'static str>,
    ) -> PeerTests<'_> {
        let absent = programs.iter().find_map(|program| program.find().err());
        let peer = Arc::new(Peer {
            name,
            absent,
            heavy: heavy.filter(|_| !self.full),
            ran: AtomicBool::new(false),
        });
        self.peers.push(Arc::clone(&peer));
        PeerTests { suite: self, peer }
    }

    /// Runs the tests chosen on the command line, reports the absent programs, and finally the
    /// number of peers.
    pub(crate) fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        let listing = arguments.list;
        // Those that are still marked lack their program.
        (arguments.include_ignored, arguments.ignored) = (false, false);
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        if !listing {
            let light = || self.peers.iter().filter(|peer| peer.heavy.is_none());
            let absent: Vec<_> = light()
                .filter_map(|peer| Some((peer.name, peer.absent.as_ref()?)))
                .collect();
            for (name, why) in &absent {
                eprintln!(
                    "peers: SKIPPED {name}: {why} (scripts/install-test-tools --full installs it)"
                );
            }
            let heavy: Vec<_> = self
                .peers
                .iter()
                .filter_map(|peer| Some((peer.name, peer.heavy?)))
                .collect();
            for (name, why) in &heavy {
                eprintln!("peers: SKIPPED {name}: full: {why}");
            }
            let ran = light()
                .filter(|peer| peer.ran.load(Ordering::Relaxed))
                .count();
            println!(
                "peers: {ran} run, {} absent, {} heavy",
                absent.len(),
                heavy.len()
            );
        }
        conclusion.exit_code()
    }
}

impl PeerTests<'_> {
    /// Adds a test. It fails by panicking.
    pub(crate) fn test(self, name: &str, body: impl FnOnce() + Send + 'static) -> Self {
        let skipped = self.is_skipped();
        self.add(name, skipped, body)
    }

    /// Adds a test on a real image, which is skipped with a message if the corpus is missing.
    pub(crate) fn corpus_test(self, name: &str, body: impl FnOnce() + Send + 'static) -> Self {
        let no_corpus = corpus::images(&format!("{}::{name}", self.peer.name)).is_none();
        let skipped = no_corpus || self.is_skipped();
        self.add(name, skipped, body)
    }

    fn is_skipped(&self) -> bool {
        self.peer.heavy.is_some() || self.peer.absent.is_some() && !self.suite.required
    }

    fn add(self, name: &str, skipped: bool, body: impl FnOnce() + Send + 'static) -> Self {
        let peer = Arc::clone(&self.peer);
        let trial = Trial::test(format!("{}::{name}", peer.name), move || {
            match &peer.absent {
                Some(why) => Err(why.into()),
                None => {
                    peer.ran.store(true, Ordering::Relaxed);
                    body();
                    Ok(())
                }
            }
        });
        self.suite.trials.push(trial.with_ignored_flag(skipped));
        self
    }
}
