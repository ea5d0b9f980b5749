//! A background process: this program again, which reports on its standard output and detaches from
//! the terminal once it serves.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use bandsaw::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::Attached;
use crate::failure::{Failure, Outcome};

const LAYER: &str = "attach";

/// Starts this program with `args`, a verb that serves with `--serving` among its arguments, and
/// waits until everything is mounted. That process asks for passphrases and reports errors; only
/// its exit code is returned.
pub(crate) fn launch(args: &[OsString]) -> Outcome<Attached> {
    let failed = |doing: &'static str, source: io::Error| Error::io(LAYER, doing, source);
    let program = std::env::current_exe().map_err(|source| failed("find this program", source))?;
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::inherit())
        .stderr(Stdio::inherit())
        .stdout(Stdio::piped());
    let mut server = command
        .spawn()
        .map_err(|source| failed("start a server", source))?;
    let mut reply = Vec::new();
    let read = server
        .stdout
        .take()
        .map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut reply));
    read.map_err(|source| failed("read the reply of the server", source))?;
    if let Ok(attached) = serde_json::from_slice(&reply) {
        return Ok(attached);
    }
    let status = server
        .wait()
        .map_err(|source| failed("wait for a server", source))?;
    Err(Failure::reported(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
    ))
}

/// Ends this process, a server, with its launcher, until [`report_ready`]: nobody would know what it
/// serves.
pub(super) fn end_with_launcher() -> Outcome {
    end_by(Some(Signal::TERM))?;
    // It may have ended before that.
    let stdout = io::stdout();
    let mut pipe = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut pipe, Some(&Timespec::default())).map_err(|error| failed(error.into()))?;
    match pipe[0].revents().contains(PollFlags::ERR) {
        true => Err(failed(io::ErrorKind::BrokenPipe.into()).into()),
        false => Ok(()),
    }
}

fn end_by(signal: Option<Signal>) -> Outcome {
    Ok(set_parent_process_death_signal(signal).map_err(|error| failed(error.into()))?)
}

fn failed(source: io::Error) -> Error {
    Error::io(LAYER, "report to the process that waits for it", source)
}

/// Reports to the launcher that everything is mounted, and detaches from the terminal and the
/// shell's job. Later output goes to `log`. Fails if the launcher is gone.
pub(super) fn report_ready(attached: &Attached, log: &Path) -> Outcome {
    let failed = |source: io::Error| Error::io(LAYER, "move to the background", source);
    let log = File::create(log).map_err(|source| failed(source).in_file(log))?;
    let nowhere = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(failed)?;
    let reply = serde_json::to_vec(attached).map_err(|error| failed(error.into()))?;
    // If the launcher ends from here on, the pipe is closed, or the report is delivered.
    end_by(None)?;
    io::stdout().write_all(&reply)?;
    io::stdout().flush()?;
    rustix::stdio::dup2_stdin(&nowhere).map_err(|error| failed(error.into()))?;
    rustix::stdio::dup2_stderr(&log).map_err(|error| failed(error.into()))?;
    // Fails for a group leader, which cannot start a session of its own.
    let _ = rustix::process::setsid();
    // The launcher waits for this line.
    Ok(rustix::stdio::dup2_stdout(&nowhere).map_err(|error| failed(error.into()))?)
}
