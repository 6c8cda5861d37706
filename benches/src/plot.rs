//! Bars with their spread, drawn as a small SVG that reads on a light and on a dark page.

use std::fmt::Write;

use crate::stats::{Series, number};

/// Groups of bars, one below the other.
#[derive(Clone, Debug)]
pub struct Bars {
    pub title: String,
    /// What the numbers are; with a logarithmic scale it says so.
    pub unit: String,
    pub is_logarithmic: bool,
    pub groups: Vec<Group>,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub name: String,
    pub bars: Vec<Bar>,
}

/// One system's median, with the least and the greatest as a whisker.
#[derive(Clone, Debug)]
pub struct Bar {
    pub name: String,
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Bar {
    pub fn of(name: &str, series: &Series) -> Bar {
        Bar { name: name.to_owned(), median: series.median(), min: series.min(), max: series.max() }
    }
}

impl Bars {
    pub fn svg(&self) -> String {
        let bars = || self.groups.iter().flat_map(|group| &group.bars).filter(|bar| bar.median.is_finite());
        let max = bars().map(|bar| bar.max).fold(f64::MIN_POSITIVE, f64::max);
        let min = bars().map(|bar| bar.min).filter(|value| *value > 0.0).fold(max, f64::min);
        let rows: usize = self.groups.iter().map(|group| group.bars.len() + 1).sum();
        let height = HEAD + rows as f64 * ROW + ROW;
        let scale = |value: f64| {
            if self.is_logarithmic {
                // The least bar is a tenth of the width, so that it can be seen.
                let span = (max / min).log10().max(0.1);
                BARS_WIDTH * (0.1 + 0.9 * (value.max(min) / min).log10() / span)
            } else {
                BARS_WIDTH * value / max
            }
        };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             font-family=\"sans-serif\" font-size=\"12\" fill=\"#808080\">\n"
        );
        let suffix = if self.is_logarithmic { ", logarithmic" } else { "" };
        let heading = escape(&format!("{} ({}{suffix})", self.title, self.unit));
        let _ = writeln!(svg, "<text x=\"0\" y=\"16\" font-size=\"14\">{heading}</text>");
        let mut y = HEAD;
        for group in &self.groups {
            let _ =
                writeln!(svg, "<text x=\"0\" y=\"{}\" font-weight=\"bold\">{}</text>", y + 13.0, escape(&group.name));
            y += ROW;
            for bar in &group.bars {
                draw(&mut svg, bar, y, scale);
                y += ROW;
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn draw(svg: &mut String, bar: &Bar, y: f64, scale: impl Fn(f64) -> f64) {
    let middle = y + ROW / 2.0;
    let text_y = y + 13.0;
    let name = escape(&bar.name);
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{text_y}\" text-anchor=\"end\">{name}</text>", LABELS - 8.0);
    if !bar.median.is_finite() {
        let _ = writeln!(svg, "<text x=\"{LABELS}\" y=\"{text_y}\">not run</text>");
        return;
    }
    let colour = if bar.name.starts_with("Thalweg") { "#2a7ab8" } else { "#b0a08a" };
    let (width, low, high) = (scale(bar.median), LABELS + scale(bar.min), LABELS + scale(bar.max));
    let _ = writeln!(
        svg,
        "<rect x=\"{LABELS}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\
         <path d=\"M{low:.1} {middle}H{high:.1}\" stroke=\"#404040\"/>\
         <text x=\"{:.1}\" y=\"{text_y}\">{}</text>",
        y + 3.0,
        ROW - 6.0,
        high.max(LABELS + width) + 6.0,
        number(bar.median)
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const WIDTH: f64 = 760.0;
/// Where the bars begin, and how long the longest is; the number stands to its right.
const LABELS: f64 = 190.0;
const BARS_WIDTH: f64 = 500.0;
const HEAD: f64 = 26.0;
const ROW: f64 = 18.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, median: f64) -> Bar {
        Bar { name: name.to_owned(), median, min: median * 0.9, max: median * 1.1 }
    }

    #[test]
    fn the_longest_bar_fills_the_width_and_names_are_escaped() {
        let groups = vec![Group { name: "a < b".to_owned(), bars: vec![bar("Thalweg", 100.0), bar("Kafka", 50.0)] }];
        let bars = Bars { title: "t".to_owned(), unit: "u".to_owned(), is_logarithmic: false, groups };
        let svg = bars.svg();
        assert!(svg.contains("a &lt; b") && svg.contains("H690.0"), "{svg}");
    }

    #[test]
    fn what_was_not_run_has_no_bar() {
        let groups = vec![Group { name: "g".to_owned(), bars: vec![bar("NATS", f64::NAN), bar("Thalweg", 1.0)] }];
        let bars = Bars { title: "t".to_owned(), unit: "u".to_owned(), is_logarithmic: true, groups };
        assert_eq!(bars.svg().matches("<rect").count(), 1);
        assert!(bars.svg().contains("not run") && !bars.svg().contains("NaN"), "{}", bars.svg());
    }
}
