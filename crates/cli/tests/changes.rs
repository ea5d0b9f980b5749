//! Verbs that change what is in an image.

use crate::common::Scratch;
#[cfg(target_os = "linux")]
use crate::common::stderr;
use serde_json::Value;

/// An image with a volume, in each of the containers that can be changed.
fn images(scratch: &Scratch) -> Vec<&'static str> {
    scratch.ok(&[
        "create",
        "raw.img",
        "--fs",
        "hfs+",
        "--size",
        "8m",
        "--volname",
        "V",
    ]);
    scratch.ok(&[
        "create",
        "bundle.sparsebundle",
        "--fs",
        "hfsx",
        "--size",
        "8m",
        "--volname",
        "V",
    ]);
    vec!["raw.img", "bundle.sparsebundle"]
}

#[test]
fn a_volume_is_lived_in() {
    let scratch = Scratch::new();
    for image in images(&scratch) {
        let at = |path: &str| format!("{image}:{path}");
        scratch.ok(&["mkdir", "-p", &at("/Letters/2026")]);
        let mut put = scratch.command(&["put", &at("/Letters/hello.txt")]);
        put.write_stdin("hello\n").assert().success();
        assert_eq!(scratch.ok(&["cat", &at("/Letters/hello.txt")]), "hello\n");
        scratch.fails(3, &["put", "--from", "nothing", &at("/x")]);
        scratch.write("new.txt", "new contents");
        scratch.fails(4, &["put", "--from", "new.txt", &at("/Letters/hello.txt")]);
        scratch.ok(&[
            "put",
            "--overwrite",
            "--from",
            "new.txt",
            &at("/Letters/hello.txt"),
        ]);
        assert_eq!(
            scratch.ok(&["cat", &at("/Letters/hello.txt")]),
            "new contents"
        );
        scratch.ok(&["ln", &at("/Letters/hello.txt"), &at("/second")]);
        scratch.ok(&["ln", "-s", "Letters/hello.txt", &at("/symbolic")]);
        scratch.ok(&["chmod", "600", &at("/second")]);
        scratch.ok(&[
            "touch",
            "--date",
            "1000000000",
            &at("/second"),
            &at("/made"),
        ]);
        scratch.ok(&["xattr", "--set", "com.example=blue", &at("/second")]);
        assert_eq!(
            scratch.ok(&["cat", "--xattr", "com.example", &at("/Letters/hello.txt")]),
            "blue"
        );
        assert!(
            scratch
                .ok(&["xattr", &at("/second")])
                .contains("4 com.example")
        );
        scratch.ok(&["xattr", "--remove", "com.example", &at("/second")]);
        scratch.fails(3, &["xattr", "--remove", "com.example", &at("/second")]);
        let listed = scratch.ok(&["ls", "-l", &at("/")]);
        assert!(listed.contains("-rw-------"), "{listed}");
        scratch.fails(4, &["mv", &at("/made"), &at("/second")]);
        scratch.ok(&["mv", &at("/made"), &at("/symbolic"), &at("/Letters")]);
        scratch.ok(&["mv", "--overwrite", &at("/second"), &at("/Letters/made")]);
        let error = scratch.fails(4, &["rm", &at("/Letters")]);
        assert!(error.contains("use -r to remove"), "{error}");
        scratch.fails(3, &["rm", &at("/nothing")]);
        scratch.ok(&["rm", "-f", &at("/nothing")]);
        assert_eq!(
            scratch.ok(&["ls", &at("/Letters")]),
            "2026\nhello.txt\nmade\nsymbolic\n"
        );
        scratch.ok(&["rm", "-r", &at("/Letters")]);
        assert_eq!(scratch.ok(&["ls", &at("/")]), "");
    }
}

