//! `bandsaw web`: images and their files as pages for a browser.

#[cfg(all(feature = "web", target_os = "linux"))]
mod browser;
#[cfg(all(feature = "web", target_os = "linux"))]
mod install;

use std::path::PathBuf;

use bandsaw::Error;
use clap::{Args, ValueHint};

use crate::failure::Outcome;
use crate::output::Output;
use crate::passphrase::NewPassphrase;

/// Show images and their files in a browser
///
/// Serves pages about the images in the given folders, for reading only, and prints an address with
/// a token that is valid once, for ten minutes: open it in a browser of this user. Ctrl-C or SIGTERM
/// ends the server. Nothing outside of the given images and folders is opened; symbolic links are
/// followed only within them.
///
/// With --allow-changes visitors also compact and repair images, and create, restore and delete
/// snapshots of sparse bundles, each after a confirmation on the page. Standard error gets a line
/// for the begin and one for the end of each change.
///
/// With --allow-urls visitors also open images behind URLs below the given ones, for reading.
///
/// The server listens on 127.0.0.1, or on a Unix socket. Other hosts reach it with --listen, which
/// requires a certificate and a password.
///
/// The command must be built with the feature `web`, which it is not by default.
#[derive(Debug, Args)]
#[cfg_attr(
    not(all(feature = "web", target_os = "linux")),
    allow(dead_code, reason = "the help is the same in every build")
)]
#[command(after_help = "\
Examples:
  bandsaw web ~/Images                        images in a folder, at a port that is free
  bandsaw web Docs.sparsebundle App.dmg       two images
  bandsaw web ~/Images --allow-changes        compact and repair images, too
  bandsaw web ~/Images --allow-urls https://host.example/images/
  bandsaw web ~/Images --socket ~/.web.sock   for `ssh -L 8080:.web.sock`
  bandsaw web App.dmg --open                  in the browser of this user
  bandsaw web ~/Images --listen 192.0.2.1 --cert c.pem --key k.pem --password-file p")]
pub(crate) struct Web {
    /// Images, or folders with images
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath, required_unless_present_any = ["set_password", "install_desktop", "allow_urls"])]
    paths: Vec<PathBuf>,
    /// Listen at this port of 127.0.0.1
    ///
    /// The default is a port that the system chooses.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Listen on a Unix socket, accessible only to its owner
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with = "port")]
    socket: Option<PathBuf>,
    /// Listen on an address that other hosts reach
    ///
    /// The default port is 8443.
    #[arg(
        long,
        value_name = "ADDRESS[:PORT]",
        requires_all = ["cert", "key", "password_file"],
        conflicts_with_all = ["port", "socket"]
    )]
    listen: Option<String>,
    /// Present this certificate, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "listen")]
    cert: Option<PathBuf>,
    /// Use this private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "listen")]
    key: Option<PathBuf>,
    /// Require the password whose hash is in this file
    ///
    /// `--set-password` writes the file, which nobody else may read.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "listen")]
    password_file: Option<PathBuf>,
    /// Accept this name of the host in addresses
    ///
    /// The address of --listen is always accepted, unless it is 0.0.0.0 or [::]. The option may be
    /// given several times.
    #[arg(long, value_name = "NAME", requires = "listen", hide_short_help = true)]
    host: Vec<String>,
    /// Let visitors compact and repair images, and use snapshots
    #[arg(long)]
    allow_changes: bool,
    /// Let visitors open URLs below this one
    ///
    /// PREFIX begins with https://, http:// or s3://, and the names in its path are whole. Servers may
    /// redirect to allowed URLs only. The option may be given several times.
    #[arg(long, value_name = "PREFIX", value_hint = ValueHint::Url, num_args = 1..)]
    allow_urls: Vec<String>,
    /// Let visitors upload files into this folder
    ///
    /// With --allow-changes, files may also be uploaded into volumes. The option may be given
    /// several times.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    allow_upload: Vec<PathBuf>,
    /// Let visitors restore files of images into this folder
    ///
    /// Nothing there is replaced. The option may be given several times.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    allow_restore: Vec<PathBuf>,
    /// Limit the size of an uploaded file (default: 16g)
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = bandsaw::size::parse,
        requires = "allow_upload",
        hide_short_help = true
    )]
    upload_limit: Option<u64>,
    /// Open the address in the browser of this user
    ///
    /// This is the default in a terminal of a graphical session. `xdg-open` starts the browser. The token
    /// is not in the arguments of a program.
    #[arg(long, hide_short_help = true)]
    open: bool,
    /// Do not open the address in a browser
    #[arg(long, conflicts_with = "open")]
    no_open: bool,
    /// End the server when nobody is signed in any more
    #[arg(long, hide_short_help = true)]
    end_when_idle: bool,
    /// Write a systemd unit of this user for the server, and end
    ///
    /// The unit is bandsaw-web.service, and starts the server with these options and paths.
    /// `systemctl --user enable --now bandsaw-web` starts it.
    #[arg(long, conflicts_with_all = ["open", "end_when_idle", "install_desktop"])]
    install_service: bool,
    /// Write a desktop entry for disk images, and end
    ///
    /// File managers then open disk images with --open.
    #[arg(long, conflicts_with_all = ["open", "paths", "port", "socket", "listen"])]
    install_desktop: bool,
    /// Replace an existing unit or desktop entry
    #[arg(long, hide_short_help = true)]
    overwrite: bool,
    /// Write the hash of a new password to this file, and end
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["paths", "port", "socket", "listen"]
    )]
    set_password: Option<PathBuf>,
    #[command(flatten)]
    password: NewPassphrase,
}

