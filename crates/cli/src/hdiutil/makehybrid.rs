//! `hdiutil makehybrid`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bandsaw::container::Format;
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create, default_volume_name};
use bandsaw::ops::format::NewFormat;
use bandsaw::{Error, Kind};

use super::call::{Call, usage};
use super::table::{COMMON, OVERWRITE, PLIST, PUPPET, Verb};
use crate::commands::epoch;
use crate::failure::Outcome;
use crate::progress::Bar;

const OPTIONS: &str = "
-o *file* | done | the new image
-hfs | done | creates an HFS+ volume; with -iso, both in one image, by xorriso; without -hfs, -iso and -joliet, all three
-iso | done | creates an ISO 9660 volume, by xorriso
-joliet | done | adds Joliet names, by xorriso
-udf | refused | UDF is not supported
-default-volume-name -hfs-volume-name -iso-volume-name -joliet-volume-name *name* | done | the name of the volume; by default that of the folder
-abstract-file *file* | done | sets the name in the ISO volume
-bibliography-file *file* | done | sets the name in the ISO volume
-copyright-file *file* | done | sets the name in the ISO volume
-application *text* | done | sets the field of the ISO volume
-preparer *text* | done | sets the field of the ISO volume
-publisher *text* | done | sets the field of the ISO volume
-system-id *text* | done | sets the field of the ISO volume
-eltorito-boot *file* | done | the boot image, in the folder
-no-emul-boot | done | no disk emulation
-hard-disk-boot | done | emulates a hard disk
-boot-load-size *sectors* | done | the number of sectors to load
-boot-load-seg *segment* | ignored | the boot image is loaded at the default segment
-hide-all *glob* | done | omits these files from the ISO volume
-hide-iso *glob* | done | hides these files in the ISO volume
-hide-joliet *glob* | done | hides these files among the Joliet names
-hide-hfs -only-iso -only-joliet *glob* | refused | both volumes have the same contents
-hide-udf -only-udf -udf-volume-name -udf-version *value* | ignored | UDF is not supported
-no-boot | refused | non-bootable boot images are not supported
-eltorito-platform -eltorito-specification *value* | refused | boot catalogs with several entries are not supported
-keep-mac-specific | ignored | all files of the folder are included
-hfs-openfolder *folder* | done | the Finder opens the volume when it is mounted: only the folder that becomes the volume; without effect with -iso
-hfs-blessed-directory -hfs-startupfile-size *value* | refused | bootable Mac volumes are not supported
-print-size | refused | the size is known when the image is made
-plistin | refused | options are read from the command line
";

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
    let name = call
        .value("default-volume-name")
        .map_or_else(|| default_volume_name(Some(folder)), str::to_owned);
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
    let opens = opens(call)?;
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
        opens,
        volume: Some(volume),
        ..CreateOptions::default()
    };
    let bar = Bar::new(&call.output);
    create(path, options, &bar)?;
    Ok(())
}

/// Returns true if the volume is to open when it is mounted.
fn opens(call: &Call) -> Outcome<bool> {
    let Some(folder) = call.value("hfs-openfolder") else {
        return Ok(false);
    };
    let found = |folder: &str| {
        let found = Path::new(folder).canonicalize();
        found.map_err(|error| Error::io("makehybrid", "find", error).in_file(folder))
    };
    if found(folder)? != found(call.image())? {
        let message = "-hfs-openfolder: only the folder that becomes the volume is supported";
        return Err(usage(message.to_owned()));
    }
    Ok(true)
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
    // xorriso itself takes the variable for dates of the volume only.
    if let Some(epoch) = epoch()? {
        command.args(["--set_all_file_dates", &format!("={}", epoch.seconds)]);
    }
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
