//! A disk that a process of this machine serves over NBD, through one connection: the I/O of a
//! virtual machine.

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;

use bandsaw::device::{Access, AfterDiscard, BlockDevice, Extent, FileRange, Info};
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Result};

const LAYER: &str = "NBD";
/// Magic numbers of the handshake and transmission phases (proto.md of the NBD project).
const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
/// Handshake flags: fixed newstyle, without the zeros at its end.
const FIXED_NO_ZEROS: u16 = 3;
/// The option that chooses an export and starts transmission.
const EXPORT_NAME: u32 = 1;
/// Transmission flags of an export.
const READ_ONLY: u16 = 1 << 1;
const SENDS_TRIM: u16 = 1 << 5;
/// Maximum request in bytes that every server supports.
const MAX_REQUEST: usize = 32 << 20;

/// Request types.
#[derive(Debug, Clone, Copy)]
#[repr(u16)]
enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
}

/// The default export of a server.
#[derive(Debug)]
pub(super) struct NbdDisk {
    socket: Mutex<UnixStream>,
    len: u64,
    flags: u16,
}

impl NbdDisk {
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        let failed = |source: std::io::Error| Error::io(LAYER, "connect", source).in_file(socket);
        let mut stream = UnixStream::connect(socket).map_err(failed)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).map_err(failed)?;
        if !greeting.starts_with(GREETING) {
            return Err(Error::corrupt(
                LAYER,
                0,
                "the NBD server sent an invalid greeting",
            ));
        }
        let mut hello = u32::from(FIXED_NO_ZEROS).to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        hello.extend(EXPORT_NAME.to_be_bytes());
        hello.extend(0_u32.to_be_bytes());
        stream.write_all(&hello).map_err(failed)?;
        let mut export = [0; 10];
        stream.read_exact(&mut export).map_err(failed)?;
        let [len @ .., high, low] = export;
        Ok(Self {
            socket: Mutex::new(stream),
            len: u64::from_be_bytes(len),
            flags: u16::from_be_bytes([high, low]),
        })
    }

    /// Sends a request and receives its reply: `data` follows the request, `into` is filled from
    /// the reply.
    fn request(
        &self,
        command: Command,
        offset: u64,
        len: u64,
        data: &[u8],
        into: &mut [u8],
    ) -> Result<()> {
        let failed =
            |source: std::io::Error| Error::io(LAYER, "communicate with the server", source);
        let len = u32::try_from(len)
            .map_err(|_| Error::limit(LAYER, "the request is longer than 4 GiB"))?;
        let mut socket = self.socket.lock();
        let mut request = [0; 28];
        request[..4].copy_from_slice(&REQUEST.to_be_bytes());
        request[6..8].copy_from_slice(&(command as u16).to_be_bytes());
        request[16..24].copy_from_slice(&offset.to_be_bytes());
        request[24..].copy_from_slice(&len.to_be_bytes());
        socket
            .write_all(&request)
            .and_then(|()| socket.write_all(data))
            .map_err(failed)?;
        if matches!(command, Command::Disconnect) {
            return Ok(());
        }
        let mut reply = [0; 16];
        socket.read_exact(&mut reply).map_err(failed)?;
        let word = |at: usize| {
            u32::from_be_bytes([reply[at], reply[at + 1], reply[at + 2], reply[at + 3]])
        };
        if word(0) != REPLY {
            return Err(Error::corrupt(
                LAYER,
                offset,
                "the NBD server sent an invalid reply",
            ));
        }
        if word(4) != 0 {
            let message = format!("the server returned error {}", word(4));
            return Err(Error::new(Kind::Io, LAYER, message).at(offset));
        }
        socket.read_exact(into).map_err(failed)
    }
}

impl Drop for NbdDisk {
    fn drop(&mut self) {
        // The server sees the connection close in any case.
        let _ = self.request(Command::Disconnect, 0, 0, &[], &mut []);
    }
}

impl BlockDevice for NbdDisk {
    fn info(&self) -> Info {
        let access = if self.flags & READ_ONLY == 0 {
            Access::ReadWrite
        } else {
            Access::ReadOnly
        };
        Info {
            len: self.len,
            block: 512,
            write: 1,
            discard: 4096,
            access,
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        for (n, piece) in buf.chunks_mut(MAX_REQUEST).enumerate() {
            self.request(
                Command::Read,
                offset + (n * MAX_REQUEST) as u64,
                piece.len() as u64,
                &[],
                piece,
            )?;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        for (n, piece) in buf.chunks(MAX_REQUEST).enumerate() {
            self.request(
                Command::Write,
                offset + (n * MAX_REQUEST) as u64,
                piece.len() as u64,
                piece,
                &mut [],
            )?;
        }
        Ok(())
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_range(LAYER, &range)?;
        let zeros = vec![0; 1 << 20];
        let mut at = range.start;
        while at < range.end {
            let left = range.end - at;
            let done = match leave {
                AfterDiscard::Zeros => left.min(zeros.len() as u64),
                AfterDiscard::Any => left.min(1 << 30),
            };
            match leave {
                AfterDiscard::Zeros => self.write_at(at, &zeros[..done as usize])?,
                AfterDiscard::Any if self.flags & SENDS_TRIM != 0 => {
                    self.request(Command::Trim, at, done, &[], &mut [])?
                }
                AfterDiscard::Any => {}
            }
            at += done;
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().data_extent(LAYER, &range)
    }

    fn flush(&self) -> Result<()> {
        self.request(Command::Flush, 0, 0, &[], &mut [])
    }

    fn set_len(&self, _len: u64, _leave: AfterDiscard) -> Result<()> {
        Err(Error::unsupported(
            LAYER,
            "cannot change the size of a disk that another process serves",
        ))
    }

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}
