//! Addresses fit to print: without passwords, signatures and tokens.

use std::borrow::Cow;

/// Replacement text for a secret.
const MASK: &str = "***";

/// Characters that end an address in running text.
const ENDS: &[char] = &['"', '\'', '<', '>', '`', '|'];

/// Returns `text` with the user name and password of every URL in it, the values of its query and
/// its fragment replaced by `***`.
pub fn redacted(text: &str) -> Cow<'_, str> {
    let secrets = Secrets::of(text);
    match secrets.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(secrets.mask(text)),
    }
}

/// The secret parts of known addresses, to be removed from all output.
#[derive(Clone, Default)]
pub struct Secrets {
    /// Secrets, each with its replacement; the longest first.
    parts: Vec<(String, String)>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets")
            .field("parts", &self.parts.len())
            .finish_non_exhaustive()
    }
}

impl Secrets {
    /// Collects the secrets of every URL in `text`.
    pub fn of(text: &str) -> Self {
        let mut secrets = Self::default();
        secrets.add(text);
        secrets
    }

    /// Adds the secrets of every URL in `text`.
    pub fn add(&mut self, text: &str) {
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("://") {
            let has_scheme = before.ends_with(|c: char| c.is_ascii_alphanumeric());
            let url = after
                .split(|c: char| c.is_whitespace() || ENDS.contains(&c))
                .next()
                .unwrap_or_default();
            if has_scheme {
                self.add_url(url);
            }
            if before.ends_with("http") || before.ends_with("https") {
                self.add_fragment(url);
            }
            rest = after;
        }
        self.parts
            .sort_by_key(|(secret, _)| std::cmp::Reverse(secret.len()));
        self.parts.dedup();
    }

    /// Adds the secrets of `url`, which is the text after `://`.
    fn add_url(&mut self, url: &str) {
        let authority = url.split(['/', '?', '#']).next().unwrap_or_default();
        if let Some((user, _)) = authority.rsplit_once('@') {
            self.parts.push((format!("{user}@"), format!("{MASK}@")));
        }
        let Some((_, query)) = url.split_once('?') else {
            return;
        };
        // A colon is followed by a volume and a path.
        let query = query.split(['#', ':']).next().unwrap_or_default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((_, "")) => {}
                Some((key, _)) => self.parts.push((part.to_owned(), format!("{key}={MASK}"))),
                None => self.parts.push((format!("?{part}"), format!("?{MASK}"))),
            }
        }
    }

    /// Adds the fragment of `url`. `:#2` is not one, but selects a volume.
    fn add_fragment(&mut self, url: &str) {
        let mut starts = url.match_indices('#').map(|(at, _)| at);
        let Some(at) = starts.find(|&at| !url[..at].ends_with(':')) else {
            return;
        };
        let fragment = url[at..].split(':').next().unwrap_or_default();
        if fragment.len() > 1 {
            self.parts.push((fragment.to_owned(), format!("#{MASK}")));
        }
    }

    /// Returns true if there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns `text` with the secrets replaced.
    pub fn mask(&self, text: &str) -> String {
        self.parts
            .iter()
            .fold(text.to_owned(), |text, (secret, shown)| {
                text.replace(secret, shown)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_addresses_are_not_shown() {
        for (text, shown) in [
            ("https://user:PW@host/disk.dmg", "https://***@host/disk.dmg"),
            ("s3://user:P:W@bucket/x:/a", "s3://***@bucket/x:/a"),
            (
                "https://h/d.dmg?X-Amz-Signature=abc&X-Amz-Date=1:Docs:/a",
                "https://h/d.dmg?X-Amz-Signature=***&X-Amz-Date=***:Docs:/a",
            ),
            ("https://h/get?abc", "https://h/get?***"),
            ("https://h/d.dmg#token=abc:/a", "https://h/d.dmg#***:/a"),
            ("https://h/d.dmg?a=b#c", "https://h/d.dmg?a=***#***"),
            (
                "cannot get 'https://u:p@h:8080/x' and http://t@h",
                "cannot get 'https://***@h:8080/x' and http://***@h",
            ),
        ] {
            assert_eq!(redacted(text), shown);
        }
        for plain in [
            "s3://bucket/Docs.sparsebundle@monday:/a",
            "disk.dmg:Docs@old:/a?b=c",
            "https://h:80/x",
            "https://h/d.dmg:#2:/a",
            "s3://bucket/Disk#2.sparsebundle",
            "a@b",
            "://u@h",
            "",
        ] {
            assert!(
                matches!(redacted(plain), Cow::Borrowed(same) if same == plain),
                "{plain}"
            );
        }
    }

    #[test]
    fn secrets_are_masked_in_other_texts() {
        let secrets = Secrets::of("https://h/d.dmg?sig=abc");
        assert_eq!(
            secrets.mask("{\"image\": \"https://h/d.dmg?sig=abc\"}"),
            "{\"image\": \"https://h/d.dmg?sig=***\"}"
        );
        assert_eq!(secrets.mask("abc"), "abc");
        assert_eq!(format!("{secrets:?}"), "Secrets { parts: 1, .. }");
    }
}
