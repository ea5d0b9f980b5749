//! `hdiutil isencrypted`.

use std::path::Path;

use bandsaw::crypt::KeySlot;
use bandsaw::device::Access;
use bandsaw::open::{self, KeyFile};
use plist::Value as Plist;

use super::call::Call;
use super::plist_values::{dictionary, number, text};
use super::table::{COMMON, PLIST, Verb};
use crate::commands::isencrypted::IsEncrypted;
use crate::failure::Outcome;
use crate::network_args::NetworkArgs;

pub(super) const VERB: Verb = Verb {
    names: &["isencrypted"],
    operands: "*image*",
    count: (1, 1),
    says: "Shows whether an image is encrypted, and how",
    options: &[COMMON, PLIST],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    if !call.has("plist") {
        let image = call.image().into();
        let verb = IsEncrypted {
            image,
            ..IsEncrypted::default()
        };
        return verb.run(&call.aloud());
    }
    let (path, network) = (Path::new(call.image()), NetworkArgs::default());
    if open::archive(path, network.options())?.is_some() {
        let is_encrypted = Call::is_encrypted_at(call.image())?;
        return call.plist(dictionary(vec![(
            "encrypted",
            Plist::Boolean(is_encrypted),
        )]));
    }
    let file = KeyFile::open(path, Access::ReadOnly, network.options())?;
    let mut entries = vec![("encrypted", Plist::Boolean(file.is_some()))];
    if let Some(header) = file.as_ref().map(KeyFile::description) {
        let count =
            |is: fn(&KeySlot) -> bool| header.key_slots.iter().filter(|way| is(way)).count() as u64;
        entries.extend([
            ("blocksize", number(header.block.into())),
            (
                "uuid",
                text(header.uuid.hyphenated().to_string().to_uppercase()),
            ),
            ("version", number(header.version.into())),
            (
                "passphrase-count",
                number(count(|way| matches!(way, KeySlot::Passphrase { .. }))),
            ),
            (
                "private-key-count",
                number(count(|way| matches!(way, KeySlot::PublicKey { .. }))),
            ),
            ("max-key-count", number(header.max_key_slots())),
        ]);
    }
    call.plist(dictionary(entries))
}
