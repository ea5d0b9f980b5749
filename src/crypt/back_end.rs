//! Which of the processor's instructions are used.

/// The means by which cipher blocks are encrypted and decrypted. All give the same bytes; the
/// others than the best are there to be tested and measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackEnd {
    /// The fastest that this processor has.
    #[default]
    Best,
    /// At most 256-bit registers: as on a processor without AVX-512.
    Narrow,
    /// AES by AES-NI alone, 128-bit registers, and SHA-1 by AVX2: as on a processor without VAES.
    AesNi,
    /// The plain crates, which every processor can run.
    Portable,
}