#[cfg(not(all(feature = "web", target_os = "linux")))]
impl Web {
    pub(crate) fn run(&self, _: &Output) -> Outcome {
        let why = match cfg!(feature = "web") {
            true => "the server of pages is supported on Linux only",
            false => "this build does not support pages for browsers (feature `web`)",
        };
        Err(Error::unsupported("web", why).into())
    }
}

#[cfg(all(feature = "web", target_os = "linux"))]
mod serving {
    use std::fs::OpenOptions;
    use std::io::{IsTerminal, Write};
    use std::net::{IpAddr, SocketAddr};
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use bandsaw::Kind;
    use bandsaw::address::UrlPrefix;
    use bandsaw_web::{
        AllowedUrls, Bind, Limits, LogSink, Options, Password, Permissions, PublicAddress,
    };
    use serde::Serialize;

    use super::{Error, Outcome, Output, Web};
    use crate::failure::Failure;
    use crate::signals::Signals;

    /// The port for visitors from other hosts.
    const PORT: u16 = 8443;

    /// Time between two looks for sessions.
    const IDLE_CHECK: Duration = Duration::from_secs(2);

    /// The output of `--json` with `--install-service` and `--install-desktop`.
    #[derive(Serialize)]
    struct InstallReport {
        /// The file that was written.
        path: String,
    }

    /// The output of `--json` once the server accepts connections.
    #[derive(Serialize)]
    struct WebReport {
        /// The address with the token, which is valid once.
        url: String,
        /// The address without the token, for visitors who have the password.
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// The socket at which the server listens.
        #[serde(skip_serializing_if = "Option::is_none")]
        socket: Option<String>,
    }

