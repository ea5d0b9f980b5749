//! Failures of requests: their causes and remedies. Messages never contain a key, a signature, or
//! the server's text about them.

use std::error::Error as _;

use object_store::client::{HttpError, HttpErrorKind};

use super::bounded::AbortReason;
use super::{BucketPlace, LAYER};
use crate::{Error, Kind};

/// Returns true if a 404 is about the bucket.
pub(super) fn bucket_is_missing(error: &object_store::Error) -> bool {
    code(&error.to_string()) == Some("NoSuchBucket")
}

/// Returns true if a range was refused because the object ends before it.
pub(super) fn past_the_end(error: &object_store::Error) -> bool {
    let text = error.to_string();
    code(&text) == Some("InvalidRange") || status(&text) == Some(416)
}

/// Returns true if the response was longer than the requested range.
pub(super) fn ignored_range(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::Generic { source, .. } if source.to_string().contains("non-partial response"))
}

/// Converts an error of a request to one of the library. `key` is the key of the request.
pub(super) fn explain(
    error: &object_store::Error,
    place: &BucketPlace,
    endpoint: &str,
    key: &str,
) -> Error {
    let text = error.to_string();
    let (kind, message) = match http_error(error) {
        Some(http) => (Kind::Io, no_answer(http, endpoint)),
        None => refused(&text, error, place, endpoint),
    };
    let explained = Error::new(kind, LAYER, message);
    if key.is_empty() {
        explained
    } else {
        explained.named(key)
    }
}

fn http_error(error: &object_store::Error) -> Option<&HttpError> {
    let mut cause = error.source();
    while let Some(now) = cause {
        if let Some(http) = now.downcast_ref::<HttpError>() {
            return Some(http);
        }
        cause = now.source();
    }
    None
}

/// Returns the message about a failed connection.
fn no_answer(error: &HttpError, endpoint: &str) -> String {
    let mut causes = error.to_string();
    let mut cause = error.source();
    while let Some(now) = cause {
        causes = now.to_string();
        cause = now.source();
    }
    if is_about_credentials(&error.to_string()) {
        return NO_CREDENTIALS.to_owned();
    }
    if causes.contains("certificate") || causes.contains("UnknownIssuer") {
        return format!(
            "the certificate of {endpoint} is not trusted ({causes}): set AWS_CA_BUNDLE to the \
             file of its authority"
        );
    }
    match error
        .source()
        .and_then(|cause| cause.downcast_ref::<AbortReason>())
    {
        Some(AbortReason::Silent { .. }) => return silent(endpoint),
        Some(broken @ (AbortReason::LongerThanRange | AbortReason::TooLong(_))) => {
            return format!("invalid response of {endpoint}: {broken}; is it an S3 service?");
        }
        Some(AbortReason::Short { .. }) | None => {}
    }
    match error.kind() {
        HttpErrorKind::Connect => {
            format!(
                "cannot connect to {endpoint} ({causes}): check AWS_ENDPOINT_URL, and whether the \
                 server runs"
            )
        }
        HttpErrorKind::Timeout => silent(endpoint),
        _ => format!("the connection to {endpoint} was lost ({causes}): try again"),
    }
}

/// Returns the message about a timeout.
fn silent(endpoint: &str) -> String {
    format!(
        "timeout: no response from {endpoint}: check AWS_ENDPOINT_URL and the network, and \
         whether the store is overloaded or full, or increase --timeout"
    )
}

pub(super) const NO_CREDENTIALS: &str = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile in \
                              ~/.aws/credentials, or AWS_SKIP_SIGNATURE=true for what is public";

/// Returns true if the request was to the metadata service that provides credentials in a cloud,
/// which is used if none are configured.
fn is_about_credentials(text: &str) -> bool {
    text.contains("169.254.16") || text.contains("169.254.170.2")
}

