//! `hdiutil makehybrid`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bandsaw::container::Format;
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::{Error, Kind};

use super::call::{Call, usage};
use super::table::Effect::{Done, Ignored, Refused};
use super::table::OptionValue::{Nothing, Value};
use super::table::{COMMON, OVERWRITE, Opt, PLIST, PUPPET, Verb, opt};
use crate::commands::epoch;
use crate::failure::Outcome;
use crate::progress::Bar;

const OPTIONS: &[Opt] = &[
    opt(&["o"], Value("file"), Done("the new image")),
    opt(
        &["hfs"],
        Nothing,
        Done(
            "creates an HFS+ volume; with -iso, both in one image, by xorriso; without -hfs, -iso \
             and -joliet, all three",
        ),
    ),
    opt(
        &["iso"],
        Nothing,
        Done("creates an ISO 9660 volume, by xorriso"),
    ),
    opt(&["joliet"], Nothing, Done("adds Joliet names, by xorriso")),
    opt(&["udf"], Nothing, Refused("UDF is not supported")),
    opt(
        &[
            "default-volume-name",
            "hfs-volume-name",
            "iso-volume-name",
            "joliet-volume-name",
        ],
        Value("name"),
        Done("the name of the volume; by default that of the folder"),
    ),
    opt(
        &["abstract-file"],
        Value("file"),
        Done("sets the name in the ISO volume"),
    ),
    opt(
        &["bibliography-file"],
        Value("file"),
        Done("sets the name in the ISO volume"),
    ),
    opt(
        &["copyright-file"],
        Value("file"),
        Done("sets the name in the ISO volume"),
    ),
    opt(
        &["application"],
        Value("text"),
        Done("sets the field of the ISO volume"),
    ),
    opt(
        &["preparer"],
        Value("text"),
        Done("sets the field of the ISO volume"),
    ),
    opt(
        &["publisher"],
        Value("text"),
        Done("sets the field of the ISO volume"),
    ),
    opt(
        &["system-id"],
        Value("text"),
        Done("sets the field of the ISO volume"),
    ),
    opt(
        &["eltorito-boot"],
        Value("file"),
        Done("the boot image, in the folder"),
    ),
    opt(&["no-emul-boot"], Nothing, Done("no disk emulation")),
    opt(&["hard-disk-boot"], Nothing, Done("emulates a hard disk")),
    opt(
        &["boot-load-size"],
        Value("sectors"),
        Done("the number of sectors to load"),
    ),
    opt(
        &["boot-load-seg"],
        Value("segment"),
        Ignored("the boot image is loaded at the default segment"),
    ),
    opt(
        &["hide-all"],
        Value("glob"),
        Done("omits these files from the ISO volume"),
    ),
    opt(
        &["hide-iso"],
        Value("glob"),
        Done("hides these files in the ISO volume"),
    ),
    opt(
        &["hide-joliet"],
        Value("glob"),
        Done("hides these files among the Joliet names"),
    ),
    opt(
        &["hide-hfs", "only-iso", "only-joliet"],
        Value("glob"),
        Refused("both volumes have the same contents"),
    ),
    opt(
        &["hide-udf", "only-udf", "udf-volume-name", "udf-version"],
        Value("value"),
        Ignored("UDF is not supported"),
    ),
    opt(
        &["no-boot"],
        Nothing,
        Refused("non-bootable boot images are not supported"),
    ),
    opt(
        &["eltorito-platform", "eltorito-specification"],
        Value("value"),
        Refused("boot catalogs with several entries are not supported"),
    ),
    opt(
        &["keep-mac-specific"],
        Nothing,
        Ignored("all files of the folder are included"),
    ),
    opt(
        &["hfs-openfolder"],
        Value("folder"),
        Ignored("the Finder shows a mounted volume by its own preferences"),
    ),
    opt(
        &["hfs-blessed-directory", "hfs-startupfile-size"],
        Value("value"),
        Refused("bootable Mac volumes are not supported"),
    ),
    opt(
        &["print-size"],
        Nothing,
        Refused("the size is known when the image is made"),
    ),
    opt(
        &["plistin"],
        Nothing,
        Refused("options are read from the command line"),
    ),
];

pub(super) const VERB: Verb = Verb {
    names: &["makehybrid"],
    operands: "*folder*",
    count: (1, 1),
    says: "Creates a raw image with an HFS+ volume, or with an ISO 9660 volume by `xorriso`, \
           which must be installed",
    options: &[COMMON, PLIST, PUPPET, OVERWRITE, OPTIONS],
    run: Some(run),
};

