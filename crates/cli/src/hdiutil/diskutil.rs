//! The emulation of macOS 26's `diskutil image`: the same tables, two dashes, decimal sizes.

use std::ffi::OsString;

use bandsaw::container::Format;
use bandsaw::ops::create::UNTITLED;
use bandsaw::ops::resize::limits;
use bandsaw::size;

use super::call::{Call, usage};
use super::disks::COMMON;
use super::plist_values::{dictionary, number};
use super::table::Verb;
use super::{attach, imageinfo};
use crate::commands::convert::{Convert, EncryptionArgs};
use crate::commands::create::{Create, FileSystemArg};
use crate::commands::passwd::{self, FromStdin};
use crate::commands::resize::Resize;
use crate::container_args::Container;
use crate::encryption_args::{Cipher, DecryptArgs};
use crate::failure::Outcome;
use crate::passphrase::{NewPassphrase, Passphrase};
use crate::source;

const STDINPASS: &str = "
-stdinpass -stdinpassphrase | done | reads passphrases from standard input, each up to a NUL
";

const CREATE: &str = "
-format -f *code*{RAW|ASIF|UDSB|UDRO|UDZO|ULFO|ULMO} | done | RAW (the default of blank), ASIF, UDSB; with from UDRO, UDZO, ULFO, ULMO too
-size -s *size* | done | the size of the disk: 10g is 10^10 bytes, 10Gi is binary, a bare number is bytes
-volumeName -n *name* | done | untitled by default
-fs *name*{APFS|Case-sensitive APFS|HFS+|JHFS+|HFSX|JHFS+X|MS-DOS|MS-DOS FAT32|ExFAT|None} | done | APFS by default; HFS+ and its variants, MS-DOS and its variants, ExFAT, None
-encrypt -e | done | encrypts the new image with AES-256
-shadow *file* | done | the new image is a layer over the source
";

const RESIZE: &str = "
-size -s *size or min* | done | the new size; without it, prints the limits
-image-only | done | resizes the disk only, not map and volume
";

const EXTRA: &str = "
-extra | ignored | all information is always printed
";

const ATTACH: &str = "
-readOnly -r | done | opens the image read-only
-mountPoint -m *folder* | done | mounts the first volume here; a missing folder is created
-mountOptions *option,...* | done | those of `bandsaw mount -o`
-mountPolicy *noMount, autoMount or forceMount*{noMount|autoMount|forceMount} | done | forceMount, the default, fails if no volume can be mounted; autoMount then attaches the disk as one file
-noMount | done | mounts no volume; attaches the disk as one file
-shadow [*file*] | done | writes changes to this file; IMAGE_shadow by default; several are stacked
-nobrowse | ignored | volumes are never announced to a desktop
";

pub(super) const VERBS: &[&Verb] = &[
    &Verb {
        names: &["attach"],
        operands: "*image*",
        count: (1, 1),
        says: "Attaches an image: mounts its volumes by a server process and assigns a device name",
        options: &[COMMON, STDINPASS, ATTACH],
        run: Some(attach),
    },
    &Verb {
        names: &["create"],
        operands: "blank *image* | from *image* *image*",
        count: (2, 3),
        says: "Creates an empty image, or one with the disk of another",
        options: &[COMMON, STDINPASS, CREATE],
        run: Some(create),
    },
    &Verb {
        names: &["info"],
        operands: "*image*",
        count: (1, 1),
        says: "Describes an image",
        options: &[COMMON, STDINPASS, EXTRA],
        run: Some(imageinfo::run_of_diskutil),
    },
    &Verb {
        names: &["resize"],
        operands: "*image*",
        count: (1, 1),
        says: "Resizes disk, map and volume together, or prints the limits in bytes",
        options: &[COMMON, STDINPASS, RESIZE],
        run: Some(resize),
    },
    &Verb {
        names: &["chpass"],
        operands: "*image*",
        count: (1, 1),
        says: "Changes the passphrase of an encrypted image",
        options: &[COMMON, STDINPASS],
        run: Some(chpass),
    },
];

/// Parses a size in bytes; powers of ten without an `i`.
fn bytes(text: &str) -> Outcome<u64> {
    let letters = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let spelled = match letters.to_ascii_lowercase().as_str() {
        "k" | "m" | "g" | "t" | "p" | "ki" | "mi" | "gi" | "ti" | "pi" => format!("{text}B"),
        "b" => text[..text.len() - 1].to_owned(),
        _ => text.to_owned(),
    };
    Ok(size::parse(&spelled)?)
}

fn format(call: &Call) -> Outcome<Format> {
    match call.value("format") {
        None => Ok(Format::Udrw),
        Some(word) if word.eq_ignore_ascii_case("RAW") => Ok(Format::Udrw),
        Some(word) => Ok(word.parse()?),
    }
}