#[test]
fn folders_come_in_and_go_out_the_same() {
    let scratch = Scratch::new();
    let source = scratch.sample();
    for image in images(&scratch) {
        let at = |path: &str| format!("{image}:{path}");
        scratch.ok(&["cp", "-R", source.to_str().unwrap(), &at("/")]);
        scratch.ok(&[
            "create",
            &format!("built {image}.img"),
            "--fs",
            "hfs+",
            "--from",
            source.to_str().unwrap(),
        ]);
        let shown = |address: &str| scratch.json(&["tree", address]);
        let built = shown(&format!("built {image}.img:/"));
        assert_eq!(names(&built), names(&shown(&at("/src"))));
        let error = scratch.fails(4, &["cp", "-R", source.to_str().unwrap(), &at("/")]);
        assert!(error.contains("--overwrite"), "{error}");
        scratch.ok(&[
            "cp",
            "-R",
            "--overwrite",
            source.to_str().unwrap(),
            &at("/"),
        ]);
        // Folders that files were replaced in bear the date of that.
        let built = shown(&at("/src"));
        // From one image into another, and within one.
        scratch.ok(&[
            "create",
            &format!("other {image}.img"),
            "--fs",
            "hfs+",
            "--size",
            "8m",
        ]);
        scratch.ok(&["cp", "-R", &at("/src"), &format!("other {image}.img:/copy")]);
        assert_eq!(
            names(&shown(&format!("other {image}.img:/copy"))),
            names(&built)
        );
        scratch.ok(&["cp", "-R", &at("/src"), &at("/within")]);
        assert_eq!(names(&shown(&at("/within"))), names(&built));
        scratch.fails(2, &["cp", source.to_str().unwrap(), &at("/again")]);
    }
}

/// Returns the names that a tree has below its root.
fn names(tree: &Value) -> Vec<String> {
    fn walk(folder: &Value, path: &str, found: &mut Vec<String>) {
        for child in folder["children"].as_array().into_iter().flatten() {
            let path = format!("{path}/{}", child["name"].as_str().unwrap());
            let report = [
                "kind",
                "size",
                "mode",
                "modified",
                "links",
                "has_xattrs",
                "target",
            ]
            .map(|part| child[part].to_string());
            found.push(format!("{path} {}", report.join(" ")));
            walk(child, &path, found);
        }
    }
    let mut found = Vec::new();
    walk(&tree["root"], "", &mut found);
    assert!(found.len() > 8, "{tree}");
    // Case counts in the order of one of the volumes.
    found.sort();
    found
}

#[test]
fn images_get_larger_and_smaller_with_what_is_in_them() {
    let scratch = Scratch::new();
    let source = scratch.sample();
    let kinds = [
        ("d.img", "udrw"),
        ("d.sparsebundle", "udsb"),
        ("d.sparseimage", "udsp"),
        ("d.asif", "asif"),
    ];
    for ((image, format), (fs, layout)) in kinds.into_iter().zip([
        ("hfs+", "gptspud"),
        ("hfs+j", "gptspud"),
        ("hfsx", "none"),
        ("hfsx+j", "gptspud"),
    ]) {
        let args = [
            "create", image, "--format", format, "--fs", fs, "--layout", layout, "--size", "64m",
            "--from",
        ];
        scratch.ok(&[&args[..], &[source.to_str().unwrap()]].concat());
        let listed = scratch.ok(&["tree", image]);
        let size = |image: &str| -> u64 {
            let facts: Value =
                serde_json::from_str(&scratch.ok(&["resize", "--json", "--limits", image]))
                    .unwrap();
            assert!(
                facts["min_size"].as_u64() < facts["max_size"].as_u64(),
                "{facts}"
            );
            facts["size"].as_u64().unwrap()
        };
        let would = scratch.ok(&["resize", "--dry-run", image, "--size", "200m"]);
        assert!(would.contains("would: the disk grows"), "{would}");
        assert_eq!(size(image), 64 << 20);
        for wanted in ["200m", "32m", "40001s"] {
            scratch.ok(&["resize", image, "--size", wanted]);
            scratch.ok(&["check", image]);
            assert_eq!(scratch.ok(&["tree", image]), listed, "{image} at {wanted}");
        }
        assert_eq!(size(image), 40001 * 512);
        scratch.ok(&["resize", image, "--size", "10m", "--grow-only"]);
        assert_eq!(size(image), 40001 * 512);
        scratch.ok(&["resize", image, "--min"]);
        scratch.ok(&["check", image]);
        assert!(size(image) < 12 << 20, "{image}");
        let error = scratch.fails(1, &["resize", image, "--size", "300k"]);
        assert!(error.contains("to see the limits"), "{error}");
        scratch.ok(&["resize", image, "--size", "80m", "--image-only"]);
        scratch.ok(&["resize", image, "--size", "80m"]);
        scratch.ok(&["check", image]);
        scratch.ok(&[
            "put",
            "--from",
            source.join("hello.txt").to_str().unwrap(),
            &format!("{image}:/again"),
        ]);
        assert_eq!(
            scratch.ok(&["tree", image]).lines().count(),
            listed.lines().count() + 1
        );
    }
    scratch.ok(&["convert", "d.img", "d.dmg", "--format", "udzo"]);
    let error = scratch.fails(1, &["resize", "d.dmg", "--size", "200m"]);
    assert!(error.contains("bandsaw convert"), "{error}");
}