/// The options of hdiutil and their equivalents in mkisofs, which xorriso understands.
const OF_MKISOFS: [(&str, &str); 13] = [
    ("joliet", "-J"),
    ("hfs", "-hfsplus"),
    ("abstract-file", "-abstract"),
    ("bibliography-file", "-biblio"),
    ("copyright-file", "-copyright"),
    ("application", "-appid"),
    ("preparer", "-preparer"),
    ("publisher", "-publisher"),
    ("system-id", "-sysid"),
    ("eltorito-boot", "-b"),
    ("no-emul-boot", "-no-emul-boot"),
    ("hard-disk-boot", "-hard-disk-boot"),
    ("boot-load-size", "-boot-load-size"),
];

fn run(call: &Call) -> Outcome {
    let is_every = is_every(call);
    let is_iso = is_every || call.has("iso") || call.has("joliet");
    let mut path = PathBuf::from(
        call.value("o")
            .ok_or_else(|| usage("-o is required".to_owned()))?,
    );
    if path.extension().is_none() {
        path.set_extension(if is_iso { "iso" } else { "dmg" });
    }
    let folder = Path::new(call.image());
    let of_folder = folder
        .canonicalize()
        .ok()
        .and_then(|folder| Some(folder.file_name()?.to_str()?.to_owned()));
    let name = call
        .value("default-volume-name")
        .map(str::to_owned)
        .or(of_folder)
        .unwrap_or_else(|| "untitled".to_owned());
    if is_iso {
        iso(call, &path, &name)?
    } else {
        hfs(call, &path, name)?
    }
    call.created(&[path])
}

/// Returns true if no file system is named: the image has all that are supported.
fn is_every(call: &Call) -> bool {
    !["hfs", "iso", "joliet"].iter().any(|kind| call.has(kind))
}

fn hfs(call: &Call, path: &Path, name: String) -> Outcome {
    let source = Source::Folder(call.image().into());
    let volume = NewVolume {
        layout: Layout::None,
        name,
        format: NewFormat::HfsPlus,
        block_size: None,
        source,
    };
    let options = CreateOptions {
        format: Format::Udrw,
        overwrite: call.has("ov"),
        epoch: epoch()?,
        volume: Some(volume),
        ..CreateOptions::default()
    };
    let bar = Bar::new(&call.output);
    create(path, options, &bar)?;
    Ok(())
}

fn iso(call: &Call, path: &Path, name: &str) -> Outcome {
    let failed = |message: String| Error::new(Kind::Io, "makehybrid", message).in_file(path);
    if path.exists() && !call.has("ov") {
        return Err(
            Error::conflict("makehybrid", "already exists; use -ov to replace it")
                .in_file(path)
                .into(),
        );
    }
    // Written beside the target, so that an existing file stays until the new one is complete.
    let scratch = path.with_extension(format!("new-{}", std::process::id()));
    let mut command = Command::new("xorriso");
    command
        .args(["-as", "mkisofs", "-r", "-quiet", "-V", name, "-o"])
        .arg(&scratch);
    for (option, word) in OF_MKISOFS {
        if call.has(option) || is_every(call) && ["joliet", "hfs"].contains(&option) {
            command.arg(word).args(call.value(option));
        }
    }
    for (option, word) in [
        ("hide-all", "-m"),
        ("hide-iso", "-hide"),
        ("hide-joliet", "-hide-joliet"),
    ] {
        for glob in call.values(option) {
            command.args([word, glob]);
        }
    }
    // An absolute path cannot be taken for an option.
    let folder = Path::new(call.image())
        .canonicalize()
        .map_err(|error| Error::io("makehybrid", "find", error).in_file(call.image()))?;
    command
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let made = command.output().map_err(|error| {
        let failed = Error::io("makehybrid", "run xorriso, which writes ISO 9660", error);
        if failed.io_kind() == Some(std::io::ErrorKind::NotFound) {
            failed.in_file("xorriso")
        } else {
            failed
        }
    })?;
    let placed = if made.status.success() {
        std::fs::rename(&scratch, path).map_err(|error| {
            Error::io("makehybrid", "rename the image to its final name", error).in_file(path)
        })
    } else {
        let said = String::from_utf8_lossy(&made.stderr);
        Err(failed(format!(
            "xorriso failed: {}",
            said.lines().last().unwrap_or_default()
        )))
    };
    // Already renamed after a success.
    let _ = std::fs::remove_file(&scratch);
    Ok(placed?)
}
