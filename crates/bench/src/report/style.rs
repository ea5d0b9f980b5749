//! Colors, marks and dashes of series: the same kind of image has the same look in every picture of
//! every run.

use std::collections::{BTreeMap, BTreeSet};

/// The color of each kind of container, by the first word of a label. All of them have a contrast of
/// 3 to 1 on light and on dark; the host and the kinds that are measured can also be told apart
/// without red or green.
const COLORS: [(&str, &str); 12] = [
    ("host", "#777c84"),
    ("UDRW", "#1270e9"),
    ("UDSP", "#b16e24"),
    ("UDSB", "#069a5d"),
    ("ASIF", "#f843c4"),
    ("UDTO", "#3996ee"),
    ("UDRO", "#5549fa"),
    ("UDCO", "#ab9005"),
    ("UDZO", "#0594c0"),
    ("UDBZ", "#b93f3a"),
    ("ULFO", "#ae0bcf"),
    ("ULMO", "#ab3898"),
];
/// The color of everything else.
const OTHER: &str = "#f53d8f";

/// The marker of each variant of an image format: the end of its label, and an SVG path around the
/// origin.
const VARIANTS: [(&str, &str); 16] = [
    (
        "APFS, library",
        "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0z",
    ),
    ("AES-128, APFS, library", "M0 -4.4L4.2 3.2H-4.2z"),
    ("AES-256, APFS, library", "M-3.4 -3.4H3.4V3.4H-3.4z"),
    ("HFS+, library", "M-4.4 0L-2.2 -3.8H2.2L4.4 0L2.2 3.8H-2.2z"),
    ("AES-128, HFS+, library", "M0 4.4L4.2 -3.2H-4.2z"),
    (
        "AES-256, HFS+, library",
        "M0 -5.4L1.5 -1.5L5.4 0L1.5 1.5L0 5.4L-1.5 1.5L-5.4 0L-1.5 -1.5z",
    ),
    (
        "encrypted APFS, nbd",
        "M0 -5L1.2 -1.6L4.8 -1.5L1.9 0.6L2.9 4L0 2L-2.9 4L-1.9 0.6L-4.8 -1.5L-1.2 -1.6z",
    ),
    (
        "APFS, nbd",
        "M-1.4 -4.2H1.4V-1.4H4.2V1.4H1.4V4.2H-1.4V1.4H-4.2V-1.4H-1.4z",
    ),
    (
        "APFS, mount",
        "M-4 -2L-2 -4L0 -2L2 -4L4 -2L2 0L4 2L2 4L0 2L-2 4L-4 2L-2 0z",
    ),
    ("HFS+J, library", "M0 -4.2L4 -1.3L2.5 3.4H-2.5L-4 -1.3z"),
    ("APFS, library, zlib", "M4.4 0L-3.2 4.2V-4.2z"),
    ("APFS, library, LZVN", "M-4.4 0L3.2 4.2V-4.2z"),
    ("APFS, library, LZFSE", "M-3.8 -4H3.8L-3.8 4H3.8z"),
    ("HFS+, library, zlib", "M-4.6 2.4a4.6 4.6 0 0 1 9.2 0z"),
    ("HFS+, library, LZVN", "M-1.8 -4.8H1.8V4.8H-1.8z"),
    ("HFS+, library, LZFSE", "M-4 -3.8L4 3.8V-3.8L-4 3.8z"),
];

/// The display order of the steps of a protocol. A run has at most one step of each group.
const STEPS: [&[&str]; 3] = [
    &["first", "empty", "cold", "write"],
    &["rewrite", "part full", "warm", "read"],
    &["first, attached anew", "emptied", "stream"],
];
/// The beginnings of variants that have dashes of their own.
const CIPHERS: [&str; 2] = ["AES-128", "AES-256"];
/// Ways to fill a shape: one for each step, and one for series that the tables do not have.
const FILLS: usize = 4;

/// The look of a series in pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SeriesStyle {
    color: &'static str,
    /// Its shape, and by how often all shapes were used, its fill and dashes.
    number: usize,
}

