//! Names as they are shown, and compared.

/// Returns a name as macOS shows it. One that would mean another place, which only damage makes, gets a line in
/// front.
pub(crate) fn shown(name: &str) -> String {
    match name {
        "" | "." | ".." => format!("_{name}"),
        _ => name.replace('/', ":").replace('\0', "\u{FFFD}"),
    }
}

/// Returns true if names differ at most in the case of their characters.
pub(crate) fn same_but_case(one: &str, other: &str) -> bool {
    let upper = |name: &str| {
        name.chars()
            .flat_map(char::to_uppercase)
            .collect::<Vec<_>>()
    };
    match one.is_ascii() && other.is_ascii() {
        true => one.eq_ignore_ascii_case(other),
        false => upper(one) == upper(other),
    }
}