#[test]
fn journals_come_and_go() {
    let scratch = Scratch::new();
    scratch.ok(&[
        "create",
        "j.img",
        "--fs",
        "Journaled HFS+",
        "--size",
        "20m",
        "--volname",
        "J",
    ]);
    assert!(scratch.ok(&["info", "j.img"]).contains("journal    yes"));
    scratch.fails(4, &["enable-journal", "j.img"]);
    assert!(
        scratch
            .ok(&["disable-journal", "j.img:J"])
            .contains("J: has no journal")
    );
    assert!(scratch.ok(&["info", "j.img"]).contains("journal    no"));
    scratch.fails(3, &["disable-journal", "j.img"]);
    let facts: Value = serde_json::from_str(&scratch.ok(&[
        "enable-journal",
        "--json",
        "j.img:#1",
        "--journal-size",
        "1m",
    ]))
    .unwrap();
    assert_eq!(facts["journaled"], true);
    scratch.ok(&["check", "j.img"]);
    scratch.fails(2, &["enable-journal", "j.img:/file"]);
}

#[test]
fn impossible_changes_are_refused() {
    let scratch = Scratch::new();
    images(&scratch);
    let error = scratch.fails(2, &["rm", "raw.img"]);
    assert!(error.contains("IMAGE:/PATH"), "{error}");
    scratch.fails(2, &["mv", "raw.img:/a", "bundle.sparsebundle:/a"]);
    scratch.fails(2, &["rm", "raw.img:/"]);
    scratch.fails(3, &["mkdir", "raw.img:/a/b"]);
    scratch.fails(3, &["chmod", "644", "raw.img:/a"]);
    scratch.fails(2, &["chmod", "888", "raw.img:/"]);
    scratch.ok(&["mkdir", "raw.img:/a"]);
    scratch.fails(2, &["mv", "raw.img:/a", "raw.img:/a/b"]);
    scratch.fails(3, &["rm", "missing.img:/a"]);
}

/// A disk without a known volume still has its bytes.
#[test]
fn a_disk_of_unknown_contents_is_not_cut_into_them() {
    let scratch = Scratch::new();
    let contents = vec![7; 3_000_320];
    scratch.write("raw.img", &contents);
    scratch.ok(&[
        "convert",
        "--image-format",
        "udrw",
        "raw.img",
        "b.sparsebundle",
        "--band-size",
        "1m",
    ]);
    scratch.ok(&["resize", "b.sparsebundle", "--image-only", "--size", "8m"]);
    let error = scratch.fails(
        1,
        &["resize", "b.sparsebundle", "--image-only", "--size", "1m"],
    );
    assert!(error.contains("too few"), "{error}");
    scratch.ok(&["resize", "b.sparsebundle", "--image-only", "--min"]);
    scratch.ok(&["convert", "b.sparsebundle", "back.img"]);
    assert!(
        std::fs::read(scratch.path("back.img"))
            .unwrap()
            .starts_with(&contents)
    );
}

/// Starts all of `lines` at once; the exit code and standard error of each.
fn at_once(scratch: &Scratch, lines: &[Vec<String>]) -> Vec<(i32, String)> {
    let start = |line: &Vec<String>| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bandsaw"));
        command.args(line).current_dir(scratch.path(""));
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = lines.iter().map(start).collect();
    let ended = children
        .into_iter()
        .map(|child| child.wait_with_output().unwrap());
    ended
        .map(|output| {
            (
                output.status.code().unwrap(),
                crate::common::stderr(&output),
            )
        })
        .collect()
}

