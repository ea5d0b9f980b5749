//! versitygw, an S3 gateway for a local folder, shared by one test binary.

use std::env;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::ceph::Ceph;
use super::skip::skip;

/// A running gateway. It is stopped on drop, and its data is removed.
pub(crate) struct Versity {
    child: Child,
    _folder: tempfile::TempDir,
    port: u16,
}

impl Versity {
    /// Starts a gateway with a bucket called `test` and the credentials of
    /// [`Ceph`](super::ceph::Ceph). Returns `None` and prints a message if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = program() else {
            skip(
                "versitygw",
                "it is not installed; `go install github.com/versity/versitygw/cmd/versitygw@latest` does it",
            );
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
            .port();
        std::fs::create_dir(folder.path().join("test")).expect("a bucket");
        let mut command = Command::new(program);
        command.args([
            "--access",
            Ceph::KEY,
            "--secret",
            Ceph::SECRET,
            "--port",
            &format!("127.0.0.1:{port}"),
            "posix",
        ]);
        command
            .arg(folder.path())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let gateway = Self {
            child: command.spawn().expect("start versitygw"),
            _folder: folder,
            port,
        };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(gateway);
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("versitygw does not answer");
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Versity {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the program in the path, or in the folder of the tests' own tools.
fn program() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = set("XDG_CACHE_HOME")
        .or_else(|| Some(set("HOME")?.join(".cache")))
        .map(|cache| cache.join("bandsaw-tests"));
    folders.extend(
        set("BANDSAW_TEST_CACHE")
            .or(cache)
            .map(|cache| cache.join("bin")),
    );
    folders
        .into_iter()
        .map(|folder| folder.join("versitygw"))
        .find(|program| program.exists())
}
