//! Ctrl-C, and readers that leave early.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
#[cfg(all(feature = "s3", target_os = "linux"))]
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Scratch;
use crate::common::skip::skip;

/// Starts `bandsaw`, sends `signal` once something beside the sources has appeared, and returns the
/// exit code.
fn interrupted(scratch: &Scratch, signal: &str, args: &[&str]) -> Option<i32> {
    let before = scratch.names();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
    let mut child = command
        .args(args)
        .current_dir(scratch.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while scratch.names() == before
        && child.try_wait().unwrap().is_none()
        && began.elapsed() < Duration::from_secs(60)
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    Command::new("kill")
        .args([&format!("-{signal}"), &child.id().to_string()])
        .status()
        .unwrap();
    child.wait().unwrap().code()
}

fn write_noise(path: &Path, len: usize) {
    let mut file = File::create(path).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut piece = vec![0; 1 << 20];
    for _ in 0..len >> 20 {
        for word in piece.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&piece).unwrap();
    }
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("src")).unwrap();
    write_noise(&scratch.path("src/noise"), 400 << 20);
    let create = &["create", "x.sparsebundle", "--from", "src"][..];
    let convert = &[
        "convert",
        "--image-format",
        "udrw",
        "src/noise",
        "x.sparsebundle",
    ][..];
    for (signal, args, expected) in [
        ("INT", create, 130),
        ("TERM", create, 143),
        ("HUP", create, 129),
        ("INT", convert, 130),
    ] {
        let code = interrupted(&scratch, signal, args);
        if code == Some(0) {
            // A copy of any length takes no time if files share blocks.
            skip(
                &format!("SIG{signal}"),
                &format!("it came when {} was done", args[0]),
            );
            scratch.ok(&["info", "--image-format", "udsb", "x.sparsebundle"]);
            fs::remove_dir_all(scratch.path("x.sparsebundle")).unwrap();
            continue;
        }
        assert_eq!(code, Some(expected), "{args:?}");
        assert_eq!(scratch.names(), ["src"], "{args:?} leaves nothing behind");
    }
}