    impl Web {
        pub(crate) fn run(&self, output: &Output) -> Outcome {
            if let Some(path) = &self.set_password {
                return self.write_password(path);
            }
            if self.install_service || self.install_desktop {
                let path = match self.install_service {
                    true => self.install_service()?,
                    false => self.install_desktop()?,
                };
                let report = InstallReport {
                    path: bandsaw::address::shown(&path),
                };
                return output.result(&report, |out| {
                    writeln!(out, "{}", output.name(&report.path))
                });
            }
            let mut signals = Signals::catch()?;
            let options = Options {
                roots: self.paths.clone(),
                bind: self.bind()?,
                limits: Limits::default(),
                permissions: self.permissions(),
                urls: AllowedUrls {
                    prefixes: self.prefixes()?,
                    variables: |name| std::env::var(name).ok(),
                    ..AllowedUrls::default()
                },
            };
            let running = bandsaw_web::start(&options)?;
            let report = WebReport {
                url: running.url(),
                address: self.listen.is_some().then(|| running.address()),
                socket: self.socket.as_deref().map(bandsaw::address::shown),
            };
            output.result(&report, |out| {
                writeln!(out, "{}", report.url)?;
                if let Some(address) = &report.address {
                    writeln!(out, "{address}  with the password")?;
                }
                if let Some(socket) = &report.socket {
                    writeln!(out, "on the socket {}", output.name(socket))?;
                }
                Ok(())
            })?;
            let browser = match self.open {
                true => Some(super::browser::open(&running.url())?),
                // The address was printed: without a browser, the server goes on.
                false if self.is_on_a_desktop() => super::browser::open(&running.url()).ok(),
                false => None,
            };
            if self.end_when_idle {
                let (is_idle, mut end) = (running.idle_check(), signals.sender()?);
                std::thread::spawn(move || {
                    while !is_idle() {
                        std::thread::sleep(IDLE_CHECK);
                    }
                    let _ = end.write_all(&[0]);
                });
            }
            signals.wait();
            drop(browser);
            drop(running);
            Ok(())
        }

        /// Returns true if the user works in a terminal on the desktop of this host.
        fn is_on_a_desktop(&self) -> bool {
            let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
            !self.no_open
                && self.socket.is_none()
                && self.listen.is_none()
                && std::io::stdout().is_terminal()
                && (is_set("DISPLAY") || is_set("WAYLAND_DISPLAY"))
        }

        fn prefixes(&self) -> Outcome<Vec<UrlPrefix>> {
            let parse = |text: &String| {
                UrlPrefix::parse(text).map_err(|error| match error.kind() {
                    Kind::Invalid => Failure::usage("--allow-urls", error.to_string()),
                    _ => error.into(),
                })
            };
            self.allow_urls.iter().map(parse).collect()
        }

        fn permissions(&self) -> Permissions {
            let usual = Permissions::default();
            // Standard error may be gone; the change goes on.
            let write = |line: &str| drop(writeln!(std::io::stderr(), "{line}"));
            Permissions {
                changes: self.allow_changes,
                upload_folders: self.allow_upload.clone(),
                restore_folders: self.allow_restore.clone(),
                upload_limit: self.upload_limit.unwrap_or(usual.upload_limit),
                temporary: std::env::temp_dir(),
                log: Some(LogSink(Arc::new(write))),
            }
        }

        fn bind(&self) -> Outcome<Bind> {
            if let Some(socket) = &self.socket {
                return Ok(Bind::Socket(socket.clone()));
            }
            let Some(listen) = &self.listen else {
                return Ok(Bind::Loopback(self.port.unwrap_or(0)));
            };
            // clap requires them together.
            let (Some(certificate), Some(key), Some(password)) =
                (&self.cert, &self.key, &self.password_file)
            else {
                let message = "requires --cert, --key and --password-file";
                return Err(Failure::usage("--listen", message));
            };
            Ok(Bind::Public(Box::new(PublicAddress {
                address: address(listen)?,
                certificate: certificate.clone(),
                key: key.clone(),
                password: Password::from_file(password)?,
                hosts: self.host.clone(),
            })))
        }

        fn write_password(&self, path: &Path) -> Outcome {
            let hash = Password::hash(&self.password.choose(0)?)?;
            let failed = |source| Error::io("password", "write", source).in_file(path);
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)
                .map_err(failed)?;
            file.write_all(hash.to_text().as_bytes()).map_err(failed)?;
            file.sync_all().map_err(failed)?;
            Ok(())
        }
    }

    /// Reads `ADDRESS[:PORT]`; names are not looked up.
    fn address(text: &str) -> Outcome<SocketAddr> {
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        match text.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => Ok((ip, PORT).into()),
            Err(_) => {
                let message =
                    format!("invalid address {text}: expected ADDRESS[:PORT], as 192.0.2.1:8443");
                Err(Failure::usage("--listen", message))
            }
        }
    }
}
