//! Tests of requests, with simple and structured replies, on the receiving thread and on worker
//! threads.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::common::*;
use bandsaw::Result;
use bandsaw::device::{
    Access, AfterDiscard, BlockDevice, BlockDeviceExt, Extent, FileRange, Info, Memory,
};
use bandsaw::store::{LocalFile, Open};
use bandsaw::testing::Random;
use bandsaw::testing::faults::{Call, Fault, Faults, FaultyDevice};
use bandsaw_nbd::{Export, Options, Server};

const LEN: u64 = 4 << 20;

/// Creates a disk in a host file, so that file ranges are available.
fn file(folder: &tempfile::TempDir) -> Arc<dyn BlockDevice> {
    let file = LocalFile::open(folder.path().join("disk"), Open::CreateNew)
        .unwrap()
        .unwrap();
    file.set_len(LEN, AfterDiscard::Zeros).unwrap();
    Arc::new(file)
}

/// A device that can be made slow, and counts concurrent requests.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn BlockDevice>,
    slow: AtomicBool,
    read_only: bool,
    flushes: AtomicU64,
    /// Barrier for reads at or beyond the middle of the device.
    together: Option<Barrier>,
    /// File returned by `file_range` instead of the device's own.
    lent: Option<Arc<File>>,
}

impl Slow {
    fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self {
            inner,
            slow: AtomicBool::new(false),
            read_only: false,
            flushes: AtomicU64::new(0),
            together: None,
            lent: None,
        }
    }

    fn wait(&self) {
        if self.slow.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(400));
        }
    }
}

impl BlockDevice for Slow {
    fn info(&self) -> Info {
        let info = self.inner.info();
        if self.read_only {
            Info {
                access: Access::ReadOnly,
                ..info
            }
        } else {
            info
        }
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.wait();
        if let Some(together) = self.together.as_ref().filter(|_| offset >= LEN / 2) {
            together.wait();
        }
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.wait();
        self.inner.write_at(offset, buf)
    }
    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.wait();
        self.inner.discard(range, leave)
    }
    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.inner.extent_at(range)
    }
    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.inner.flush()
    }
    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        self.inner.set_len(len, leave)
    }
    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        match &self.lent {
            Some(file) => Ok(Some(FileRange::new(
                file.clone(),
                range.start,
                range.end - range.start,
            ))),
            None if self.slow.load(Ordering::Relaxed) => Ok(None),
            None => self.inner.file_range(range),
        }
    }
}

/// Random requests have the same effect on the export as on a vector, on either kind of thread.
#[test]
fn it_is_like_a_vector() {
    let folder = tempfile::tempdir().unwrap();
    for structured in [false, true] {
        for (lends, seed) in [(true, 1), (false, 2)] {
            let _ = std::fs::remove_file(folder.path().join("disk"));
            let inner = if lends {
                file(&folder)
            } else {
                Arc::new(Memory::zeros(LEN as usize)) as _
            };
            let slow = Arc::new(Slow::new(inner));
            let server = server(slow.clone());
            let mut client = Client::new(&server, structured);
            let mut model = vec![0_u8; LEN as usize];
            let mut random = Random::new(seed);
            for step in 0..600 {
                // Alternates between fast and slow, so that both kinds of thread serve requests.
                slow.slow.store(step / 50 % 3 == 1, Ordering::Relaxed);
                let longest = if random.one_in(4) { 2 << 20 } else { 20_000 };
                let offset = random.within(0..LEN);
                let len = random.within(1..longest.min(LEN - offset) + 1);
                let range = offset as usize..(offset + len) as usize;
                match random.within(0..6) {
                    0 | 1 => {
                        let flags = if structured && random.one_in(3) {
                            DF
                        } else {
                            0
                        };
                        let read = client.read(flags, offset, len as u32).unwrap();
                        assert!(
                            read == model[range],
                            "step {step}: read of {len} at {offset}"
                        );
                    }
                    2 => {
                        let bytes = random.bytes(len as usize);
                        let flags = if random.one_in(4) { FUA } else { 0 };
                        client
                            .call(flags, WRITE, offset, len as u32, &bytes)
                            .unwrap();
                        model[range].copy_from_slice(&bytes);
                    }
                    3 => {
                        let flags = [0, NO_HOLE, FUA][random.within(0..3) as usize];
                        client.call(flags, ZEROES, offset, len as u32, &[]).unwrap();
                        model[range].fill(0);
                    }
                    4 => {
                        client.call(0, TRIM, offset, len as u32, &[]).unwrap();
                        // After this request the contents are unspecified; the model adopts what is
                        // read.
                        model[range]
                            .copy_from_slice(&slow.inner.read_vec(offset, len as usize).unwrap());
                    }
                    _ => {
                        client.call(0, FLUSH, 0, 0, &[]).unwrap();
                        client.call(0, CACHE, offset, len as u32, &[]).unwrap();
                    }
                }
            }
            client.leave();
            assert!(slow.inner.read_vec(0, LEN as usize).unwrap() == model);
        }
    }
}