/// Returns the error for a request that the server refused.
fn refused(
    text: &str,
    error: &object_store::Error,
    place: &BucketPlace,
    endpoint: &str,
) -> (Kind, String) {
    let bucket = &place.bucket;
    let message = match (code(text), status(text)) {
        _ if is_about_credentials(text) => NO_CREDENTIALS.to_owned(),
        (Some("NoSuchBucket"), _) => {
            let message = format!(
                "bucket {bucket} does not exist at {endpoint}: create it, or \
                                   check its name and AWS_ENDPOINT_URL"
            );
            return (Kind::NotFound, message);
        }
        (Some("InvalidAccessKeyId"), _) => {
            "unknown access key: check AWS_ACCESS_KEY_ID, or the profile's aws_access_key_id"
                .to_owned()
        }
        (Some("SignatureDoesNotMatch"), _) => {
            "the secret key does not match the access key: check AWS_SECRET_ACCESS_KEY, or the \
             profile's aws_secret_access_key"
                .to_owned()
        }
        (Some("ExpiredToken" | "InvalidToken" | "TokenRefreshRequired"), _) => {
            "the session's token has expired or is wrong: get a new one, and set AWS_SESSION_TOKEN"
                .to_owned()
        }
        (Some("RequestTimeTooSkewed" | "RequestExpired"), _) => {
            "the clock of this machine differs too much from the server's: synchronize it, for \
             example by NTP"
                .to_owned()
        }
        (
            Some(
                "QuotaExceeded"
                | "InsufficientStorage"
                | "StorageFull"
                | "XMinioStorageFull"
                | "InsufficientCapacity",
            ),
            _,
        )
        | (_, Some(507)) => {
            format!(
                "the store is full or over its quota for {bucket}: free some space, or raise \
                     the quota"
            )
        }
        (
            Some(
                "AuthorizationHeaderMalformed"
                | "PermanentRedirect"
                | "TemporaryRedirect"
                | "IllegalLocationConstraintException",
            ),
            _,
        )
        | (_, Some(301 | 307)) => {
            format!("the bucket {bucket} is in another region: set AWS_REGION to it")
        }
        _ if text.contains("incorrectly configured region") => {
            format!("the bucket {bucket} is in another region: set AWS_REGION to it")
        }
        (Some("SlowDown" | "ServiceUnavailable"), _) | (_, Some(429 | 503)) => {
            format!(
                "{endpoint} is overloaded after several retries: try later, or with fewer \
                     requests at a time"
            )
        }
        (_, Some(401 | 403)) => {
            format!(
                "access denied: the key may lack the permission for bucket {bucket}, or the clock \
                 of this machine is wrong"
            )
        }
        (Some(code), status) => {
            let status = status
                .map(|status| format!(" ({status})"))
                .unwrap_or_default();
            format!("request failed: {code}{status}")
        }
        (None, Some(status)) => format!(
            "request failed with HTTP status {status}: is {endpoint} \
                                         an S3 service?"
        ),
        (None, None) if ignored_range(error) => {
            format!("{endpoint} does not support range requests, which are required")
        }
        (None, None) => format!("invalid response of {endpoint}: {}", innermost(error)),
    };
    (Kind::Io, message)
}

fn innermost(error: &object_store::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let text = cause.to_string();
    text.chars().take(200).collect()
}

/// Returns `X` of `<Code>X</Code>`, the error code of S3.
fn code(text: &str) -> Option<&str> {
    let (_, after) = text.split_once("<Code>")?;
    let (code, _) = after.split_once("</Code>")?;
    (code.len() < 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(code)
}

/// Returns the HTTP status in an error's text; the crate does not expose it otherwise.
fn status(text: &str) -> Option<u16> {
    let (_, after) = text.split_once("status code: ")?;
    after.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic {
            store: "S3",
            source: text.into(),
        }
    }

    fn explained(text: &str) -> Error {
        let place = BucketPlace {
            bucket: "b".into(),
            prefix: "p".into(),
        };
        explain(&generic(text), &place, "http://127.0.0.1:9", "p/Info.plist")
    }

    #[test]
    fn answers_say_what_to_do() {
        let answer = |code: &str| {
            format!(
                "Server returned non-2xx status code: 403 Forbidden: <Error><Code>{code}</Code><AWSAccessKeyId>AKhidden</AWSAccessKeyId><StringToSign>hidden</StringToSign></Error>"
            )
        };
        let cases = [
            ("NoSuchBucket", "bucket b does not exist"),
            ("InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
            ("SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
            ("RequestTimeTooSkewed", "clock"),
            ("QuotaExceeded", "quota"),
            ("ExpiredToken", "AWS_SESSION_TOKEN"),
            ("AuthorizationHeaderMalformed", "AWS_REGION"),
            ("AccessDenied", "access denied"),
        ];
        for (code, says) in cases {
            let error = explained(&answer(code)).to_string();
            assert!(
                error.contains(says) && error.contains("p/Info.plist"),
                "{code}: {error}"
            );
            assert!(!error.contains("hidden"), "{error}");
        }
        assert!(
            explained(&answer("<script>"))
                .to_string()
                .contains("access denied")
        );
    }

    #[test]
    fn ranges_past_the_end_are_recognized_by_code_or_status() {
        assert!(past_the_end(&generic(
            "status code: 416 Range Not Satisfiable: "
        )));
        assert!(past_the_end(&generic(
            "<Error><Code>InvalidRange</Code></Error>"
        )));
        assert!(!past_the_end(&generic(
            "status code: 404 Not Found: <Code>NoSuchKey</Code>"
        )));
        assert!(bucket_is_missing(&generic("<Code>NoSuchBucket</Code>")));
    }
}
