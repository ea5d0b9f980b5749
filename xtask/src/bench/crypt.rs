//! Encryption: the cipher and the passphrase compared with OpenSSL (goals 8, 11 and 12).

use std::hint::black_box;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use bandsaw::crypt::{
    BackEnd, KeyMaterial, KeyWrap, LockedHeader, MIN_ITERATIONS, Protection, Secret, Sectors,
};

use super::measure::{Case, Workload, time};
use super::stream::Pass;
use super::{Bench, MIB, PASSPHRASE};

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
    let work = Workload::Bytes(size);
    let mut cases = Vec::new();
    if bench.has("openssl", "apt install openssl") {
        let wide = is_wide();
        let (best, write, read) = (BackEnd::Best, Pass::Write, Pass::Read);
        // Blocks, direction, back end, peer, minimum ratio with AVX-512 and without.
        for (block, pass, back_end, peer, least, narrow) in [
            (4096, write, best, "aes-256-cbc", 9.0, Some(5.0)),
            (4096, write, best, "aes-256-ecb", 1.2, Some(0.6)),
            (4096, read, best, "aes-256-ecb", 1.5, Some(0.6)),
            (512, write, best, "aes-256-ecb", 0.7, Some(0.3)),
            (512, read, best, "aes-256-ecb", 0.75, Some(0.3)),
            (4096, write, BackEnd::Narrow, "aes-256-cbc", 5.0, None),
            (4096, write, BackEnd::AesNi, "aes-256-cbc", 5.0, None),
        ] {
            let Some(least) = (if wide { Some(least) } else { narrow }) else {
                continue;
            };
            let verb = match pass {
                Pass::Write => "encrypt",
                Pass::Read => "decrypt",
            };
            let how = match back_end {
                BackEnd::Narrow => ", without AVX-512",
                BackEnd::AesNi => ", by AES-NI alone",
                _ => "",
            };
            let name = format!("AES-256 {verb}, {block}-byte blocks, one core{how}");
            let case = Case::new(8, name, format!("openssl speed {peer}"), least, work);
            cases.push(case.measure(
                bench.rounds,
                || core(256, block, pass, size, back_end),
                || openssl(bench, peer, size),
            )?);
        }
    }
    let name = "AES-128 encrypt, 4096-byte blocks, one core";
    let of_bits = |bits| core(bits, 4096, Pass::Write, size, BackEnd::Best);
    let case = Case::new(11, name, "AES-256", 1.15, work);
    cases.push(case.measure(bench.rounds, || of_bits(128), || of_bits(256))?);
    Ok(cases)
}

/// Times `size` bytes through the cipher, in pieces. The buffers are aligned to a cache line, as
/// those of `openssl speed` are, and half a page apart, as those of the layers above.
fn core(bits: u32, block: u32, pass: Pass, size: u64, back_end: BackEnd) -> Result<f64> {
    let sectors = Sectors::with(&KeyMaterial::random(bits)?, block, back_end)?;
    let (mut plain, mut cipher) = (vec![0x5A; PIECE + 2 * PAGE], vec![0; PIECE + 2 * PAGE]);
    let [plain, cipher] = [(&mut plain, 0), (&mut cipher, PAGE / 2)].map(|(buffer, apart)| {
        let skipped = buffer.as_ptr().align_offset(PAGE).min(PAGE) + apart;
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

/// Returns the seconds for `size` bytes according to `openssl speed`.
pub(super) fn openssl(bench: &Bench, cipher: &str, size: u64) -> Result<f64> {
    let output = bench
        .command(&format!(
            "openssl speed -seconds 1 -bytes 65536 -evp {cipher}"
        ))
        .stdout(Stdio::piped())
        .output()
        .context("openssl speed")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // The last line: its name and thousands of bytes per second, as `1010234.56k`.
    let rate = text.split_whitespace().last();
    let rate: Option<f64> = rate.and_then(|rate| rate.strip_suffix('k')?.parse().ok());
    let rate = rate.unwrap_or_default();
    ensure!(rate > 0.0, "openssl speed says no rate: {text}");
    Ok(size as f64 / (rate * 1000.0))
}

/// Goal 12: key derivation from a passphrase, compared with OpenSSL's of as many bytes.
pub(super) fn unlock(bench: &Bench) -> Result<Vec<Case>> {
    let iterations = ((4_000_000.0 * bench.scale) as u32).max(MIN_ITERATIONS);
    if !bench.has("openssl", "apt install openssl") {
        return Ok(Vec::new());
    }
    let protection = Protection {
        key_bits: 256,
        block: 512,
        iterations,
        key_wrap: KeyWrap::TripleDes,
        passphrase: Some(Secret::new(PASSPHRASE.into())),
        certificates: Vec::new(),
    };
    let (locked, _) = LockedHeader::make(&KeyMaterial::random(256)?, &protection, 0)?;
    let name = format!("unlocking, {iterations} iterations");
    let reference = "openssl kdf PBKDF2, SHA-1, 24 bytes";
    let openssl = format!(
        "openssl kdf -keylen 24 -kdfopt digest:SHA1 -kdfopt pass:{PASSPHRASE} \
        -kdfopt salt:01234567890123456789 -kdfopt iter:{iterations} PBKDF2"
    );
    let case = Case::new(12, name, reference, 3.0, Workload::Run).measure(
        bench.rounds,
        || time(|| Ok(locked.unlock(PASSPHRASE.as_bytes())?)),
        || bench.run(&openssl),
    )?;
    Ok(vec![case])
}
