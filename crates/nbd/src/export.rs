//! Exports: devices served by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bandsaw::device::{Access, BlockDevice};
use bandsaw::sync::{Mutex, MutexGuard};
use bandsaw::{Error, Result};

use crate::known_data::KnownData;
use crate::layout::{MAX_PAYLOAD, MAX_STRING, transmission};

/// A device that clients connect to by name.
#[derive(Debug)]
pub struct Export {
    name: String,
    description: String,
    device: Arc<dyn BlockDevice>,
    known: KnownData,
    /// True if clients may grow it.
    grows: bool,
    /// Serializes changes of the length.
    growing: Mutex<()>,
    /// True after a read failed whose reply header had already reported success.
    failed: AtomicBool,
}

impl Export {
    /// Creates an export of `device` under `name`; clients that request no name get the one with an
    /// empty name. The description is shown to users. Its access is that of the device.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        device: Arc<dyn BlockDevice>,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            device,
            known: KnownData::default(),
            grows: false,
            growing: Mutex::default(),
            failed: AtomicBool::new(false),
        }
    }

    /// Permits clients to grow the device with the protocol's RESIZE extension. Shrinking is never
    /// permitted, because other clients may be using the end.
    pub fn may_grow(self) -> Self {
        Self {
            grows: true,
            ..self
        }
    }

    pub(crate) fn grows(&self) -> bool {
        self.grows && !self.is_read_only()
    }

    /// Excludes other changes of the length.
    pub(crate) fn lock_length(&self) -> MutexGuard<'_, ()> {
        self.growing.lock()
    }

    /// Returns the name that clients request.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the description.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    pub(crate) fn known(&self) -> &KnownData {
        &self.known
    }

    /// Returns true if replies may no longer report success before the data is read.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Records that data promised to a client could not be read.
    pub(crate) fn note_failure(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.device.info().access == Access::ReadOnly
    }

    /// Returns the transmission flags of the export.
    ///
    /// It announces multiple connections: nothing is cached here, and a flush of the device covers
    /// the writes of all connections.
    pub(crate) fn flags(&self, structured: bool) -> u16 {
        use transmission::*;
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
        flags |= if self.is_read_only() {
            READ_ONLY
        } else {
            SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO
        };
        flags |= if self.grows() { SEND_RESIZE } else { 0 };
        if structured { flags | SEND_DF } else { flags }
    }

    /// Returns the minimum, preferred and maximum request size, in bytes.
    pub(crate) fn block_sizes(&self) -> [u32; 3] {
        let best = self.device.info().write.clamp(4096, MAX_PAYLOAD);
        [
            1,
            best.checked_next_power_of_two()
                .unwrap_or(4096)
                .min(MAX_PAYLOAD),
            MAX_PAYLOAD,
        ]
    }
}

/// All exports of a server.
#[derive(Debug, Clone)]
pub(crate) struct Exports(Vec<Arc<Export>>);

impl Exports {
    /// Creates the list. Fails with [`Kind::Invalid`](bandsaw::Kind) if there are no exports, two have one name,
    /// or a name does not fit the protocol.
    pub(crate) fn new(exports: Vec<Export>) -> Result<Self> {
        let invalid = |why: &'static str| Error::invalid(crate::LAYER, why);
        if exports.is_empty() {
            return Err(invalid("expected at least one export"));
        }
        for (at, export) in exports.iter().enumerate() {
            if export.name.len() > MAX_STRING || export.description.len() > MAX_STRING {
                return Err(
                    invalid("name or description is too long: the maximum is 4096 bytes")
                        .named(&export.name),
                );
            }
            if exports[..at].iter().any(|other| other.name == export.name) {
                return Err(invalid("two exports have the same name").named(&export.name));
            }
        }
        Ok(Self(exports.into_iter().map(Arc::new).collect()))
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn first(&self) -> &Arc<Export> {
        &self.0[0] // there is one
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Export>> {
        self.0.iter().find(|export| export.name == name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.0.iter()
    }
}
