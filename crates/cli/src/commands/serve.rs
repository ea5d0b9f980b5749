//! `bandsaw serve`: an image as a network block device.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use bandsaw::Error;
use bandsaw::address::ImagePath;
use bandsaw::device::Access;
use bandsaw::open::Image;
use bandsaw_nbd::{Event, EventReceiver, Export, Limits, Listener, Options, Server};
use bandsaw_registry::{Entry, Registration, Registry, Use};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::trim;
use crate::exports::{self, Part};
use crate::failure::{Failure, Outcome};
use crate::in_use::{self, whole_name};
use crate::output::Output;
use crate::signals::{self, Signals};
use crate::source::{self, OpenArgs};

/// The port of NBD.
const PORT: u16 = 10809;

/// Serve an image as a network block device (NBD)
///
/// The default export is the disk; partitions are exported by number, volumes by name. A client may
/// use several connections at once. Ctrl-C or SIGTERM ends the server after all data has been
/// flushed. Data of a completed flush is safe even if the server is killed.
///
/// A client may grow the disk through the resize extension of NBD; the client then adjusts the
/// partition map.
///
/// Unused space of the volumes is first given back to the host, as `bandsaw trim` does, and as
/// macOS does when it attaches an image. Use --no-trim to prevent that.
///
/// Without --socket and --listen the server listens on a Unix socket in the folder that `bandsaw
/// list` searches.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw serve Docs.sparsebundle --socket /tmp/docs      for programs of this user
  nbdcopy 'nbd+unix:///?socket=/tmp/docs' copy.img        one of them
  bandsaw serve disk.asif --listen 127.0.0.1:10809        for nbd-client and QEMU
  bandsaw serve App.dmg --listen 0.0.0.0 --tls-certificates pki
  bandsaw serve base.img --shadow changes.asif            keep base.img unchanged")]