/// Killed without a word after something was made durable, the same command goes on, and the disk
/// is the same.
#[test]
fn a_killed_conversion_is_resumed() {
    let scratch = Scratch::new();
    write_noise(&scratch.path("noise"), 700 << 20);
    for target in ["x.sparsebundle", "y.img"] {
        let args = [
            "convert",
            "--resume",
            "--image-format",
            "udrw",
            "noise",
            target,
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
        let mut child = command
            .args(args)
            .current_dir(scratch.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let note = scratch.path(&format!(".{target}.partial-note"));
        let done = || {
            fs::read_to_string(&note)
                .is_ok_and(|text| text.lines().nth(2).is_some_and(|done| done != "0"))
        };
        while !done() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            skip("SIGKILL", &format!("it came when {target} was done"));
            continue;
        }
        assert!(!scratch.path(target).exists());
        let facts = scratch.json(&args);
        let read = facts["read_size"].as_u64().unwrap();
        assert!(read < 500 << 20, "{read} bytes read again");
        let sum = |image: &str| {
            scratch.json(&["checksum", "--image-format", "udrw", image])["images"][0]["checksum"]
                .clone()
        };
        let made = scratch.json(&[
            "checksum",
            "--type",
            "sha256",
            target,
            "--image-format",
            facts["format"].as_str().unwrap(),
        ]);
        assert_eq!(made["images"][0]["checksum"], sum("noise"));
    }
}

/// Killed at any call that changes names or makes data durable, the same command completes the
/// conversion, and nothing is left beside the image.
#[test]
fn a_conversion_killed_at_its_end_is_completed() {
    if Command::new("strace").arg("-V").output().is_err() {
        skip("SIGKILL at each call", "it needs strace");
        return;
    }
    let scratch = Scratch::new();
    write_noise(&scratch.path("noise"), 2 << 20);
    let sum = |image: &str| {
        let args = ["checksum", "--image-format", "udrw", image];
        scratch.json(&args)["images"][0]["checksum"].clone()
    };
    let noise = sum("noise");
    let args = "convert --resume --overwrite --image-format udrw noise x.img";
    let args: Vec<&str> = args.split(' ').collect();
    let mut killed = 0;
    for call in [
        "renameat",
        "renameat2",
        "unlink",
        "unlinkat",
        "fsync",
        "fdatasync",
    ] {
        for n in 1.. {
            // An image to be replaced, and nothing else.
            for name in scratch.names().iter().filter(|name| *name != "noise") {
                fs::remove_file(scratch.path(name)).unwrap();
            }
            scratch.ok(&["create", "x.img", "--size", "2m", "--fs", "none"]);
            let run = Command::new("strace")
                .args(["-f", "-qq", "-o", "/dev/null", "-e"])
                .arg(format!("inject={call}:signal=KILL:when={n}"))
                .arg(env!("CARGO_BIN_EXE_bandsaw"))
                .args(&args)
                .current_dir(scratch.path(""))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            if run.success() {
                break;
            }
            killed += 1;
            scratch.ok(&args);
            let place = format!("killed at {call} {n}");
            assert_eq!(sum("x.img"), noise, "{place}");
            assert_eq!(scratch.names(), ["noise", "x.img"], "{place}");
        }
    }
    assert!(killed >= 5, "{killed} runs were killed");
}

/// The comparison with the checksums of a slow image stops at a signal, and nothing is left.
#[cfg(all(feature = "s3", target_os = "linux"))]
#[test]
fn a_verification_stops_at_a_signal() {
    use crate::common::server::{Conduct, Server};
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("src")).unwrap();
    write_noise(&scratch.path("src/noise"), 48 << 20);
    scratch.write("src/empty", "");
    let create = ["create", "x.dmg", "--from", "src", "--format", "udro"];
    scratch.ok(&create);
    let bytes = fs::read(scratch.path("x.dmg")).unwrap();
    fs::create_dir(scratch.path("run")).unwrap();
    let names = scratch.names();
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        for verb in [
            &["mount", "@", "mnt"][..],
            &["attach", "@"],
            &["extract", "@:/empty", "--tar", "-"],
        ] {
            let server = Server::start(bytes.clone(), Conduct::Slow);
            let url = server.url("x.dmg");
            let mut command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
            let mut child = command
                .args(verb.iter().map(|word| word.replace('@', &url)))
                .args(["--verify"])
                .current_dir(scratch.path(""))
                .env("XDG_RUNTIME_DIR", scratch.path("run"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()
                .unwrap();
            // To all processes of the command, as a terminal does.
            let group = format!("-{}", child.id());
            let kill = |signal: &str| {
                let mut kill = Command::new("kill");
                kill.args([signal, "--", &group]).stderr(Stdio::null());
                kill.status().unwrap().success()
            };
            let began = Instant::now();
            while server.requests() < 16 && began.elapsed() < Duration::from_secs(60) {
                assert!(kill("-0"), "{verb:?}: it came when all was done");
                std::thread::sleep(Duration::from_millis(5));
            }
            let signaled = Instant::now();
            assert!(kill(signal), "{verb:?}");
            let status = child.wait().unwrap();
            let by_signal = status.signal().map(|signal| 128 + signal);
            assert_eq!(status.code().or(by_signal), Some(code), "{verb:?}");
            while kill("-0") {
                let took = signaled.elapsed();
                assert!(
                    took < Duration::from_secs(8),
                    "{verb:?} goes on for {took:?}"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(scratch.names(), names, "{verb:?}");
            let devices = fs::read_dir(scratch.path("run")).unwrap().flatten();
            let left: Vec<_> = devices
                .filter_map(|entry| fs::read_dir(entry.path()).ok())
                .flatten()
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            assert!(left.is_empty(), "{verb:?}: {left:?}");
        }
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let scratch = Scratch::new();
    for i in 0..5_000 {
        scratch.write(&format!("src/a rather long name of file number {i}"), "");
    }
    scratch.ok(&["create", "x.img", "--from", "src"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
    let command = command
        .args(["ls", "-R", "x.img"])
        .current_dir(scratch.path(""));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    // The buffer is small enough that most is unread when it is dropped.
    BufReader::with_capacity(16, child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "/:\n");
    let mut errors = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut errors)
        .unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), errors.as_str()),
        (Some(141), "")
    );
}

/// Killed while it writes a file of a volume: the old one is there, nothing beside it, and the next
/// change clears what is left.
#[test]
fn a_killed_put_leaves_no_part_of_a_file() {
    let scratch = Scratch::new();
    scratch.write("src/file", "old\n");
    for fs in ["hfs+", "hfs+j", "apfs"] {
        let image = &format!("{fs}.img");
        scratch.ok(&[
            "create", image, "--fs", fs, "--size", "64m", "--from", "src",
        ]);
        for file in ["file", "new"] {
            let target = format!("{image}:/{file}");
            let mut command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
            let command = command
                .args(["put", "--overwrite", &target])
                .current_dir(scratch.path(""));
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut pipe = child.stdin.take().unwrap();
            // More than it holds at once: when all of this has been taken, some of it is in the
            // image.
            pipe.write_all(&vec![7; 20 << 20]).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let listed = || {
            let listed = scratch.ok(&["ls", &format!("{image}:/")]);
            listed
                .lines()
                .filter(|name| !name.starts_with(".journal"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(listed(), ["file"]);
        assert_eq!(scratch.ok(&["cat", &format!("{image}:/file")]), "old\n");
        scratch.ok(&["mkdir", &format!("{image}:/folder")]);
        assert_eq!(listed(), ["file", "folder"]);
        // Beside what was left these would not fit.
        for name in ["a", "b"] {
            scratch.write("bytes", vec![7; 25 << 20]);
            scratch.ok(&["put", "--from", "bytes", &format!("{image}:/{name}")]);
        }
        scratch.ok(&["check", image]);
    }
}

/// The remains of a killed run are hidden and large. The next run at this place removes them, and
/// says so.
#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("src")).unwrap();
    write_noise(&scratch.path("src/noise"), 300 << 20);
    for image in ["x.sparsebundle", "x.asif"] {
        let code = interrupted(&scratch, "KILL", &["create", image, "--from", "src"]);
        let left: Vec<_> = scratch
            .names()
            .into_iter()
            .filter(|name| name.starts_with(&format!(".{image}.new-")))
            .collect();
        if code == Some(0) || left.is_empty() {
            skip(
                "SIGKILL",
                &format!("it came too early or too late for {image}"),
            );
            continue;
        }
        // Somebody else's of a name that is no unfinished image's.
        scratch.write(&format!(".{image}.new-mine"), "mine");
        let output = scratch.run(&["create", image, "--size", "2m", "--overwrite"]);
        assert!(output.status.success());
        assert!(
            crate::common::stderr(&output).contains(&left[0]),
            "{}",
            crate::common::stderr(&output)
        );
        assert!(left.iter().all(|name| !scratch.path(name).exists()));
        assert_eq!(
            fs::read(scratch.path(&format!(".{image}.new-mine"))).unwrap(),
            b"mine"
        );
    }
}

/// A limit on the size of files is an error of the write, and not the end of the process.
#[test]
fn a_limit_on_the_size_of_files_does_not_kill_the_command() {
    let scratch = Scratch::new();
    scratch.write("bytes", vec![7; 20 << 20]);
    scratch.ok(&["create", "x.sparseimage", "--fs", "hfs+j", "--size", "64m"]);
    let put = |path: &str| {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "ulimit -f 10240; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_bandsaw"),
            "put",
            "--from",
            "bytes",
            path,
        ]);
        command.current_dir(scratch.path("")).output().unwrap()
    };
    let output = put("x.sparseimage:/bytes");
    let said = crate::common::stderr(&output);
    assert!(
        output.status.code() == Some(1) && said.contains("too large") && said.contains("ulimit -f"),
        "{:?}: {said}",
        output.status
    );
    scratch.ok(&["check", "x.sparseimage"]);
    scratch.ok(&["put", "--from", "bytes", "x.sparseimage:/bytes"]);
}

/// With little memory a conversion succeeds, or fails with an error: it never panics or aborts.
#[test]
#[cfg(target_os = "linux")]
fn a_limit_on_memory_is_an_error() {
    let scratch = Scratch::new();
    let mut random = bandsaw::testing::Random::new(7);
    let mut bytes: Vec<u8> = (0..3u32 << 17)
        .flat_map(|number| (number / 3).to_le_bytes())
        .collect();
    bytes.extend(random.bytes(1 << 20));
    scratch.write("src/bytes", bytes);
    let create = "create disk.img --fs hfs+ --size 8m --from src";
    scratch.ok(&create.split(' ').collect::<Vec<_>>());
    let formats = ["udzo", "udbz", "ulfo", "ulmo", "udro", "udsb", "asif"];
    for format in formats {
        scratch.ok(&["convert", "disk.img", format, "--format", format]);
    }
    let convert = |mib: u32, from: &str, format: &str| {
        let limit = format!("ulimit -v {}; ulimit -c 0; exec \"$@\"", mib << 10);
        let mut command = Command::new("sh");
        command.args(["-c", &limit, "sh", env!("CARGO_BIN_EXE_bandsaw")]);
        command.args(["convert", from, "new", "--format", format, "--overwrite"]);
        // A backtrace of a panic needs more memory than there is.
        command.env("RUST_BACKTRACE", "0");
        let output = command.current_dir(scratch.path("")).output().unwrap();
        let said = crate::common::stderr(&output);
        let code = output.status.code();
        assert!(
            matches!(code, Some(0 | 1)) && !said.contains("panicked"),
            "{from} to {format} with {mib} MiB: {:?}: {said}",
            output.status
        );
        code == Some(0)
    };
    for mib in [120, 180, 260, 600] {
        for format in formats {
            let done = convert(mib, "disk.img", format);
            assert!(done || mib < 600, "to {format}");
            let done = convert(mib, format, "udrw");
            assert!(done || mib < 600, "from {format}");
        }
    }
}

/// Writing fails after the transaction is durable: the error comes with a warning that says so.
#[test]
fn an_error_after_the_commit_says_that_the_change_may_be_complete() {
    let scratch = Scratch::new();
    // The journal is before byte 2 MiB, the catalog after it.
    let create = ["create", "x.img", "--size", "24m", "--fs", "hfs+j"];
    scratch.ok(&[&create[..], &["--layout", "none"]].concat());
    fs::copy(scratch.path("x.img"), scratch.path("y.img")).unwrap();
    let limited = |kib: u64, verb: &str, place: &str| {
        let mut command = Command::new("bash");
        let limit = format!("ulimit -f {kib}; exec \"$@\"");
        command.args(["-c", &limit, "bash", env!("CARGO_BIN_EXE_bandsaw")]);
        command.args([verb, place]);
        let output = command.current_dir(scratch.path("")).output().unwrap();
        let said = crate::common::stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{verb}: {said}");
        said.contains("warning: the change may be complete")
    };
    assert!(limited(2048, "mkdir", "x.img:/folder"));
    scratch.ok(&["ls", "x.img:/folder"]);
    scratch.ok(&["mkdir", "x.img:/other"]);
    scratch.ok(&["check", "x.img"]);

    assert!(limited(8192, "disable-journal", "y.img"));
    let facts = scratch.json(&["info", "y.img"]);
    assert_eq!(facts["volumes"][0]["details"]["journaled"], false);
}

/// An error about a temporary file names the image that it becomes.
#[test]
fn errors_name_the_target_and_not_a_temporary_file() {
    let scratch = Scratch::new();
    scratch.write("src/bytes", vec![7; 20 << 20]);
    scratch.ok(&["create", "x.img", "--from", "src", "--size", "64m"]);
    for args in [
        ["create", "Z.dmg", "--from", "src", "--format", "udzo"],
        ["create", "Z.img", "--from", "src", "--format", "udrw"],
        [
            "convert",
            "x.img",
            "Z.dmg",
            "--overwrite",
            "--format",
            "udro",
        ],
        [
            "convert",
            "x.img",
            "n.sparsebundle",
            "--overwrite",
            "--format",
            "udsb",
        ],
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 1024; exec \"$@\"", "sh"]);
        command.arg(env!("CARGO_BIN_EXE_bandsaw")).args(args);
        let output = command.current_dir(scratch.path("")).output().unwrap();
        let said = crate::common::stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        let target = args[if args[0] == "create" { 1 } else { 2 }];
        assert!(
            said.starts_with(&format!("error: {target}")),
            "{args:?}: {said}"
        );
        for temporary in [".new", ".volume", &format!(".{target}")] {
            assert!(!said.contains(temporary), "{args:?}: {said}");
        }
    }
}

/// A chunk of LZMA takes up to a second; the work stops within it, and says so.
#[test]
fn a_slow_compression_stops_within_a_chunk() {
    let scratch = Scratch::new();
    write_noise(&scratch.path("noise.img"), 64 << 20);
    let args = [
        "convert",
        "--image-format",
        "udrw",
        "noise.img",
        "x.dmg",
        "--format",
        "ulmo",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_bandsaw"))
        .args(args)
        .current_dir(scratch.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let has_written = || {
        let names = scratch.names();
        let mut targets = names.iter().filter(|name| *name != "noise.img");
        targets.any(|name| fs::metadata(scratch.path(name)).is_ok_and(|meta| meta.len() > 0))
    };
    while !has_written() {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::sleep(Duration::from_millis(1));
    }
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert_eq!(said.matches("stopping").count(), 1, "{said}");
    assert!(said.contains("nothing is damaged"), "{said}");
    assert_eq!(scratch.names(), ["noise.img"]);
}
