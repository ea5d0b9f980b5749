//! The location of an image in a store.

use std::fmt;

use crate::{Error, Result};

use super::LAYER;

/// A bucket and a prefix in it, as in `s3://bucket/backups/Docs.sparsebundle`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketPlace {
    /// The bucket's name.
    pub bucket: String,
    /// The common prefix of all keys, without `/` at either end; empty for the whole bucket.
    pub prefix: String,
}

impl BucketPlace {
    /// Parses `s3://bucket/prefix`, in which every character is literal: the caller decodes a URL
    /// first.
    ///
    /// [`Kind::Invalid`](crate::Kind) for anything else.
    pub fn parse(url: &str) -> Result<Self> {
        let invalid = |why: &'static str| Error::invalid(LAYER, why).named(url);
        let rest = url
            .strip_prefix("s3://")
            .ok_or_else(|| invalid("expected an address that begins with s3://"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if bucket.is_empty() || !bucket.chars().all(fine) || bucket.starts_with('.') {
            return Err(invalid(
                "expected s3://BUCKET/PREFIX with the name of a bucket: letters, digits, dots and dashes",
            ));
        }
        let prefix = prefix.trim_end_matches('/');
        if !prefix.is_empty() {
            crate::store::check_name(prefix)
                .map_err(|_| invalid("invalid prefix: it has empty components, . or .."))?;
        }
        Ok(Self {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }

    /// Returns the key of `name` below the prefix.
    pub(super) fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", self.prefix)
        }
    }
}

impl fmt::Display for BucketPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "s3://{}/{}",
            self.bucket,
            self.prefix.replace('%', "%25").replace(':', "%3A")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn addresses_name_a_bucket_and_a_prefix() {
        let parsed = |url| {
            BucketPlace::parse(url).map(|place| {
                (
                    place.bucket.clone(),
                    place.prefix.clone(),
                    place.to_string(),
                )
            })
        };
        let is = |bucket: &str, prefix: &str, shown: &str| {
            (bucket.to_owned(), prefix.to_owned(), shown.to_owned())
        };
        assert_eq!(
            parsed("s3://b/a/D o.sparsebundle/").unwrap(),
            is("b", "a/D o.sparsebundle", "s3://b/a/D o.sparsebundle")
        );
        assert_eq!(
            parsed("s3://my-b.1/a:b%").unwrap(),
            is("my-b.1", "a:b%", "s3://my-b.1/a%3Ab%25")
        );
        assert_eq!(parsed("s3://b").unwrap(), is("b", "", "s3://b/"));
        for odd in [
            "s3://",
            "s3:///a",
            "http://b/a",
            "s3://b?/a",
            "s3://b/a//b",
            "s3://b/../c",
        ] {
            assert_eq!(parsed(odd).unwrap_err().kind(), Kind::Invalid, "{odd}");
        }
    }

    #[test]
    fn keys_are_below_the_prefix() {
        assert_eq!(
            BucketPlace::parse("s3://b/x/y").unwrap().key("bands/0"),
            "x/y/bands/0"
        );
        assert_eq!(
            BucketPlace::parse("s3://b").unwrap().key("bands/0"),
            "bands/0"
        );
    }
}
