//! Random tokens that cannot be guessed.

use std::fmt;

use bandsaw::Result;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// 256 random bits in hexadecimal digits. Never printed by `Debug`, and wiped when dropped.
pub(crate) struct Token(Zeroizing<String>);

impl Token {
    /// Draws a token from the random numbers of the host.
    pub(crate) fn new() -> Result<Self> {
        let mut random = Zeroizing::new([0; 32]);
        bandsaw::crypt::random(&mut *random)?;
        Ok(Self(Zeroizing::new(hexadecimal(&*random))))
    }

    /// Returns the digits.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares in a time that does not depend on the digits.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Returns lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    // With its full capacity: growing would leave copies behind that are not wiped.
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for half in [byte >> 4, byte & 15] {
            digits.push(char::from_digit(u32::from(half), 16).unwrap_or('0'));
        }
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_are_compared_whole() {
        let (one, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert_eq!(one.reveal().len(), 64);
        assert!(one.is(one.reveal().as_bytes()));
        assert!(!one.is(other.reveal().as_bytes()));
        assert!(!one.is(&one.reveal().as_bytes()[..63]) && !one.is(b""));
        assert_eq!(format!("{one:?}"), "Token(..)");
    }
}
