//! `hdiutil convert`.

use std::path::Path;

use bandsaw::codec::Level;
use bandsaw::container::Format;

use super::call::{Call, usage};
use super::plist_values::{band_size, cipher, level, with_extension};
use super::segment;
use super::table::{COMMON, ENCRYPTING, KEYS, OVERWRITE, PLIST, PUPPET, Verb};
use crate::commands::convert::{Convert, EncryptionArgs};
use crate::container_args::Container;
use crate::encryption_args::{DecryptArgs, NewEncryptionArgs};
use crate::failure::Outcome;
use crate::passphrase::NewPassphrase;

const OPTIONS: &str = "
-format *code*{UDRW|UDRO|UDCO|UDZO|UDBZ|ULFO|ULMO|UDTO|UDSP|UDSB} | done | UDRW, UDRO, UDCO, UDZO, UDBZ, ULFO, ULMO, UDTO, UDSP, UDSB; UFBI is refused
-o -outfile *file* | done | the new image
-imagekey -tgtimagekey *key=value*{sparse-band-size=|zlib-level=} | done | sparse-band-size in sectors, zlib-level (6 if not given); others are ignored
-srcimagekey *key=value*{diskimage-class=CRawDiskImage} | done | diskimage-class=CRawDiskImage opens the source as a raw image; other keys are not required
-stdinpass | done | reads passphrases from standard input, each up to a NUL: source, then new image
-shadow [*file*] | done | opens the source with this shadow file; IMAGE.shadow by default
-align *sectors* | ignored | chunks are always aligned
-pmap -nopmap | ignored | the partition map is always kept
-tasks *number* | ignored | all processors are always used
";

pub(super) const VERB: Verb = Verb {
    names: &["convert"],
    operands: "*image*",
    count: (1, 1),
    says: "Converts an image to another format or band size",
    options: &[
        COMMON,
        PLIST,
        PUPPET,
        OVERWRITE,
        ENCRYPTING,
        OPTIONS,
        KEYS,
        segment::SIZE,
    ],
    run: Some(run),
};

fn run(call: &Call) -> Outcome {
    let missing = |option: &str| usage(format!("-{option} is required"));
    let format: Format = call
        .value("format")
        .ok_or_else(|| missing("format"))?
        .parse()?;
    let target = with_extension(
        Path::new(call.value("o").ok_or_else(|| missing("o"))?),
        format,
    );
    segment::cut(call, &target, |target| {
        convert(call, call.image(), format, target)
    })?;
    call.created(&[target])
}

/// Converts an image to this format as requested.
pub(super) fn convert(call: &Call, from: &str, format: Format, target: &Path) -> Outcome {
    let is_encrypted = Call::is_encrypted_at(from)?;
    let encrypts = call.has("encryption");
    let certificates = call.values("certificate").map(Into::into).collect();
    Convert {
        source: from.into(),
        target: Some(target.into()),
        // hdiutil drops a signature silently.
        remove_signature: true,
        container: Container {
            format: Some(format),
            overwrite: call.has("ov"),
            band_size: band_size(call, format)?,
            level: level(call, format)?.map(Level::get),
            ..Container::default()
        },
        opening: call.opening_for(is_encrypted),
        encryption: EncryptionArgs {
            encrypt: encrypts.then(|| cipher(call)),
            decrypting: DecryptArgs {
                decrypt: is_encrypted && !encrypts,
            },
            encrypting: match encrypts {
                true => NewEncryptionArgs::with_certificates(certificates),
                false => NewEncryptionArgs::default(),
            },
            new: NewPassphrase::stdinpass(encrypts && call.has("stdinpass")),
            ..EncryptionArgs::default()
        },
        ..Convert::default()
    }
    .run(&call.output)
}
