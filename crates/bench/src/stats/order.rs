//! Order statistics: medians, quantiles, trimmed means.

/// Returns the arithmetic mean; `None` if there are no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        None
    } else {
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }
}

/// Returns the values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the quantile of `sorted` at `share`, linearly interpolated (numpy's `linear`).
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = share.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    Some(low + (high - low) * (at - below as f64))
}

/// Returns the median; the mean of the two middle values if their number is even.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(&sorted(values), 0.5)
}

/// Returns `values` in ascending order without a share of them, rounded down, at each end.
pub fn trimmed(values: &[f64], share: f64) -> Vec<f64> {
    let sorted = sorted(values);
    let cut = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1) / 2);
    sorted[cut..sorted.len() - cut].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_numbers_have_a_middle() {
        assert_eq!(
            (mean(&[]), median(&[]), quantile(&[], 0.5)),
            (None, None, None)
        );
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 1.0), Some(3.0));
        assert_eq!(trimmed(&[5.0, 1.0, 2.0, 3.0, 100.0], 0.2), [2.0, 3.0, 5.0]);
        assert_eq!(trimmed(&[2.0, 1.0], 0.5), [1.0, 2.0], "something is left");
        assert!(trimmed(&[], 0.2).is_empty());
    }
}
