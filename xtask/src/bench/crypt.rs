//! Encryption: the cipher and the passphrase compared with OpenSSL, encrypted images with plain
//! ones (goals 8 to 12).

use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bandsaw::container::Format;
use bandsaw::crypt::{
    BackEnd, Encryption, KeyMaterial, KeyWrap, Locked, MIN_ITERATIONS, Protection, Secret, Sectors,
};
use bandsaw::device::{Access, BlockDevice};
use bandsaw::open::{self, CreateOptions, Keys, OpenOptions};

use super::measure::{Case, Workload, time};
use super::startup::present;
use super::stream::{Pass, Target, plain, stream};
use super::{Bench, MIB};

/// Piece size in bytes: that of the layers above, which fits in the cache.
const PIECE: usize = 256 << 10;
const PAGE: usize = 4096;

/// Returns true if this processor has the instructions for sixteen parallel chains.
fn is_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("vaes") && is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Goals 8 and 11: the cipher alone on one core, including initialization vectors.
pub(super) fn cipher(bench: &Bench) -> Result<Vec<Case>> {
    let size = bench.scaled(2048 * MIB);
    let case = |goal: u32, name: String, reference: &str, least: f64| Case {
        goal,
        name,
        reference: reference.to_owned(),
        at_least: least,
        pairs: Vec::new(),
        work: Workload::Bytes(size),
    };
    let mut cases = Vec::new();
    if present("openssl") {
        let wide = is_wide();
        // Blocks, direction, peer, minimum ratio with AVX-512 and without.
        for (block, pass, peer, least, narrow) in [
            (4096, Pass::Write, "aes-256-cbc", 9.0, 5.0),
            (4096, Pass::Write, "aes-256-ecb", 1.2, 0.6),
            (4096, Pass::Read, "aes-256-ecb", 1.5, 0.6),
            (512, Pass::Write, "aes-256-ecb", 0.7, 0.3),
            (512, Pass::Read, "aes-256-ecb", 0.75, 0.3),
        ] {
            let verb = if pass == Pass::Write {
                "encrypt"
            } else {
                "decrypt"
            };
            let name = format!("AES-256 {verb}, {block}-byte blocks, one core");
            let least = if wide { least } else { narrow };
            let ours = || core(256, block, pass, size, BackEnd::Best);
            let theirs = || openssl(peer, size);
            cases.push(
                case(8, name, &format!("openssl speed {peer}"), least).measure(
                    bench.rounds,
                    ours,
                    theirs,
                )?,
            );
        }
        for (back_end, how) in [
            (BackEnd::Narrow, "without AVX-512"),
            (BackEnd::AesNi, "by AES-NI alone"),
        ] {
            let name = format!("AES-256 encrypt, 4096-byte blocks, one core, {how}");
            let ours = || core(256, 4096, Pass::Write, size, back_end);
            let theirs = || openssl("aes-256-cbc", size);
            if wide {
                cases.push(case(8, name, "openssl speed aes-256-cbc", 5.0).measure(
                    bench.rounds,
                    ours,
                    theirs,
                )?);
            }
        }
    } else {
        eprintln!("  openssl is absent: its cases are left out (apt install openssl)");
    }
    let name = "AES-128 encrypt, 4096-byte blocks, one core".to_owned();
    let (short, long) = (
        || core(128, 4096, Pass::Write, size, BackEnd::Best),
        || core(256, 4096, Pass::Write, size, BackEnd::Best),
    );
    cases.push(case(11, name, "AES-256", 1.15).measure(bench.rounds, short, long)?);
    Ok(cases)
}

