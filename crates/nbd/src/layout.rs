//! Constants and message formats of the NBD protocol, all big-endian: doc/proto.md of the
//! NetworkBlockDevice project.

/// Magic at the start of the server's greeting: `NBDMAGIC`.
pub(crate) const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Magic of the second half of the greeting and of each option: `IHAVEOPT`.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Magic of a reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Handshake flags of both sides.
pub(crate) mod greeting {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Options of the handshake.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub(crate) mod answer {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = ERROR + 1;
    pub(crate) const POLICY: u32 = ERROR + 2;
    pub(crate) const INVALID: u32 = ERROR + 3;
    pub(crate) const TLS_REQUIRED: u32 = ERROR + 5;
    pub(crate) const UNKNOWN: u32 = ERROR + 6;
    pub(crate) const SHUTDOWN: u32 = ERROR + 7;
}

/// Kinds of information about an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export.
pub(crate) mod transmission {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_RESIZE: u16 = 1 << 9;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of requests.
pub(crate) mod flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Name of the supported metadata context.
pub(crate) const BASE_ALLOCATION: &str = "base:allocation";
/// Its ID after the handshake.
pub(crate) const BASE_ALLOCATION_ID: u32 = 1;
/// State flags of an extent in that context.
pub(crate) const STATE_HOLE: u32 = 1 << 0;
pub(crate) const STATE_ZERO: u32 = 1 << 1;

/// Error numbers; they have Linux's values on all hosts.
pub(crate) mod errno {
    pub(crate) const PERM: u32 = 1;
    pub(crate) const IO: u32 = 5;
    pub(crate) const INVAL: u32 = 22;
    pub(crate) const NOSPC: u32 = 28;
    pub(crate) const NOTSUP: u32 = 95;
}

/// Maximum length of names and error messages, in bytes.
pub(crate) const MAX_STRING: usize = 4096;
/// Maximum payload of a request, in bytes, which every server should support.
pub(crate) const MAX_PAYLOAD: u32 = 32 << 20;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Request types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    /// A resize; the offset is the new length.
    Resize,
    Unknown(u16),
}

impl Command {
    fn of(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            8 => Self::Resize,
            other => Self::Unknown(other),
        }
    }
}

/// A request of the transmission phase:
///
/// | offset | bytes | |
/// | --- | --- | --- |
/// | 0 | 4 | magic |
/// | 4 | 2 | flags |
/// | 6 | 2 | command |
/// | 8 | 8 | cookie |
/// | 16 | 8 | offset in the export |
/// | 24 | 4 | length |
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) flags: u16,
    pub(crate) command: Command,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Request {
    pub(crate) const SIZE: usize = 28;

    /// Parses a request; `None` if the magic is wrong, so that the rest of the stream cannot be
    /// trusted either.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: fields.u16()?,
            command: Command::of(fields.u16()?),
            cookie: fields.u64()?,
            offset: fields.u64()?,
            len: fields.u32()?,
        })
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Returns its range in the export; saturates, so that out-of-range requests stay out of range.
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.offset.saturating_add(u64::from(self.len))
    }
}

/// Parser that takes numbers and strings from the front of a message.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Takes a length and that many bytes of UTF-8, at most [`MAX_STRING`].
    pub(crate) fn string(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.u32()?)
            .ok()
            .filter(|len| *len <= MAX_STRING)?;
        std::str::from_utf8(self.bytes(len)?).ok()
    }
}

/// Chunk types of a structured reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// End of the reply, without data.
    End = 0,
    /// Data at an offset.
    Data = 1,
    /// Zeros at an offset.
    Hole = 2,
    /// Extents and their state.
    BlockStatus = 5,
    /// An error.
    Error = (1 << 15) + 1,
}

/// Length of a data chunk's header and offset, in bytes.
pub(crate) const DATA_HEAD: usize = 28;

/// Adds a simple reply: 16 bytes, followed by the data of a successful read.
pub(crate) fn simple_reply(out: &mut Vec<u8>, cookie: u64, error: u32) {
    out.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend(error.to_be_bytes());
    out.extend(cookie.to_be_bytes());
}