pub(crate) struct Serve {
    /// The image to serve
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Listen on a Unix socket, accessible only to its owner
    #[arg(long, short = 'U', value_name = "PATH", value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,
    /// Listen on a TCP address; the default port is 10809
    ///
    /// Addresses other than those of this machine require TLS, or --insecure.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    listen: Vec<String>,
    /// Serve read-only
    #[arg(long, short)]
    read_only: bool,
    /// Do not give unused space back to the host first
    #[arg(long)]
    no_trim: bool,
    /// Require TLS and client certificates
    ///
    /// The folder contains ca-cert.pem, server-cert.pem, server-key.pem, and ca-crl.pem if
    /// certificates were revoked.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    tls_certificates: Option<PathBuf>,
    /// Serve without TLS to everyone who can reach the address
    ///
    /// The data is not encrypted on the network.
    #[arg(long, conflicts_with = "tls_certificates")]
    insecure: bool,
    /// Limit the number of connections
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=4096), default_value = "64")]
    max_connections: u16,
    /// Report connections and disconnections
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json` once the server accepts connections.
#[derive(Serialize)]
struct ServeReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    path: String,
    read_only: bool,
    exports: Vec<ExportJson>,
}

#[derive(Serialize)]
struct ExportJson {
    name: String,
    description: String,
    size: u64,
    uris: Vec<String>,
}

impl Serve {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let addresses = self.addresses()?;
        let options = self.options(output)?;
        // A signal must not leave anything behind that is made below.
        let mut signals = Signals::catch()?;
        let (image, read_only) = self.open(&path, output)?;
        let registration =
            Registry::of_user().and_then(|registry| Ok((registry.reserve()?, registry)));
        let listeners = self.listeners(&addresses, registration.as_ref().ok())?;
        let encrypted = self.tls_certificates.is_some();
        let (server, exports) = server(&image, options)?;
        let report = ServeReport {
            device: registration
                .as_ref()
                .ok()
                .map(|(entry, _)| entry.device().to_owned()),
            path: path.to_string(),
            read_only,
            exports: exports
                .into_iter()
                .map(|(name, description, size)| {
                    let uris = listeners
                        .iter()
                        .map(|listener| listener.uri(&name, encrypted))
                        .collect();
                    ExportJson {
                        name,
                        description,
                        size,
                        uris,
                    }
                })
                .collect(),
        };
        let entry = match registration {
            Ok((entry, _)) => Some(publish(entry, &image, &report, &listeners)?),
            Err(error) => {
                output.warn(&format!("`bandsaw list` cannot show this server: {error}"));
                None
            }
        };
        self.opening.forget_keys();
        let served = std::thread::scope(|scope| -> Outcome {
            let listening: Vec<_> = listeners
                .iter()
                .map(|listener| {
                    let (server, end) = (server.clone(), signals.sender());
                    let listen = move || {
                        let ended = server.listen(listener);
                        // If one listener fails, the others end too.
                        signals::end(&end?);
                        ended
                    };
                    std::thread::Builder::new().spawn_scoped(scope, listen)
                })
                .collect();
            let unstarted = listening.iter().find_map(|thread| thread.as_ref().err());
            let reported = match unstarted {
                Some(error) => {
                    let source = std::io::Error::from(error.kind());
                    Err(Error::io("serve", "start a thread", source).into())
                }
                None => print(&report, output),
            };
            if reported.is_ok() {
                signals.wait();
            }
            let stopped = server.stop();
            for thread in listening.into_iter().flatten() {
                thread.join().expect("listening does not panic")?;
            }
            reported?;
            Ok(stopped.map_err(|error| error.in_file(&path))?)
        });
        if let Some(entry) = entry {
            entry.until_exit();
        }
        served
    }

    /// Returns the addresses of `--listen`.
    fn addresses(&self) -> Outcome<Vec<SocketAddr>> {
        let addresses = self
            .listen
            .iter()
            .map(|text| address(text))
            .collect::<Outcome<Vec<_>>>()?;
        let far = addresses.iter().find(|address| !address.ip().is_loopback());
        match far {
            Some(far) if self.tls_certificates.is_none() && !self.insecure => Err(Failure::usage(
                "--listen",
                format!("others can connect to {far} and could read and change the image"),
            )
            .hint(
                "use --tls-certificates to require client certificates, or --insecure to allow \
                   everybody",
            )),
            _ => Ok(addresses),
        }
    }

    /// Opens the image; one that cannot be changed is served read-only.
    fn open(&self, path: &ImagePath, output: &Output) -> Outcome<(Image, bool)> {
        if self.read_only {
            return Ok((self.opening.read(path, output)?, true));
        }
        let image = match self.opening.open(path, Access::ReadWrite) {
            Err(failure) if failure.is_of_changing() => {
                output.warn("the image is read-only and served read-only");
                self.opening.read(path, output)?
            }
            opened => {
                let image = opened?;
                output.warn_of(&image);
                image
            }
        };
        let read_only = image.disk().info().access == Access::ReadOnly;
        if !self.no_trim {
            trim::before_use(&image, self.opening.given_keys(), output)
                .map_err(|error| error.in_file(path))?;
        }
        Ok((image, read_only))
    }

    fn listeners(
        &self,
        addresses: &[SocketAddr],
        registry: Option<&(Registration, Registry)>,
    ) -> Outcome<Vec<Listener>> {
        let mut listeners = addresses
            .iter()
            .map(|address| Ok(Listener::tcp(*address)?))
            .collect::<Outcome<Vec<_>>>()?;
        let usual = || {
            registry
                .map(|(entry, registry)| registry.folder().join(format!("{}.sock", entry.device())))
        };
        let socket = self
            .socket
            .clone()
            .or_else(|| if addresses.is_empty() { usual() } else { None });
        if let Some(socket) = socket {
            let absolute = std::path::absolute(&socket)
                .map_err(|source| Error::io("nbd", "find", source).in_file(&socket))?;
            listeners.push(Listener::unix(&absolute)?);
        }
        match listeners.is_empty() {
            true => Err(
                Failure::usage("--socket", "no default folder for the socket was found")
                    .hint("use --socket PATH"),
            ),
            false => Ok(listeners),
        }
    }

    fn options(&self, output: &Output) -> Outcome<Options> {
        #[cfg(not(feature = "tls"))]
        if self.tls_certificates.is_some() {
            let why = "this build does not support TLS (feature `tls`)";
            return Err(Error::unsupported("nbd", why).into());
        }
        let limits = Limits {
            connections: usize::from(self.max_connections),
            ..Limits::default()
        };
        let events = Arc::new(EventPrinter {
            output: output.clone(),
            verbose: self.verbose,
        });
        // Another crate of the same build may ask for TLS where the command does not.
        #[allow(clippy::needless_update, reason = "needless only if none does")]
        let options = Options {
            limits,
            events,
            ..Options::default()
        };
        #[cfg(feature = "tls")]
        let options = Options {
            tls: self
                .tls_certificates
                .as_deref()
                .map(bandsaw_nbd::Tls::from_folder)
                .transpose()?,
            ..options
        };
        Ok(options)
    }
}

/// Returns the server, and the name, description and size of each export.
#[expect(clippy::type_complexity, reason = "three facts of each")]
fn server(image: &Image, options: Options) -> Outcome<(Server, Vec<(String, String, u64)>)> {
    let parts = exports::of(image)?;
    let descriptions = parts
        .iter()
        .map(|part| (part.name.clone(), part.what.clone(), part.device.info().len))
        .collect();
    let export = |part: Part| {
        // The disk has no name. Its parts cannot grow, as the partition map determines their
        // sizes.
        let grows = part.name.is_empty();
        let export = Export::new(part.name, part.what, part.device);
        if grows { export.may_grow() } else { export }
    };
    let exports = parts.into_iter().map(export).collect();
    Ok((Server::new(exports, options)?, descriptions))
}

/// Reads `ADDRESS[:PORT]`.
fn address(text: &str) -> Outcome<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok((ip, PORT).into());
    }
    let with_port = if text.contains(':') {
        text.to_owned()
    } else {
        format!("{text}:{PORT}")
    };
    let found = with_port.to_socket_addrs().map(|mut found| found.next());
    found.ok().flatten().ok_or_else(|| {
        let message =
            format!("invalid address {text}: expected ADDRESS[:PORT], as 127.0.0.1:{PORT}, or a host name that resolves here");
        Failure::usage("--listen", message)
    })
}

fn publish(
    mut registration: Registration,
    image: &Image,
    report: &ServeReport,
    listeners: &[Listener],
) -> Outcome<Registration> {
    registration.publish(Entry {
        image: whole_name(image.path()),
        read_only: report.read_only,
        places: report
            .exports
            .first()
            .map(|disk| disk.uris.clone())
            .unwrap_or_default(),
        sockets: listeners
            .iter()
            .filter_map(|listener| match listener {
                Listener::Unix(_, path) => Some(path.clone()),
                Listener::Tcp(_) => None,
            })
            .collect(),
        ..in_use::entry(image, Use::Served)
    })?;
    Ok(registration)
}

/// Prints the addresses once the server accepts connections.
fn print(report: &ServeReport, output: &Output) -> Outcome {
    output.done(report, |out| {
        for export in &report.exports {
            for uri in &export.uris {
                writeln!(out, "{uri}  {}", output.name(&export.description))?;
            }
        }
        Ok(())
    })
}

/// A line on standard error for each event.
#[derive(Debug)]
struct EventPrinter {
    output: Output,
    verbose: bool,
}

impl EventReceiver for EventPrinter {
    fn on_event(&self, event: &Event) {
        match event {
            Event::Connected { .. } | Event::Disconnected { error: None, .. } if !self.verbose => {}
            event => self.output.warn(&event.to_string()),
        }
    }
}