/// Requests of one connection wait for a slow device concurrently: each read waits until four are
/// in flight.
#[test]
fn slow_requests_wait_together() {
    let slow = Slow::new(Arc::new(Memory::zeros(LEN as usize)));
    slow.slow.store(true, Ordering::Relaxed);
    let server = server(Arc::new(Slow {
        together: Some(Barrier::new(4)),
        ..slow
    }));
    let mut client = Client::new(&server, true);
    // Lets the server measure the latency.
    (0..8).for_each(|_| drop(client.read(0, 0, 512).unwrap()));
    let cookies: Vec<_> = (0..8)
        .map(|n| client.request(0, READ, LEN / 2 + n * 4096, 4096, &[]))
        .collect();
    let mut answered: Vec<_> = cookies
        .iter()
        .map(|_| client.peek_read(LEN / 2, 4096))
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, cookies);
    client.leave();
}

impl Client {
    /// Receives a reply to a read in one chunk, at any offset; returns its cookie.
    fn peek_read(&mut self, _offset: u64, len: usize) -> u64 {
        let bytes = self.bytes(20 + 8 + len);
        u64::from_be_bytes(bytes[8..16].try_into().unwrap())
    }
}

#[test]
fn holes_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let device = file(&folder);
    device.write_at(1 << 20, &vec![7; 1 << 20]).unwrap();
    let mut client = Client::new(&server(device), true);
    let (mib, hole) = (1 << 20, 3);
    assert_eq!(
        client.status(0, 0, LEN as u32).unwrap(),
        [(mib, hole), (mib, 0), (2 * mib, hole)]
    );
    assert_eq!(
        client.status(REQ_ONE, 0, LEN as u32).unwrap(),
        [(mib, hole)]
    );
    assert_eq!(
        client.status(0, u64::from(mib) + 4096, 512).unwrap(),
        [(512, 0)]
    );
    client.call(FAST_ZERO, ZEROES, 1 << 20, mib, &[]).unwrap();
    assert_eq!(client.status(0, 0, LEN as u32).unwrap(), [(4 * mib, hole)]);
    client.call(NO_HOLE, ZEROES, 0, mib, &[]).unwrap();
    assert_eq!(
        client.status(0, 0, LEN as u32).unwrap(),
        [(mib, 0), (3 * mib, hole)]
    );
    assert_eq!(
        client.call(FAST_ZERO | NO_HOLE, ZEROES, 0, 512, &[]),
        Err(NOTSUP)
    );
    client.leave();
}

#[test]
fn zeros_that_must_be_written_are_not_fast() {
    let memory = Memory::from(vec![1; 4096]);
    let mut client = Client::new(&server(Arc::new(memory)), true);
    assert_eq!(client.call(FAST_ZERO, ZEROES, 0, 4096, &[]), Err(NOTSUP));
    client.call(0, ZEROES, 0, 4096, &[]).unwrap();
    assert_eq!(client.read(0, 0, 4096).unwrap(), [0; 4096]);
    client.leave();
}

