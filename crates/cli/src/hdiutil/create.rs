//! `hdiutil create`.

use std::path::{Path, PathBuf};

use bandsaw::container::Format;
use bandsaw::crypt::Encryption;
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create, default_volume_name};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::import::Item;

use super::call::{Call, usage};
use super::plist_values::{band_size, cipher, level, with_extension};
use super::size::{self, SECTOR};
use super::table::{COMMON, ENCRYPTING, KEYS, OVERWRITE, PLIST, PUPPET, Verb};
use super::{attach, convert, segment};
use crate::commands::{epoch, is_bundle};
use crate::encryption_args::NewEncryptionArgs;
use crate::failure::Outcome;
use crate::progress::Bar;

const OPTIONS: &str = "
-size *number and b, k, m, g, t, p or e* | done | the size of the disk; by default the size of the source and some free space
-sectors *number* | done | the size in sectors
-megabytes *number* | done | the size in MiB
-srcfolder -srcdir *folder* | done | copies the contents of the folder into the volume; a bundle such as an application, or each of several sources, as one item
-srcdevice *device* | done | copies this disk or partition, or a file that contains one
-volname *name* | done | the name of the volume; by default untitled, or the name of the folder
-fs *name*{APFS|Case-sensitive APFS|HFS+|JHFS+|HFSX|JHFS+X|MS-DOS|MS-DOS FAT12|MS-DOS FAT16|MS-DOS FAT32|ExFAT} | done | APFS by default; HFS+, JHFS+, HFSX, JHFS+X and APFS, also case-sensitive; MS-DOS, also with FAT12, FAT16 or FAT32, and ExFAT; UDF is refused
-type *UDIF, SPARSE or SPARSEBUNDLE*{UDIF|SPARSE|SPARSEBUNDLE} | done | the type of an image without a source; by default from the name
-format *code*{UDRW|UDRO|UDCO|UDZO|UDBZ|ULFO|ULMO|UDTO|UDSP|UDSB} | done | the format of an image with a source; UDZO by default
-layout *name*{GPTSPUD|SPUD|MBRSPUD|NONE} | done | MBRSPUD by default for MS-DOS and ExFAT, else GPTSPUD; GPTSPUD, SPUD, MBRSPUD or NONE; layouts of CDs are refused
-imagekey -tgtimagekey *key=value*{sparse-band-size=|zlib-level=} | done | sparse-band-size in sectors, zlib-level (6 if not given); others are ignored
-stdinpass | done | reads the new passphrase from standard input, up to a NUL
-partitionType *type* | ignored | the partition type follows from the file system
-fsargs *arguments* | ignored | tree sizes are as in newfs_hfs
-align *sectors* | ignored | partitions begin at multiples of 4 KiB
-library *bundle* | ignored | libraries are not supported
-stretch *size* | ignored | every volume can be enlarged
-uid -gid -mode *number* | ignored | the root folder always has the owner and mode of the source
-nospotlight | ignored | the image is never mounted, so it is never indexed
-autostretch -noautostretch | ignored | every volume can be enlarged
-crossdev -nocrossdev | ignored | mounted file systems in the folder are always included
-scrub -noscrub | ignored | the folder is always copied unchanged
-anyowners -noanyowners | ignored | every user can store any owner in an image
-atomic -noatomic | ignored | an image appears only when it is complete
-skipunreadable | ignored | an unreadable file is an error: it would be missing
-copyuid *user* | ignored | files are read as the calling user
-attach | done | attaches the new image, with the output of `attach`
";

pub(super) const VERB: Verb = Verb {
    names: &["create"],
    operands: "*image*",
    count: (1, 1),
    says: "Creates an image, with a volume unless only -layout is given, and copies folders into \
           it",
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
    let sources: Vec<&str> = call.values("srcfolder").collect();
    let device = call.value("srcdevice");
    let format = format(call, !sources.is_empty() || device.is_some())?;
    let path = with_extension(Path::new(call.image()), format);
    let len = len(call)?;
    if sources.is_empty() && device.is_none() && len.is_none() {
        return Err(usage(
            "a size or a source is required: -size, -sectors, -megabytes or -srcfolder".to_owned(),
        ));
    }
    if call.has("attach") && call.has("stdinpass") {
        return Err(usage(
            "-attach is not supported for encrypted images: run `attach -stdinpass`".to_owned(),
        ));
    }
    segment::cut(call, &path, |path| match device {
        Some(device) => convert::convert(call, device, format, path),
        None => make(call, path, &sources, format, len),
    })?;
    match call.has("attach") {
        true => attach::attach(call, &path.to_string_lossy()),
        false => call.created(&[path]),
    }
}

