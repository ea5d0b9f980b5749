//! Archives, deep folders, names and special files that leave an image.

use super::*;

#[test]
fn archives_go_in_and_come_out() {
    let scratch = Scratch::new();
    let src = scratch.sample();
    scratch.ok(&["create", "x.img", "--from", "src"]);
    scratch.ok(&["extract", "x.img", "--tar", "all.tar"]);
    let output = scratch.run(&["extract", "x.img", "--tar", "-"]);
    assert!(
        output.status.success() && crate::common::stderr(&output).contains("7 files"),
        "{}",
        crate::common::stderr(&output)
    );
    assert!(output.stdout == fs::read(scratch.path("all.tar")).unwrap());
    assert!(
        scratch
            .fails(4, &["extract", "x.img", "--tar", "all.tar"])
            .contains("--overwrite")
    );

    scratch.ok(&["create", "from-file.img", "--from", "all.tar"]);
    assert_eq!(
        scratch.json(&["from-file.img"])["volumes"][0]["name"],
        "all"
    );
    scratch.ok(&["extract", "from-file.img", "out"]);
    assert_eq!(inventory(&scratch.path("out")), inventory(&src));

    let mut command = scratch.command(&["create", "from-stream.img", "--from", "-"]);
    command.write_stdin(output.stdout).assert().success();
    scratch.ok(&["extract", "from-stream.img", "out2"]);
    assert_eq!(inventory(&scratch.path("out2")), inventory(&src));
    let names = [
        "all.tar",
        "from-file.img",
        "from-stream.img",
        "out",
        "out2",
        "src",
        "x.img",
    ];
    assert_eq!(scratch.names(), names, "nothing temporary is left");

    let mut command = scratch.command(&["create", "bad.img", "--from", "-"]);
    command.write_stdin("this is no archive").assert().failure();
    assert_eq!(scratch.names(), names);
}

#[test]
fn the_files_of_a_journal_are_hidden() {
    let scratch = Scratch::new();
    scratch.write("src/a.txt", "abc");
    scratch.ok(&[
        "create",
        "j.img",
        "--fs",
        "hfs+j",
        "--from",
        "src",
        "--volname",
        "J",
    ]);
    assert_eq!(scratch.ok(&["ls", "j.img"]), "a.txt\n");
    assert!(!scratch.ok(&["tree", "j.img"]).contains(".journal"));
    let shown = scratch.ok(&["ls", "--system-files", "j.img"]);
    assert_eq!(shown, ".journal\n.journal_info_block\na.txt\n");
    let done = scratch.json(&["extract", "j.img", "out"]);
    assert_eq!(
        (&done["files"], &done["size"]),
        (&Value::from(1), &Value::from(3)),
        "{done}"
    );
    assert_eq!(scratch.json(&["info", "j.img"])["volumes"][0]["files"], 1);
    scratch.ok(&["extract", "j.img", "--tar", "j.tar"]);
    assert!(
        !fs::read(scratch.path("j.tar"))
            .unwrap()
            .windows(8)
            .any(|name| name == b".journal")
    );
    // The extracted files go into a volume of the same kind again.
    scratch.ok(&[
        "create",
        "k.img",
        "--fs",
        "hfs+j",
        "--from",
        "out",
        "--volname",
        "J",
    ]);
    scratch.ok(&[
        "create",
        "l.img",
        "--fs",
        "hfs+j",
        "--from",
        "j.tar",
        "--volname",
        "J",
    ]);
    assert_eq!(scratch.ok(&["cat", "l.img:/a.txt"]), "abc");
    scratch.fails(3, &["cat", "j.img:/.journal"]);
    scratch.ok(&["cat", "--system-files", "j.img:/.journal_info_block"]);
    let before = fs::read(scratch.path("j.img")).unwrap();
    for system in [&[][..], &["--system-files"]] {
        let refused = |args: &[&str]| {
            assert!(
                !scratch.run(&[args, system].concat()).status.success(),
                "{args:?} {system:?}"
            )
        };
        refused(&["rm", "j.img:/.journal"]);
        refused(&["mv", "j.img:/.journal", "j.img:/moved"]);
        refused(&["mv", "j.img:/a.txt", "j.img:/.journal"]);
        refused(&["put", "--from", "src/a.txt", "j.img:/.journal"]);
        refused(&["mkdir", "j.img:/.journal_info_block"]);
    }
    scratch.ok(&["check", "j.img"]);
    assert_eq!(scratch.ok(&["ls", "j.img"]), "a.txt\n");
    assert_eq!(before.len(), fs::read(scratch.path("j.img")).unwrap().len());
}

