//! The list of tests and the programs that each requires. A test whose program is absent is
//! reported as ignored and counted; with `BANDSAW_REQUIRE_PEERS=1` it fails.

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
}

/// One program, or several that are used together, and its availability.
struct Peer {
    name: &'static str,
    absent: Option<String>,
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
        }
    }

    /// Returns a builder for the tests with `name`, which require all of `programs`.
    pub(crate) fn peer(&mut self, name: &'static str, programs: &[Program]) -> PeerTests<'_> {
        let absent = programs.iter().find_map(|program| program.find().err());
        let peer = Arc::new(Peer {
            name,
            absent,
            ran: AtomicBool::new(false),
        });
        self.peers.push(Arc::clone(&peer));
        PeerTests { suite: self, peer }
    }

    /// Runs the tests chosen on the command line, reports the absent programs, and finally the
    /// number of peers.
    pub(crate) fn run(self) -> ExitCode {
        let arguments = Arguments::from_args();
        let listing = arguments.list;
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        if !listing {
            let absent: Vec<_> = self
                .peers
                .iter()
                .filter_map(|peer| Some((peer.name, peer.absent.as_ref()?)))
                .collect();
            for (name, why) in &absent {
                eprintln!("peers: SKIPPED {name}: {why} (scripts/install-test-tools installs it)");
            }
            let ran = self
                .peers
                .iter()
                .filter(|peer| peer.ran.load(Ordering::Relaxed))
                .count();
            println!("peers: {ran} run, {} absent", absent.len());
        }
        conclusion.exit_code()
    }
}

impl PeerTests<'_> {
    /// Adds a test. It fails by panicking.
    pub(crate) fn test(self, name: &str, body: impl FnOnce() + Send + 'static) -> Self {
        let skipped = self.peer.absent.is_some() && !self.suite.required;
        self.add(name, skipped, body)
    }

    /// Adds a test on a real image, which is skipped with a message if the corpus is missing.
    pub(crate) fn corpus_test(self, name: &str, body: impl FnOnce() + Send + 'static) -> Self {
        let no_corpus = corpus::images(&format!("{}::{name}", self.peer.name)).is_none();
        let skipped = no_corpus || self.peer.absent.is_some() && !self.suite.required;
        self.add(name, skipped, body)
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