/// Times `size` bytes through the cipher, in pieces. The buffers are aligned to a cache line, as
/// those of `openssl speed` are.
fn core(bits: u32, block: u32, pass: Pass, size: u64, back_end: BackEnd) -> Result<Duration> {
    let sectors = Sectors::with(&KeyMaterial::random(bits)?, block, back_end)?;
    let (mut plain, mut cipher) = (vec![0x5A; PIECE + PAGE], vec![0; PIECE + PAGE]);
    let [plain, cipher] = [&mut plain, &mut cipher].map(|buffer| {
        let skipped = buffer.as_ptr().align_offset(PAGE).min(PAGE);
        &mut buffer[skipped..skipped + PIECE]
    });
    time(|| {
        for number in (0..size / PIECE as u64).map(|piece| piece * PIECE as u64 / u64::from(block))
        {
            match pass {
                Pass::Write => sectors.encrypt(number, plain, cipher)?,
                Pass::Read => sectors.decrypt(number, cipher)?,
            }
            black_box(&mut *cipher);
        }
        Ok(())
    })
}

/// Returns the time for `size` bytes according to `openssl speed`.
pub(super) fn openssl(cipher: &str, size: u64) -> Result<Duration> {
    let args = ["speed", "-seconds", "1", "-bytes", "65536", "-evp", cipher];
    let output = Command::new("openssl")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("openssl speed")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // The last line: its name and thousands of bytes per second, as `1010234.56k`.
    let rate = text.lines().last().and_then(|line| {
        line.split_whitespace()
            .last()?
            .strip_suffix('k')?
            .parse::<f64>()
            .ok()
    });
    let rate = rate.with_context(|| format!("openssl speed says no rate: {text}"))? * 1000.0;
    ensure!(rate > 0.0, "openssl speed says no rate: {text}");
    Ok(Duration::from_secs_f64(size as f64 / rate))
}

/// Goal 12: key derivation from a passphrase, compared with OpenSSL's of as many bytes.
pub(super) fn unlock(bench: &Bench) -> Result<Vec<Case>> {
    let iterations = ((4_000_000.0 * bench.scale) as u32).max(MIN_ITERATIONS);
    if !present("openssl") {
        eprintln!("  openssl is absent: its case is left out (apt install openssl)");
        return Ok(Vec::new());
    }
    let passphrase = Secret::new(b"passphrase".to_vec());
    let protection = Protection {
        key_bits: 256,
        block: 512,
        iterations,
        key_wrap: KeyWrap::TripleDes,
        passphrase: Some(passphrase),
        certificates: Vec::new(),
    };
    let (locked, _) = Locked::make(&KeyMaterial::random(256)?, &protection, 0)?;
    let ours = || time(|| Ok(locked.unlock(b"passphrase")?));
    let count = format!("iter:{iterations}");
    let theirs = || {
        time(|| {
            let options = [
                "digest:SHA1",
                "pass:passphrase",
                "salt:01234567890123456789",
                &count,
            ];
            let options = options.iter().flat_map(|option| ["-kdfopt", option]);
            let mut openssl = Command::new("openssl");
            openssl
                .args(["kdf", "-keylen", "24"])
                .args(options)
                .arg("PBKDF2")
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            ensure!(
                openssl.status().context("openssl kdf")?.success(),
                "openssl kdf failed"
            );
            Ok(())
        })
    };
    let case = Case {
        goal: 12,
        name: format!("unlocking, {iterations} iterations"),
        reference: "openssl kdf PBKDF2, SHA-1, 24 bytes".into(),
        at_least: 3.0,
        pairs: Vec::new(),
        work: Workload::Run,
    };
    Ok(vec![case.measure(bench.rounds, ours, theirs)?])
}

/// Creates a blank image.
pub(super) fn fresh(
    bench: &Bench,
    name: &str,
    format: Format,
    len: u64,
    encrypted: bool,
) -> Result<(PathBuf, Arc<dyn BlockDevice>)> {
    let path = bench.dir.join(name);
    super::remove(&path);
    let secret = Secret::new(b"passphrase".to_vec());
    let encryption = Encryption {
        iterations: Some(MIN_ITERATIONS),
        ..Encryption::new(secret.clone())
    };
    let encryption = encrypted.then_some(Encryption {
        cipher_block: Some(4096),
        ..encryption
    });
    drop(open::create(
        &path,
        &CreateOptions {
            format,
            len,
            encryption,
            ..CreateOptions::default()
        },
    )?);
    let keys = encrypted.then_some(&secret as &dyn Keys);
    let image = open::open(
        &path,
        &OpenOptions {
            access: Access::ReadWrite,
            image_format: Some(format),
            keys,
            ..OpenOptions::default()
        },
    )?;
    Ok((path, image.disk().clone()))
}

