//! Formatting of numbers. Units are powers of ten, as in the articles.

/// Formats a rate: `1.23 GB/s`.
pub fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", decimal(bytes_per_second))
}

/// Formats a size: `53.3 GB`.
pub fn bytes(bytes: u64) -> String {
    decimal(bytes as f64)
}

/// Formats a value with a decimal unit and three significant digits: `1.23 GB`.
pub fn decimal(value: f64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut unit = 0;
    let mut scaled = value;
    while scaled.abs() >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let digits = match scaled.abs() {
        _ if unit == 0 => 0,
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text} {}", UNITS[unit])
}

/// Formats a duration: `1.2 ms`, `34 s`.
pub fn seconds(value: f64) -> String {
    match value.abs() {
        size if size < 1e-3 => format!("{:.1} µs", value * 1e6),
        size if size < 1.0 => format!("{:.2} ms", value * 1e3),
        _ => format!("{value:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        assert_eq!(
            [0, 999, 1000, 53_300_000_000].map(bytes),
            ["0 B", "999 B", "1 kB", "53.3 GB"]
        );
        assert_eq!(rate(1.234e9), "1.23 GB/s");
        assert_eq!(rate(999.9e6), "1 GB/s");
        assert_eq!(
            (seconds(0.0123), seconds(4e-6), seconds(-2.0)),
            ("12.30 ms".into(), "4.0 µs".into(), "-2.00 s".into())
        );
    }
}
