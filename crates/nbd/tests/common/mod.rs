//! A client implemented from the specification only, which can also send invalid requests.
#![allow(dead_code, reason = "each suite uses a part")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use bandsaw::device::BlockDevice;
use bandsaw_nbd::{Export, Options, Server};

pub(crate) const ACK: u32 = 1;
pub(crate) const FUA: u16 = 1;
pub(crate) const NO_HOLE: u16 = 2;
pub(crate) const DF: u16 = 4;
pub(crate) const REQ_ONE: u16 = 8;
pub(crate) const FAST_ZERO: u16 = 16;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const CACHE: u16 = 5;
pub(crate) const ZEROES: u16 = 6;
pub(crate) const STATUS: u16 = 7;
pub(crate) const RESIZE: u16 = 8;

pub(crate) const PERM: u32 = 1;
pub(crate) const IO: u32 = 5;
pub(crate) const INVAL: u32 = 22;
pub(crate) const NOSPC: u32 = 28;
pub(crate) const NOTSUP: u32 = 95;

/// Returns a server of one device.
pub(crate) fn server(device: Arc<dyn BlockDevice>) -> Server {
    Server::new(
        vec![Export::new("", "the disk", device)],
        Options::default(),
    )
    .unwrap()
}

/// A client, and the thread that serves it.
pub(crate) struct Client {
    pub(crate) socket: UnixStream,
    served: Option<JoinHandle<()>>,
    pub(crate) structured: bool,
    cookie: u64,
}

impl Client {
    /// Connects and exchanges greetings.
    pub(crate) fn greeted(server: &Server) -> Self {
        let mut client = Self::connected(server);
        assert_eq!(client.bytes(8), b"NBDMAGIC");
        assert_eq!(client.bytes(8), b"IHAVEOPT");
        assert_eq!(client.bytes(2), [0, 3]);
        client.send(&[0, 0, 0, 3]);
        client
    }

    pub(crate) fn connected(server: &Server) -> Self {
        let (socket, other) = UnixStream::pair().unwrap();
        let server = server.clone();
        let served = Some(std::thread::spawn(move || server.serve(other)));
        Self {
            socket,
            served,
            structured: false,
            cookie: 0,
        }
    }

