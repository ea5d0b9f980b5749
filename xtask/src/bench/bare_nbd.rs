//! A minimal server of an encrypted disk, as an upper bound (goal 15): for each read it reads
//! ciphertext from a file, decrypts it in the processor's cache and sends it, without checks, locks
//! or a container format.
//!
//! A plain disk is sent from the file without a copy. Here each byte is copied from the page cache,
//! decrypted and copied to the socket, while the client copies it once more.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Result, ensure};
use bandsaw::crypt::{BackEnd, KeyMaterial, Sectors};

/// Piece size of decryption and sending, in bytes.
const PIECE: usize = 256 << 10;
const BLOCK: u32 = 4096;
/// Page size in bytes, at which the data to be decrypted is aligned, and the size of a reply's
/// header, which is before it.
const PAGE: usize = 4096;
const HEAD: usize = 16;

/// Options and option replies (proto.md of the NBD project).
const GO: u32 = 7;
const ACK: u32 = 1;
const INFO: u32 = 3;
const UNSUPPORTED: u32 = 0x8000_0001;
/// Transmission flags: has flags, read-only, multiple connections.
const FLAGS: u16 = 1 | 2 | 1 << 8;
const DISCONNECT: u16 = 2;

struct Disk {
    cipher: File,
    len: u64,
    sectors: Sectors,
}

/// Serves the noise in `file` as if it were ciphertext, on a socket at `path`, until this process
/// ends.
pub(super) fn serve(file: &Path, path: &Path) -> Result<()> {
    let cipher = File::open(file)?;
    let len = cipher.metadata()?.len();
    let disk = Arc::new(Disk {
        cipher,
        len,
        sectors: Sectors::with(&KeyMaterial::random(256)?, BLOCK, BackEnd::Best)?,
    });
    let listener = UnixListener::bind(path)?;
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let disk = disk.clone();
            // Errors of disconnected clients are ignored.
            thread::spawn(move || disk.attend(client).ok());
        }
    });
    Ok(())
}

impl Disk {
    fn attend(&self, mut client: UnixStream) -> Result<()> {
        client.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
        client.read_exact(&mut [0; 4])?;
        self.shake_hands(&mut client)?;
        let mut buffer = vec![0; 2 * PAGE + PIECE];
        let skipped = buffer.as_ptr().align_offset(PAGE).min(PAGE);
        let buffer = &mut buffer[skipped..][..PAGE + PIECE];
        loop {
            let mut request = [0; 28];
            client.read_exact(&mut request)?;
            if request[6..8] == DISCONNECT.to_be_bytes() {
                return Ok(());
            }
            self.answer(&mut client, &request, buffer)?;
        }
    }

    fn shake_hands(&self, client: &mut UnixStream) -> Result<()> {
        loop {
            let mut head = [0; 16];
            client.read_exact(&mut head)?;
            let (option, len) = (word(&head, 8), word(&head, 12));
            std::io::copy(&mut client.take(len.into()), &mut std::io::sink())?;
            let mut reply = |kind: u32, data: &[u8]| {
                let parts = [
                    &0x3_e889_0455_65a9_u64.to_be_bytes()[..],
                    &option.to_be_bytes(),
                    &kind.to_be_bytes(),
                ];
                client.write_all(
                    &[
                        &parts.concat()[..],
                        &(data.len() as u32).to_be_bytes(),
                        data,
                    ]
                    .concat(),
                )
            };
            if option != GO {
                reply(UNSUPPORTED, &[])?;
                continue;
            }
            reply(
                INFO,
                &[&[0, 0][..], &self.len.to_be_bytes(), &FLAGS.to_be_bytes()].concat(),
            )?;
            reply(ACK, &[])?;
            return Ok(());
        }
    }

    /// Serves a request, which must be a read.
    fn answer(&self, client: &mut UnixStream, request: &[u8; 28], buffer: &mut [u8]) -> Result<()> {
        let (mut at, mut left) = (
            u64::from(word(request, 16)) << 32 | u64::from(word(request, 20)),
            word(request, 24) as usize,
        );
        ensure!(
            at % u64::from(BLOCK) == 0 && left % BLOCK as usize == 0,
            "whole blocks are read here"
        );
        buffer[PAGE - HEAD..PAGE].copy_from_slice(
            &[
                &0x6744_6698_0000_0000_u64.to_be_bytes()[..],
                &request[8..16],
            ]
            .concat(),
        );
        let mut from = PAGE - HEAD;
        while left > 0 {
            let piece = left.min(PIECE);
            let bytes = &mut buffer[PAGE..PAGE + piece];
            self.cipher.read_exact_at(bytes, at)?;
            self.sectors.decrypt(at / u64::from(BLOCK), bytes)?;
            client.write_all(&buffer[from..PAGE + piece])?;
            (at, left, from) = (at + piece as u64, left - piece, PAGE);
        }
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