/// Goal 9: an encrypted bundle on two threads, compared with a plain file and the unencrypted
/// bundle.
pub(super) fn bundle(bench: &Bench) -> Result<Vec<Case>> {
    let size = bench.scaled(1024 * MIB);
    let case = |what: &str, reference: &str, least: f64| Case {
        goal: 9,
        name: format!("encrypted UDSB {what}, 1024 KiB, 2 threads"),
        reference: reference.to_owned(),
        at_least: least,
        pairs: Vec::new(),
        work: Workload::Bytes(size),
    };
    let mut cases = [
        case("rewrite", "one plain file's pwrite, 2 threads", 1.0),
        case("rewrite", "the unencrypted bundle", 0.6),
        case("read", "the unencrypted bundle", 0.6),
        case("first write", "the unencrypted bundle", 0.6),
    ];
    let run =
        |target: &dyn Target, pass: Pass| Ok(stream(target, pass, size, MIB, 2)?.as_secs_f64());
    for round in 0..bench.rounds + 2 {
        let host = bench.dir.join("plain");
        super::remove(&host);
        let file = plain(&host)?;
        let (cipher_path, cipher) = fresh(bench, "cipher.sparsebundle", Format::Udsb, size, true)?;
        let (clear_path, clear) = fresh(bench, "clear.sparsebundle", Format::Udsb, size, false)?;
        cases[3].pair(
            round,
            || run(&cipher, Pass::Write),
            || run(&clear, Pass::Write),
        )?;
        run(&file, Pass::Write)?;
        cases[0].pair(
            round,
            || run(&cipher, Pass::Write),
            || run(&file, Pass::Write),
        )?;
        cases[1].pair(
            round,
            || run(&cipher, Pass::Write),
            || run(&clear, Pass::Write),
        )?;
        cases[2].pair(
            round,
            || run(&cipher, Pass::Read),
            || run(&clear, Pass::Read),
        )?;
        drop((cipher, clear, file));
        [cipher_path, clear_path, host]
            .iter()
            .for_each(|path| super::remove(path));
    }
    cases.iter().for_each(Case::tell);
    Ok(cases.into())
}

/// Goal 10: the other formats, encrypted, compared with the encrypted bundle, on one thread.
pub(super) fn other_formats(bench: &Bench) -> Result<Vec<Case>> {
    let size = bench.scaled(512 * MIB);
    let mut all = Vec::new();
    for format in [Format::Udrw, Format::Udsp, Format::Asif] {
        let case = |what: &str| Case {
            goal: 10,
            name: format!("encrypted {format} {what}, 1024 KiB, 1 thread"),
            reference: "the encrypted bundle".into(),
            at_least: 0.9,
            pairs: Vec::new(),
            work: Workload::Bytes(size),
        };
        let mut cases = [case("rewrite"), case("read")];
        let run =
            |target: &dyn Target, pass: Pass| Ok(stream(target, pass, size, MIB, 1)?.as_secs_f64());
        for round in 0..bench.rounds + 2 {
            let (path, subject) = fresh(bench, "subject.img", format, size, true)?;
            let (bundle_path, bundle) =
                fresh(bench, "cipher.sparsebundle", Format::Udsb, size, true)?;
            run(&subject, Pass::Write)?;
            run(&bundle, Pass::Write)?;
            cases[0].pair(
                round,
                || run(&subject, Pass::Write),
                || run(&bundle, Pass::Write),
            )?;
            cases[1].pair(
                round,
                || run(&subject, Pass::Read),
                || run(&bundle, Pass::Read),
            )?;
            drop((subject, bundle));
            [path, bundle_path]
                .iter()
                .for_each(|path| super::remove(path));
        }
        cases.iter().for_each(Case::tell);
        all.extend(cases);
    }
    Ok(all)
}
