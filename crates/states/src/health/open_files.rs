//! The files that clients of Samba have open, as `smbstatus --json` tells.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bandsaw::{Error, Kind, Result};
use serde::Deserialize;
use serde_json::Value;

/// Layer name in errors.
const LAYER: &str = "smbstatus";

/// Files that are open through Samba.
#[derive(Debug, Default)]
pub struct OpenFiles(Vec<PathBuf>);

#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    open_files: serde_json::Map<String, Value>,
}

impl OpenFiles {
    /// Runs `smbstatus --json`, which requires root or the server's user.
    ///
    /// [`Kind::Io`] if it cannot be run or fails, [`Kind::Unsupported`] if its output is not as expected.
    pub fn query() -> Result<Self> {
        let failed = |source| Error::io(LAYER, "run", source).in_file("smbstatus");
        let mut command = Command::new("smbstatus");
        let command = command.arg("--json").stdin(Stdio::null());
        let output = command.stderr(Stdio::null()).output().map_err(failed)?;
        if !output.status.success() {
            let message = format!("`smbstatus --json` failed: {}", output.status);
            return Err(Error::new(Kind::Io, LAYER, message));
        }
        Self::parse(&output.stdout)
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let report: Report = serde_json::from_slice(bytes).map_err(|error| {
            let message = format!("unexpected output of `smbstatus --json`: {error}");
            Error::unsupported(LAYER, message)
        })?;
        let files = report.open_files.iter().map(|(path, file)| {
            let part = |name: &str| file.get(name).and_then(Value::as_str);
            match (part("service_path"), part("filename")) {
                (Some(share), Some(name)) => Path::new(share).join(name),
                _ => PathBuf::from(path),
            }
        });
        Ok(Self(files.collect()))
    }

    /// Returns an open file that is the bundle at `path`, or in it.
    pub(super) fn within(&self, path: &Path) -> Option<&Path> {
        let bundle = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let is_within = |file: &&PathBuf| {
            let found = fs::canonicalize(file);
            found.as_deref().unwrap_or(file).starts_with(&bundle)
        };
        self.0.iter().find(is_within).map(PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_belong_to_their_bundle() {
        let said = br#"{"version": "4.17.12", "open_files": {
            "/nowhere/tm/Mac.sparsebundle/token": {"service_path": "/nowhere/tm",
                "filename": "Mac.sparsebundle/token", "opens": {}},
            "/nowhere/other": {}}}"#;
        let files = OpenFiles::parse(said).unwrap();
        let within = |path: &str| files.within(Path::new(path)).is_some();
        assert!(within("/nowhere/tm/Mac.sparsebundle"));
        assert!(within("/nowhere/other"));
        assert!(!within("/nowhere/tm/Mac.sparse"));
        assert!(!within("/nowhere/tm/Other.sparsebundle"));
        assert!(
            OpenFiles::parse(b"{}")
                .unwrap()
                .within(Path::new("/"))
                .is_none()
        );
        for bad in [&b""[..], b"{\"open_files\": 1}", b"no JSON"] {
            assert!(OpenFiles::parse(bad).is_err());
        }
    }
}
