//! A proxy that breaks connections, delays them, drops and truncates responses, and sends requests
//! twice.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::device::{Access, BlockDevice, BlockDeviceExt};
use bandsaw::store::{Bucket, BucketOptions, BucketPlace, Objects, Remote, RemoteOptions};
use bandsaw::sync::Mutex;
use bandsaw::testing::Random;

use super::{new_prefix, options};
use crate::common::ceph::Ceph;

/// A proxy between a client and a server.
struct Proxy {
    address: String,
    to: String,
    random: Mutex<Random>,
    /// Number of faults so far, and whether further ones are injected.
    slips: AtomicU64,
    slipping: AtomicBool,
}

/// Fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Late,
    Lost,
    AnswerLost,
    AnswerCut,
    Twice,
}

impl Proxy {
    fn start(to: String, seed: u64) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let random = Mutex::new(Random::new(seed));
        let proxy = Arc::new(Self {
            address,
            to,
            random,
            slips: AtomicU64::new(0),
            slipping: AtomicBool::new(true),
        });
        let serving = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(client));
            }
        });
        proxy
    }

    fn fate(&self) -> Fate {
        let fate = match self.random.lock().within(0..40) {
            _ if !self.slipping.load(Ordering::SeqCst) => Fate::Answered,
            0 => Fate::Lost,
            1 => Fate::AnswerLost,
            2 => Fate::AnswerCut,
            3 => Fate::Twice,
            4 => Fate::Late,
            _ => Fate::Answered,
        };
        self.slips
            .fetch_add(u64::from(fate != Fate::Answered), Ordering::SeqCst);
        fate
    }

    /// Forwards one request, after which the connection is closed. The tests are about clients
    /// whose connection breaks.
    fn serve(&self, mut client: TcpStream) {
        let Some(request) = request(&mut client) else {
            return;
        };
        let fate = self.fate();
        if fate == Fate::Lost {
            return;
        }
        if fate == Fate::Twice {
            let _ = self.ask(&request);
        }
        let Some(answer) = self.ask(&request) else {
            return;
        };
        let sent = match fate {
            Fate::AnswerLost => 0,
            Fate::AnswerCut => answer.len() / 2,
            _ => answer.len(),
        };
        if fate == Fate::Late {
            thread::sleep(Duration::from_millis(400));
        }
        let _ = client.write_all(&answer[..sent]);
        let _ = client.shutdown(Shutdown::Both);
    }

    fn ask(&self, request: &[u8]) -> Option<Vec<u8>> {
        let mut server = TcpStream::connect(&self.to).ok()?;
        server.write_all(request).ok()?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).ok()?;
        Some(answer)
    }
}

/// Reads a request with its body, and makes it ask the server to close the connection.
fn request(client: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 64 << 10]);
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        let n = client.read(&mut piece).ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&piece[..n]);
    };
    let lines = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let length = lines
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
    while bytes.len() < head + 4 + length {
        let n = client.read(&mut piece).ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&piece[..n]);
    }
    bytes.splice(head..head, *b"\r\nConnection: close");
    Some(bytes)
}

pub(super) fn a_connection_that_loses_and_repeats(ceph: &Ceph) {
    let proxy = Proxy::start(ceph.address(), 11);
    let prefix = new_prefix();
    let place = || BucketPlace {
        bucket: "test".to_owned(),
        prefix: prefix.clone(),
    };
    let through = BucketOptions {
        endpoint: Some(format!("http://{}", proxy.address)),
        ..options(ceph)
    };
    let open = |options: &BucketOptions| -> Arc<dyn Objects> {
        Arc::new(Bucket::new(place(), options).unwrap())
    };
    let changing = RemoteOptions {
        access: Access::ReadWrite,
        steal: true,
        part: 1 << 20,
        ..RemoteOptions::default()
    };
    let size = BundleOptions {
        len: 24 << 20,
        band_size: Some(2 << 20),
    };
    let made = Bundle::create(
        Remote::open(open(&options(ceph)), &changing).unwrap(),
        &size,
    )
    .unwrap();
    made.flush().unwrap();
    drop(made);
    let mut random = Random::new(12);
    let mut expected = vec![0; size.len as usize];
    for _life in 0..2 {
        let bundle = Bundle::open(
            Remote::open(open(&through), &changing).unwrap(),
            Access::ReadWrite,
        )
        .unwrap();
        for _ in 0..6 {
            let at = random.within(0..size.len - (3 << 20)) / 512 * 512;
            let bytes = random.bytes(512 * random.clone().within(1..6000) as usize);
            bundle.write_at(at, &bytes).unwrap();
            expected[at as usize..][..bytes.len()].copy_from_slice(&bytes);
            bundle.flush().unwrap();
        }
        assert!(bundle.read_vec(0, expected.len()).unwrap() == expected);
    }
    let slips = proxy.slips.load(Ordering::SeqCst);
    assert!(slips > 5, "{slips} requests did not go well");
    proxy.slipping.store(false, Ordering::SeqCst);
    let seen = Bundle::open(
        Remote::open(open(&options(ceph)), &RemoteOptions::default()).unwrap(),
        Access::ReadOnly,
    )
    .unwrap();
    assert!(seen.read_vec(0, expected.len()).unwrap() == expected);
}
