//! Prefixes of URLs: the only addresses that a program may open for somebody else.

use super::{LAYER, escaping::percent_decoded, scheme};
use crate::{Error, Result};

/// A URL (`https://`, `http://` or `s3://`), and all URLs below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlPrefix {
    text: String,
    place: UrlPlace,
}

impl UrlPrefix {
    /// Parses a prefix. It has neither a query nor a fragment, and the names in its path are whole:
    /// `https://host/images` does not contain `https://host/images-old/a.dmg`.
    ///
    /// [`Kind::Invalid`](crate::Kind) for other text, [`Kind::Unsupported`](crate::Kind) in a build
    /// without the feature `s3`.
    pub fn parse(text: &str) -> Result<Self> {
        let place = UrlPlace::of(text)?;
        // A name before an @ may be that of a bundle, whose snapshots are beside the prefix.
        let has_mark = text.contains(['?', '#']) || (place.scheme == "s3" && text.contains('@'));
        if has_mark {
            let message = "a prefix of addresses has no ?, no # and, in a bucket, no @";
            return Err(Error::invalid(LAYER, message).named(text));
        }
        Ok(Self {
            text: text.to_owned(),
            place,
        })
    }

    /// Returns true if the URL is the prefix, or below it. A URL that a server could understand in
    /// two ways is in no prefix: one with a user name, a fragment, or an encoded separator or dot.
    pub fn contains(&self, url: &str) -> bool {
        UrlPlace::of(url).is_ok_and(|other| {
            other.scheme == self.place.scheme
                && other.host == self.place.host
                && other.path.starts_with(&self.place.path)
        })
    }
}

impl std::fmt::Display for UrlPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The parts of a URL that are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UrlPlace {
    scheme: String,
    /// The host with its port; the bucket of `s3://`.
    host: String,
    /// The names in the path.
    path: Vec<String>,
}

impl UrlPlace {
    fn of(text: &str) -> Result<Self> {
        let refused = |why: &'static str| Error::invalid(LAYER, why).named(text);
        if text.contains(|c: char| c.is_control() || matches!(c, '\\' | ' ' | '#')) {
            return Err(refused("unexpected character in a URL"));
        }
        let place = match scheme(text) {
            Some("s3") => Self::in_bucket(text),
            Some("http" | "https") => Self::on_web(text)?,
            _ => return Err(refused("expected https://, http:// or s3://")),
        };
        let place = place.ok_or_else(|| {
            refused("expected a host or bucket and a path without user name, . or ..")
        })?;
        match place.path.iter().any(|part| is_ambiguous(part)) {
            true => Err(refused("a name in the path of the URL is ambiguous")),
            false => Ok(place),
        }
    }

    /// Parses `s3://BUCKET/PREFIX` as the driver of buckets does: encoded characters first.
    fn in_bucket(text: &str) -> Option<Self> {
        let decoded = percent_decoded(text)?;
        let rest = decoded.strip_prefix("s3://")?;
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = !bucket.is_empty() && !decoded.contains(|c: char| c.is_control());
        is_plain.then(|| Self {
            scheme: "s3".to_owned(),
            host: bucket.to_owned(),
            path: names(path),
        })
    }

    /// Parses a URL as the client of HTTP does, which resolves `.` and `..`.
    #[cfg(feature = "s3")]
    fn on_web(text: &str) -> Result<Option<Self>> {
        let Ok(url) = reqwest::Url::parse(text) else {
            return Ok(None);
        };
        let Some((host, port)) = url.host_str().zip(url.port_or_known_default()) else {
            return Ok(None);
        };
        let has_user = !url.username().is_empty() || url.password().is_some();
        // Many servers resolve these as they do plain ones.
        let lower = url.path().to_ascii_lowercase();
        let has_encoded = ["%2f", "%5c", "%2e", "%00"]
            .iter()
            .any(|c| lower.contains(c));
        Ok((!has_user && !has_encoded).then(|| Self {
            scheme: url.scheme().to_owned(),
            host: format!("{host}:{port}"),
            path: names(url.path()),
        }))
    }