#[test]
fn requests_that_do_not_fit() {
    for structured in [false, true] {
        let mut client = Client::new(&server(Arc::new(Memory::zeros(8192))), structured);
        for (flags, command, offset, len, error) in [
            (0, READ, 8192, 512, INVAL),
            (0, READ, u64::MAX, 512, INVAL),
            (0, READ, 0, 0, INVAL),
            (0, READ, 0, (32 << 20) + 1, INVAL),
            (0x80, READ, 0, 512, INVAL),
            (0, TRIM, 4096, 8192, INVAL),
            (0, ZEROES, 4096, 8192, NOSPC),
            (0, 77, 0, 512, INVAL),
            (0, RESIZE, 1 << 20, 0, PERM),
        ] {
            assert_eq!(
                client.call(flags, command, offset, len, &[]),
                Err(error),
                "command {command}"
            );
        }
        assert_eq!(client.write(8000, &[1; 512]), Err(NOSPC));
        // The data of a request that is too long is discarded, so that the next request is parsed.
        assert_eq!(client.write(0, &vec![1; (32 << 20) + 512]), Err(INVAL));
        client.write(0, &[1; 8192]).unwrap();
        assert_eq!(client.read(0, 0, 8192).unwrap(), [1; 8192]);
        if !structured {
            assert_eq!(client.call(DF, READ, 0, 512, &[]), Err(INVAL));
        }
        client.leave();
    }
}

#[test]
fn read_only_exports_stay_as_they_are() {
    let inner = Arc::new(Memory::from(vec![1; 8192]));
    let slow = Slow {
        read_only: true,
        ..Slow::new(inner.clone())
    };
    let mut client = Client::new(&server(Arc::new(slow)), true);
    assert_eq!(client.write(0, &[2; 512]), Err(PERM));
    assert_eq!(client.call(0, TRIM, 0, 512, &[]), Err(PERM));
    assert_eq!(client.call(0, ZEROES, 0, 512, &[]), Err(PERM));
    client.call(0, FLUSH, 0, 0, &[]).unwrap();
    assert_eq!(client.read(0, 0, 8192).unwrap(), [1; 8192]);
    client.leave();
}

#[test]
fn the_largest_requests() {
    for structured in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let device = file(&folder);
        device.set_len(40 << 20, AfterDiscard::Zeros).unwrap();
        let mut client = Client::new(&server(device), structured);
        let bytes = Random::new(9).bytes(32 << 20);
        client.write(4097, &bytes).unwrap();
        assert!(client.read(0, 4097, 32 << 20).unwrap() == bytes);
        if structured {
            assert!(client.read(DF, 4097, 32 << 20).unwrap() == bytes);
        }
        client.leave();
    }
}

/// Growing is visible to the same client and to new ones, also at the old end; shrinking and
/// partial sectors are refused.
#[test]
fn exports_that_grow() {
    let folder = tempfile::tempdir().unwrap();
    let device = file(&folder);
    let export = Export::new("", "the disk", device.clone()).may_grow();
    let server = Server::new(
        vec![export, Export::new("fixed", "", device.clone())],
        Options::default(),
    )
    .unwrap();
    let report = |client: &mut Client, name: &str| {
        let about = client.option(6, &go(name, &[]))[0].1.clone();
        (
            u64::from_be_bytes(about[2..10].try_into().unwrap()),
            u16::from_be_bytes(about[10..12].try_into().unwrap()) & 1 << 9,
        )
    };
    let mut looking = Client::greeted(&server);
    assert_eq!(
        (report(&mut looking, ""), report(&mut looking, "fixed")),
        ((LEN, 1 << 9), (LEN, 0))
    );
    let (mut one, mut two) = (Client::new(&server, true), Client::new(&server, false));
    one.write(LEN - 512, &[7; 512]).unwrap();
    assert_eq!(one.write(LEN, &[8; 512]), Err(NOSPC));
    for (len, error) in [(LEN - 512, PERM), (0, PERM), (LEN + 100, INVAL)] {
        assert_eq!(one.call(0, RESIZE, len, 0, &[]), Err(error), "{len}");
        assert_eq!(report(&mut looking, "").0, LEN);
    }
    one.call(0, RESIZE, LEN, 0, &[]).unwrap();
    two.call(0, RESIZE, LEN * 2, 0, &[]).unwrap();
    assert_eq!(report(&mut looking, "").0, LEN * 2);
    assert_eq!(
        one.read(0, LEN - 512, 1024).unwrap(),
        [[7; 512], [0; 512]].concat()
    );
    one.write(LEN * 2 - 512, &[9; 512]).unwrap();
    assert_eq!(two.read(0, LEN * 2 - 512, 512).unwrap(), [9; 512]);
    assert_eq!(one.call(0, RESIZE, LEN, 0, &[]), Err(PERM));
    assert_eq!(
        std::fs::metadata(folder.path().join("disk")).unwrap().len(),
        LEN * 2
    );
    one.leave();
    two.leave();
}