/// Creates an image with a volume, or a blank one.
fn make(call: &Call, path: &Path, sources: &[&str], format: Format, len: Option<u64>) -> Outcome {
    let mut options = CreateOptions {
        format,
        len,
        band_size: band_size(call, format)?,
        level: level(call, format)?,
        overwrite: call.has("ov"),
        epoch: epoch()?,
        volume: volume(call, sources)?,
        ..CreateOptions::default()
    };
    options.encryption = encryption(call)?;
    let bar = Bar::new(&call.output);
    create(path, options, &bar)?;
    Ok(())
}

/// Returns the format: from the type for an empty image, from -format for one with contents, or
/// from the extension.
fn format(call: &Call, is_filled: bool) -> Outcome<Format> {
    if let Some(format) = call.value("format").filter(|_| is_filled) {
        return Ok(format.parse()?);
    }
    match call.value("type").map(str::to_ascii_uppercase).as_deref() {
        Some("SPARSE") => Ok(Format::Udsp),
        Some("SPARSEBUNDLE") => Ok(Format::Udsb),
        Some("UDIF") if !is_filled => Ok(Format::Udrw),
        Some("UDIF") => Ok(Format::Udzo),
        Some(other) => Err(usage(format!(
            "invalid -type {other}: expected UDIF, SPARSE or SPARSEBUNDLE"
        ))),
        None => Ok(match Format::from_extension(Path::new(call.image())) {
            Some(format @ (Format::Udsp | Format::Udsb)) => format,
            _ if is_filled => Format::Udzo,
            _ => Format::Udrw,
        }),
    }
}

fn len(call: &Call) -> Outcome<Option<u64>> {
    let number = |option: &str, unit: u64| {
        let Some(text) = call.value(option) else {
            return Ok(None);
        };
        let bytes = text
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(unit));
        bytes
            .map(Some)
            .ok_or_else(|| usage(format!("invalid -{option} {text}: expected a number")))
    };
    let size = call.value("size").map(size::parse).transpose()?;
    Ok(size
        .or(number("sectors", SECTOR)?)
        .or(number("megabytes", 1 << 20)?))
}

fn volume(call: &Call, sources: &[&str]) -> Outcome<Option<NewVolume>> {
    let only_layout =
        call.has("layout") && !call.has("fs") && !call.has("volname") && sources.is_empty();
    let layout: Option<Layout> = call.value("layout").map(str::parse).transpose()?;
    if only_layout {
        return match layout {
            Some(Layout::None) => Ok(None),
            _ => Err(usage(
                "-layout alone (a partition without a volume) is not supported; add -fs".to_owned(),
            )),
        };
    }
    let format = call.value("fs").map_or(Ok(NewFormat::Apfs), str::parse)?;
    let name = call.value("volname").map_or_else(
        || default_volume_name(sources.first().map(Path::new)),
        str::to_owned,
    );
    let source = match sources {
        [] => Source::Empty,
        [one] => Source::Items(vec![item(one, true)?]),
        several => Source::Items(
            several
                .iter()
                .map(|one| item(one, false))
                .collect::<Outcome<_>>()?,
        ),
    };
    Ok(Some(NewVolume {
        layout: layout.unwrap_or(format.usual_layout()),
        name,
        format,
        block_size: None,
        source,
    }))
}

fn item(source: &str, contents: bool) -> Outcome<Item> {
    let path = PathBuf::from(source);
    if contents && path.is_dir() && !is_bundle(&path) {
        return Ok(Item::Contents(path));
    }
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .map(str::to_owned);
    let to = name.ok_or_else(|| usage(format!("{source} has no file name")))?;
    Ok(Item::At { from: path, to })
}

/// Returns the encryption, after asking for the passphrase.
fn encryption(call: &Call) -> Outcome<Option<Encryption>> {
    if !call.has("encryption") {
        return Ok(None);
    }
    let encrypting = NewEncryptionArgs::with_certificates(
        call.values("certificate").map(PathBuf::from).collect(),
    );
    encrypting
        .with(cipher(call), || call.new_passphrase())
        .map(Some)
}
