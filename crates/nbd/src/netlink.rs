//! Generic netlink, limited to one request and its reply: `include/uapi/linux/netlink.h` and
//! `genetlink.h` of Linux, in native byte order.
#![allow(
    clippy::host_endian_bytes,
    reason = "the kernel talks in its own order"
)]

use std::io;
use std::os::fd::OwnedFd;

use bandsaw::size::narrow;
use rustix::io::retry_on_intr;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// Length of the two headers of a message, in bytes.
///
/// | offset | bytes | |
/// | --- | --- | --- |
/// | 0 | 4 | length with the headers |
/// | 4 | 2 | type: the family's number |
/// | 6 | 2 | flags |
/// | 8 | 4 | sequence number |
/// | 12 | 4 | port |
/// | 16 | 1 | command |
/// | 17 | 1 | version of the family |
/// | 18 | 2 | 0 |
const HEAD: usize = 20;
/// Length of the first header, in bytes.
const OUTER: usize = 16;

const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
/// Message type of the end of a request: a negative error number, or 0.
const ENDED: u16 = 2;

/// The family that maps the names of families to their numbers.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Flag in the type of an attribute: its value is a list of attributes.
const NESTED: u16 = 1 << 15;
/// Maximum length of a reply, in bytes.
const MAX_REPLY_LEN: usize = 16 << 10;

/// A generic netlink family.
#[derive(Debug)]
pub(crate) struct Family {
    socket: OwnedFd,
    id: u16,
}

/// Attributes of a message: 2 bytes of length including this header, 2 of type, the value, and
/// padding to a multiple of 4.
#[derive(Debug, Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Family {
    /// Looks up a family by name. Fails with [`NotFound`](io::ErrorKind::NotFound) if the kernel
    /// has none.
    pub(crate) fn of(name: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            flags,
            Some(GENERIC),
        )?;
        let control = Self {
            socket,
            id: CONTROL,
        };
        let mut wanted = Attributes::default();
        wanted.put(FAMILY_NAME, &[name.as_bytes(), b"\0"].concat());
        let reply = control.execute(GET_FAMILY, &wanted)?;
        let id = reply
            .get(FAMILY_ID)
            .and_then(|value| Some(u16::from_ne_bytes(*value.first_chunk()?)));
        Ok(Self {
            id: id.ok_or(io::ErrorKind::NotFound)?,
            ..control
        })
    }

    /// Sends a command and waits for its end. Returns the attributes of the replies.
    pub(crate) fn execute(&self, command: u8, attributes: &Attributes) -> io::Result<Attributes> {
        let message = message(self.id, command, attributes);
        let kernel = SocketAddrNetlink::new(0, 0);
        retry_on_intr(|| sendto(&self.socket, &message, SendFlags::empty(), &kernel))?;
        let mut reply = Attributes::default();
        let mut buffer = vec![0; MAX_REPLY_LEN];
        loop {
            let (count, _) =
                retry_on_intr(|| recv(&self.socket, &mut buffer[..], RecvFlags::empty()))?;
            if let Some(ended) = parse(&buffer[..count], &mut reply) {
                return ended.map(|()| reply);
            }
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn message(family: u16, command: u8, attributes: &Attributes) -> Vec<u8> {
    let mut bytes = narrow::<u32>(HEAD + attributes.0.len())
        .to_ne_bytes()
        .to_vec(); // a few attributes
    bytes.extend(family.to_ne_bytes());
    bytes.extend((REQUEST | ACKNOWLEDGE).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend(&attributes.0);
    bytes
}

/// Parses messages until the end of a request; adds the attributes of other messages to `reply`.
fn parse(mut messages: &[u8], reply: &mut Attributes) -> Option<io::Result<()>> {
    while let Some(len) = messages
        .first_chunk()
        .map(|len| u32::from_ne_bytes(*len) as usize)
    {
        let (message, rest) = messages.split_at_checked(len).filter(|_| len >= HEAD)?;
        messages = rest
            .get(len.next_multiple_of(4) - len..)
            .unwrap_or_default();
        if message[4..6] != ENDED.to_ne_bytes() {
            reply.0.extend(&message[HEAD..]);
            continue;
        }
        let code = message[OUTER..]
            .first_chunk()
            .map_or(0, |code| i32::from_ne_bytes(*code));
        return Some(if code == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(code.wrapping_neg()))
        });
    }
    None
}

impl Attributes {
    /// Adds an attribute, whose value must be short.
    pub(crate) fn put(&mut self, kind: u16, value: &[u8]) {
        self.0.extend(narrow::<u16>(4 + value.len()).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Adds a nested attribute.
    pub(crate) fn nest(&mut self, kind: u16, inner: &Self) {
        self.put(kind | NESTED, &inner.0);
    }

    /// Returns the value of an attribute; `None` if it is absent.
    pub(crate) fn get(&self, kind: u16) -> Option<&[u8]> {
        let mut rest = &self.0[..];
        loop {
            let head = rest.first_chunk::<4>()?;
            let [len, found] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_ne_bytes);
            let value = rest.get(4..usize::from(len))?;
            if found & !NESTED == kind {
                return Some(value);
            }
            rest = rest.get(usize::from(len).next_multiple_of(4)..)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_again() {
        let mut inner = Attributes::default();
        inner.put(1, b"abc");
        let mut all = Attributes::default();
        all.put(7, &9_u32.to_ne_bytes());
        all.nest(3, &inner);
        all.put(5, b"");
        assert_eq!(
            (all.get(7), all.get(3), all.get(5)),
            (
                Some(&9_u32.to_ne_bytes()[..]),
                Some(&inner.0[..]),
                Some(&b""[..])
            )
        );
        assert!(all.get(1).is_none());
        let message = message(17, 2, &all);
        assert!(message.len() == HEAD + all.0.len() && message.len().is_multiple_of(4));
        for end in 0..all.0.len() {
            let _ = Attributes(all.0[..end].to_vec()).get(5);
        }
    }

    #[test]
    fn a_request_ends_with_what_the_kernel_says() {
        let ended = |code: i32| {
            [
                &36_u32.to_ne_bytes()[..],
                &ENDED.to_ne_bytes(),
                &[0; 10],
                &code.to_ne_bytes(),
                &[0; 16],
            ]
            .concat()
        };
        let mut attributes = Attributes::default();
        attributes.put(1, &5_u32.to_ne_bytes());
        let mut reply = Attributes::default();
        let both = [message(17, 1, &attributes), ended(0)].concat();
        assert!(
            matches!(parse(&both, &mut reply), Some(Ok(())))
                && reply.get(1) == Some(&5_u32.to_ne_bytes()[..])
        );
        let refused = parse(&ended(-1), &mut reply)
            .and_then(Result::err)
            .and_then(|error| error.raw_os_error());
        assert_eq!(refused, Some(1));
        for end in 0..both.len() {
            assert!(parse(&both[..end], &mut Attributes::default()).is_none());
        }
    }
}