/// A flush on one connection covers the writes of another, as the multi-connection flag promises.
#[test]
fn fua_and_flush_reach_the_device() {
    let slow = Arc::new(Slow::new(Arc::new(Memory::zeros(8192))));
    let server = server(slow.clone());
    let (mut one, mut two) = (Client::new(&server, true), Client::new(&server, false));
    one.write(0, &[1; 512]).unwrap();
    assert_eq!(slow.flushes.load(Ordering::Relaxed), 0);
    two.call(0, FLUSH, 0, 0, &[]).unwrap();
    assert_eq!(slow.flushes.load(Ordering::Relaxed), 1);
    for command in [WRITE, TRIM, ZEROES] {
        let payload = if command == WRITE { &[2; 512][..] } else { &[] };
        one.call(FUA, command, 0, 512, payload).unwrap();
    }
    assert_eq!(slow.flushes.load(Ordering::Relaxed), 4);
    assert_eq!(two.read(0, 0, 512).unwrap(), one.read(0, 0, 512).unwrap());
    one.leave();
    two.leave();
    server.stop().unwrap();
    assert_eq!(slow.flushes.load(Ordering::Relaxed), 5);
}

#[test]
fn failures_of_the_device_are_reported_and_the_connection_continues() {
    for structured in [false, true] {
        let faults = Faults::new();
        let inner: Arc<dyn BlockDevice> = Arc::new(Memory::zeros(LEN as usize));
        let mut client = Client::new(
            &server(Arc::new(FaultyDevice::new(inner, &faults))),
            structured,
        );
        for (call, fault, command, error) in [
            (Call::Write, Fault::NoSpace, WRITE, NOSPC),
            (Call::Write, Fault::Io, WRITE, IO),
            (Call::Flush, Fault::Io, FLUSH, IO),
            (Call::Discard, Fault::Io, TRIM, IO),
        ] {
            faults.break_all(call, fault);
            let len = if command == FLUSH { 0 } else { 1 << 20 };
            let payload = if command == WRITE {
                vec![1; 1 << 20]
            } else {
                vec![]
            };
            assert_eq!(
                client.call(0, command, 0, len, &payload),
                Err(error),
                "{call:?}"
            );
            faults.clear();
        }
        for len in [512, 1 << 20, 3 << 20] {
            faults.break_all(Call::Read, Fault::Io);
            assert_eq!(client.read(0, 0, len), Err(IO));
            faults.clear();
            assert!(client.read(0, 0, len).is_ok());
        }
        client.leave();
    }
}

/// A long write that fails in the middle is an error, nothing after that offset is changed, and the
/// rest of its data is not parsed as a request.
#[test]
fn a_write_that_fails_half_way() {
    for (structured, fault) in [(false, Fault::Short), (true, Fault::NoSpace)] {
        let faults = Faults::new();
        let folder = tempfile::tempdir().unwrap();
        let mut client = Client::new(
            &server(Arc::new(FaultyDevice::new(file(&folder), &faults))),
            structured,
        );
        faults.fail(Call::Write, 3, fault);
        let error = if fault == Fault::NoSpace { NOSPC } else { IO };
        assert_eq!(client.write(0, &vec![1; 2 << 20]), Err(error));
        assert_eq!(
            (faults.count(Call::Write), faults.happened()),
            (3, 1),
            "it goes on after a failure"
        );
        let found = client.read(0, 0, LEN as u32).unwrap();
        let written = found.iter().take_while(|byte| **byte == 1).count();
        assert!(written > 0 && written < 2 << 20, "{written}");
        assert!(found[written..].iter().all(|byte| *byte == 0));
        client.write(0, &vec![2; 2 << 20]).unwrap();
        assert_eq!(client.read(0, 0, 2 << 20).unwrap(), vec![2; 2 << 20]);
        client.leave();
    }
}