    #[cfg(not(feature = "s3"))]
    fn on_web(_: &str) -> Result<Option<Self>> {
        let message = "this build does not support https:// (feature `s3`)";
        Err(Error::unsupported(LAYER, message))
    }
}

/// Returns the names in a path; a separator at its end adds none.
fn names(path: &str) -> Vec<String> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    match path {
        "" => Vec::new(),
        path => path.split('/').map(str::to_owned).collect(),
    }
}

/// Returns true for a name that some servers skip or resolve.
fn is_ambiguous(name: &str) -> bool {
    matches!(name, "" | "." | "..") || name.contains('\\')
}

#[cfg(all(test, feature = "s3"))]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_contains_what_is_below_it() {
        let inside = [
            ("https://host/images", "https://host/images/a.dmg"),
            ("https://host/images/", "https://host/images/sub/a.dmg"),
            ("https://host/images", "https://HOST:443/images"),
            ("https://host/images", "https://host/images/a.dmg?token=1"),
            ("https://host/", "https://host/x/../a.dmg"),
            (
                "https://host/My%20Images",
                "https://host/My%20Images/a%C3%BC.dmg",
            ),
            ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/a.dmg"),
            ("s3://bucket", "s3://bucket/a.sparsebundle"),
            ("s3://bucket/x", "s3://bucket/x/a.sparsebundle@monday"),
            ("s3://bucket/x%20y/", "s3://bucket/%78%20y/a"),
        ];
        for (prefix, url) in inside {
            assert!(
                UrlPrefix::parse(prefix).unwrap().contains(url),
                "{prefix} {url}"
            );
        }
    }

    #[test]
    fn nothing_else_is_in_a_prefix() {
        let outside = [
            ("https://host/images", "http://host/images/a.dmg"),
            ("https://host/images", "https://host:444/images/a.dmg"),
            ("https://host", "https://host.evil.example/a.dmg"),
            ("https://host", "https://host@evil.example/a.dmg"),
            ("https://host", "https://evil.example/https://host/a.dmg"),
            ("https://host/", "https://me:secret@host/a.dmg"),
            ("https://host/images", "https://host/images-old/a.dmg"),
            ("https://host/images", "https://host/images/../a.dmg"),
            ("https://host/images", "https://host/images/%2e%2e/a.dmg"),
            ("https://host/images", "https://host/images/..%2Fa.dmg"),
            ("https://host/images", "https://host/images/..%5ca.dmg"),
            ("https://host/images", "https://host/images/..\\a.dmg"),
            ("https://host/images", "https://host/images//a.dmg"),
            ("https://host/images", "https://host/Images/a.dmg"),
            ("https://host/images", "https:///images/a.dmg"),
            ("https://host/images", "https://host/images/a.dmg#x"),
            ("https://host/images", "file:///images/a.dmg"),
            ("https://host/images", "/images/a.dmg"),
            ("http://127.0.0.1:8000/", "http://127.0.0.1:80/"),
            ("http://127.0.0.1:8000/", "http://localhost:8000/"),
            ("s3://bucket/x", "s3://bucket/x@a.sparsebundle"),
            ("s3://bucket/x", "s3://bucket/x/../y"),
            ("s3://bucket/x", "s3://bucket/x/%2E./y"),
            ("s3://bucket/x", "s3://bucket/xy"),
            ("s3://bucket/x", "s3://other/x/y"),
            ("s3://bucket/x", "s3://bucket/x//y"),
            ("s3://bucket/x", "https://bucket/x/y"),
        ];
        for (prefix, url) in outside {
            assert!(
                !UrlPrefix::parse(prefix).unwrap().contains(url),
                "{prefix} {url}"
            );
        }
    }

    #[test]
    fn odd_prefixes_are_refused() {
        for text in [
            "",
            "images",
            "/images",
            "file:///images",
            "ftp://host/",
            "https://",
            "https://me@host/",
            "https://host/?a",
            "https://host/#a",
            "https://host/a%2fb",
            "s3://",
            "s3://bucket/a@b",
            "s3://bucket/../b",
            "s3://bucket/%zz",
        ] {
            assert!(UrlPrefix::parse(text).is_err(), "{text}");
        }
    }
}
