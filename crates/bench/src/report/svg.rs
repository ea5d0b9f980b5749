//! A chart in progress: axes, points, lines and boxes as SVG. Inside a page its text has the page's
//! color; a file of its own contains its colors.

use std::fmt::Write as _;

use bandsaw::ops::report::html::escape;

use super::scale::Scale;
use super::style::SeriesStyle;

pub(super) const WIDTH: f64 = 760.0;
pub(super) const HEIGHT: f64 = 380.0;
pub(super) const LEFT: f64 = 88.0;
pub(super) const RIGHT: f64 = WIDTH - 16.0;
pub(super) const TOP: f64 = 16.0;
pub(super) const BOTTOM: f64 = HEIGHT - 56.0;

/// Room above a picture for its title, in a file of its own.
const TITLE: f64 = 30.0;
/// Width of a character of text, at most on average.
const CHARACTER: f64 = 7.0;
/// Height of a line of labels.
const LINE: f64 = 15.0;
/// The mark of published figures.
const DIAMOND: &str =
    "d=\"M0 -5L5 0L0 5L-5 0z\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\"";
/// The mark of a bound that is above a picture.
const ARROW: &str = "d=\"M0 0L4.5 7H-4.5z\"";

/// Width of a text, at most.
fn width_of(text: &str) -> f64 {
    CHARACTER * text.chars().count() as f64
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
        self.svg("", "", 0.0)
    }

    /// Returns a standalone SVG, dark if the viewer prefers that.
    pub fn svg_file(&self) -> String {
        self.alone("<style>@media (prefers-color-scheme: dark) { svg { color: #e4e6e9 } .back { fill: #16181b } }</style>")
    }

    /// Returns a standalone SVG in light colors, to be made a PNG file of.
    pub fn light(&self) -> String {
        self.alone("")
    }

    fn alone(&self, style: &str) -> String {
        let front = format!(
            "{style}<rect class=\"back\" y=\"-{TITLE}\" width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\
             <text class=\"title\" x=\"{LEFT}\" y=\"-8\" font-size=\"16\" font-weight=\"bold\">{}</text>",
            escape(&self.title)
        );
        self.svg(" color=\"#1c1e21\"", &front, TITLE)
    }

    fn svg(&self, attributes: &str, front: &str, above: f64) -> String {
        let height = self.height + above;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 {} {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             role=\"img\" id=\"plot-{}\" aria-label=\"{}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" \
             font-size=\"12\" fill=\"currentColor\"{attributes}>{front}{}</svg>\n",
            -above,
            self.name,
            escape(&self.title),
            self.body
        )
    }
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
    /// Symbols around the origin, and what they stand for.
    legend: Vec<(String, String)>,
    /// The lowest line of text below the bottom of the axes.
    foot: f64,
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
        self.foot = 17.0;
        self.bottom_label(label);
    }

    /// The bottom of a picture of series or files that stand beside each other.
    pub(super) fn bottom_rule(&mut self, label: &str) {
        self.rule((LEFT, BOTTOM), (RIGHT, BOTTOM), "currentColor", 1.0);
        self.foot = self.foot.max(17.0);
        self.bottom_label(label);
    }

    fn bottom_label(&mut self, label: &str) {
        self.foot += 17.0;
        let y = BOTTOM + self.foot;
        self.text((LEFT + RIGHT) / 2.0, y, Anchor::Middle, label);
    }

    /// Labels below their places, from the left to the right, in as many lines as keep them apart.
    pub(super) fn labels<'a>(&mut self, labels: impl Iterator<Item = (f64, &'a str)>) {
        const APART: f64 = 8.0;
        let mut ends: Vec<f64> = Vec::new();
        for (x, label) in labels {
            let half = width_of(label) / 2.0;
            let x = x.min(WIDTH - half).max(half);
            let line = ends.iter().position(|end| end + APART <= x - half);
            let line = line.unwrap_or_else(|| {
                ends.push(0.0);
                ends.len() - 1
            });
            ends[line] = x + half;
            let y = BOTTOM + 17.0 + LINE * line as f64;
            self.text(x, y, Anchor::Middle, label);
        }
        self.foot = 17.0 + LINE * ends.len().saturating_sub(1) as f64;
    }

    /// A point; `data` are attributes that say what it stands for, `title` is told where a pointer
    /// rests on it.
    pub(super) fn point(&mut self, look: SeriesStyle, at: (f64, f64), data: &str, title: &str) {
        self.mark("point", &look.mark(), at, data, title);
    }

    /// Draws a figure that others have published: an empty diamond.
    pub(super) fn diamond(&mut self, at: (f64, f64), data: &str, title: &str) {
        self.mark("reference", DIAMOND, at, data, title);
    }

    /// The mark of a bound that is above the picture.
    pub(super) fn arrow(&mut self, look: SeriesStyle, x: f64, title: &str) {
        let shape = format!("{ARROW} fill=\"{}\"", look.color());
        self.mark("arrow", &shape, (x, TOP - 4.0), "", title);
    }

    fn mark(&mut self, class: &str, shape: &str, (x, y): (f64, f64), data: &str, title: &str) {
        let _ = write!(
            self.body,
            "<path class=\"{class}\" transform=\"translate({x:.3} {y:.3})\" {shape}{data}><title>{}</title></path>",
            escape(title)
        );
    }

    pub(super) fn line(&mut self, look: SeriesStyle, places: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<String> = places.map(|(x, y)| format!("{x:.2},{y:.2}")).collect();
        let _ = write!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{}/>",
            points.join(" "),
            look.color(),
            look.dashes()
        );
    }

    /// Draws a filled box between two corners.
    pub(super) fn filled(
        &mut self,
        look: SeriesStyle,
        (x1, y1): (f64, f64),
        (x2, y2): (f64, f64),
        title: &str,
    ) {
        let (x, y, width, height) = (x1.min(x2), y1.min(y2), (x2 - x1).abs(), (y2 - y1).abs());
        let color = look.color();
        let _ = write!(
            self.body,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{color}\" fill-opacity=\"0.35\" \
             stroke=\"{color}\"><title>{}</title></rect>",
            escape(title)
        );
    }

    /// The mark of a series, and its name.
    pub(super) fn legend(&mut self, look: SeriesStyle, text: &str) {
        self.explain(format!("<path {}/>", look.mark()), text);
    }

    /// The mark and the line of a series, and its name.
    pub(super) fn legend_of_line(&mut self, look: SeriesStyle, text: &str) {
        let (color, dashes) = (look.color(), look.dashes());
        let line = format!(
            "<path d=\"M-4 0H34\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.8\"{dashes}/>"
        );
        let mark = look.mark();
        self.explain(
            format!("{line}<path transform=\"translate(15 0)\" {mark}/>"),
            text,
        );
    }

    pub(super) fn legend_of_diamond(&mut self, text: &str) {
        self.explain(format!("<path {DIAMOND}/>"), text);
    }

    pub(super) fn legend_of_arrow(&mut self, text: &str) {
        let shape = format!("<path transform=\"translate(0 -4)\" {ARROW}/>");
        self.explain(shape, text);
    }

    /// A line across in the text's color.
    pub(super) fn legend_of_rule(&mut self, width: f64, text: &str) {
        let rule =
            format!("<path d=\"M-5 0H9\" stroke=\"currentColor\" stroke-width=\"{width}\"/>");
        self.explain(rule, text);
    }

    /// A line upright in the text's color.
    pub(super) fn legend_of_bounds(&mut self, text: &str) {
        let rule = "<path d=\"M0 -6V6\" stroke=\"currentColor\" stroke-width=\"2\"/>";
        self.explain(rule.to_owned(), text);
    }

    pub(super) fn legend_of_box(&mut self, text: &str) {
        let shape = "<path d=\"M-5 -5H7V5H-5z\" fill=\"currentColor\" fill-opacity=\"0.35\" stroke=\"currentColor\"/>";
        self.explain(shape.to_owned(), text);
    }

    fn explain(&mut self, symbol: String, text: &str) {
        let entry = (symbol, text.to_owned());
        if !self.legend.contains(&entry) {
            self.legend.push(entry);
        }
    }

    pub(super) fn finish(mut self, name: &str, title: &str, about: &str) -> Plot {
        let (mut x, mut y) = (LEFT, BOTTOM + self.foot + 24.0);
        for (symbol, text) in std::mem::take(&mut self.legend) {
            let aside = if symbol.contains("H34") { 40.0 } else { 14.0 };
            let width = aside + width_of(&text) + 14.0;
            if x + width > RIGHT && x > LEFT {
                (x, y) = (LEFT, y + 18.0);
            }
            let _ = write!(
                self.body,
                "<g class=\"key\" transform=\"translate({x:.2} {:.2})\">{symbol}</g>",
                y - 4.0
            );
            self.text(x + aside, y, Anchor::Start, &text);
            x += width;
        }
        Plot {
            name: name.to_owned(),
            title: title.to_owned(),
            about: about.to_owned(),
            height: y + 12.0,
            body: self.body,
        }
    }
}
