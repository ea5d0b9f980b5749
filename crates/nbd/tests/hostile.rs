//! Tests with malicious or incorrect clients.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Client, go};
use bandsaw::device::{BlockDevice, Memory};
use bandsaw_nbd::{Export, Limits, Listener, Options, Server};
use proptest::prelude::*;

fn memory() -> Arc<dyn BlockDevice> {
    Arc::new(Memory::zeros(1 << 20))
}

fn limited(limits: Limits) -> Server {
    Server::new(
        vec![Export::new("", "", memory())],
        Options {
            limits,
            ..Options::default()
        },
    )
    .unwrap()
}

/// Starts a listening server; the returned function stops it.
fn listening(limits: Limits) -> (tempfile::TempDir, std::path::PathBuf, impl FnOnce()) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = limited(limits);
    let listener = Listener::unix(&path).unwrap();
    let thread = std::thread::spawn({
        let server = server.clone();
        move || server.listen(&listener)
    });
    let stop = move || {
        server.stop().unwrap();
        thread.join().unwrap().unwrap();
    };
    (folder, path, stop)
}

/// Returns true if a correct client can connect and is served.
fn is_served(path: &std::path::Path) -> bool {
    let Ok(mut socket) = UnixStream::connect(path) else {
        return false;
    };
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut served = || -> std::io::Result<bool> {
        socket.read_exact(&mut [0; 18])?;
        let data = go("", &[]);
        socket.write_all(
            &[
                &[0, 0, 0, 3],
                &b"IHAVEOPT\0\0\0\x07"[..],
                &(data.len() as u32).to_be_bytes(),
                &data,
            ]
            .concat(),
        )?;
        let mut report = [0; 3 * 20 + 12 + 14];
        socket.read_exact(&mut report)?;
        Ok(report[report.len() - 8..] == [0, 0, 0, 1, 0, 0, 0, 0])
    };
    served().unwrap_or(false)
}

/// Ten thousand clients connect and stay silent: others are still admitted.
#[test]
fn half_handshakes() {
    let (_folder, path, stop) = listening(Limits {
        handshakes: 32,
        ..Limits::default()
    });
    let mut silent = std::collections::VecDeque::new();
    for number in 0..10_000 {
        silent.extend(UnixStream::connect(&path));
        // Limits the number of open file descriptors of this process.
        if silent.len() > 300 {
            silent.pop_front();
        }
        if number % 2_500 == 2_499 {
            assert!(is_served(&path), "after {number}");
        }
    }
    assert!(is_served(&path));
    stop();
    assert!(!path.exists());
}

#[test]
fn time_for_the_handshake_ends() {
    let server = limited(Limits {
        handshake_time: Duration::from_millis(50),
        ..Limits::default()
    });
    let mut silent = Client::greeted(&server);
    assert!(silent.is_over());
    // Sending one byte at a time does not extend the deadline.
    let mut slow = Client::connected(&server);
    slow.bytes(18);
    for _ in 0..200 {
        if slow.socket.write_all(&[0]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(slow.is_over());
    // After an export is chosen there is no deadline.
    let mut chosen = Client::new(&server, false);
    std::thread::sleep(Duration::from_millis(120));
    assert!(chosen.read(0, 0, 512).is_ok());
    chosen.leave();
}

#[test]
fn more_clients_than_may_be() {
    let server = limited(Limits {
        connections: 2,
        ..Limits::default()
    });
    let (one, two) = (Client::new(&server, true), Client::new(&server, true));
    assert_eq!(server.clients(), 2);
    let mut three = Client::greeted(&server);
    assert_eq!(three.option(7, &go("", &[]))[0].0, 0x8000_0007);
    one.leave();
    assert_eq!(
        three.option(7, &go("", &[])).last().unwrap().0,
        crate::common::ACK
    );
    assert!(three.read(0, 0, 512).is_ok());
    three.leave();
    two.leave();
}

#[test]
fn options_of_impossible_length() {
    let server = limited(Limits::default());
    let mut client = Client::greeted(&server);
    client.send(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff");
    assert!(client.is_over());
    let mut client = Client::greeted(&server);
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    assert!(client.is_over());
    let mut client = Client::connected(&server);
    client.bytes(18);
    client.send(&[0xff; 4]);
    assert!(client.is_over());
}

/// A client that requests much data and does not read it does not block others.
#[test]
fn a_client_that_does_not_read() {
    let server = limited(Limits::default());
    let mut greedy = Client::new(&server, true);
    for _ in 0..64 {
        greedy.request(0, crate::common::READ, 0, 1 << 20, &[]);
    }
    let mut other = Client::new(&server, true);
    assert!(other.read(0, 0, 1 << 20).is_ok());
    other.leave();
}

/// Sends bytes to a new connection, before or after the handshake; returns when the server has
/// closed it.
fn session(server: &Server, bytes: &[u8], chosen: bool) {
    let mut client = if chosen {
        Client::new(server, bytes.len().is_multiple_of(2))
    } else {
        Client::connected(server)
    };
    let mut reader = client.socket.try_clone().unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let _ = client.socket.write_all(bytes);
    let _ = client.socket.shutdown(std::net::Shutdown::Write);
    let _ = reader.join().unwrap();
}

/// Generates a request with a valid magic and arbitrary fields; small enough that most are served.
fn request() -> impl Strategy<Value = Vec<u8>> {
    (
        0..0x40_u16,
        0..9_u16,
        any::<u64>(),
        0..1_u64 << 21,
        0..1_u32 << 21,
    )
        .prop_map(|(flags, command, cookie, offset, len)| {
            let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
            bytes.extend(flags.to_be_bytes());
            bytes.extend(command.to_be_bytes());
            bytes.extend(cookie.to_be_bytes());
            bytes.extend(offset.to_be_bytes());
            bytes.extend(len.to_be_bytes());
            if command == crate::common::WRITE && cookie % 4 > 0 {
                bytes.resize(28 + len as usize, 7);
            }
            bytes
        })
}

fn option() -> impl Strategy<Value = Vec<u8>> {
    (0..13_u32, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(option, data)| {
        [
            &b"IHAVEOPT"[..],
            &option.to_be_bytes(),
            &(data.len() as u32).to_be_bytes(),
            &data,
        ]
        .concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_requests(requests in prop::collection::vec(request(), 1..12), rest: Vec<u8>) {
        session(&limited(Limits::default()), &[requests.concat(), rest].concat(), true);
    }

    #[test]
    fn any_options(options in prop::collection::vec(option(), 1..12), rest: Vec<u8>) {
        session(&limited(Limits::default()), &[vec![0, 0, 0, 3], options.concat(), rest].concat(), false);
    }

    #[test]
    fn any_bytes(bytes: Vec<u8>, chosen: bool) {
        session(&limited(Limits::default()), &bytes, chosen);
    }
}
