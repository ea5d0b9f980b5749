//! A service of systemd and an entry of desktops that start `bandsaw web`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use bandsaw::{Error, Reason};

use super::Web;
use crate::failure::{Failure, Outcome};

/// The unit below the folder of configuration.
const SERVICE: &str = "systemd/user/bandsaw-web.service";
/// The entry below the folder of data.
const DESKTOP: &str = "applications/bandsaw-web.desktop";

impl Web {
    /// Writes the unit that starts this command line, and returns its path.
    pub(super) fn install_service(&self) -> Outcome<PathBuf> {
        let mut words = vec![program()?, "web".to_owned()];
        words.extend(self.words()?);
        let words: Vec<_> = words.iter().map(|word| systemd(word)).collect();
        let unit = format!(
            "[Unit]\nDescription=Disk images in a browser\nDocumentation=man:bandsaw-web(1)\n\n\
             [Service]\nExecStart={}\nRestart=on-failure\nNoNewPrivileges=yes\nUMask=0077\n\n\
             [Install]\nWantedBy=default.target\n",
            words.join(" ")
        );
        self.write(&folder("XDG_CONFIG_HOME", ".config")?.join(SERVICE), &unit)
    }

    /// Writes the entry that opens an image in a browser, and returns its path.
    pub(super) fn install_desktop(&self) -> Outcome<PathBuf> {
        let entry = format!(
            "[Desktop Entry]\nType=Application\nName=Bandsaw\n\
             Comment=Look into disk images of macOS in a browser\n\
             Exec={} web --open --end-when-idle %f\nTerminal=false\nNoDisplay=true\n\
             Categories=Utility;\nMimeType=application/x-apple-diskimage;\n",
            desktop(&program()?)
        );
        self.write(
            &folder("XDG_DATA_HOME", ".local/share")?.join(DESKTOP),
            &entry,
        )
    }

    /// Returns the options of the server, with absolute paths.
    fn words(&self) -> Outcome<Vec<String>> {
        let mut words = Vec::new();
        let mut add = |option: &str, value: Option<String>| {
            if let Some(value) = value {
                words.extend([option.to_owned(), value]);
            }
        };
        let path = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
        add("--port", self.port.map(|port| port.to_string()));
        add("--socket", path(&self.socket)?);
        add("--listen", self.listen.clone());
        add("--cert", path(&self.cert)?);
        add("--key", path(&self.key)?);
        add("--password-file", path(&self.password_file)?);
        for host in &self.host {
            add("--host", Some(host.clone()));
        }
        for folder in &self.allow_upload {
            add("--allow-upload", Some(absolute(folder)?));
        }
        for prefix in &self.allow_urls {
            add("--allow-urls", Some(prefix.clone()));
        }
        for folder in &self.allow_restore {
            add("--allow-restore", Some(absolute(folder)?));
        }
        add(
            "--upload-limit",
            self.upload_limit.map(|limit| limit.to_string()),
        );
        if self.allow_changes {
            words.push("--allow-changes".to_owned());
        }
        words.push("--".to_owned());
        for path in &self.paths {
            words.push(absolute(path)?);
        }
        match words.iter().all(|word| is_plain(word)) {
            true => Ok(words),
            false => Err(Failure::usage(
                "--install-service",
                "a path or name contains a control character",
            )),
        }
    }

    fn write(&self, path: &Path, text: &str) -> Outcome<PathBuf> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => Error::conflict("cannot write", "already exists")
                .because(Reason::Exists)
                .in_file(path),
            _ => Error::io("install", "write", source).in_file(path),
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        // Complete before it has its name.
        let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
        let written = fs::write(&temporary, text)
            .and_then(|()| File::open(&temporary)?.sync_all())
            .and_then(|()| match self.overwrite {
                true => fs::rename(&temporary, path),
                false => fs::hard_link(&temporary, path),
            });
        let _ = fs::remove_file(&temporary);
        written.map_err(|error| Failure::from(failed(error)).hint_if_exists(self.overwrite))?;
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(failed)?;
        Ok(path.to_owned())
    }
}

/// Returns the path of this command.
fn program() -> Outcome<String> {
    let failed = |source| Error::io("install", "find the command", source);
    let path = std::env::current_exe().map_err(failed)?;
    absolute(&path)
}

/// Returns a path as a word: absolute, and text.
fn absolute(path: &Path) -> Outcome<String> {
    let failed = |source| Error::io("install", "find", source).in_file(path);
    let whole = std::path::absolute(path).map_err(failed)?;
    let text = whole.to_str().filter(|text| is_plain(text));
    text.map(str::to_owned).ok_or_else(|| {
        let message = "the path is not text, or contains a control character";
        Error::invalid("install", message).in_file(path).into()
    })
}

fn is_plain(word: &str) -> bool {
    !word.contains(char::is_control)
}

/// Returns the folder of a kind of files of the user: from the environment, or below the home
/// folder.
fn folder(variable: &str, usual: &str) -> Outcome<PathBuf> {
    let given = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    given(variable)
        .or_else(|| given("HOME").map(|home| home.join(usual)))
        .ok_or_else(|| Failure::usage("HOME", "is not set to an absolute path"))
}

/// Returns a word of a command line of systemd (systemd.service(5), "Command lines").
fn systemd(word: &str) -> String {
    let mut quoted = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '%' | '$' => quoted.extend([c, c]),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Returns a word of a key `Exec` (Desktop Entry Specification, "The Exec key"): quoted, and escaped
/// once more as a value.
fn desktop(word: &str) -> String {
    let mut quoted = String::from("\"");
    for c in word.chars() {
        match c {
            '\\' => quoted.push_str(r"\\\\"),
            '"' | '`' | '$' => {
                quoted.push_str(r"\\");
                quoted.push(c);
            }
            '%' => quoted.push_str("%%"),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
