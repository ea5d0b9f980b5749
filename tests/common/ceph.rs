//! A Ceph cluster with its S3 gateway, shared by one test binary.
#![allow(dead_code, reason = "each suite uses a part")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::skip::without_program;

/// A running cluster: a monitor, a manager, OSDs in memory and a gateway. It is stopped on drop.
pub(crate) struct Ceph {
    folder: tempfile::TempDir,
    port: u16,
}

impl Ceph {
    pub(crate) const KEY: &str = "AKtest";
    pub(crate) const SECRET: &str = "SKtest12345678";

    /// Starts a cluster with a single OSD. Returns `None` and prints a message if Ceph is not
    /// installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(1)
    }

    /// Starts a cluster with several OSDs, each with a full replica.
    pub(crate) fn start_with(osds: usize) -> Option<Self> {
        let programs = [
            "ceph",
            "ceph-mon",
            "ceph-mgr",
            "ceph-osd",
            "radosgw",
            "radosgw-admin",
        ];
        if let Some(missing) = programs.iter().find(|program| !is_installed(program)) {
            without_program(
                "ceph",
                &format!("{missing} is not installed; scripts/install-test-tools --full does it"),
            );
            return None;
        }
        let ceph = Self {
            folder: tempfile::tempdir().expect("a folder"),
            port: free_port(),
        };
        ceph.script(&[
            "start",
            &ceph.path(),
            &ceph.port.to_string(),
            &osds.to_string(),
        ]);
        Some(ceph)
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns the host and port of the gateway.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the environment variables with which a client connects.
    pub(crate) fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", Self::KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", Self::SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// Controls a daemon, `osd.0` or `rgw`; the action is `kill` or `start`.
    pub(crate) fn daemon(&self, name: &str, deed: &str) {
        self.script(&["daemon", &self.path(), name, deed]);
    }

    pub(crate) fn make_bucket(&self, name: &str) {
        self.script(&["bucket", &self.path(), name]);
    }

    /// Returns the keys in a bucket, as listed by another client: a thousand at most.
    pub(crate) fn keys(&self, bucket: &str) -> Vec<String> {
        let listed = self.script(&["list", &self.path(), bucket]).stdout;
        String::from_utf8(listed)
            .expect("keys that are text")
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Sets the quota of a bucket in KiB; negative: no limit.
    pub(crate) fn set_quota(&self, bucket: &str, kib: i64) {
        self.script(&["quota", &self.path(), bucket, &kib.to_string()]);
    }

    fn path(&self) -> String {
        self.folder
            .path()
            .join("ceph")
            .to_str()
            .expect("a path that is text")
            .to_owned()
    }

    fn script(&self, arguments: &[&str]) -> Output {
        let mut folders = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|folder| folder.join("scripts/object-store"));
        let script = folders.find(|script| script.exists()).expect("the script");
        let output = Command::new(script)
            .args(arguments)
            .output()
            .expect("run the script");
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        self.script(&["stop", &self.path()]);
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(Into::into));
    folders.iter().any(|folder| folder.join(program).exists())
}

/// Returns a free port whose successor is free, too; the monitor uses both.
fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
            .port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
}
