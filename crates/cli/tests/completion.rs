//! Completion in real shells: the script of each is read by it, and its candidates are compared.

use std::process::Command;

use crate::common::backupd::{self, History};
use crate::common::{Scratch, skip, stderr};

/// Script that completes a line with the function of the script, as bash calls it. Words are split
/// at the breaks as bash does.
const BASH: &str = r#"
PATH=$1:$PATH
source <(bandsaw completions bash)
compopt() { :; }
COMP_LINE=$2
COMP_POINT=${#COMP_LINE}
COMP_WORDS=("${COMP_LINE%% *}" "${COMP_LINE##*[ :=]}")
COMP_CWORD=1
_bandsaw
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// The same for zsh, whose builtin for candidates works only at a prompt.
const ZSH: &str = r#"
path=($1 $path)
compdef() { :; }
_files() { :; }
compadd() {
    while [[ $1 != -- ]]; do shift; done
    shift
    print -l -- "$@"
}
source <(bandsaw completions zsh)
words=(${(z)2})
[[ $2 == *' ' ]] && words+=('')
CURRENT=$#words
PREFIX=$words[CURRENT]
_bandsaw
"#;

const FISH: &str = r#"
set -x PATH $argv[1] $PATH
bandsaw completions fish | source
complete -C $argv[2] | string replace -r '\t.*' ''
true
"#;

/// Returns the candidates of a shell for a line, sorted; `None` if there is no such shell.
fn candidates(shell: &str, scratch: &Scratch, line: &str) -> Option<Vec<String>> {
    let script = match shell {
        "bash" => BASH,
        "zsh" => ZSH,
        _ => FISH,
    };
    let folder = scratch.path("bin");
    let mut command = Command::new(shell);
    match shell {
        "bash" => command.args(["--norc", "-c", script, "bash"]),
        "zsh" => command.args(["-f", "-c", script, "zsh"]),
        _ => command.args(["--no-config", "-c", script]),
    };
    let home = scratch.path("home");
    let output = command
        .arg(folder)
        .arg(line)
        .current_dir(scratch.path(""))
        .env("HOME", &home)
        .env("XDG_RUNTIME_DIR", &home)
        .env("XDG_CONFIG_HOME", &home)
        .env("XDG_DATA_HOME", &home)
        .output()
        .ok()?;
    assert!(
        output.status.success(),
        "{shell}: {line}: {}",
        stderr(&output)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found: Vec<_> = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    found.sort();
    Some(found)
}

fn images() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("home/x", "");
    scratch.write("src/Documents/a letter.txt", "");
    scratch.write("src/Documents/b.txt", "");
    scratch.write("src/Downloads/c", "");
    scratch.write("src/notes", "");
    scratch.ok(&[
        "create",
        "disk.img",
        "--from",
        "src",
        "--fs",
        "hfs+",
        "--volname",
        "Data",
    ]);
    scratch.ok(&["create", "b.sparsebundle", "--size", "8m", "--fs", "apfs"]);
    scratch.write("pw", "pw");
    scratch.write("other", "other");
    let encrypt = ["--encrypt=aes-256", "--passfile", "pw"];
    scratch.ok(&[&["create", "secret.img", "--size", "1m"][..], &encrypt].concat());
    let add = ["passwd", "add", "secret.img", "--passfile", "pw"];
    scratch.ok(&[&add[..], &["--new-passfile", "other"]].concat());
    std::fs::create_dir(scratch.path("bin")).unwrap();
    for tool in ["bandsaw", "hdiutil", "diskutil"] {
        let program = env!("CARGO_BIN_EXE_bandsaw");
        std::os::unix::fs::symlink(program, scratch.path("bin").join(tool)).unwrap();
    }
    for name in ["before", "after"] {
        scratch.ok(&["snapshot", "create", "b.sparsebundle", name]);
    }
    scratch
}

fn in_shell(shell: &str) {
    let scratch = images();
    let Some(verbs) = candidates(shell, &scratch, "bandsaw resi") else {
        skip::without_program(&format!("completion in {shell}"), "no such shell");
        return;
    };
    assert_eq!(verbs, ["resize"], "{shell}");
    // Bash completes what follows a colon or an equals sign, and wants it quoted.
    let is_bash = shell == "bash";
    let after = |line: &str, text: &str| {
        let word = line.rsplit(' ').next().unwrap();
        let broken = word.rfind([':', '=', '@']).map_or(0, |at| at + 1);
        let start = if is_bash { broken } else { 0 };
        text[start..].to_owned()
    };
    let mut letters = [
        "disk.img:/Documents/a letter.txt",
        "disk.img:/Documents/b.txt",
    ]
    .map(str::to_owned);
    if is_bash {
        letters[1] = "/Documents/b.txt".to_owned();
        letters[0] = r"/Documents/a\ letter.txt".to_owned();
    }
    let cases: [(&str, &[&str]); 13] = [
        ("bandsaw crea", &["create"]),
        (
            "bandsaw ls disk.img:/Do",
            &["disk.img:/Documents/", "disk.img:/Downloads/"],
        ),
        ("bandsaw cat disk.img:/n", &["disk.img:/notes"]),
        (
            "bandsaw ls disk.img:Data:/Dow",
            &["disk.img:Data:/Downloads/"],
        ),
        ("bandsaw ls disk.img:Da", &["disk.img:Data:/"]),
        ("bandsaw ls disk.img:/nothing", &[]),
        ("bandsaw create --fs hfsx", &["hfsx", "hfsx+j"]),
        ("bandsaw create --layout m", &["mbrspud"]),
        (
            "bandsaw convert --format ud",
            &[
                "udbz", "udco", "udro", "udrw", "udsb", "udsp", "udto", "udzo",
            ],
        ),
        ("bandsaw checksum --type=sha2", &["--type=sha256"]),
        ("bandsaw advise --on s", &["s3", "smb"]),
        (
            "bandsaw snapshot restore b.sparsebundle ",
            &["after", "before"],
        ),
        ("bandsaw ls b.sparsebundle@be", &["b.sparsebundle@before"]),
    ];
    for (line, expected) in cases {
        let found = candidates(shell, &scratch, line).unwrap();
        let mut expected: Vec<_> = expected.iter().map(|text| after(line, text)).collect();
        expected.sort();
        assert_eq!(found, expected, "{shell}: {line}");
    }
    let cases: [(&str, &[&str]); 10] = [
        (
            "bandsaw repair --assume h",
            &["header=alternate", "header=primary"],
        ),
        ("bandsaw passwd remove secret.img ", &["1", "2"]),
        ("bandsaw passwd secret.img --entry ", &["1", "2"]),
        ("bandsaw hdiutil imagei", &["imageinfo"]),
        ("bandsaw hdiutil create -format UDZ", &["UDZO"]),
        ("hdiutil conv", &["convert"]),
        ("hdiutil convert x -form", &["-format"]),
        (
            "hdiutil attach -mount ",
            &["optional", "required", "suppressed"],
        ),
        ("diskutil image create blank --format AS", &["ASIF"]),
        ("diskutil ej", &["eject"]),
    ];
    for (line, expected) in cases {
        let found = candidates(shell, &scratch, line).unwrap();
        assert_eq!(found, expected, "{shell}: {line}");
    }
    let found = candidates(shell, &scratch, "bandsaw cat disk.img:/Documents/").unwrap();
    assert_eq!(found, letters, "{shell}");
    let found = candidates(shell, &scratch, "bandsaw create --encrypt aes-").unwrap();
    assert_eq!(found, ["aes-128", "aes-256"], "{shell}");
}

#[test]
fn bash_completes() {
    in_shell("bash");
}

#[test]
fn zsh_completes() {
    in_shell("zsh");
}

#[test]
fn fish_completes() {
    in_shell("fish");
}

/// Nothing is asked, and nothing is printed, for images that do not open.
#[test]
fn images_that_do_not_open_have_no_candidates() {
    let scratch = Scratch::new();
    scratch.write("key", "key");
    scratch.write("nonsense.bin", "no image at all ".repeat(64));
    scratch.ok(&[
        "create",
        "secret.img",
        "--size",
        "8m",
        "--encrypt",
        "aes-256",
        "--passfile",
        "key",
    ]);
    for word in [
        "secret.img:/",
        "nonsense.bin:/",
        "missing:/",
        "s3://bucket/x.sparsebundle:/",
    ] {
        let output = scratch.run(&["__complete", "words", "--", "ls", word]);
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{word}: {output:?}"
        );
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 1, "{word}: {text}");
    }
}