/// Writers and readers of one image that begin at the same moment take turns, or are told that it
/// is in use. None of them takes what another one is writing for damage, and nothing that was
/// stored is lost.
#[test]
fn processes_that_begin_at_once_take_turns() {
    let scratch = Scratch::new();
    scratch.write("key", "secret\n");
    scratch.write("old", "hello\n");
    // More than the space an image has at hand: each of these makes the file of the image longer.
    for name in ["a", "b"] {
        scratch.write(name, name.repeat(1_500_000));
    }
    let key = &["--passfile", "key"][..];
    let over = &["--shadow", "layer.asif"][..];
    let encrypted = &[
        "--encrypt",
        "aes-128",
        "--passfile",
        "key",
        "--iterations",
        "150000",
    ][..];
    let images: [(&str, &[&str], &[&str]); 8] = [
        ("raw.img", &[], &[]),
        ("i.sparseimage", &[], &[]),
        ("b.sparsebundle", &[], &[]),
        ("a.asif", &[], &[]),
        ("e-i.sparseimage", encrypted, key),
        ("e-b.sparsebundle", encrypted, key),
        ("e-a.asif", encrypted, key),
        ("base.img", &[], over),
    ];
    let mut all = 0;
    for (image, making, opening) in images {
        scratch.ok(&[
            &[
                "create",
                image,
                "--size",
                "100m",
                "--fs",
                "hfs+",
                "--volname",
                "V",
            ],
            making,
        ]
        .concat());
        let line = |words: &[&str]| {
            [words, opening]
                .concat()
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let run = |words: &[&str]| scratch.ok(&[words, opening].concat());
        run(&["put", "--from", "old", &format!("{image}:/old")]);
        let mut stored = Vec::new();
        // Deriving a key takes long.
        for round in 0..if making.is_empty() { 3 } else { 1 } {
            let [a, b] = ["a", "b"].map(|name| format!("{image}:/{name}{round}"));
            let lines = [
                line(&["put", "--from", "a", &a]),
                line(&["put", "--from", "b", &b]),
                line(&["cat", &format!("{image}:/old")]),
                line(&["ls", &format!("{image}:/")]),
            ];
            let ended = at_once(&scratch, &lines);
            for ((code, error), words) in ended.iter().zip(&lines) {
                assert!(
                    *code == 0 || *code == 4 && error.contains("in use"),
                    "{words:?}: {code}: {error}"
                );
            }
            stored.extend(
                [("a", a), ("b", b)]
                    .into_iter()
                    .zip(&ended)
                    .filter(|(_, ended)| ended.0 == 0)
                    .map(|(put, _)| put),
            );
        }
        for (name, path) in &stored {
            assert!(run(&["cat", path]) == name.repeat(1_500_000), "{path}");
        }
        run(&["check", image]);
        all += stored.len();
    }
    assert!(
        all >= images.len(),
        "{all} of {} puts came through",
        2 * (5 * 3 + 3)
    );
}

/// The place of a leaf in the middle of a catalog, which no change of the root folder reads.
fn middle_leaf(image: &[u8], apfs: bool) -> usize {
    let leaves: Vec<_> = (0..image.len() / 4096)
        .map(|block| block * 4096)
        .filter(|&at| match apfs {
            // A node of a tree of files, on level 0, that is no root.
            true => {
                image[at + 0x18..at + 0x20] == [3, 0, 0, 0, 14, 0, 0, 0]
                    && image[at + 0x22..at + 0x24] == [0, 0]
            }
            // A leaf with records that has one before it and one after it.
            false => {
                image[at + 8] == 0xFF
                    && image[at + 9] == 1
                    && image[at..at + 4] != [0; 4]
                    && image[at + 4..at + 8] != [0; 4]
            }
        })
        .collect();
    assert!(leaves.len() > 4, "{leaves:?}");
    leaves[leaves.len() / 2]
}

/// A volume that a look at its trees finds damaged is changed only if that is asked for.
#[test]
fn a_damaged_volume_is_not_changed_unasked() {
    let scratch = Scratch::new();
    for number in 0..400 {
        scratch.write(&format!("src/folder/a file of some length {number}"), "x");
    }
    for fs in ["apfs", "hfs+"] {
        let image = format!("{}.img", fs.replace('+', ""));
        let at = |path: &str| format!("{image}:{path}");
        scratch.ok(&[
            "create",
            &image,
            "--fs",
            fs,
            "--from",
            "src",
            "--size",
            "16m",
            "--volname",
            "V",
            "--quiet",
        ]);
        scratch.ok(&["mkdir", &at("/before")]);
        let path = scratch.path(&image);
        let mut bytes = std::fs::read(&path).unwrap();
        let leaf = middle_leaf(&bytes, fs == "apfs");
        // The key length of a record, or the middle of a node with a checksum.
        bytes[leaf + if fs == "apfs" { 2000 } else { 14 }] ^= 0x40;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(
            scratch.run(&["check", &image]).status.code(),
            Some(5),
            "{fs}"
        );
        scratch.write("new", "new");
        let mut refused = vec![
            vec!["mkdir".to_owned(), at("/after")],
            vec![
                "resize".into(),
                "--size".into(),
                "24m".into(),
                image.clone(),
            ],
            vec!["put".into(), "--from".into(), "new".into(), at("/new")],
            vec!["rm".into(), "-r".into(), "-f".into(), at("/before")],
            vec!["mv".into(), at("/before"), at("/renamed")],
        ];
        if fs == "hfs+" {
            refused.push(vec!["enable-journal".into(), image.clone()]);
        }
        for args in &refused {
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            let error = scratch.fails(5, &args);
            assert!(
                error.contains("is damaged") && error.contains("bandsaw check"),
                "{args:?}: {error}"
            );
        }
        assert!(
            std::fs::read(&path).unwrap() == bytes,
            "{fs}: what is refused changes nothing"
        );
        let copied = scratch.run(&["convert", &image, "copy.img", "--overwrite"]);
        assert!(
            copied.status.success() && crate::common::stderr(&copied).contains("volume is damaged")
        );
        assert!(std::fs::read(scratch.path("copy.img")).unwrap() == bytes);
        scratch.ok(&["mkdir", "--force", &at("/after")]);
        scratch.ok(&["rm", "-r", "--force-damaged", &at("/before")]);
        let listed = scratch.ok(&["ls", &at("/")]);
        assert!(
            listed.contains("after") && !listed.contains("before"),
            "{listed}"
        );
    }
}

/// Two sources with one name on the volume: the second would replace the first.
#[test]
fn two_sources_with_one_name_are_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    scratch.write("case/a", "first in order");
    scratch.write("case/README", "loud");
    scratch.write("case/readme", "quiet");
    scratch.write("folders/Docs/a", "1");
    scratch.write("folders/docs/b", "2");
    scratch.write("composed/m\u{e4}rz", "composed");
    scratch.write("composed/ma\u{308}rz", "decomposed");
    let case = "--fs apfs-case-sensitive or --fs hfsx";
    for fs in ["hfs+", "apfs"] {
        let image = format!("{fs}.img");
        scratch.ok(&["create", &image, "--size", "32m", "--fs", fs]);
        let into = format!("{image}:/");
        for (source, hint) in [
            ("case", case),
            ("folders", case),
            ("composed", "rename one of the two"),
        ] {
            for args in [
                vec!["cp", "-R", source, &into],
                vec!["cp", "-R", source, &into, "--overwrite"],
                vec!["create", "new.img", "--from", source, "--fs", fs],
                vec![
                    "create",
                    "new.img",
                    "--from",
                    source,
                    "--fs",
                    fs,
                    "--overwrite",
                ],
                vec!["dmg", source, "-o", "new.dmg", "--fs", fs],
            ] {
                let report = scratch.fails(4, &args);
                assert!(
                    report.contains("the name is the same on the volume as /")
                        && report.contains(hint),
                    "{args:?}: {report}"
                );
                assert!(!report.contains("overwrite"), "{args:?}: {report}");
            }
            assert_eq!(scratch.ok(&["ls", &into]), "", "{fs}: {source}");
            assert!(!scratch.path("new.img").exists() && !scratch.path("new.dmg").exists());
        }
    }
    for fs in ["hfsx", "apfs-case-sensitive"] {
        let image = format!("{fs}.img");
        scratch.ok(&["create", &image, "--size", "32m", "--fs", fs]);
        for source in ["case", "folders"] {
            scratch.ok(&["cp", "-R", source, &format!("{image}:/")]);
        }
        assert_eq!(
            scratch.ok(&["cat", &format!("{image}:/case/README")]),
            "loud"
        );
        assert_eq!(
            scratch.ok(&["cat", &format!("{image}:/case/readme")]),
            "quiet"
        );
    }
}

