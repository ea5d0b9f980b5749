//! The browser of the user, opened at the address without naming the token in its arguments: other
//! users see those.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bandsaw::Error;

use crate::failure::Outcome;

/// A page that leads to the address, which only this user may read. It is removed at the end.
#[derive(Debug)]
pub(super) struct OpenedBrowser(PathBuf);

impl Drop for OpenedBrowser {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Opens an address in the browser of the user.
pub(super) fn open(url: &str) -> Outcome<OpenedBrowser> {
    let failed = |source: io::Error| Error::io("--open", "write a page for the browser", source);
    let folder = std::env::var_os("XDG_RUNTIME_DIR");
    let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("bandsaw-web-{}.html", std::process::id()));
    let mut page = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let opened = OpenedBrowser(path);
    // The address is of hexadecimal digits and a host: nothing in it needs an escape.
    let text = format!(
        "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><title>Bandsaw</title>\
         <meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0; url={url}\"><a href=\"{url}\">Bandsaw</a>\n"
    );
    page.write_all(text.as_bytes()).map_err(failed)?;
    drop(page);
    let mut child = Command::new("xdg-open")
        .arg(&opened.0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| Error::io("--open", "start xdg-open", source))?;
    // Some browsers stay in the foreground.
    std::thread::spawn(move || child.wait());
    Ok(opened)
}