/// As deep as a volume may be: on macOS, too, folders are made by the thousands where each is
/// entered in turn.
#[test]
fn folders_may_be_thousands_deep() {
    const DEPTH: usize = 1_500;
    let scratch = Scratch::new();
    let mut archive = Vec::new();
    let mut path = String::new();
    for level in 0..DEPTH {
        path += if level == 0 { "d" } else { "/d" };
        archive.extend(pax_folder(&path));
    }
    archive.extend([0; 1024]);
    scratch.write("deep.tar", archive);
    for fs in ["hfs+", "apfs"] {
        scratch.ok(&[
            "create",
            "deep.img",
            "--overwrite",
            "--fs",
            fs,
            "--from",
            "deep.tar",
            "--volname",
            "Deep",
        ]);
        let listed = scratch.ok(&["ls", "-R", "deep.img"]);
        assert_eq!(
            listed.lines().filter(|line| line.ends_with(':')).count(),
            DEPTH + 1,
            "{fs}"
        );
        assert_eq!(
            scratch.ok(&["tree", "deep.img"]).matches("└── d").count(),
            DEPTH,
            "{fs}"
        );
        let tree = scratch.ok(&["tree", "--json", "deep.img"]);
        assert_eq!(
            (
                tree.matches("\"children\":[").count(),
                tree.matches("]}").count()
            ),
            (DEPTH + 1, DEPTH + 1),
            "{fs}"
        );
        assert!(tree.contains(&format!("\"folders\": {DEPTH}")), "{fs}");
        assert_eq!(
            scratch.json(&["ls", "-R", "deep.img"])["entries"]
                .as_array()
                .unwrap()
                .len(),
            DEPTH,
            "{fs}"
        );
        assert_eq!(
            scratch.json(&["tree", "-L", "2", "deep.img"])["root"]["children"][0]["children"][0]["name"],
            "d"
        );
        scratch.ok(&["check", "--contents", "deep.img"]);
    }
    scratch.ok(&["rm", "-R", "deep.img:/d"]);
    assert_eq!(scratch.ok(&["ls", "deep.img"]), "");
}

/// A folder of a tar archive, by an extended header that holds names of any length.
fn pax_folder(path: &str) -> Vec<u8> {
    let entry = |kind: u8, name: &str, body: &[u8]| {
        let mut head = [0; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[100..107].copy_from_slice(b"0000755");
        head[124..135].copy_from_slice(format!("{:011o}", body.len()).as_bytes());
        head[136..147].copy_from_slice(b"00000000001");
        head[148..156].copy_from_slice(b"        ");
        head[156] = kind;
        head[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = head.iter().map(|&byte| u32::from(byte)).sum();
        head[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut bytes = head.to_vec();
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    };
    let record = |len: usize| format!("{len} path={path}\n");
    let len = (0..9)
        .map(|digits| record(0).len() - 1 + digits)
        .find(|&len| record(len).len() == len)
        .unwrap();
    [
        entry(b'x', "head", record(len).as_bytes()),
        entry(b'5', "d", &[]),
    ]
    .concat()
}

#[test]
fn names_are_quoted_where_that_is_asked_for() {
    let scratch = Scratch::new();
    scratch.write("src/a\x1b[31m\nb", "x");
    scratch.write("src/it's", "x");
    scratch.ok(&[
        "create",
        "q.img",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--volname",
        "V\u{1b}[0m",
    ]);
    assert_eq!(
        scratch.ok(&["ls", "q.img"]),
        "a\u{1b}[31m\nb\nit's\n",
        "as they are, as ls does it"
    );
    assert_eq!(
        scratch.ok(&["ls", "--quoting", "escape", "q.img"]),
        "a\\033[31m\\nb\nit's\n"
    );
    assert_eq!(
        scratch.ok(&["ls", "--quoting", "c", "q.img"]),
        "\"a\\033[31m\\nb\"\n\"it's\"\n"
    );
    assert_eq!(
        scratch.ok(&["ls", "--quoting", "shell-escape", "q.img"]),
        "$'a\\033[31m\\nb'\n'it'\\''s'\n"
    );
    scratch.ok(&[
        "create",
        "r.img",
        "--overwrite",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--volname",
        "V\u{1b}[0m",
    ]);
    for args in [
        &["tree"][..],
        &["info"],
        &["du"],
        &["diagnose"],
        &["ls", "-lR"],
    ] {
        let said = scratch.ok(&[args, &["--quoting", "escape", "r.img"]].concat());
        assert!(!said.contains('\u{1b}'), "{args:?}: {said}");
    }
    let said = scratch.ok(&[
        "create",
        "s.img",
        "--quoting",
        "escape",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--volname",
        "V\u{1b}[0m",
    ]);
    assert!(
        said.contains("V\\033[0m") && !said.contains('\u{1b}'),
        "{said}"
    );
    scratch.fails(2, &["ls", "--quoting", "locale", "q.img"]);
}

#[test]
fn special_files_and_rights_come_only_where_they_are_asked_for() {
    let scratch = Scratch::new();
    let script = scratch.write("src/run.sh", "#!/bin/sh\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o6755)).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(scratch.path("src/pipe"))
            .status()
            .unwrap()
            .success()
    );
    scratch.ok(&["create", "s.img", "--fs", "hfs+", "--from", "src"]);
    let mode = |folder: &str| {
        fs::metadata(scratch.path(folder).join("run.sh"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    let output = scratch.run(&["extract", "s.img", "out"]);
    let said = stderr(&output);
    assert!(
        output.status.success() && said.contains("/pipe: ") && said.contains("/run.sh: "),
        "{said}"
    );
    assert_eq!(
        (mode("out"), scratch.path("out/pipe").exists()),
        (0o755, false)
    );
    assert_eq!(scratch.json(&["extract", "s.img", "out2"])["note_count"], 2);
    let output = scratch.run(&["extract", "--special-files", "--setuid", "s.img", "all"]);
    assert!(
        output.status.success() && stderr(&output).is_empty(),
        "{}",
        stderr(&output)
    );
    assert_eq!(
        (mode("all"), scratch.path("all/pipe").exists()),
        (0o6755, true)
    );
}
