//! `mount.bandsaw`: the helper of mount(8) and fstab for file systems of the type `bandsaw`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The name of this program as a helper.
const NAME: &str = "mount.bandsaw";
/// Options of fstab that are options of the verb, with and without a value.
const OWN: [&str; 12] = [
    "passfile",
    "passenv",
    "volume-passfile",
    "volume-passenv",
    "recovery-key-file",
    "private-key",
    "aea-key",
    "aea-private-key",
    "aea-signer",
    "shadow",
    "image-format",
    "checkpoint",
];
const OWN_FLAGS: [&str; 5] = ["as-disk", "fetch-key", "no-trim", "no-verify", "verify"];

/// The options of the verb's `-o`, with and without a value.
pub(crate) const MOUNT_OPTIONS: [&str; 14] = [
    "ro",
    "allow_other",
    "owners",
    "noowners",
    "uid=",
    "gid=",
    "umask=",
    "epoch=",
    "noexec",
    "suid",
    "dev",
    "nfd",
    "threads=",
    "writeback",
];

/// Translates the command line of a helper, `mount.bandsaw IMAGE FOLDER [-sfnv] [-o OPTIONS] [-t
/// TYPE]`, to that of the verb; returns any other unchanged.
pub(crate) fn translated(args: Vec<OsString>) -> Vec<OsString> {
    let is_helper = args
        .first()
        .is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new(NAME)));
    if !is_helper {
        return args;
    }
    let mut verb: Vec<OsString> = vec!["bandsaw".into(), "mount".into()];
    let mut words = args.into_iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-o") => words
                .next()
                .iter()
                .for_each(|list| add_options(list, &mut verb)),
            Some("-t" | "-N") => drop(words.next()),
            // Sloppy, fake, not in mtab, verbose: accepted without effect.
            Some(flags)
                if flags.len() > 1
                    && flags.starts_with('-')
                    && flags[1..].chars().all(|flag| "sfnv".contains(flag)) => {}
            _ => verb.push(word),
        }
    }
    verb
}

fn add_options(list: &OsStr, verb: &mut Vec<OsString>) {
    let Some(list) = list.to_str() else {
        return verb.extend(["-o".into(), list.to_owned()]);
    };
    let mut rest = Vec::new();
    for option in list.split(',') {
        let (name, value) = option
            .split_once('=')
            .map_or((option, None), |(name, value)| (name, Some(value)));
        let name = name.replace('_', "-");
        match value {
            Some(value) if OWN.contains(&name.as_str()) => {
                verb.push(format!("--{name}={value}").into())
            }
            None if OWN_FLAGS.contains(&name.as_str()) => verb.push(format!("--{name}").into()),
            _ => rest.push(option),
        }
    }
    if !rest.is_empty() {
        verb.extend(["-o".into(), rest.join(",").into()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_fstab_becomes_the_verb() {
        let translated = |line: &str| {
            let args = translated(line.split(' ').map(OsString::from).collect());
            args.iter()
                .map(|arg| arg.to_str().unwrap())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let line = "/sbin/mount.bandsaw /srv/a.dmg:Data /mnt -sn -o rw,noauto,passfile=/k,allow_other,as_disk -t bandsaw";
        let verb =
            "bandsaw mount /srv/a.dmg:Data /mnt --passfile=/k --as-disk -o rw,noauto,allow_other";
        assert_eq!(translated(line), verb);
        assert_eq!(translated("bandsaw mount -f a b"), "bandsaw mount -f a b");
    }
}
