//! Endpoint and credentials of a store, from the variables and files that all S3 tools use.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use object_store::Certificate;

use super::profile::{Credentials, Profile};
use super::{LAYER, certificates};
use crate::{Error, Result};

/// Options of the connection to a store.
#[derive(Debug, Clone, Default)]
pub struct BucketOptions {
    /// Its URL. `None`: that of Amazon, in the region.
    pub endpoint: Option<String>,
    /// The region; `None`: `us-east-1`, which stores without regions accept.
    pub region: Option<String>,
    /// The credentials. `None`: those in `elsewhere`, or from the metadata service of Amazon's
    /// cloud.
    pub credentials: Option<Credentials>,
    /// Sends unsigned requests, for public objects.
    pub anonymous: bool,
    /// A file of certificates (PEM) that are trusted in addition to the system's.
    pub ca_bundle: Option<PathBuf>,
    /// Permits signed requests over unencrypted HTTP to other machines.
    pub allow_http: bool,
    /// A bandwidth limit in bytes a second, for upload and download together.
    pub bytes_per_second: Option<u64>,
    /// Time without a response after which a request fails. `None`: a minute.
    pub timeout: Option<Duration>,
    /// Other sources of credentials: variables of containers and web identities, each with its
    /// value.
    pub elsewhere: Vec<(String, String)>,
}

