//! The page docs/hdiutil.md, generated from the tables.

use std::fmt::Write as _;

use super::table::{COMMON, Effect, Opt, OptionValue, Verb};
use super::{VERBS, disks, diskutil};

const HEAD: &str = "\
# Compatibility with hdiutil

Called as `hdiutil` (a link of that name to `bandsaw`), or as `bandsaw hdiutil ...`, the command accepts the verbs and options of macOS's
hdiutil. `bandsaw hdiutil help -markdown` prints this page from the tables that the command parses its arguments with.

* Options have one dash or two, in any case, may be abbreviated to an unambiguous prefix, and take their value after a space or `=`.
* Sizes are powers of two: `b` sectors of 512 bytes, `k`, `m`, `g` (2^30), `t`, `p`, `e`; a bare number counts bytes, as the manual says by
  its reference to mkfile(8) (no recording).
* The exit code is 0, or 1 for every failure. Standard error has `hdiutil: VERB failed - MESSAGE` with hdiutil's message, then details from
  Bandsaw.
* The extension of the format (`.dmg`, `.sparseimage`, `.sparsebundle`, `.cdr`) is added to the name of a new image that lacks it.
* Text on standard output is for people; programs use `-plist`.

*Done*: as on macOS. *Ignored*: accepted, without effect. *Refused*: the verb fails.
";

const DISKUTIL: &str = "
# diskutil image

Called as `diskutil`, or as `bandsaw diskutil image ...`, the command accepts these verbs. Sizes are decimal: `10g` is 10,000,000,000 bytes,
`10Gi` is 10 times 2^30. Standard input has the passphrase of the source, then that of the new image.
";

const DISKS: &str = "
# diskutil

The verbs about disks work on the disks of attached images.
";

const KEYS: &str = "
## Property lists

The keys, types and values of `imageinfo`, `pmap`, `attach` and `diskutil info` are those that macOS 27 printed, as the project go-apfs-v3
recorded them (`acceptance/testdata`); a test compares them key by key. The keys are in alphabetical order. For `info`, `diskutil list` and
`diskutil image info` there is no recording: their keys are those that published callers read. These keys differ:

| list | key | here | why |
| --- | --- | --- | --- |
| all | (standard error) | no deprecation warnings | macOS 27 prints `hdiutil: WARNING: ... is deprecated`; the verbs are not deprecated here, and callers take text there for a failure |
| `imageinfo` | `Compressed Bytes`, `Total Empty Bytes` of sparse images | as of a raw image | not recorded |
| `imageinfo` | `Class Name` of ASIF and foreign images | absent | not recorded |
| `imageinfo` | `sparse-band-size` | added for sparse bundles | there is no other way to read it |
| `imageinfo` | everything but `Format`, `Encrypted` and `Name`, without the passphrase | absent | macOS asks for the passphrase |
| `attach` | the order of the devices | a disk, its partitions, its volumes | macOS 27 printed several orders |
| `attach` | volumes and containers with `-nomount` | absent | they are devices only while they are mounted |
| `attach` | volumes of roles Preboot, Recovery, VM and Update | absent | they are not mounted |
| `info` | `framework`, `revision`, `vendor` | of Bandsaw | there is no driver |
| `info` | `owner-uid`, `owner-mode`, `removable`, `autodiskmount`, `image-alias`, `icon-path` | absent | not recorded |
| `diskutil info` | `CapacityInUse` | size less free space, so with the container's own blocks | the volume's own count is not kept while it is mounted |
| `diskutil info` | `DiskUUID` of an APFS container | absent | the volume alone is mounted |
| `diskutil info` | `IORegistryEntryName` of a disk that is read-only | `Apple read-only Media` | recorded for one that is not only |
| `diskutil info` | `DeviceTreePath`, `SMARTStatus`, `BusProtocol` and the like | constant | as on a Mac for every disk image |
| `diskutil info` | `Sealed`, `FileVault`, `Encryption` | of the volume | recorded for volumes without them only |

## Words and exit codes

| recorded on macOS 27 | here |
| --- | --- |
| `imageinfo` with a wrong, an empty or the previous passphrase: 1, `hdiutil: imageinfo failed - Authentication error` | the same, then a line with Bandsaw's details |
| `verify`: two lines for each area and one for all on standard output; `hdiutil: verify: checksum of \"IMAGE\" is VALID` on standard error | the same |
| `create`: `created: IMAGE`, with the whole path | the same |
| `convert`: a line for each area, times and savings, `created: IMAGE` | `created: IMAGE` only: the rest is for people, and depends on the machine |
| `chpass`: nothing | the same |
| `detach`: `\"disk4\" ejected.` | the same |
| `diskutil mount`: `Volume NAME on /dev/disk5s1 mounted` | device and mount point: volumes are mounted by `attach` already |
| all verbs of `hdiutil` but `verify`: a first line `hdiutil: WARNING: ... is deprecated` on standard error | none, see above |

No other failure is recorded: the remaining words are those that published callers look for.
";

/// Returns the page.
pub(super) fn markdown() -> String {
    let mut page = HEAD.to_owned();
    page.push_str(KEYS);
    page.push_str("\n## Options of every verb\n\n");
    table(&mut page, &common());
    for verb in VERBS {
        section(&mut page, "", verb);
    }
    page.push_str(DISKUTIL);
    for verb in diskutil::VERBS {
        section(&mut page, "diskutil image ", verb);
    }
    page.push_str(DISKS);
    for verb in disks::VERBS {
        section(&mut page, "diskutil ", verb);
    }
    page
}

fn section(page: &mut String, before: &str, verb: &Verb) {
    let [name, others @ ..] = verb.names else {
        return;
    };
    let also = others
        .iter()
        .map(|name| format!(" (`{name}`)"))
        .collect::<String>();
    let operands = if verb.operands.is_empty() {
        String::new()
    } else {
        format!(" {}", verb.operands)
    };
    let refused = if verb.run.is_none() { "Refused: " } else { "" };
    let _ = writeln!(
        page,
        "\n## {before}{name}{operands}{also}\n\n{refused}{}.",
        verb.says
    );
    let common = common();
    let is_common = |option: &Opt| common.iter().any(|common| common.names == option.names);
    let own: Vec<_> = verb.options().filter(|option| !is_common(option)).collect();
    if !own.is_empty() {
        page.push('\n');
        table(page, &own);
    }
}

fn common() -> Vec<Opt> {
    COMMON.lines().filter_map(Opt::parse).collect()
}

fn table(page: &mut String, options: &[Opt]) {
    page.push_str("| option | | |\n| --- | --- | --- |\n");
    for option in options {
        let names = option
            .names
            .iter()
            .map(|name| format!("`-{name}`"))
            .collect::<Vec<_>>()
            .join(", ");
        let value = match &option.takes {
            OptionValue::Nothing => String::new(),
            OptionValue::Value(what) | OptionValue::Choice(what, _) => format!(" *{what}*"),
            OptionValue::Word(words) => format!(" [{}]", words.join("\\|")),
            OptionValue::File => " [*file*]".to_owned(),
        };
        let what = match option.effect {
            Effect::Done => "done",
            Effect::Ignored => "ignored",
            Effect::Refused => "refused",
        };
        let says = option.says;
        let _ = writeln!(page, "| {names}{value} | {what} | {says} |");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_says_what_the_tables_say() {
        let page = include_str!("../../../../docs/hdiutil.md");
        assert!(
            page == super::markdown(),
            "bandsaw hdiutil help -markdown > docs/hdiutil.md"
        );
    }
}
