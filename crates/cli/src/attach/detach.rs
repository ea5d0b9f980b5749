//! Detaching: the end of [`serve`](super::serve), for any name of the image.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bandsaw::address::shown;
use bandsaw::{Error, Kind};
use bandsaw_mount::{User, users_of};
use bandsaw_registry::{Entry, Registry};
use rustix::process::{Pid, Signal};

use super::{Detached, failure_file, kernel, server};
use crate::failure::{Failure, Outcome};
use crate::in_use::whole_name;

const LAYER: &str = "detach";
/// The time that a server has for writing its pending data.
const DETACH_TIMEOUT: Duration = Duration::from_secs(120);
/// The time that programs have for closing files: a starting program holds its parent's files until
/// it runs.
const LETTING_GO: Duration = Duration::from_millis(500);

/// Ends the use of the image that `what` names: a device (`disk1`, `/dev/disk1s2`, `/dev/nbd0`), a
/// mount point, or the image. Everything is durable when it returns. Fails with [`Kind::Conflict`]
/// if a program uses it, unless `force`d: then programs get errors.
pub(crate) fn detach(what: &OsStr, force: bool) -> Outcome<Detached> {
    let registry = Registry::of_user()?;
    let entry = find(what, registry.entries()?)?;
    // Held until the disk is gone, so that nothing mounts it meanwhile.
    let _claim = match entry.kernel_disk.filter(|_| !force) {
        Some(disk) => soon(Result::is_ok, || kernel::claim(disk.id(), entry.process))
            .map_err(|users| in_use(&entry, &users))?,
        None => None,
    };
    let folders: Vec<_> = entry
        .mounts
        .iter()
        .map(|mount| mount.folder.clone())
        .collect();
    if force || folders.is_empty() {
        signal(&entry)?;
    } else {
        // All or none are unmounted, so all are checked first.
        let users = soon(Vec::is_empty, || {
            folders.iter().flat_map(|folder| others(folder)).collect()
        });
        if !users.is_empty() {
            return Err(in_use(&entry, &users));
        }
        for folder in &folders {
            let is_conflict = |error: &Error| error.kind() == Kind::Conflict;
            match soon(
                |ended: &bandsaw::Result<()>| !ended.as_ref().is_err_and(is_conflict),
                || server::unmount_folder(folder),
            ) {
                Err(error) if is_conflict(&error) => return Err(in_use(&entry, &others(folder))),
                // It may have been unmounted already.
                Err(error) if is_mounted(folder) => return Err(error.into()),
                _ => {}
            }
        }
    }
    wait(&registry, &entry)?;
    Ok(Detached {
        device: entry.device,
        path: entry.image,
        mount_points: folders,
    })
}

/// Repeats `attempt` until its result is `good`, or the time for closing files is over.
fn soon<T>(good: impl Fn(&T) -> bool, attempt: impl Fn() -> T) -> T {
    let began = Instant::now();
    loop {
        let came = attempt();
        if good(&came) || began.elapsed() > LETTING_GO {
            return came;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the users of a folder, except this process, whose working folder it may be.
fn others(folder: &Path) -> Vec<User> {
    users_of(folder)
        .into_iter()
        .filter(|user| user.process != std::process::id())
        .collect()
}

fn is_mounted(folder: &Path) -> bool {
    bandsaw_mount::mount_points().is_ok_and(|all| all.iter().any(|mount| mount.path == folder))
}

/// Returns the entry of this device, folder or image.
fn find(what: &OsStr, entries: Vec<Entry>) -> Outcome<Entry> {
    let text = shown(what);
    let name = text.strip_prefix("/dev/").unwrap_or(&text);
    let path = fs::canonicalize(what)
        .or_else(|_| std::path::absolute(what))
        .unwrap_or_else(|_| what.into());
    // An entry holds the path of its image as text.
    let named = shown(whole_name(Path::new(what)));
    let is_image = |entry: &Entry| {
        let image = entry.image.as_os_str();
        image == shown(&path).as_str()
            || image == named.as_str()
            || fs::canonicalize(&entry.image).is_ok_and(|image| image == path)
    };
    let found: Vec<_> = entries
        .into_iter()
        .filter(|entry| {
            let is_disk = entry.kernel_disk.is_some_and(|disk| disk.id().has(&path));
            let by_name = entry.devices().any(|device| device == name);
            is_disk
                || by_name
                || entry.mounts.iter().any(|mount| mount.folder == path)
                || is_image(entry)
        })
        .collect();
    match <[Entry; 1]>::try_from(found) {
        Ok([only]) => Ok(only),
        Err(none) if none.is_empty() => {
            let error = Error::new(
                Kind::NotFound,
                LAYER,
                "not an attached, mounted or served image, device or mount point",
            )
            .named(&text);
            Err(Failure::from(error).hint("run `bandsaw list` to see what is attached"))
        }
        Err(several) => {
            let names: Vec<_> = several.into_iter().map(|entry| entry.device).collect();
            let message = format!("in use several times; choose one of {}", names.join(", "));
            Err(Error::conflict(LAYER, message).named(&text).into())
        }
    }
}

fn in_use(entry: &Entry, users: &[User]) -> Failure {
    let one = |user: &User| match user.process {
        0 => format!("{} on {}", user.command, user.uses.display()),
        process => format!(
            "{} (process {process}, {})",
            user.command,
            user.uses.display()
        ),
    };
    let by = match users {
        [] => "somebody".to_owned(),
        users => users.iter().map(one).collect::<Vec<_>>().join(", "),
    };
    let error = Error::conflict(LAYER, format!("in use by {by}")).named(entry.device.clone());
    Failure::from(error).hint(
        "use --force to detach it nevertheless (those programs then get \
                               errors)",
    )
}

/// Asks the server to end.
fn signal(entry: &Entry) -> Outcome {
    let failed = |source: std::io::Error| {
        Error::io(LAYER, "stop the server", source).named(entry.device.clone())
    };
    let process = i32::try_from(entry.process).ok().and_then(Pid::from_raw);
    let process = process.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    match rustix::process::kill_process(process, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(failed(error.into()).into()),
    }
}

/// Waits for the end of the server, which exits when everything is durable.
fn wait(registry: &Registry, entry: &Entry) -> Outcome {
    let began = Instant::now();
    let same = |other: &Entry| (&other.device, other.process) == (&entry.device, entry.process);
    while registry.entries()?.iter().any(same) {
        if began.elapsed() > DETACH_TIMEOUT {
            let message = format!(
                "the server (process {}) is still writing in the background",
                entry.process
            );
            return Err(Error::conflict(LAYER, message)
                .named(entry.device.clone())
                .into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    let word = failure_file::failure_file(registry, &entry.device, entry.process);
    match fs::read_to_string(&word) {
        Ok(failed) => {
            let _ = fs::remove_file(&word);
            Err(Error::new(
                Kind::Io,
                LAYER,
                format!("the server failed while closing the image: {failed}"),
            )
            .named(entry.device.clone())
            .into())
        }
        Err(_) => Ok(()),
    }
}
