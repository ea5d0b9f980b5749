//! `scripts/install.sh` with releases in a local folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Scratch, inventory, stderr};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn installer() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install.sh")
}

fn name() -> String {
    format!(
        "bandsaw-{VERSION}-{}-unknown-linux-musl",
        std::env::consts::ARCH
    )
}

/// Makes a release whose command is a script.
fn release(scratch: &Scratch, name: &str) {
    for (file, contents) in [
        ("bandsaw", "#!/bin/sh\necho bandsaw new\n"),
        ("man/bandsaw.1", "a page"),
        ("completions/bandsaw.bash", "bash"),
        ("completions/bandsaw.fish", "fish"),
        ("completions/bandsaw.zsh", "zsh"),
    ] {
        let path = scratch.path(&format!("release/{name}/{file}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
    }
    let command = scratch.path(&format!("release/{name}/bandsaw"));
    fs::set_permissions(command, fs::Permissions::from_mode(0o755)).unwrap();
    let packed =
        format!("tar -czf {name}.tar.gz {name} && rm -r {name} && sha256sum *.gz >SHA256SUMS");
    let made = Command::new("sh")
        .args(["-c", &packed])
        .current_dir(scratch.path("release"))
        .status();
    assert!(made.unwrap().success());
}

fn install(scratch: &Scratch, path: Option<&Path>) -> Output {
    let mut command = Command::new("sh");
    let release = format!("file://{}", scratch.path("release").display());
    command
        .arg(installer())
        .arg(scratch.path("home"))
        .env("BANDSAW_RELEASE", release);
    if let Some(path) = path {
        let all = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
        command.env("PATH", all);
    }
    command.output().unwrap()
}

#[test]
fn a_release_is_installed_over_an_older_one() {
    let scratch = Scratch::new();
    release(&scratch, &name());
    let command = scratch.path("home/bin/bandsaw");
    fs::create_dir_all(command.parent().unwrap()).unwrap();
    fs::write(&command, "old").unwrap();
    let installed = install(&scratch, None);
    assert!(installed.status.success(), "{}", stderr(&installed));
    let said = Command::new(&command).output().unwrap().stdout;
    assert_eq!(String::from_utf8(said).unwrap(), "bandsaw new\n");
    for (file, contents) in [
        ("man/man1/bandsaw.1", "a page"),
        ("bash-completion/completions/bandsaw", "bash"),
        ("zsh/site-functions/_bandsaw", "zsh"),
        ("fish/vendor_completions.d/bandsaw.fish", "fish"),
    ] {
        let path = scratch.path("home/share").join(file);
        assert_eq!(fs::read_to_string(path).unwrap(), contents, "{file}");
    }
}

#[test]
fn the_installer_is_of_this_version() {
    let script = fs::read_to_string(installer()).unwrap();
    assert!(script.contains(&format!("\nversion={VERSION}\n")));
}

#[test]
fn a_damaged_download_changes_nothing() {
    let scratch = Scratch::new();
    release(&scratch, &name());
    let archive = scratch.path(&format!("release/{}.tar.gz", name()));
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    for (damage, why) in [
        (Some(bytes), "does not have the sum"),
        (None, "cannot be downloaded"),
    ] {
        match damage {
            Some(bytes) => fs::write(&archive, bytes).unwrap(),
            None => fs::remove_file(&archive).unwrap(),
        }
        let refused = install(&scratch, None);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(
            said.contains(why) && said.contains("nothing was changed"),
            "{said}"
        );
        assert!(!scratch.path("home").exists());
    }
}

/// Puts a `uname` into a folder for programs that names another system.
fn pretend(scratch: &Scratch, system: &str, machine: &str) -> PathBuf {
    let programs = scratch.path("programs");
    fs::create_dir_all(&programs).unwrap();
    let script = format!("#!/bin/sh\n[ \"$1\" = -s ] && echo {system} || echo {machine}\n");
    let uname = programs.join("uname");
    fs::write(&uname, script).unwrap();
    fs::set_permissions(&uname, fs::Permissions::from_mode(0o755)).unwrap();
    programs
}

#[test]
fn systems_without_a_build_are_named() {
    let scratch = Scratch::new();
    release(&scratch, &name());
    for (system, machine) in [
        ("FreeBSD", "amd64"),
        ("Linux", "sparc64"),
        ("Darwin", "ppc"),
    ] {
        let programs = pretend(&scratch, system, machine);
        let refused = install(&scratch, Some(&programs));
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        let missing = format!("no build for {system} on {machine}");
        assert!(said.contains(&missing), "{said}");
        assert!(!scratch.path("home").exists());
    }
}

/// With `shasum`, which macOS has instead of `sha256sum`.
#[test]
fn a_mac_gets_the_universal_command() {
    let scratch = Scratch::new();
    let universal = format!("bandsaw-{VERSION}-universal-apple-darwin");
    release(&scratch, &universal);
    for machine in ["arm64", "x86_64"] {
        let programs = pretend(&scratch, "Darwin", machine);
        let installed = install(&scratch, Some(&programs));
        assert!(installed.status.success(), "{}", stderr(&installed));
        fs::remove_dir_all(scratch.path("home")).unwrap();
    }
    let archive = scratch.path(&format!("release/{universal}.tar.gz"));
    fs::write(archive, "damaged").unwrap();
    let programs = pretend(&scratch, "Darwin", "arm64");
    let refused = stderr(&install(&scratch, Some(&programs)));
    assert!(refused.contains("does not have the sum"), "{refused}");
    assert!(!scratch.path("home").exists());
}

/// Nixpkgs calls the functions in `unpackCmdHooks` with the source in `curSrc`; 1 leaves it to the
/// next one.
#[test]
fn the_hook_for_nix_unpacks_images() {
    let scratch = Scratch::new();
    let source = scratch.sample();
    scratch.ok(&["create", "App.dmg", "--format", "udzo", "--from", "src"]);
    scratch.write("other.tar", b"no image");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let command = Path::new(env!("CARGO_BIN_EXE_bandsaw")).parent().unwrap();
    let path = format!("{}:{}", command.display(), std::env::var("PATH").unwrap());
    fs::create_dir(scratch.path("build")).unwrap();
    let unpack = |source: &str| {
        let script =
            ". packaging/nix/undmg-hook.sh && cd \"$1\" && curSrc=$2 && ${unpackCmdHooks[0]}";
        Command::new("bash")
            .args(["-c", script, "unpack"])
            .arg(scratch.path("build"))
            .arg(scratch.path(source))
            .current_dir(&root)
            .env("PATH", &path)
            .output()
            .unwrap()
    };
    let unpacked = unpack("App.dmg");
    assert!(unpacked.status.success(), "{}", stderr(&unpacked));
    assert_eq!(inventory(&scratch.path("build")), inventory(&source));
    assert_eq!(unpack("other.tar").status.code(), Some(1));
    assert!(!unpack("missing.dmg").status.success());
}

/// Returns the script of the only step of an action.
fn script_of(action: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../.github/actions")
        .join(action)
        .join("action.yml");
    let text = fs::read_to_string(path).unwrap();
    let (_, script) = text.split_once("      run: |\n").unwrap();
    script
        .lines()
        .map(|line| format!("{}\n", line.trim_start()))
        .collect()
}

fn run_step(scratch: &Scratch, script: &str, variables: &[(&str, &str)]) -> Output {
    let command = Path::new(env!("CARGO_BIN_EXE_bandsaw")).parent().unwrap();
    let path = format!("{}:{}", command.display(), std::env::var("PATH").unwrap());
    Command::new("bash")
        .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script])
        .current_dir(scratch.path(""))
        .env("PATH", path)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn the_action_for_images_makes_the_same_one_twice() {
    let scratch = Scratch::new();
    scratch.write("App.app/Contents/MacOS/App", "binary");
    let script = script_of("build-dmg");
    let mut images = Vec::new();
    for output in ["one.dmg", "two.dmg"] {
        let variables = [
            ("SOURCE", "App.app"),
            ("OUTPUT", output),
            ("VOLNAME", "An App"),
            ("RECIPE", ""),
            ("FORMAT", "ulfo"),
            ("SOURCE_DATE_EPOCH", "1790000000"),
        ];
        let made = run_step(&scratch, &script, &variables);
        assert!(made.status.success(), "{}", stderr(&made));
        images.push(fs::read(scratch.path(output)).unwrap());
    }
    assert!(images[0] == images[1]);
    let contents = scratch.ok(&["cat", "one.dmg:/App.app/Contents/MacOS/App"]);
    assert_eq!(contents, "binary");
    let name = &scratch.json(&["info", "one.dmg"])["volumes"][0]["name"];
    assert_eq!(name, "An App");
    let missing = [
        ("SOURCE", "none"),
        ("OUTPUT", "none.dmg"),
        ("FORMAT", "udzo"),
    ];
    let others = [("VOLNAME", ""), ("RECIPE", "")];
    let refused = run_step(&scratch, &script, &[missing.as_slice(), &others].concat());
    assert!(!refused.status.success());
}

#[test]
fn the_action_that_installs_puts_the_command_into_the_path() {
    let scratch = Scratch::new();
    release(&scratch, &name());
    let action = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.github/actions/setup");
    let address = format!("file://{}", scratch.path("release").display());
    let (runner, list) = (scratch.path("runner"), scratch.path("path"));
    let variables = [
        ("ACTION", action.to_str().unwrap()),
        ("BANDSAW_RELEASE", &address),
        ("RUNNER_TEMP", runner.to_str().unwrap()),
        ("GITHUB_PATH", list.to_str().unwrap()),
    ];
    let installed = run_step(&scratch, &script_of("setup"), &variables);
    assert!(installed.status.success(), "{}", stderr(&installed));
    let folder = fs::read_to_string(&list).unwrap();
    assert!(
        Path::new(folder.trim_end()).join("bandsaw").is_file(),
        "{folder}"
    );
}