impl SeriesStyle {
    pub(super) fn color(self) -> &'static str {
        self.color
    }

    /// The shape of its points as the attributes of a path.
    pub(super) fn mark(self) -> String {
        let (_, shape) = VARIANTS[self.number % VARIANTS.len()];
        let color = self.color;
        let fill = match self.number / VARIANTS.len() % FILLS {
            0 => format!("fill=\"{color}\" fill-opacity=\"0.8\""),
            1 => format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"1.4\""),
            2 => format!(
                "fill=\"{color}\" stroke=\"{color}\" stroke-opacity=\"0.35\" stroke-width=\"3.5\""
            ),
            _ => format!(
                "fill=\"{color}\" fill-opacity=\"0.3\" stroke=\"{color}\" stroke-width=\"1.2\""
            ),
        };
        format!("d=\"{shape}\" {fill}")
    }

    /// The dashes of its lines as an attribute; none for a solid line.
    pub(super) fn dashes(self) -> String {
        let (variant, _) = VARIANTS[self.number % VARIANTS.len()];
        let cipher = CIPHERS
            .iter()
            .position(|cipher| variant.starts_with(cipher));
        let cipher = cipher.map_or(0, |place| place + 1);
        match self.number / VARIANTS.len() * (CIPHERS.len() + 1) + cipher {
            0 => String::new(),
            1 => " stroke-dasharray=\"7 4\"".to_owned(),
            2 => " stroke-dasharray=\"2 3\"".to_owned(),
            more => format!(" stroke-dasharray=\"9 3{}\"", " 2 3".repeat(more - 2)),
        }
    }
}

/// The looks of a picture's series, by label and step.
#[derive(Debug, Default)]
pub(super) struct SeriesStyles(BTreeMap<(String, String), SeriesStyle>);

impl SeriesStyles {
    /// Gives each series a look of its own, whatever their order: that of the tables, or one that no
    /// table has.
    pub(super) fn of<'a>(series: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut looks = BTreeMap::new();
        let mut taken = BTreeSet::new();
        let series: BTreeSet<_> = series.collect();
        let (known, others): (Vec<_>, Vec<_>) = series
            .into_iter()
            .map(|(label, step)| (label, step, known(label, step)))
            .partition(|(.., number)| number.is_some());
        for (label, step, number) in known.into_iter().chain(others) {
            let color = color(label);
            let beyond = STEPS.len() * VARIANTS.len()..;
            let number = number
                .into_iter()
                .chain(beyond)
                .find(|number| taken.insert((color, *number)));
            let number = number.unwrap_or_default();
            looks.insert(
                (label.to_owned(), step.to_owned()),
                SeriesStyle { color, number },
            );
        }
        Self(looks)
    }

    /// The look of a series that they were made of.
    pub(super) fn get(&self, label: &str, step: &str) -> SeriesStyle {
        let key = (label.to_owned(), step.to_owned());
        self.0.get(&key).copied().unwrap_or(SeriesStyle {
            color: OTHER,
            number: 0,
        })
    }
}

/// The first word of a label, and what follows it.
fn split(label: &str) -> (&str, &str) {
    let (kind, variant) = label.split_once([' ', ',']).unwrap_or((label, ""));
    (kind, variant.trim_start())
}

fn color(label: &str) -> &'static str {
    let (kind, _) = split(label);
    COLORS
        .iter()
        .find(|(known, _)| *known == kind)
        .map_or(OTHER, |(_, color)| color)
}

