//! The key slots of an encrypted image.

use std::fmt;

use bandsaw::crypt::KeySlot;
use serde::Serialize;

use crate::text::grouped;

/// A key slot of an encrypted image.
#[derive(Debug, Serialize)]
pub(crate) struct KeySlotInfo {
    /// The number that `passwd` uses, from 1.
    pub(crate) number: usize,
    #[serde(flatten)]
    pub(crate) kind: KeySlotKind,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum KeySlotKind {
    /// A passphrase, with its iteration count and the cipher around the image's keys.
    Passphrase { iterations: u32, key_wrap: String },
    /// The SHA-1 of the public key, in hexadecimal, and the bits of its modulus.
    PublicKey { id: String, bits: u32 },
    /// An unknown entry, with the reason.
    Unknown { kind_number: u32, message: String },
}

impl KeySlotInfo {
    pub(crate) fn all(key_slots: &[KeySlot]) -> Vec<Self> {
        let kind = |way: &KeySlot| match way {
            KeySlot::Passphrase { iterations, wrap } => KeySlotKind::Passphrase {
                iterations: *iterations,
                key_wrap: wrap.to_string().to_lowercase(),
            },
            KeySlot::PublicKey { id, bits } => KeySlotKind::PublicKey {
                id: hex(id),
                bits: *bits,
            },
            KeySlot::Unknown { kind, why, .. } => KeySlotKind::Unknown {
                kind_number: *kind,
                message: why.clone(),
            },
            _ => KeySlotKind::Unknown {
                kind_number: 0,
                message: String::new(),
            },
        };
        (1..)
            .zip(key_slots)
            .map(|(number, way)| Self {
                number,
                kind: kind(way),
            })
            .collect()
    }
}

impl fmt::Display for KeySlotInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            KeySlotKind::Passphrase {
                iterations,
                key_wrap,
            } => {
                write!(
                    f,
                    "a passphrase, {} iterations",
                    grouped(u64::from(*iterations))
                )?;
                if key_wrap == "3des" {
                    Ok(())
                } else {
                    write!(f, ", wrapped with {}", key_wrap.to_uppercase())
                }
            }
            KeySlotKind::PublicKey { id, bits } => {
                write!(f, "the private key of {id}, RSA of {bits} bits")
            }
            KeySlotKind::Unknown { message, .. } => write!(f, "an unknown entry: {message}"),
        }
    }
}

/// Formats bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
