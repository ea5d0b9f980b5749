//! Entry point for fuzzing: a connection whose client sends arbitrary bytes.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use bandsaw::device::Memory;

use crate::{Export, Options, Server};

/// Length of the served disk in bytes.
const LEN: usize = 64 << 10;

/// Serves a client that sends `input` and disconnects; the server must neither panic nor hang.
pub fn session(input: &[u8]) {
    let exports = vec![Export::new("", "the disk", Arc::new(Memory::zeros(LEN)))];
    let server = Server::new(exports, Options::default()).expect("one export");
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut reader = ours.try_clone().expect("a descriptor");
    // Replies are drained so that the server does not block on sending.
    let replies = thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let serving = thread::spawn(move || server.serve(theirs));
    // The server may have closed the connection.
    let _ = (&ours).write_all(input);
    let _ = ours.shutdown(Shutdown::Write);
    serving.join().expect("serving does not panic");
    let _ = replies.join().expect("reading does not panic");
}

/// Returns well-formed conversations: each way to choose an export, and each request.
pub fn seeds() -> Vec<Vec<u8>> {
    let option = |number: u32, data: &[u8]| {
        let len = u32::try_from(data.len()).unwrap_or(0);
        [
            &b"IHAVEOPT"[..],
            &number.to_be_bytes(),
            &len.to_be_bytes(),
            data,
        ]
        .concat()
    };
    let context = [&[0; 4][..], &[0, 0, 0, 1, 0, 0, 0, 15], b"base:allocation"].concat();
    let go = option(7, &[0, 0, 0, 0, 0, 1, 0, 3]);
    let chunks = [
        &[0, 0, 0, 3][..],
        &option(8, &[]),
        &option(10, &context),
        &option(3, &[]),
        &option(6, &[0; 6]),
        &go,
    ]
    .concat();
    let simple = [&[0, 0, 0, 1][..], &option(1, &[])].concat();
    let mut requests = Vec::new();
    for command in [1_u16, 0, 6, 4, 7, 5, 3, 2] {
        let len = if command == 3 { 0 } else { 512_u32 };
        requests.extend(0x2560_9513_u32.to_be_bytes());
        requests.extend([0, 0]);
        requests.extend(command.to_be_bytes());
        requests.extend([7; 8]);
        requests.extend(4096_u64.to_be_bytes());
        requests.extend(len.to_be_bytes());
        requests.extend([1; 512].iter().filter(|_| command == 1));
    }
    vec![
        [chunks, requests.clone()].concat(),
        [simple, requests].concat(),
    ]
}