fn chunk(out: &mut Vec<u8>, cookie: u64, kind: Chunk, done: bool, len: u32) {
    out.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    out.extend(u16::from(done).to_be_bytes());
    out.extend((kind as u16).to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out.extend(len.to_be_bytes());
}

/// Adds the final chunk of a successful structured reply.
pub(crate) fn end_chunk(out: &mut Vec<u8>, cookie: u64) {
    chunk(out, cookie, Chunk::End, true, 0);
}

/// Adds the header of a chunk of `len` bytes of data at `offset`; `len` is at most [`MAX_PAYLOAD`].
pub(crate) fn data_chunk(out: &mut Vec<u8>, cookie: u64, done: bool, offset: u64, len: u32) {
    chunk(out, cookie, Chunk::Data, done, len + 8);
    out.extend(offset.to_be_bytes());
}

/// Adds a chunk for a hole of `len` bytes at `offset`.
pub(crate) fn hole_chunk(out: &mut Vec<u8>, cookie: u64, done: bool, offset: u64, len: u32) {
    chunk(out, cookie, Chunk::Hole, done, 12);
    out.extend(offset.to_be_bytes());
    out.extend(len.to_be_bytes());
}

/// Adds the final chunk of a failed request, with a message for users.
pub(crate) fn error_chunk(out: &mut Vec<u8>, cookie: u64, error: u32, message: &str) {
    let end = (0..=message.len().min(256))
        .rev()
        .find(|end| message.is_char_boundary(*end))
        .unwrap_or(0);
    let message = &message.as_bytes()[..end];
    let len = u16::try_from(message.len()).unwrap_or(0);
    chunk(out, cookie, Chunk::Error, true, u32::from(len) + 6);
    out.extend(error.to_be_bytes());
    out.extend(len.to_be_bytes());
    out.extend(&message[..usize::from(len)]);
}

/// Adds a chunk of extents, each a length and a state, from the offset of the request on.
pub(crate) fn status_chunk(out: &mut Vec<u8>, cookie: u64, runs: &[(u32, u32)]) {
    let len = u32::try_from(4 + 8 * runs.len()).expect("runs are counted in thousands");
    chunk(out, cookie, Chunk::BlockStatus, true, len);
    out.extend(BASE_ALLOCATION_ID.to_be_bytes());
    for (len, state) in runs {
        out.extend(len.to_be_bytes());
        out.extend(state.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    }

    #[test]
    fn lengths_of_replies() {
        let mut out = Vec::new();
        simple_reply(&mut out, 7, 0);
        assert_eq!(out.len(), 16);
        out.clear();
        data_chunk(&mut out, 7, true, 4096, 512);
        assert_eq!(
            (out.len(), &out[16..20]),
            (DATA_HEAD, &520_u32.to_be_bytes()[..])
        );
        out.clear();
        hole_chunk(&mut out, 7, true, 4096, 512);
        assert_eq!((out.len(), &out[6..8]), (32, &[0, 2][..]));
        out.clear();
        error_chunk(&mut out, 7, errno::IO, &"é".repeat(9000));
        assert_eq!((out.len(), &out[6..8]), (20 + 6 + 256, &[0x80, 1][..]));
        out.clear();
        status_chunk(&mut out, 7, &[(512, 0), (1024, 3)]);
        assert_eq!(out.len(), 20 + 4 + 16);
    }

    proptest! {
        #[test]
        fn requests_are_read_as_they_are_laid_out(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) {
            let bytes = bytes(flags, command, cookie, offset, len);
            prop_assert_eq!(bytes.len(), Request::SIZE);
            let request = Request::parse(&bytes).unwrap();
            prop_assert_eq!((request.flags, request.cookie, request.offset, request.len), (flags, cookie, offset, len));
            prop_assert_eq!(request.command, Command::of(command));
            prop_assert!(Request::parse(&bytes[..27]).is_none());
        }

        #[test]
        fn requests_without_magic_are_refused(bytes: [u8; 28]) {
            prop_assume!(bytes[..4] != REQUEST_MAGIC.to_be_bytes());
            prop_assert!(Request::parse(&bytes).is_none());
        }
    }
}
