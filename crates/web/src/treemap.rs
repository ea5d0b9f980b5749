//! Areas that are proportional to numbers.

/// A rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// Divides an area among values, the largest first, into rectangles that are as square as possible
/// (Bruls, Huizing and van Wijk, "Squarified Treemaps"). Values of 0 get none.
pub(crate) fn divide(values: &[u64], area: Area) -> Vec<Area> {
    let total: f64 = values.iter().map(|value| *value as f64).sum();
    let mut areas = Vec::with_capacity(values.len());
    if total <= 0.0 || area.width <= 0.0 || area.height <= 0.0 {
        return areas;
    }
    let scale = area.width * area.height / total;
    let sizes: Vec<f64> = values
        .iter()
        .filter(|value| **value > 0)
        .map(|value| *value as f64 * scale)
        .collect();
    let (mut rest, mut left) = (sizes.as_slice(), area);
    while !rest.is_empty() {
        let side = left.width.min(left.height).max(f64::MIN_POSITIVE);
        let mut count = 1;
        while count < rest.len() && worst(rest, count + 1, side) <= worst(rest, count, side) {
            count += 1;
        }
        let (row, after) = rest.split_at(count);
        left = lay(row, left, &mut areas);
        rest = after;
    }
    areas
}

/// Returns the ratio of the sides of the least square rectangle of a row.
fn worst(sizes: &[f64], count: usize, side: f64) -> f64 {
    let row = sizes.iter().take(count);
    let sum: f64 = row.clone().sum();
    let (least, most) = row.fold((f64::MAX, 0.0_f64), |(least, most), size| {
        (least.min(*size), most.max(*size))
    });
    let square = side * side;
    (square * most / (sum * sum)).max(sum * sum / (square * least))
}

/// Lays a row along the shorter side, and returns what is left of the area.
fn lay(row: &[f64], area: Area, areas: &mut Vec<Area>) -> Area {
    let sum: f64 = row.iter().sum();
    let is_column = area.width >= area.height;
    let side = if is_column { area.height } else { area.width };
    let depth = if side > 0.0 { sum / side } else { 0.0 };
    let mut at = 0.0;
    for size in row {
        let length = if depth > 0.0 { size / depth } else { 0.0 };
        areas.push(match is_column {
            true => Area {
                x: area.x,
                y: area.y + at,
                width: depth,
                height: length,
            },
            false => Area {
                x: area.x + at,
                y: area.y,
                width: length,
                height: depth,
            },
        });
        at += length;
    }
    match is_column {
        true => Area {
            x: area.x + depth,
            width: (area.width - depth).max(0.0),
            ..area
        },
        false => Area {
            y: area.y + depth,
            height: (area.height - depth).max(0.0),
            ..area
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Area = Area {
        x: 0.0,
        y: 0.0,
        width: 100.0,
        height: 60.0,
    };

    #[test]
    fn areas_are_proportional_and_inside() {
        for values in [
            vec![1],
            vec![6, 6, 4, 3, 2, 2, 1],
            vec![u64::MAX, 1, 0, 0],
            (0..500).rev().collect(),
        ] {
            let areas = divide(&values, WHOLE);
            let total: f64 = values.iter().map(|value| *value as f64).sum();
            let positive = values.iter().filter(|value| **value > 0);
            assert_eq!(areas.len(), positive.clone().count());
            for (area, value) in areas.iter().zip(positive) {
                let expected = *value as f64 / total * 6000.0;
                assert!(
                    (area.width * area.height - expected).abs() < 1e-6,
                    "{values:?}"
                );
                assert!(area.x >= -1e-6 && area.y >= -1e-6);
                assert!(area.x + area.width <= 100.0 + 1e-6);
                assert!(area.y + area.height <= 60.0 + 1e-6);
            }
        }
    }

    #[test]
    fn nothing_is_divided_among_nothing() {
        assert_eq!(divide(&[], WHOLE), []);
        assert_eq!(divide(&[0, 0], WHOLE), []);
        let line = Area {
            width: 0.0,
            ..WHOLE
        };
        assert_eq!(divide(&[1], line), []);
    }
}
