//! `~/.aws/config` and `~/.aws/credentials`.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::LAYER;
use crate::{Error, Kind, Result};

/// Credentials of S3.
#[derive(Clone)]
pub struct Credentials {
    /// The access key ID.
    pub key_id: String,
    /// The secret access key.
    pub secret: Zeroizing<String>,
    /// The token of a session.
    pub token: Option<Zeroizing<String>>,
}

impl Credentials {
    /// Creates credentials without a session token.
    pub fn new(key_id: &str, secret: &str) -> Self {
        Self {
            key_id: key_id.to_owned(),
            secret: secret.to_owned().into(),
            token: None,
        }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// The settings of one profile, from both files.
#[derive(Default)]
pub(super) struct Profile {
    name: String,
    settings: HashMap<String, String>,
}

/// Settings of a profile that fetch its credentials from elsewhere.
const INDIRECT: [&str; 5] = [
    "credential_process",
    "role_arn",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
];

impl Profile {
    /// Returns the profile that the variables name, or the default one, which need not exist.
    pub(super) fn find(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let named = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
        let name = named.clone().unwrap_or_else(|| "default".to_owned());
        let in_home =
            |file: &str| variable("HOME").map(|home| Path::new(&home).join(".aws").join(file));
        let config = variable("AWS_CONFIG_FILE")
            .map(PathBuf::from)
            .or_else(|| in_home("config"));
        let credentials = variable("AWS_SHARED_CREDENTIALS_FILE")
            .map(PathBuf::from)
            .or_else(|| in_home("credentials"));
        let mut profile = Self {
            name,
            settings: HashMap::new(),
        };
        let mut found = false;
        for path in [config, credentials].into_iter().flatten() {
            let text = match fs::read_to_string(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    return Err(Error::io(LAYER, "read the profiles", error).in_file(&path));
                }
            };
            found |= profile.read(&text);
        }
        match named {
            Some(name) if !found => Err(Error::new(
                Kind::NotFound,
                LAYER,
                "profile not found in ~/.aws/config and ~/.aws/credentials",
            )
            .named(name)),
            _ => Ok(profile),
        }
    }

    /// Reads the profile's lines of a file. `false`: it has none.
    fn read(&mut self, text: &str) -> bool {
        let (mut ours, mut found) = (false, false);
        for line in text.lines() {
            let nested = line.starts_with([' ', '\t']);
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                let section = section.split(']').next().unwrap_or_default().trim();
                let section = section
                    .strip_prefix("profile")
                    .filter(|rest| rest.starts_with([' ', '\t']))
                    .unwrap_or(section);
                ours = section.trim().trim_matches('"') == self.name;
                found |= ours;
            } else if let Some((key, value)) = line.split_once('=').filter(|_| ours && !nested) {
                let value = value.split(" #").next().unwrap_or_default().trim();
                self.settings
                    .insert(key.trim().to_lowercase(), value.to_owned());
            }
        }
        found
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.settings
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns the credentials in the profile. `None`: it has none.
    pub(super) fn credentials(&self) -> Result<Option<Credentials>> {
        let Some((key_id, secret)) = self
            .get("aws_access_key_id")
            .zip(self.get("aws_secret_access_key"))
        else {
            return match INDIRECT.into_iter().find(|name| self.get(name).is_some()) {
                None => Ok(None),
                Some(name) => {
                    let message = format!(
                        "unsupported credential source {name}: run `aws configure \
                         export-credentials --profile {} --format env` and set the printed \
                         variables",
                        self.name
                    );
                    Err(Error::unsupported(LAYER, message).named(format!("profile {}", self.name)))
                }
            };
        };
        let token = self
            .get("aws_session_token")
            .map(|token| token.to_owned().into());
        Ok(Some(Credentials {
            key_id: key_id.to_owned(),
            secret: secret.to_owned().into(),
            token,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> (Profile, bool) {
        let mut profile = Profile {
            name: name.to_owned(),
            settings: HashMap::new(),
        };
        let found = profile.read(text);
        (profile, found)
    }

    #[test]
    fn a_profile_is_its_own_lines() {
        let text = "# all\n[default]\nregion = a\n[ profile \"my work\" ]\nRegion=b # here\ns3 =\n  region = nested\n; c\n[profile x]\nregion=c\n";
        for (name, region) in [("default", "a"), ("my work", "b"), ("x", "c")] {
            let (profile, found) = read(name, text);
            assert_eq!(
                (profile.get("region"), found),
                (Some(region), true),
                "{name}"
            );
        }
        assert!(!read("y", text).1);
        assert!(read("profile", "[profile]\na=b").1);
    }

    #[test]
    fn keys_from_elsewhere_are_refused_by_name() {
        let (profile, _) = read("p", "[p]\nsso_session = s\n");
        let error = profile.credentials().err().unwrap();
        assert!(
            error.kind() == Kind::Unsupported
                && error.to_string().contains("export-credentials --profile p"),
            "{error}"
        );
        assert!(
            read("p", "[p]\nregion = s\n")
                .0
                .credentials()
                .unwrap()
                .is_none()
        );
    }
}
