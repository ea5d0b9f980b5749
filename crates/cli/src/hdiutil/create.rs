//! `hdiutil create`.

use std::path::{Path, PathBuf};

use bandsaw::container::Format;
use bandsaw::crypt::Encryption;
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::import::Item;

use super::call::{Call, usage};
use super::facts::{band_size, cipher, level, with_extension};
use super::size::{self, SECTOR};
use super::table::Effect::{Done, Ignored, Refused};
use super::table::Takes::{Nothing, Value};
use super::table::{COMMON, ENCRYPTING, OVERWRITE, Opt, PLIST, PUPPET, Verb, opt};
use super::{attach, convert, segment};
use crate::commands::epoch;
use crate::encrypting::Encrypting;
use crate::failure::Outcome;
use crate::progress::Bar;

const OPTIONS: &[Opt] = &[
    opt(
        &["size"],
        Value("number and b, k, m, g, t, p or e"),
        Done("the size of the disk; by default the size of the source and some free space"),
    ),
    opt(&["sectors"], Value("number"), Done("the same in sectors")),
    opt(&["megabytes"], Value("number"), Done("the same in MiB")),
    opt(
        &["srcfolder", "srcdir"],
        Value("folder"),
        Done(
            "fills the volume with the contents of the folder; given several times, with the folders themselves",
        ),
    ),
    opt(
        &["srcdevice"],
        Value("device"),
        Done("an image of this disk or partition, or of a file that holds one"),
    ),
    opt(
        &["volname"],
        Value("name"),
        Done("the name of the volume; by default untitled, or the name of the folder"),
    ),
    opt(
        &["fs"],
        Value("name"),
        Done(
            "APFS by default; HFS+, JHFS+, HFSX, JHFS+X and APFS, also case-sensitive; FAT, ExFAT and UDF are refused",
        ),
    ),
    opt(
        &["type"],
        Value("UDIF, SPARSE or SPARSEBUNDLE"),
        Done("the type of an image without a source; also taken from the name"),
    ),
    opt(
        &["format"],
        Value("code"),
        Done("the format of an image with a source; UDZO by default"),
    ),
    opt(
        &["layout"],
        Value("name"),
        Done("GPTSPUD, SPUD, MBRSPUD and NONE; those of CDs are refused"),
    ),
    opt(
        &["imagekey", "tgtimagekey"],
        Value("key=value"),
        Done("sparse-band-size in sectors, zlib-level; others have no effect"),
    ),
    opt(
        &["stdinpass"],
        Nothing,
        Done("the new passphrase is read from standard input up to a NUL"),
    ),
    opt(
        &["passphrase"],
        Value("text"),
        Refused("every user of the machine can read it in the list of processes; use -stdinpass"),
    ),
    opt(
        &["agentpass"],
        Nothing,
        Refused("there is no agent to ask; use -stdinpass"),
    ),
    opt(
        &["partitionType"],
        Value("type"),
        Ignored("the type follows from the file system"),
    ),
    opt(
        &["fsargs"],
        Value("arguments"),
        Ignored("tree sizes are those of Apple's formatter"),
    ),
    opt(
        &["align"],
        Value("sectors"),
        Ignored("partitions begin at multiples of 4 KiB"),
    ),
    opt(
        &["library"],
        Value("bundle"),
        Ignored("such libraries do not exist here"),
    ),
    opt(
        &["stretch"],
        Value("size"),
        Ignored("every volume can grow later"),
    ),
    opt(
        &["uid", "gid", "mode"],
        Value("number"),
        Ignored("the root folder keeps the owner and mode of the source"),
    ),
    opt(
        &["nospotlight"],
        Nothing,
        Ignored("nothing is mounted while the image is made, so nothing indexes it"),
    ),
    opt(
        &["autostretch", "noautostretch"],
        Nothing,
        Ignored("every volume can grow later"),
    ),
    opt(
        &["crossdev", "nocrossdev"],
        Nothing,
        Ignored("file systems mounted in the folder are included"),
    ),
    opt(
        &["scrub", "noscrub"],
        Nothing,
        Ignored("the folder is copied without changes"),
    ),
    opt(
        &["anyowners", "noanyowners"],
        Nothing,
        Ignored("owners are numbers, which every user may store in an image"),
    ),
    opt(
        &["atomic", "noatomic"],
        Nothing,
        Ignored("an image always becomes visible when it is complete"),
    ),
    opt(
        &["skipunreadable"],
        Nothing,
        Ignored("an unreadable file is an error, because the image would lack it"),
    ),
    opt(
        &["copyuid"],
        Value("user"),
        Ignored("files are read as the calling user"),
    ),
    segment::SIZE,
    opt(
        &["attach"],
        Nothing,
        Done("attaches the new image, with the output of `attach`"),
    ),
];

pub(super) const VERB: Verb = Verb {
    names: &["create"],
    operands: "*image*",
    count: (1, 1),
    says: "Makes an image, with a volume unless only a layout is named, and fills it from folders",
    options: &[COMMON, PLIST, PUPPET, OVERWRITE, ENCRYPTING, OPTIONS],
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
            "neither a size nor a source is given: -size, -sectors, -megabytes or -srcfolder"
                .to_owned(),
        ));
    }
    if call.has("attach") && call.has("stdinpass") {
        return Err(usage("-attach: the passphrase would have to be given once more; `attach -stdinpass` takes it".to_owned()));
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
            "-type {other} is none of UDIF, SPARSE, SPARSEBUNDLE"
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
            .ok_or_else(|| usage(format!("-{option} {text} is no such number")))
    };
    let size = call.value("size").map(size::parse).transpose()?;
    Ok(size
        .or(number("sectors", SECTOR)?)
        .or(number("megabytes", 1 << 20)?))
}

fn volume(call: &Call, sources: &[&str]) -> Outcome<Option<NewVolume>> {
    let only_layout =
        call.has("layout") && !call.has("fs") && !call.has("volname") && sources.is_empty();
    let layout: Layout = call
        .value("layout")
        .map_or(Ok(Layout::Gptspud), str::parse)?;
    if only_layout {
        return match layout {
            Layout::None => Ok(None),
            _ => Err(usage(
                "-layout alone makes a partition without a volume, which is not made here; add -fs"
                    .to_owned(),
            )),
        };
    }
    let format = call.value("fs").map_or(Ok(NewFormat::Apfs), str::parse)?;
    let of_source = || {
        Some(
            Path::new(sources.first()?)
                .canonicalize()
                .ok()?
                .file_name()?
                .to_str()?
                .to_owned(),
        )
    };
    let name = call
        .value("volname")
        .map(str::to_owned)
        .or_else(of_source)
        .unwrap_or_else(|| "untitled".to_owned());
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
        layout,
        name,
        format,
        block_size: None,
        source,
    }))
}

fn item(source: &str, contents: bool) -> Outcome<Item> {
    let path = PathBuf::from(source);
    if contents && path.is_dir() {
        return Ok(Item::Contents(path));
    }
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .map(str::to_owned);
    let to = name.ok_or_else(|| usage(format!("{source} has no name to have in the volume")))?;
    Ok(Item::At { from: path, to })
}

/// Returns the encryption, after asking for the passphrase.
fn encryption(call: &Call) -> Outcome<Option<Encryption>> {
    if !call.has("encryption") {
        return Ok(None);
    }
    let encrypting =
        Encrypting::with_certificates(call.values("certificate").map(PathBuf::from).collect());
    encrypting
        .with(cipher(call), || call.new_passphrase())
        .map(Some)
}
