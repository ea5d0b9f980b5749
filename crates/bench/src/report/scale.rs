//! Scales: mapping of values to coordinates of a plot.

/// An axis: values from `min` to `max` are mapped to coordinates from `from` to `to`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    min: f64,
    max: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// Returns a linear scale from 0 to the largest of `values`, rounded up.
    pub(super) fn linear(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let max = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let max = if max > 0.0 { max } else { 1.0 };
        let step = nice(max / 5.0);
        Self {
            min: 0.0,
            max: (max / step).ceil() * step,
            log: false,
            from,
            to,
        }
    }

    /// Returns a logarithmic scale from the smallest of `values`, which are positive, to the
    /// largest.
    pub(super) fn log(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (min, max) = values
            .filter(|value| value.is_finite() && *value > 0.0)
            .fold((f64::INFINITY, 0.0), |(min, max): (f64, f64), value| {
                (min.min(value), max.max(value))
            });
        let (min, max) = if min <= max {
            (min / 1.25, max * 1.25)
        } else {
            (1.0, 10.0)
        };
        Self {
            min,
            max,
            log: true,
            from,
            to,
        }
    }

    /// Returns the coordinate of a value.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.min / 10.0) / self.min).ln() / (self.max / self.min).ln()
        } else {
            (value - self.min) / (self.max - self.min)
        };
        self.from + (self.to - self.from) * share
    }

    /// Returns the values of the ticks.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = nice((self.max - self.min) / 5.0);
            return (0..)
                .map(|n| self.min + f64::from(n) * step)
                .take_while(|tick| *tick <= self.max * 1.0001)
                .collect();
        }
        let decades = self.min.log10().floor() as i32..=self.max.log10().ceil() as i32;
        let steps: &[f64] = if self.max / self.min > 300.0 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let ticks =
            decades.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        ticks
            .filter(|tick| (self.min..=self.max).contains(tick))
            .collect()
    }

    /// Returns `count` values from end to end, evenly spaced on the plot.
    pub(super) fn between(&self, count: usize) -> impl Iterator<Item = f64> + use<'_> {
        (0..count).map(move |n| {
            let share = n as f64 / (count - 1).max(1) as f64;
            if self.log {
                self.min * (self.max / self.min).powf(share)
            } else {
                self.min + (self.max - self.min) * share
            }
        })
    }
}

/// Rounds up to the next of 1, 2, 5, 10, ....
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let digit = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|digit| digit * power >= step * 0.9999)
        .unwrap_or(10.0);
    digit * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_places_and_round_ticks() {
        let scale = Scale::linear([3.0, 47.0].into_iter(), 0.0, 100.0);
        assert_eq!(scale.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!((scale.place(0.0), scale.place(50.0)), (0.0, 100.0));
        let scale = Scale::log([2e6, 2e9].into_iter(), 0.0, 100.0);
        assert_eq!(scale.ticks(), [1e7, 1e8, 1e9]);
        assert!(
            (scale.place(2e7) - scale.place(2e6) - (scale.place(2e9) - scale.place(2e8))).abs()
                < 1e-9
        );
        assert_eq!(scale.between(3).count(), 3);
    }

    #[test]
    fn nothing_is_a_picture_too() {
        assert!(
            !Scale::linear(std::iter::empty(), 0.0, 1.0)
                .ticks()
                .is_empty()
        );
        assert!(
            Scale::log(std::iter::empty(), 0.0, 1.0)
                .place(5.0)
                .is_finite()
        );
        assert!(
            Scale::log([7.0].into_iter(), 0.0, 1.0)
                .place(7.0)
                .is_finite()
        );
    }
}