/// A disk of the host without a free block: the error says so, and the volume stays as it was.
#[cfg(target_os = "linux")]
#[test]
fn a_move_on_a_full_disk_fails_as_a_whole() {
    let scratch = Scratch::new();
    scratch.write("src/old", "contents");
    std::fs::create_dir(scratch.path("work")).unwrap();
    let script = r#"mount -t tmpfs -o size=100m tmpfs work || exit 99
        cp -a --sparse=always "$1" work/
        mount -o remount,size=$(df --output=used -B1 work | tail -1) work
        "$0" mv "work/$1:/old" "work/$1:/new"; code=$?
        mount -o remount,size=100m work
        "$0" check -q "work/$1" || exit 97
        "$0" ls "work/$1:/"
        exit $code"#;
    for (image, fs) in [
        ("h.sparsebundle", "hfs+"),
        ("h.sparseimage", "hfs+"),
        ("a.asif", "apfs"),
        ("j.img", "hfs+j"),
        ("a.img", "apfs"),
    ] {
        let create = ["create", image, "--size", "24m", "--fs", fs];
        scratch.ok(&[&create[..], &["--from", "src"]].concat());
        let mut unshare = std::process::Command::new("unshare");
        unshare
            .args(["--map-root-user", "--mount", "sh", "-c", script])
            .args([env!("CARGO_BIN_EXE_bandsaw"), image])
            .current_dir(scratch.path(""));
        let output = unshare.output().unwrap();
        let told = stderr(&output);
        if output.status.code() == Some(99) || told.starts_with("unshare:") {
            crate::common::skip::skip("a disk cannot be mounted here", &told);
            return;
        }
        assert_eq!(output.status.code(), Some(1), "{image}: {told}");
        assert!(told.contains("No space left"), "{image}: {told}");
        assert_eq!(output.stdout, b"old\n", "{image}: {told}");
    }
}