/// The candidates for a path, and the bytes that the command read to find them.
#[cfg(target_os = "linux")]
fn work(scratch: &Scratch, word: &str) -> Option<(Vec<String>, u64)> {
    use std::io::Read;
    let mut child = Command::new(env!("CARGO_BIN_EXE_bandsaw"))
        .args(["__complete", "words", "--", "cat", word])
        .current_dir(scratch.path(""))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_to_string(&mut text).unwrap();
    // It has written everything, and the counters stay until it is waited for.
    let counters = std::fs::read_to_string(format!("/proc/{}/io", child.id()));
    assert!(child.wait().unwrap().success());
    let counters = counters.ok()?;
    let read = counters
        .lines()
        .find_map(|line| line.strip_prefix("rchar: "));
    let lines = text.lines().skip(1).map(str::to_owned);
    Some((lines.collect(), read?.parse().ok()?))
}

/// Completion of a path reads its folder alone, and once.
#[cfg(target_os = "linux")]
#[test]
fn completion_in_a_large_image_does_bounded_work() {
    const ENTRIES: u64 = 10_000;
    let scratch = Scratch::new();
    scratch.write("small/few/one", "");
    scratch.write("large/few/one", "");
    std::fs::create_dir(scratch.path("large/many")).unwrap();
    for n in 0..ENTRIES {
        std::fs::write(scratch.path(&format!("large/many/file {n:04}")), "").unwrap();
    }
    for fs in ["hfs+", "apfs"] {
        for folder in ["small", "large"] {
            let image = format!("{folder}-{fs}.img");
            scratch.ok(&["create", &image, "--from", folder, "--fs", fs]);
        }
        let work = |word: &str| work(&scratch, word);
        let Some((found, small)) = work(&format!("small-{fs}.img:/few/")) else {
            skip::without_program("bytes read by completion", "no /proc/PID/io");
            return;
        };
        assert_eq!(found, [format!("small-{fs}.img:/few/one")]);
        let large = format!("large-{fs}.img");
        let (found, few) = work(&format!("{large}:/few/")).unwrap();
        assert_eq!(found, [format!("{large}:/few/one")]);
        let (found, many) = work(&format!("{large}:/many/file 777")).unwrap();
        let expected: Vec<_> = (7770..7780)
            .map(|n| format!("{large}:/many/file {n}"))
            .collect();
        assert_eq!(found, expected, "only what continues the word");
        println!("{fs}: small {small}, few {few}, many {many}");
        assert!(few <= small + (256 << 10), "{fs}: {small} and {few} bytes");
        assert!(
            many <= small + 1024 * ENTRIES,
            "{fs}: {small} and {many} bytes"
        );
    }
}

