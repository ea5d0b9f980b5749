//! Selection of processor instructions.

/// Implementation of the cipher. All give the same bytes; those other than `Best` exist for tests
/// and benchmarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackEnd {
    /// The fastest that this processor supports.
    #[default]
    Best,
    /// At most 256-bit registers, as on a processor without AVX-512.
    Narrow,
    /// AES with AES-NI only, 128-bit registers, and SHA-1 with AVX2, as on a processor without
    /// VAES.
    AesNi,
    /// The plain crates, which run on every processor.
    Portable,
}