/// A served file that is truncated makes the affected read fail, and nothing else.
#[test]
fn a_file_that_is_cut_is_an_error_of_reading() {
    let folder = tempfile::tempdir().unwrap();
    let device = file(&folder);
    device.write_at(0, &vec![1; LEN as usize]).unwrap();
    let mut client = Client::new(&server(device), true);
    assert!(client.read(0, 0, 1 << 20).is_ok());
    File::options()
        .write(true)
        .open(folder.path().join("disk"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    assert_eq!(client.read(0, 512 << 10, 1 << 20), Err(IO));
    assert_eq!(client.read(0, 0, 1 << 20).unwrap(), vec![1; 1 << 20]);
    client.leave();
}

/// Contiguous reads that are received together each get a reply, even if one of them fails.
#[test]
fn adjacent_reads_are_answered_one_by_one() {
    const PIECE: u32 = 64 << 10;
    let data: Vec<u8> = (0..LEN).map(|at| (at / 512 % 251) as u8 + 1).collect();
    for structured in [false, true] {
        let faults = Faults::new();
        let inner = Memory::zeros(LEN as usize);
        inner.write_at(0, &data).unwrap();
        let mut client = Client::new(
            &server(Arc::new(FaultyDevice::new(Arc::new(inner), &faults))),
            structured,
        );
        for broken in [false, true] {
            if broken {
                faults.break_all(Call::Read, Fault::Io);
            }
            // Twenty contiguous reads, the first sixteen of which are a megabyte; then one
            // elsewhere, and one after that.
            let offsets: Vec<_> = (0..20)
                .map(|at| at * u64::from(PIECE))
                .chain([3 << 20, (3 << 20) + u64::from(PIECE)])
                .collect();
            let first = client.requests(READ, &offsets, PIECE);
            for _ in &offsets {
                let (cookie, read) = client.whole_read_reply(PIECE);
                let at = offsets[(cookie - first) as usize] as usize;
                match broken {
                    false => assert!(read.unwrap() == data[at..at + PIECE as usize], "{at}"),
                    true => assert_eq!(read, Err(IO)),
                }
            }
        }
        faults.clear();
        client.leave();
    }
}

/// A read that fails after its reply header reported success: the connection is closed, so that the
/// client takes nothing else for the data.
#[test]
fn a_promise_that_cannot_be_kept_ends_the_connection() {
    for structured in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let inner = file(&folder);
        inner.write_at(0, &vec![1; LEN as usize]).unwrap();
        let faults = Faults::new();
        // A file that is not open for reading cannot be sent from.
        let lent = Some(Arc::new(
            File::options()
                .write(true)
                .open(folder.path().join("disk"))
                .unwrap(),
        ));
        let device = Slow {
            lent,
            ..Slow::new(Arc::new(FaultyDevice::new(inner, &faults)))
        };
        let server = server(Arc::new(device));
        let mut client = Client::new(&server, structured);
        let len = 64 << 10;
        assert_eq!(client.read(0, 0, len).unwrap(), vec![1; len as usize]);
        faults.break_all(Call::Read, Fault::Io);
        client.request(0, READ, 0, len, &[]);
        let mut got = Vec::new();
        let _ = client.socket.read_to_end(&mut got);
        assert!(got.len() < len as usize, "{}", got.len());
        // Success is no longer promised: the next client gets the error.
        let mut client = Client::new(&server, structured);
        assert_eq!(client.read(0, 0, len), Err(IO));
        faults.clear();
        assert_eq!(client.read(0, 0, len).unwrap(), vec![1; len as usize]);
        client.leave();
    }
}
