//! CSV with a line per sample, for spreadsheets.

use super::Report;

/// Formats the report's samples; speeds are in bytes per second.
pub fn csv(report: &Report) -> String {
    let mut out = String::from(
        "series,step,direction,set,number,size_bytes,seconds,flushed_seconds,bytes_per_second\n",
    );
    for series in &report.series {
        for sample in &series.samples {
            let flushed = sample
                .flushed_seconds
                .map_or_else(String::new, |seconds| seconds.to_string());
            let cells = [
                quoted(&series.label),
                quoted(series.step.as_deref().unwrap_or_default()),
                sample.direction.to_string(),
                sample.set.to_string(),
                sample.number.to_string(),
                sample.size_bytes.to_string(),
                sample.seconds.to_string(),
                flushed,
                (sample.size_bytes as f64 / sample.seconds).to_string(),
            ];
            out.push_str(&cells.join(","));
            out.push('\n');
        }
    }
    out
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn separators_in_cells_are_quoted() {
        assert_eq!(quoted("a"), "a");
        assert_eq!(quoted("UDSB, \"new\""), "\"UDSB, \"\"new\"\"\"");
    }
}
