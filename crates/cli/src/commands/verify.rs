//! `bandsaw verify`: the checksums stored in an image.

use std::ffi::OsString;

use bandsaw::container::udif::Udif;
use bandsaw::crypt::aea::CheckedArchive;
use bandsaw::ops::describe::{ChecksumInfo, SignatureInfo};
use bandsaw::ops::verify::{verify, verify_archive};
use bandsaw::problem::{Problems, Severity};
use bandsaw::{Error, Kind};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Advise, Outcome};
use crate::info_text;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};
use crate::text::counted;

/// Compare an image with the checksums stored in it
///
/// Everything is decoded, and every checksum is computed. The exit code is 5 if a checksum differs
/// or a chunk cannot be decoded. Raw images and sparse bundles contain no checksums; the exit code
/// is then 6. Every segment of an encrypted archive (AEA) is authenticated and decoded. The hashes of a code signature are compared, too; its certificates are not verified.
/// The volumes in the image are not checked; see `bandsaw check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw verify App.dmg
  bandsaw verify --json App.dmg          for programs
  bandsaw verify -q App.dmg > /dev/null  the exit code alone")]
pub(crate) struct Verify {
    /// The image to verify
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct VerifyReport {
    path: String,
    format: &'static str,
    intact: bool,
    checksums: Vec<ChecksumInfo>,
    /// The encrypted archive that contains the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    archive: Option<VerifiedArchive>,
    /// The code signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<Signature>,
}

#[derive(Serialize)]
struct VerifiedArchive {
    /// `none`, `verified` or `unverified`.
    signature: &'static str,
    segments: u64,
    damaged_segments: u64,
    intact: bool,
    /// The damage that was found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

impl VerifiedArchive {
    fn new(signature: &'static str, checked: CheckedArchive, problems: Problems) -> Self {
        let damage = problems
            .into_iter()
            .filter(|problem| problem.severity == Severity::Damage);
        Self {
            signature,
            segments: checked.segments,
            damaged_segments: checked.damaged,
            intact: checked.damaged == 0,
            problems: damage.map(|problem| problem.error.to_string()).collect(),
        }
    }

    fn conclusion(&self) -> String {
        let all = counted(self.segments, "segment", "segments");
        match self.damaged_segments {
            0 => format!("right    {all}"),
            damaged => format!("WRONG    {damaged} of {all}"),
        }
    }
}

#[derive(Serialize)]
struct Signature {
    #[serde(flatten)]
    signature: SignatureInfo,
    /// True if its hashes were compared.
    verified: bool,
    /// True if they agree with the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    intact: Option<bool>,
}

impl Signature {
    fn of(udif: &Udif, bar: &Bar) -> Outcome<Option<Self>> {
        let Some((signature, known)) = SignatureInfo::of(udif) else {
            return Ok(None);
        };
        let compared = known.map(|known| udif.verify_signature(&known, bar));
        let intact = compared.transpose()?;
        Ok(Some(Self {
            signature,
            verified: intact.is_some(),
            intact,
        }))
    }

    fn conclusion(&self, output: &Output) -> String {
        let Some(contents) = &self.signature.contents else {
            return format!("present, {} bytes, not verified", self.signature.size);
        };
        let verdict = match self.intact {
            Some(true) => "right   ",
            _ => "WRONG   ",
        };
        format!("{verdict} {}", info_text::signed_by(contents, output))
    }
}

/// Describes the comparison of a checksum.
fn conclusion(sum: &ChecksumInfo) -> String {
    let known = |sum: &Option<String>| sum.clone().unwrap_or_else(|| "nothing".to_owned());
    match (sum.intact, sum.algorithm) {
        (Some(true), _) => format!("right    {}", known(&sum.stored)),
        (Some(false), _) => format!(
            "WRONG    stored {}, computed {}",
            known(&sum.stored),
            known(&sum.computed)
        ),
        (None, "none") => "none     is stored".to_owned(),
        (None, _) => "unknown  kind of checksum, not compared".to_owned(),
    }
}

impl Verify {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let image = self.opening.read(&path, output)?;
        let bar = Bar::new(output);
        let archive = verify_archive(&image, &bar)?;
        let archive = archive.map(|(checked, problems)| {
            let signature = image
                .archive()
                .map_or("none", |archive| archive.description.signature.name());
            VerifiedArchive::new(signature, checked, problems)
        });
        let is_damaged = archive.as_ref().is_some_and(|archive| !archive.intact);
        let verdicts = match &archive {
            // Of an archive that is damaged, the image need not decode.
            Some(_) if is_damaged => Ok(Vec::new()),
            Some(_) => verify(&image, &bar).or_else(|error| match error.kind() {
                // The archive has MACs of everything.
                Kind::Unsupported => Ok(Vec::new()),
                _ => Err(error),
            }),
            None => verify(&image, &bar),
        };
        let verdicts = verdicts.advise(Kind::Unsupported, || {
            format!("run `bandsaw check {path}` to check its structure and volumes")
        })?;
        let signature = match image.udif() {
            Some(udif) if !is_damaged => Signature::of(udif, &bar)?,
            _ => None,
        };
        drop(bar);
        let is_wrong = |signature: &Signature| signature.intact == Some(false);
        let wrong = verdicts
            .iter()
            .filter(|verdict| verdict.agrees() == Some(false))
            .count() as u64
            + u64::from(signature.as_ref().is_some_and(is_wrong));
        let checksums = verdicts.iter().map(ChecksumInfo::new).collect();
        let format = image.format().code();
        let report = VerifyReport {
            path: path.to_string(),
            format,
            intact: wrong == 0 && !is_damaged,
            checksums,
            archive,
            signature,
        };
        output.result(&report, |out| {
            let widest = report
                .checksums
                .iter()
                .map(|sum| sum.name.chars().count())
                .max()
                .unwrap_or_default();
            for sum in &report.checksums {
                writeln!(
                    out,
                    "{:widest$}  {}",
                    output.name(&sum.name),
                    conclusion(sum)
                )?;
            }
            if let Some(archive) = &report.archive {
                let conclusion = archive.conclusion();
                writeln!(out, "{:widest$}  {conclusion}", "archive")?;
                for problem in &archive.problems {
                    writeln!(out, "{:widest$}  {}", "", output.name(problem))?;
                }
            }
            if let Some(signature) = &report.signature {
                let conclusion = signature.conclusion(output);
                writeln!(out, "{:widest$}  {conclusion}", "code signature")?;
            }
            Ok(())
        })?;
        if let Some(archive) = report.archive.as_ref().filter(|_| is_damaged) {
            let damaged = counted(archive.damaged_segments, "segment is", "segments are");
            let message = format!("is damaged: {damaged} not authentic or not decodable");
            let error = Error::new(Kind::Corrupt, "verify", message);
            return Err(error.in_file(path).into());
        }
        if wrong == 0 {
            return Ok(());
        }
        let message = format!(
            "is damaged: {} different from the stored value",
            counted(wrong, "checksum is", "checksums are")
        );
        Err(Error::new(Kind::Corrupt, "verify", message)
            .in_file(path)
            .into())
    }
}
