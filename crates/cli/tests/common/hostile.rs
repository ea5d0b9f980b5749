//! A server that answers as no store should.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// The behavior toward clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Accepts connections and sends nothing.
    Silent,
    /// Sends a page of a listing that never ends.
    EndlessListing,
    /// Sends a whole page of 140 MB.
    HugeListing,
    /// Sends the same page for ever, and each time says that another follows.
    SamePage,
    /// Sends a byte of a page at a time.
    Trickle,
    /// Refuses, with an explanation that never ends.
    EndlessError,
    /// Sends a range that never ends.
    EndlessRange,
    /// Says it sends more bytes than its range has, and does.
    LongRange,
    /// Says it sends fewer bytes than its range has.
    ShortRange,
    /// Sends another range.
    OtherRange,
    /// Stops in the middle of a range.
    StopsInRange,
}

/// Bytes of each file.
const LEN: u64 = 1 << 20;

/// Serves until the test ends. The address to ask.
pub(crate) fn start(deed: Deed) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client may leave at any time.
            thread::spawn(move || while answer(deed, &stream).is_ok_and(|goes_on| goes_on) {});
        }
    });
    address
}

/// The request's first line and its range, if it has one. `None`: the connection was closed.
fn request(from: &TcpStream) -> Option<(String, Option<(u64, u64)>)> {
    let mut lines = BufReader::new(from).lines();
    let first = lines.next()?.ok()?;
    let mut range = None;
    for line in lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
    {
        let line = line.to_lowercase();
        let asked = line
            .strip_prefix("range: bytes=")
            .and_then(|range| range.split_once('-'));
        range =
            range.or(asked.map(|(first, last)| (first.parse().unwrap(), last.parse().unwrap())));
    }
    Some((first, range))
}

fn answer(deed: Deed, mut to: &TcpStream) -> std::io::Result<bool> {
    to.set_nodelay(true)?;
    let Some((line, range)) = request(to) else {
        return Ok(false);
    };
    if deed == Deed::Silent {
        thread::sleep(Duration::from_secs(3600));
    }
    let chunk =
        |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let for_ever = |mut to: &TcpStream, bytes: &[u8]| loop {
        to.write_all(&chunk(bytes))?;
    };
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n\r\n";
    let page = |rest: &str| format!("<ListBucketResult><IsTruncated>{rest}</IsTruncated>");
    let key = "<Contents><Key>x</Key><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>\"e\"</ETag><Size>1</Size></Contents>";
    if line.contains("list-type=2") {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n";
        match deed {
            Deed::EndlessListing => {
                write!(to, "{head}{CHUNKED}")?;
                to.write_all(&chunk(page("false").as_bytes()))?;
                return for_ever(to, key.repeat(1000).as_bytes());
            }
            Deed::Trickle => {
                write!(to, "{head}{CHUNKED}")?;
                loop {
                    to.write_all(&chunk(b" "))?;
                    thread::sleep(Duration::from_millis(100));
                }
            }
            _ => {}
        }
        let body = match deed {
            Deed::HugeListing => {
                page("false") + &key.repeat((140 << 20) / key.len()) + "</ListBucketResult>"
            }
            Deed::SamePage => {
                page("true")
                    + key
                    + "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>"
            }
            _ => page("false") + "</ListBucketResult>",
        };
        write!(to, "{head}Content-Length: {}\r\n\r\n{body}", body.len())?;
        return Ok(true);
    }
    if deed == Deed::EndlessError {
        write!(to, "HTTP/1.1 403 Forbidden\r\n{CHUNKED}")?;
        return for_ever(to, &[b'e'; 65536]);
    }
    let about = "ETag: \"e\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
    let Some((first, last)) = range else {
        write!(
            to,
            "HTTP/1.1 200 OK\r\n{about}Content-Length: {LEN}\r\n\r\n"
        )?;
        return Ok(true);
    };
    let last = last.min(LEN - 1);
    let len = last + 1 - first;
    let moved = u64::from(deed == Deed::OtherRange);
    write!(
        to,
        "HTTP/1.1 206 Partial Content\r\n{about}Content-Range: bytes {}-{}/{LEN}\r\n",
        first + moved,
        last + moved
    )?;
    match deed {
        Deed::EndlessRange => {
            write!(to, "{CHUNKED}")?;
            for_ever(to, &[b'x'; 65536])
        }
        Deed::LongRange => {
            write!(to, "Content-Length: {}\r\n\r\n", len << 20)?;
            loop {
                to.write_all(&[b'x'; 65536])?;
            }
        }
        Deed::ShortRange => {
            write!(to, "Content-Length: {}\r\n\r\n", len / 2)?;
            to.write_all(&vec![b'x'; len as usize / 2])?;
            Ok(true)
        }
        Deed::StopsInRange => {
            write!(to, "Content-Length: {len}\r\n\r\n")?;
            to.write_all(&vec![b'x'; len as usize / 2])?;
            thread::sleep(Duration::from_secs(3600));
            Ok(false)
        }
        _ => {
            write!(to, "Content-Length: {len}\r\n\r\n")?;
            to.write_all(&vec![b'x'; len as usize])?;
            Ok(true)
        }
    }
}
