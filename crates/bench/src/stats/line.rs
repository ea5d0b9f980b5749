//! Regression lines of seconds against bytes, by least squares and by the median of all slopes
//! (Theil-Sen).

use super::order::{median, sorted};

/// The line `y = at_zero + slope * x`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Increase of `y` per unit of `x`.
    pub slope: f64,
    /// Value of `y` where `x` is 0.
    pub at_zero: f64,
}

impl Line {
    /// Returns `y` at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.at_zero + self.slope * x
    }
}

/// Points as pairs of `x` and `y`.
pub type Points<'a> = &'a [(f64, f64)];

/// Returns the ordinary least squares regression line of `y`; `None` if all `x` are equal.
pub fn least_squares(points: Points<'_>) -> Option<Line> {
    let count = points.len() as f64;
    let (x, y) = points
        .iter()
        .fold((0.0, 0.0), |(xs, ys), (x, y)| (xs + x, ys + y));
    let (x, y) = (x / count, y / count);
    let (square, product) = points
        .iter()
        .fold((0.0, 0.0), |(square, product), (px, py)| {
            (square + (px - x).powi(2), product + (px - x) * (py - y))
        });
    if square > 0.0 {
        let slope = product / square;
        Some(Line {
            slope,
            at_zero: y - slope * x,
        })
    } else {
        None
    }
}

/// The Theil-Sen line, and the 95 % confidence interval of its slope.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TheilSen {
    /// The line whose slope is the median of the slopes between any two points.
    pub line: Line,
    /// Bounds of the slope, lower first; the extreme slopes if there are too few points.
    pub slopes: (f64, f64),
}

/// Number of standard deviations of a normal distribution that cover 95 %.
const DEVIATIONS: f64 = 1.959_963_984_540_054;

/// Returns the Theil-Sen line; `None` if all `x` are equal. Bounds by Sen's method, corrected for
/// ties (Sen, 1968, 3.1).
pub fn theil_sen(points: Points<'_>) -> Option<TheilSen> {
    let mut slopes = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (n, (x1, y1)) in points.iter().enumerate() {
        slopes.extend(
            points[n + 1..]
                .iter()
                .filter(|(x2, _)| x1 != x2)
                .map(|(x2, y2)| (y2 - y1) / (x2 - x1)),
        );
    }
    let slopes = sorted(&slopes);
    let slope = median(&slopes)?;
    // Half of the points are above the line, half below.
    let at_zero = median(
        &points
            .iter()
            .map(|(x, y)| y - slope * x)
            .collect::<Vec<_>>(),
    )?;
    let [xs, ys]: [Vec<f64>; 2] = [
        points.iter().map(|(x, _)| *x).collect(),
        points.iter().map(|(_, y)| *y).collect(),
    ];
    let spread = |count: f64| count * (count - 1.0) * (2.0 * count + 5.0);
    let ties = |values: &[f64]| {
        sorted(values)
            .chunk_by(|a, b| a == b)
            .map(|run| spread(run.len() as f64))
            .sum::<f64>()
    };
    let variance = (spread(points.len() as f64) - ties(&xs) - ties(&ys)) / 18.0;
    let reach = DEVIATIONS * variance.max(0.0).sqrt();
    let count = slopes.len() as f64;
    let low = ((count - reach) / 2.0).round_ties_even() - 1.0;
    let high = ((count + reach) / 2.0).round_ties_even();
    let bound = |at: f64| slopes[(at.max(0.0) as usize).min(slopes.len() - 1)];
    Some(TheilSen {
        line: Line { slope, at_zero },
        slopes: (bound(low), bound(high)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_an_outlier_ignored() {
        let mut points: Vec<_> = (1..=20)
            .map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x)))
            .collect();
        assert_eq!(
            least_squares(&points),
            Some(Line {
                slope: 2.0,
                at_zero: 3.0
            })
        );
        points[4].1 = 1000.0;
        let robust = theil_sen(&points).unwrap();
        assert_eq!((robust.line.slope, robust.line.at_zero), (2.0, 3.0));
        assert!(
            least_squares(&points).unwrap().slope < 0.0,
            "which is what the other line does"
        );
    }

    #[test]
    fn points_of_one_size_have_no_line() {
        assert_eq!(least_squares(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(theil_sen(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(theil_sen(&[]), None);
        assert!(theil_sen(&[(1.0, 2.0), (2.0, 3.0)]).is_some());
    }
}