fn known(label: &str, step: &str) -> Option<usize> {
    let (kind, variant) = split(label);
    let shape = match (kind, variant) {
        ("host", "") => 0,
        _ => VARIANTS.iter().position(|(known, _)| *known == variant)?,
    };
    let place = match step {
        "" => 0,
        _ => STEPS.iter().position(|steps| steps.contains(&step))?,
    };
    Some(shape + place * VARIANTS.len())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use bandsaw::container::Format;

    use super::*;

    /// Linear red, green and blue.
    fn linear(color: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        })
    }

    fn apply(matrix: [[f64; 3]; 3], of: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row.iter().zip(of).map(|(factor, of)| factor * of).sum())
    }

    fn luminance(color: &str) -> f64 {
        apply([[0.2126, 0.7152, 0.0722]; 3], linear(color))[0]
    }

    /// CIELAB.
    fn lab(linear: [f64; 3]) -> [f64; 3] {
        const XYZ: [[f64; 3]; 3] = [
            [0.4339, 0.3762, 0.1899],
            [0.2126, 0.7152, 0.0722],
            [0.0177, 0.1095, 0.8729],
        ];
        let [x, y, z] = apply(XYZ, linear.map(|value| value.clamp(0.0, 1.0))).map(f64::cbrt);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    fn distance(one: [f64; 3], other: [f64; 3]) -> f64 {
        let sum: f64 = one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum();
        sum.sqrt()
    }

    /// The simulation of Machado, Oliveira and Fernandes (2009) for eyes without red and without
    /// green.
    const EYES: [[[f64; 3]; 3]; 3] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
    ];

    #[test]
    fn colors_can_be_seen_and_distinguished() {
        let colors: Vec<&str> = COLORS
            .iter()
            .map(|(_, color)| *color)
            .chain([OTHER])
            .collect();
        let dark = luminance("#16181b");
        for (n, color) in colors.iter().enumerate() {
            let light = luminance(color);
            assert!(1.05 / (light + 0.05) >= 3.0, "{color} on white");
            assert!((light + 0.05) / (dark + 0.05) >= 3.0, "{color} on dark");
            for other in &colors[..n] {
                // Host, UDRW, UDSP, UDSB and ASIF come first.
                let eyes = if n < 5 { &EYES[..] } else { &EYES[..1] };
                for eye in eyes {
                    let [one, other] = [color, other].map(|of| lab(apply(*eye, linear(of))));
                    assert!(distance(one, other) > 15.0, "{color}");
                }
            }
        }
    }

    #[test]
    fn every_format_has_its_color_and_every_variant_its_mark() {
        let created: Vec<_> = Format::ALL
            .into_iter()
            .filter(|format| format.can_create())
            .collect();
        let colors: HashSet<_> = created
            .iter()
            .map(|format| color(&format.to_string()))
            .chain([color("host"), OTHER])
            .collect();
        assert_eq!(colors.len(), created.len() + 2);
        let shapes: HashSet<_> = VARIANTS.iter().map(|(_, shape)| shape).collect();
        assert_eq!(shapes.len(), VARIANTS.len());
    }

    #[test]
    fn variants_are_named_as_runs_name_them() {
        use bandsaw::decmpfs::Method;
        for method in [Method::Zlib, Method::Lzvn, Method::Lzfse] {
            for file_system in ["APFS", "HFS+"] {
                let label = format!("UDRW, {file_system}, library, {method}");
                assert!(known(&label, "cold").is_some(), "{label}");
            }
        }
        let vm = crate::images::Kind::VM.to_string();
        assert!(known(&vm, "").is_some(), "{vm}");
    }

    #[test]
    fn a_look_depends_on_the_kind_and_not_on_the_run() {
        let one = SeriesStyles::of([("host", ""), ("UDSB AES-128, APFS, library", "")].into_iter());
        let other = SeriesStyles::of(
            [
                ("ASIF, HFS+X, nbd", ""),
                ("UDSB AES-128, APFS, library", ""),
                ("UDSB, APFS, library", ""),
                ("host", ""),
            ]
            .into_iter(),
        );
        for label in ["host", "UDSB AES-128, APFS, library"] {
            assert_eq!(one.get(label, ""), other.get(label, ""));
        }
        let [plain, encrypted] = ["UDSB, APFS, library", "UDSB AES-128, APFS, library"]
            .map(|label| other.get(label, ""));
        assert_eq!(plain.color(), encrypted.color());
        assert_ne!(plain.mark(), encrypted.mark());
    }

    #[test]
    fn no_two_series_look_alike() {
        let mut names = Vec::new();
        for kind in ["host", "UDSB", "UDRW", "unheard of", "unseen"] {
            for step in ["", "rewrite", "emptied", "another"] {
                for n in 0..40 {
                    names.push((format!("{kind}, bands of {n} MB"), step));
                }
                names.push((format!("{kind}, APFS, library"), step));
            }
        }
        let looks = SeriesStyles::of(names.iter().map(|(label, step)| (&**label, *step)));
        let seen: HashSet<_> = names
            .iter()
            .map(|(label, step)| {
                let look = looks.get(label, step);
                (look.color(), look.mark(), look.dashes())
            })
            .collect();
        assert_eq!(seen.len(), names.len());
    }
}