fn create(call: &Call) -> Outcome {
    let encrypt = call.has("encrypt").then_some(Cipher::Aes256);
    let container = Container {
        format: Some(format(call)?),
        ..Container::default()
    };
    let target = match call.operands() {
        [kind, path] if kind == "blank" => {
            let size = call
                .value("size")
                .ok_or_else(|| usage("--size is required".to_owned()))?;
            let fs: FileSystemArg = call.value("fs").unwrap_or("APFS").parse()?;
            let name = || call.value("volumeName").unwrap_or(UNTITLED).to_owned();
            Create {
                image: path.into(),
                size: Some(bytes(size)?),
                volname: fs.0.is_some().then(name),
                fs: Some(fs),
                container,
                passphrase: Passphrase::stdinpass(encrypt.is_some() && call.has("stdinpass")),
                encrypt,
                ..Create::default()
            }
            .run(&call.output)?;
            path
        }
        [kind, from, to] if kind == "from" => {
            let is_encrypted = Call::is_encrypted_at(from)?;
            Convert {
                source: from.into(),
                target: Some(to.into()),
                remove_signature: true,
                container,
                opening: call.opening_for(is_encrypted),
                encryption: EncryptionArgs {
                    decrypting: DecryptArgs {
                        decrypt: is_encrypted && encrypt.is_none(),
                    },
                    new: NewPassphrase::stdinpass(encrypt.is_some() && call.has("stdinpass")),
                    encrypt,
                    ..EncryptionArgs::default()
                },
                ..Convert::default()
            }
            .run(&call.output)?;
            to
        }
        _ => {
            return Err(usage(
                "expected blank and an image, or from and two images".to_owned(),
            ));
        }
    };
    call.created(&[target.into()])
}

fn attach(call: &Call) -> Outcome {
    let image = call.image();
    let mut words: Vec<OsString> = ["--quiet", "attach", "--serving", "--folders", image]
        .map(Into::into)
        .into();
    if call.has("stdinpass") && Call::is_encrypted_at(image)? {
        words.push("--stdinpass".into());
    }
    if call.has("readOnly") {
        words.push("--read-only".into());
    }
    for shadow in call.each("shadow") {
        let named = shadow.map_or_else(
            || format!("{}_shadow", image.trim_end_matches('/')),
            str::to_owned,
        );
        words.extend(["--shadow".into(), named.into()]);
    }
    let policy = call.value("mountPolicy").map(str::to_ascii_lowercase);
    match (call.has("noMount"), policy.as_deref()) {
        (true, _) | (_, Some("nomount")) => words.push("--nomount".into()),
        (_, Some("automount")) => words.push("--or-disk".into()),
        (_, None | Some("forcemount")) => {}
        (_, Some(other)) => {
            return Err(usage(format!(
                "invalid --mountPolicy {other}: expected noMount, autoMount or forceMount"
            )));
        }
    }
    if let Some(folder) = call.value("mountPoint") {
        words.extend(["--mountpoint".into(), folder.into()]);
    }
    if let Some(options) = call.value("mountOptions") {
        words.extend(["-o".into(), options.into()]);
    }
    attach::begin(call, image, &words)
}

fn resize(call: &Call) -> Outcome {
    let Some(size) = call.value("size") else {
        let (image, _) = call.open()?;
        let found = limits(&image, None)?;
        let sizes = [
            ("Minimum Size", found.min),
            ("Current Size", found.current),
            ("Maximum Size", found.max),
        ];
        if call.has("plist") {
            return call.plist(dictionary(sizes.map(|(what, bytes)| (what, number(bytes)))));
        }
        return call.print(
            &sizes
                .map(|(what, bytes)| format!("{what}: {bytes}\n"))
                .concat(),
        );
    };
    let size = match size {
        "min" => None,
        size => Some(bytes(size)?),
    };
    Resize {
        min: size.is_none(),
        size,
        image_only: call.has("image-only"),
        opening: call.opening(),
        ..Resize::default()
    }
    .resize(
        &source::image_or_volume(call.image().as_ref())?,
        &call.output,
    )
}

fn chpass(call: &Call) -> Outcome {
    let stdin = call.has("stdinpass");
    let from_stdin = FromStdin {
        old: stdin,
        new: stdin,
    };
    passwd::change_passphrase(call.image(), from_stdin, &call.output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_decimal() {
        for (text, size) in [
            ("10g", 10_000_000_000),
            ("10Gi", 10 << 30),
            ("512", 512),
            ("1MB", 1_000_000),
            ("100b", 100),
        ] {
            assert_eq!(bytes(text).unwrap(), size, "{text}");
        }
    }
}
