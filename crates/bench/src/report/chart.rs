//! A chart in progress: axes, points, lines and boxes as SVG. Inside a page its text has the page's
//! color; a file of its own contains its colors.

use std::fmt::Write as _;

use super::scale::Scale;

pub(super) const WIDTH: f64 = 760.0;
pub(super) const HEIGHT: f64 = 380.0;
pub(super) const LEFT: f64 = 70.0;
pub(super) const RIGHT: f64 = WIDTH - 16.0;
pub(super) const TOP: f64 = 16.0;
pub(super) const BOTTOM: f64 = HEIGHT - 56.0;

/// Colors of series, distinguishable in light and dark mode and with most kinds of color vision.
const COLOURS: [&str; 8] = [
    "#6b737c", "#2f6db5", "#e0823d", "#3f9c5a", "#c43d6b", "#7c5cc4", "#9a7d2e", "#2c9aa0",
];

pub(super) fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// A finished plot.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Base of its file name: letters and dashes.
    pub name: String,
    /// Title of the plot.
    pub title: String,
    /// Description in one sentence.
    pub about: String,
    height: f64,
    body: String,
}

impl Plot {
    /// Returns the SVG for embedding in a page, whose colors it uses.
    pub fn inline(&self) -> String {
        self.svg("", "")
    }

    /// Returns a standalone SVG, dark if the viewer prefers that.
    pub fn svg_file(&self) -> String {
        self.alone("<style>@media (prefers-color-scheme: dark) { svg { color: #e4e6e9 } .back { fill: #16181b } }</style>")
    }

    /// Returns a standalone SVG in light colors, for PNG.
    pub(super) fn light(&self) -> String {
        self.alone("")
    }

    fn alone(&self, style: &str) -> String {
        let back = format!(
            "{style}<rect class=\"back\" width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
        );
        self.svg(" color=\"#1c1e21\"", &back)
    }

    fn svg(&self, attributes: &str, front: &str) -> String {
        let height = self.height;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             role=\"img\" id=\"plot-{}\" aria-label=\"{}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" \
             font-size=\"12\" fill=\"currentColor\"{attributes}>{front}{}</svg>\n",
            self.name,
            escape(&self.title),
            self.body
        )
    }
}

/// Escapes `text` for HTML and SVG, including attribute values.
pub(super) fn escape(text: &str) -> String {
    let escaped = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        '\'' => "&#39;".to_owned(),
        c if c.is_control() => '\u{fffd}'.to_string(),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Alignment of text.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A chart that is being drawn.
#[derive(Debug, Default)]
pub(super) struct Chart {
    body: String,
    legend: Vec<(usize, String)>,
}

impl Chart {
    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            "<text x=\"{x:.2}\" y=\"{y:.2}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        );
    }

    pub(super) fn rule(
        &mut self,
        (x1, y1): (f64, f64),
        (x2, y2): (f64, f64),
        stroke: &str,
        width: f64,
    ) {
        let _ = write!(
            self.body,
            "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{stroke}\" stroke-width=\"{width}\"/>"
        );
    }

    /// Draws horizontal grid lines and their labels.
    pub(super) fn left_axis(&mut self, scale: &Scale, label: &str, word: impl Fn(f64) -> String) {
        for tick in scale.ticks() {
            let y = scale.place(tick);
            let _ = write!(
                self.body,
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.2}\" y2=\"{y:.2}\" stroke=\"currentColor\" stroke-opacity=\"0.15\"/>"
            );
            self.text(LEFT - 6.0, y + 4.0, Anchor::End, &word(tick));
        }
        let middle = (TOP + BOTTOM) / 2.0;
        let _ = write!(
            self.body,
            "<text transform=\"translate(14 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escape(label)
        );
    }

    pub(super) fn bottom_axis(&mut self, scale: &Scale, label: &str, word: impl Fn(f64) -> String) {
        self.rule((LEFT, BOTTOM), (RIGHT, BOTTOM), "currentColor", 1.0);
        for tick in scale.ticks() {
            let x = scale.place(tick);
            self.rule((x, BOTTOM), (x, BOTTOM + 4.0), "currentColor", 1.0);
            self.text(x, BOTTOM + 17.0, Anchor::Middle, &word(tick));
        }
        self.text((LEFT + RIGHT) / 2.0, BOTTOM + 34.0, Anchor::Middle, label);
    }

    /// Draws a point; `data` are attributes with its values, `title` is its tooltip.
    pub(super) fn point(&mut self, series: usize, (x, y): (f64, f64), data: &str, title: &str) {
        let _ = write!(
            self.body,
            "<circle class=\"point\" cx=\"{x:.3}\" cy=\"{y:.3}\" r=\"3.5\" fill=\"{}\" fill-opacity=\"0.7\"{data}><title>{}</title></circle>",
            colour(series),
            escape(title)
        );
    }

    /// Draws a published value: an empty diamond.
    pub(super) fn diamond(&mut self, (x, y): (f64, f64), data: &str, title: &str) {
        let _ = write!(
            self.body,
            "<path class=\"reference\" d=\"M{x:.2} {:.2}l5 5l-5 5l-5 -5z\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\"{data}>\
             <title>{}</title></path>",
            y - 5.0,
            escape(title)
        );
    }

    pub(super) fn line(
        &mut self,
        series: usize,
        places: impl Iterator<Item = (f64, f64)>,
        dashed: bool,
    ) {
        let points: Vec<String> = places.map(|(x, y)| format!("{x:.2},{y:.2}")).collect();
        let dashes = if dashed {
            " stroke-dasharray=\"6 4\""
        } else {
            ""
        };
        let _ = write!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{dashes}/>",
            points.join(" "),
            colour(series)
        );
    }

    /// Draws a filled box between two corners.
    pub(super) fn filled(
        &mut self,
        series: usize,
        (x1, y1): (f64, f64),
        (x2, y2): (f64, f64),
        title: &str,
    ) {
        let (x, y, width, height) = (x1.min(x2), y1.min(y2), (x2 - x1).abs(), (y2 - y1).abs());
        let colour = colour(series);
        let _ = write!(
            self.body,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{colour}\" fill-opacity=\"0.35\" \
             stroke=\"{colour}\"><title>{}</title></rect>",
            escape(title)
        );
    }

    pub(super) fn legend(&mut self, series: usize, text: &str) {
        self.legend.push((series, text.to_owned()));
    }

    pub(super) fn finish(mut self, name: &str, title: &str, about: &str) -> Plot {
        let (mut x, mut y) = (LEFT, BOTTOM + 52.0);
        for (series, text) in std::mem::take(&mut self.legend) {
            let width = 24.0 + 6.6 * text.chars().count() as f64;
            if x + width > RIGHT && x > LEFT {
                (x, y) = (LEFT, y + 17.0);
            }
            let _ = write!(
                self.body,
                "<rect x=\"{x:.2}\" y=\"{:.2}\" width=\"10\" height=\"10\" fill=\"{}\"/>",
                y - 9.0,
                colour(series)
            );
            self.text(x + 14.0, y, Anchor::Start, &text);
            x += width;
        }
        let height = (y + 8.0).max(HEIGHT);
        Plot {
            name: name.to_owned(),
            title: title.to_owned(),
            about: about.to_owned(),
            height,
            body: self.body,
        }
    }
}