/// The same for other verbs: each fails as a whole or says that it may be complete, the other files stay,
/// and the volume is in order.
#[cfg(target_os = "linux")]
#[test]
fn changes_on_a_full_disk_leave_the_other_files() {
    let scratch = Scratch::new();
    scratch.write("src/old", "contents");
    scratch.write("src/kept", "kept");
    std::fs::create_dir(scratch.path("work")).unwrap();
    let script = r#"mount -t tmpfs -o size=100m tmpfs work || exit 99
        image=$1; shift
        for verb; do
            cp -a --sparse=always "$image" work/
            mount -o remount,size=$(df --output=used -B1 work | tail -1) work
            "$0" $verb; code=$?
            [ $code -eq 0 ] || [ $code -eq 1 ] || exit 98
            echo "$verb: $code"
            mount -o remount,size=100m work
            "$0" check -q "work/$image" || exit 97
            [ "$("$0" cat "work/$image:/kept")" = kept ] || exit 96
            rm -rf "work/$image"
        done"#;
    for (image, fs) in [
        ("h.sparsebundle", "hfs+"),
        ("j.img", "hfs+j"),
        ("a.asif", "apfs"),
    ] {
        let create = ["create", image, "--size", "24m", "--fs", fs];
        scratch.ok(&[&create[..], &["--from", "src"]].concat());
        let mut verbs: Vec<_> = [
            "ln -s x @:/link",
            "mkdir @:/folder",
            "rm @:/old",
            "touch @:/touched",
            "put @:/put --from src/old",
            "compact --battery-allowed @",
        ]
        .map(|verb| verb.replace('@', &format!("work/{image}")))
        .to_vec();
        if fs == "hfs+j" {
            verbs.push(format!("disable-journal work/{image}"));
        }
        let mut unshare = std::process::Command::new("unshare");
        unshare
            .args(["--map-root-user", "--mount", "sh", "-c", script])
            .args([env!("CARGO_BIN_EXE_bandsaw"), image])
            .args(&verbs)
            .current_dir(scratch.path(""));
        let output = unshare.output().unwrap();
        let told = stderr(&output);
        if output.status.code() == Some(99) || told.starts_with("unshare:") {
            crate::common::skip::skip("a disk cannot be mounted here", &told);
            return;
        }
        let codes = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{image}: {codes}{told}");
        assert!(codes.matches(": 1\n").count() >= 3, "{image}: {codes}");
        assert!(told.contains("No space left"), "{image}: {told}");
    }
}