    /// Connects and chooses the first export; with `structured`, also negotiates block status.
    pub(crate) fn new(server: &Server, structured: bool) -> Self {
        let mut client = Self::greeted(server);
        if structured {
            assert_eq!(client.option(8, &[]), [(ACK, vec![])]);
            let context = client.option(10, &context("", &["base:allocation"]));
            assert_eq!(
                context,
                [
                    (4, [&[0, 0, 0, 1], &b"base:allocation"[..]].concat()),
                    (ACK, vec![])
                ]
            );
            client.structured = true;
        }
        let report = client.option(7, &go("", &[]));
        assert_eq!(report.last(), Some(&(ACK, vec![])));
        client
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes(2).try_into().unwrap())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes(8).try_into().unwrap())
    }

    /// Sends an option; returns all replies up to the final one.
    pub(crate) fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(
            &[
                b"IHAVEOPT",
                &option.to_be_bytes()[..],
                &u32::try_from(data.len()).unwrap().to_be_bytes(),
                data,
            ]
            .concat(),
        );
        let mut replies = Vec::new();
        loop {
            assert_eq!(self.u64(), 0x3_e889_0455_65a9);
            assert_eq!(self.u32(), option);
            let (kind, len) = (self.u32(), self.u32());
            replies.push((kind, self.bytes(len as usize)));
            if kind == ACK || kind >> 31 == 1 {
                return replies;
            }
        }
    }

    /// Sends a request; returns its cookie.
    pub(crate) fn request(
        &mut self,
        flags: u16,
        command: u16,
        offset: u64,
        len: u32,
        payload: &[u8],
    ) -> u64 {
        let bytes = [
            self.request_head(flags, command, offset, len),
            payload.to_vec(),
        ]
        .concat();
        self.send(&bytes);
        self.cookie
    }

    /// Sends a request for each offset in one batch; returns the first cookie; the others are
    /// consecutive.
    pub(crate) fn requests(&mut self, command: u16, offsets: &[u64], len: u32) -> u64 {
        let first = self.cookie + 1;
        let bytes: Vec<u8> = offsets
            .iter()
            .flat_map(|offset| self.request_head(0, command, *offset, len))
            .collect();
        self.send(&bytes);
        first
    }

    fn request_head(&mut self, flags: u16, command: u16, offset: u64, len: u32) -> Vec<u8> {
        self.cookie += 1;
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    }

    /// Receives a reply without data: its cookie and error.
    pub(crate) fn reply(&mut self) -> (u64, u32) {
        match self.u32() {
            0x6744_6698 => {
                let error = self.u32();
                (self.u64(), error)
            }
            0x668e_33ef => {
                let (flags, kind) = (self.u16(), self.u16());
                let (cookie, len) = (self.u64(), self.u32());
                let data = self.bytes(len as usize);
                assert_eq!((flags, kind), (1, 0x8001), "an error");
                (cookie, u32::from_be_bytes(data[..4].try_into().unwrap()))
            }
            magic => panic!("{magic:x}"),
        }
    }

    /// Sends a request whose reply has no data, and receives the reply.
    pub(crate) fn call(
        &mut self,
        flags: u16,
        command: u16,
        offset: u64,
        len: u32,
        payload: &[u8],
    ) -> Result<(), u32> {
        let cookie = self.request(flags, command, offset, len, payload);
        let (replied, error) = self.reply();
        assert_eq!(replied, cookie);
        if error == 0 { Ok(()) } else { Err(error) }
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), u32> {
        self.call(0, WRITE, offset, u32::try_from(bytes.len()).unwrap(), bytes)
    }

    pub(crate) fn read(&mut self, flags: u16, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        let cookie = self.request(flags, READ, offset, len, &[]);
        let (replied, read) = self.read_reply(offset, len);
        assert_eq!(replied, cookie);
        read
    }

    /// Receives the reply to a read.
    pub(crate) fn read_reply(&mut self, offset: u64, len: u32) -> (u64, Result<Vec<u8>, u32>) {
        if !self.structured {
            let (cookie, error) = self.reply();
            return (
                cookie,
                if error == 0 {
                    Ok(self.bytes(len as usize))
                } else {
                    Err(error)
                },
            );
        }
        let mut read = vec![0xEE; len as usize];
        let (mut covered, mut failed) = (0, None);
        loop {
            assert_eq!(self.u32(), 0x668e_33ef);
            let (flags, kind) = (self.u16(), self.u16());
            let (cookie, chunk) = (self.u64(), self.u32());
            match kind {
                0 => assert_eq!((flags, chunk), (1, 0)),
                1 => {
                    let at = (self.u64() - offset) as usize;
                    let data = self.bytes(chunk as usize - 8);
                    read[at..at + data.len()].copy_from_slice(&data);
                    covered += data.len();
                }
                2 => {
                    let at = (self.u64() - offset) as usize;
                    let hole = self.u32() as usize;
                    read[at..at + hole].fill(0);
                    covered += hole;
                }
                0x8001 => {
                    let data = self.bytes(chunk as usize);
                    failed = Some(u32::from_be_bytes(data[..4].try_into().unwrap()));
                }
                kind => panic!("chunk {kind}"),
            }
            if flags & 1 == 1 {
                assert!(
                    failed.is_some() || covered == read.len(),
                    "{covered} of {len} bytes"
                );
                return (cookie, failed.map_or(Ok(read), Err));
            }
        }
    }

    /// Receives the reply to a read of `len` bytes in one chunk.
    pub(crate) fn whole_read_reply(&mut self, len: u32) -> (u64, Result<Vec<u8>, u32>) {
        if !self.structured {
            return self.read_reply(0, len);
        }
        assert_eq!(self.u32(), 0x668e_33ef);
        let (flags, kind) = (self.u16(), self.u16());
        let (cookie, chunk) = (self.u64(), self.u32());
        let data = self.bytes(chunk as usize);
        assert_eq!(flags, 1, "the last piece is the first");
        match kind {
            1 => (cookie, Ok(data[8..].to_vec())),
            _ => (
                cookie,
                Err(u32::from_be_bytes(data[..4].try_into().unwrap())),
            ),
        }
    }

    /// Requests block status; returns the length and state of the extents.
    pub(crate) fn status(
        &mut self,
        flags: u16,
        offset: u64,
        len: u32,
    ) -> Result<Vec<(u32, u32)>, u32> {
        self.request(flags, STATUS, offset, len, &[]);
        assert_eq!(self.u32(), 0x668e_33ef);
        let (flags, kind) = (self.u16(), self.u16());
        let (_, len) = (self.u64(), self.u32());
        let data = self.bytes(len as usize);
        let word = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().unwrap());
        assert_eq!(flags, 1);
        match kind {
            5 => Ok((4..data.len())
                .step_by(8)
                .map(|at| (word(at), word(at + 4)))
                .collect()),
            _ => Err(word(0)),
        }
    }

    /// Returns true if the server has closed the connection.
    pub(crate) fn is_over(&mut self) -> bool {
        self.socket.read(&mut [0]).map_or(true, |count| count == 0)
    }

    /// Disconnects and joins the server's thread.
    pub(crate) fn leave(mut self) {
        self.request(0, DISCONNECT, 0, 0, &[]);
        assert!(self.is_over());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let ended = self.served.take().map_or(Ok(()), JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("serving does not panic");
        }
    }
}

fn string(text: &str) -> Vec<u8> {
    [
        &u32::try_from(text.len()).unwrap().to_be_bytes(),
        text.as_bytes(),
    ]
    .concat()
}

/// Returns the data of INFO and GO.
pub(crate) fn go(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend(u16::try_from(kinds.len()).unwrap().to_be_bytes());
    kinds
        .iter()
        .for_each(|kind| data.extend(kind.to_be_bytes()));
    data
}

/// Returns the data of the options on contexts.
pub(crate) fn context(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend(u32::try_from(queries.len()).unwrap().to_be_bytes());
    queries.iter().for_each(|query| data.extend(string(query)));
    data
}