/// Variables that refer to credentials elsewhere, as the client knows them.
const ELSEWHERE: [&str; 6] = [
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

impl BucketOptions {
    /// Reads the options from the variables that `variable` looks up, and from the profile that
    /// they name:
    ///
    /// `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_DEFAULT_REGION`,
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_PROFILE`,
    /// `AWS_DEFAULT_PROFILE`, `AWS_CONFIG_FILE`, `AWS_SHARED_CREDENTIALS_FILE`, `AWS_CA_BUNDLE`,
    /// `AWS_SKIP_SIGNATURE`, `AWS_ALLOW_HTTP`, `AWS_EC2_METADATA_DISABLED`, those of containers and
    /// web identities, and `HOME`.
    ///
    /// [`Kind::NotFound`](crate::Kind) for a named profile that is in no file, [`Kind::Unsupported`](crate::Kind) for one
    /// whose keys come from a program or a login.
    pub(crate) fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let get = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is_true = |name: &str| {
            get(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
        };
        let profile = Profile::find(&get)?;
        let of = |name: &str| profile.get(name).map(str::to_owned);
        let elsewhere: Vec<_> = ELSEWHERE
            .iter()
            .filter_map(|&name| Some((name.to_lowercase(), get(name)?)))
            .collect();
        let anonymous = is_true("AWS_SKIP_SIGNATURE");
        let credentials = match get("AWS_ACCESS_KEY_ID").zip(get("AWS_SECRET_ACCESS_KEY")) {
            Some((key_id, secret)) => Some(Credentials {
                key_id,
                secret: secret.into(),
                token: get("AWS_SESSION_TOKEN").map(Into::into),
            }),
            None if get("AWS_ACCESS_KEY_ID").is_some()
                || get("AWS_SECRET_ACCESS_KEY").is_some() =>
            {
                let message = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must both be set";
                return Err(Error::invalid(LAYER, message));
            }
            None => profile.credentials()?,
        };
        if credentials.is_none()
            && !anonymous
            && elsewhere.is_empty()
            && is_true("AWS_EC2_METADATA_DISABLED")
        {
            return Err(Error::invalid(LAYER, super::failure::NO_CREDENTIALS));
        }
        Ok(Self {
            endpoint: get("AWS_ENDPOINT_URL_S3")
                .or_else(|| get("AWS_ENDPOINT_URL"))
                .or_else(|| of("endpoint_url")),
            region: get("AWS_REGION")
                .or_else(|| get("AWS_DEFAULT_REGION"))
                .or_else(|| of("region")),
            credentials,
            anonymous,
            ca_bundle: get("AWS_CA_BUNDLE")
                .or_else(|| of("ca_bundle"))
                .map(PathBuf::from),
            allow_http: is_true("AWS_ALLOW_HTTP"),
            bytes_per_second: None,
            timeout: None,
            elsewhere,
        })
    }

    pub(super) fn region(&self) -> &str {
        self.region.as_deref().unwrap_or("us-east-1")
    }

    /// Returns the endpoint for messages.
    pub(super) fn endpoint(&self) -> &str {
        self.endpoint.as_deref().unwrap_or("Amazon S3")
    }

    /// Returns true if plain HTTP is used: only to this machine, or if explicitly allowed.
    pub(super) fn allows_plain_http(&self) -> Result<bool> {
        let Some(endpoint) = &self.endpoint else {
            return Ok(false);
        };
        if endpoint.starts_with("https://") {
            return Ok(false);
        }
        let invalid =
            |message: &str| Err(Error::invalid(LAYER, message.to_owned()).named(endpoint.clone()));
        let Some(host) = endpoint.strip_prefix("http://") else {
            return invalid(
                "AWS_ENDPOINT_URL must begin with https://, or http:// on this machine",
            );
        };
        if self.allow_http || self.anonymous || is_this_machine(host) {
            return Ok(true);
        }
        invalid(
            "the connection to another machine is not encrypted: use https://, or set \
             AWS_ALLOW_HTTP=true on a trusted network",
        )
    }

    pub(super) fn certificates(&self) -> Result<Vec<Certificate>> {
        let Some(path) = &self.ca_bundle else {
            return Ok(Vec::new());
        };
        let pem = fs::read(path).map_err(|source| {
            Error::io(LAYER, "read the certificates of AWS_CA_BUNDLE", source).in_file(path)
        })?;
        certificates(&pem).ok_or_else(|| {
            Error::invalid(LAYER, "AWS_CA_BUNDLE has no certificates in PEM form").in_file(path)
        })
    }
}

/// Returns true if `host`, perhaps with a port and a path, is this machine's loopback.
fn is_this_machine(host: &str) -> bool {
    let host = host.split('/').next().unwrap_or_default();
    if let Some(bracketed) = host.strip_prefix('[') {
        return bracketed.starts_with("::1]");
    }
    let name = host.split(':').next().unwrap_or_default();
    name == "localhost"
        || name
            .parse()
            .is_ok_and(|address: std::net::Ipv4Addr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::Kind;

    fn options(variables: &[(&str, &str)]) -> Result<BucketOptions> {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        BucketOptions::from_variables(&|name| variables.get(name).map(|&value| value.to_owned()))
    }

    #[test]
    fn variables_come_before_the_profile() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("config"), "[default]\nregion = there\n[profile work]\nregion=eu-1\nendpoint_url = https://s3.example\n")
            .unwrap();
        fs::write(
            path("credentials"),
            "[work]\naws_access_key_id = AKP\naws_secret_access_key = SKP\n",
        )
        .unwrap();
        let (config, credentials) = (path("config"), path("credentials"));
        let files = [
            ("AWS_CONFIG_FILE", config.as_str()),
            ("AWS_SHARED_CREDENTIALS_FILE", credentials.as_str()),
        ];

        let plain = options(&files).unwrap();
        assert_eq!(
            (plain.region(), plain.credentials.is_some()),
            ("there", false)
        );
        let work = options(&[files[0], files[1], ("AWS_PROFILE", "work")]).unwrap();
        assert_eq!(
            (work.region(), work.endpoint()),
            ("eu-1", "https://s3.example")
        );
        assert_eq!(work.credentials.as_ref().unwrap().key_id, "AKP");
        let keys = [
            ("AWS_ACCESS_KEY_ID", "AKV"),
            ("AWS_SECRET_ACCESS_KEY", "SKV"),
            ("AWS_PROFILE", "work"),
            ("AWS_REGION", "r"),
        ];
        let both = options(&[&files[..], &keys[..]].concat()).unwrap();
        assert_eq!(
            (
                both.region(),
                both.credentials.as_ref().unwrap().key_id.as_str()
            ),
            ("r", "AKV")
        );
        assert!(!format!("{both:?}").contains("SKV"));
        assert_eq!(
            options(&[files[0], files[1], ("AWS_PROFILE", "none")])
                .unwrap_err()
                .kind(),
            Kind::NotFound
        );
        assert_eq!(options(&[keys[0]]).unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn secrets_go_unencrypted_to_this_machine_only() {
        let fine = |endpoint: &str| {
            BucketOptions {
                endpoint: Some(endpoint.to_owned()),
                ..BucketOptions::default()
            }
            .allows_plain_http()
            .map_err(|e| e.kind())
        };
        assert_eq!(fine("https://s3.example"), Ok(false));
        for here in [
            "http://127.0.0.1:7480",
            "http://localhost",
            "http://[::1]:80/x",
            "http://127.1.2.3/",
        ] {
            assert_eq!(fine(here), Ok(true), "{here}");
        }
        for there in [
            "http://s3.example",
            "http://localhost.example",
            "http://127.0.0.1.example:80",
            "s3.example",
            "http://10.0.0.1",
        ] {
            assert_eq!(fine(there), Err(Kind::Invalid), "{there}");
        }
    }
}