/// Returns the candidates for the last of `words`.
fn completed(scratch: &Scratch, words: &[&str]) -> Vec<String> {
    let text = scratch.ok(&[&["__complete", "words", "--"], words].concat());
    let names = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split('\t').next());
    names.map(str::to_owned).collect()
}

#[test]
fn checkpoints_states_and_dates_are_completed() {
    let scratch = Scratch::new();
    scratch.write("src/a", "a");
    let create = ["create", "b.sparsebundle", "--from", "src", "--fs", "apfs"];
    scratch.ok(&create);
    scratch.ok(&["mkdir", "b.sparsebundle:/new"]);
    let found = completed(&scratch, &["ls", "b.sparsebundle:/", "--checkpoint", ""]);
    assert!(found.len() > 1, "{found:?}");
    for xid in &found {
        scratch.ok(&["ls", "b.sparsebundle:/", "--checkpoint", xid]);
    }
    let kept = scratch.json(&["tm", "keep", "b.sparsebundle", "--whole-copy"]);
    let state = kept["state"].as_str().unwrap();
    for words in [
        &["tm", "roll-back", "b.sparsebundle", ""][..],
        &["send", "b.sparsebundle", "out", "--state", ""],
    ] {
        assert_eq!(completed(&scratch, words), [state], "{words:?}");
    }
    let history = History::new(21, 3, 4);
    scratch.write("hfs.img", backupd::hfs_plus(&history, |_, _| {}));
    for words in [
        &["tm", "ls", "hfs.img", ""][..],
        &["tm", "diff", "hfs.img", "latest", ""],
        &["tm", "restore", "hfs.img", ""],
    ] {
        let found = completed(&scratch, words);
        assert!(found.contains(&"latest".to_owned()), "{words:?}: {found:?}");
        assert_eq!(
            found.len(),
            history.backups.len() + 2,
            "{words:?}: {found:?}"
        );
        for date in &found {
            scratch.ok(&["tm", "ls", "hfs.img", date]);
        }
    }
}
