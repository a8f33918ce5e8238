//! Charts as SVG: lines, bars, and figures by days.
//!
//! The background is transparent, and text and colours are of middle lightness, so that a chart can
//! be read on a light page and on a dark one.

use std::fmt::Write;

/// A line of a chart.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A chart.
pub struct Chart {
    pub title: String,
    pub x: String,
    pub y: String,
    pub log_x: bool,
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 56.0;
const COLOURS: [&str; 8] = ["#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f"];
const GRID: &str = "stroke=\"#808080\" stroke-opacity=\"0.3\"";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn label(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 {
        format!("{}M", value / 1e6)
    } else if size >= 1e4 {
        format!("{}k", value / 1e3)
    } else if size > 0.0 && size < 1e-3 {
        format!("{value:.0e}")
    } else {
        format!("{}", (value * 1e4).round() / 1e4)
    }
}

/// A figure beside its bar.
fn figure(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 {
        format!("{:.1}M", value / 1e6)
    } else if size >= 1e4 {
        format!("{:.1}k", value / 1e3)
    } else {
        label(value)
    }
}

/// The beginning of a document, with the chart's title.
fn head(width: f64, height: f64, left: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"#808080\">\n<text x=\"{left}\" y=\"22\" font-size=\"15\">{}</text>\n",
        escaped(title)
    )
}

/// An entry of a legend.
fn legend(x: f64, y: f64, colour: &str, name: &str) -> String {
    format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"4\" fill=\"{colour}\"/>\
         <text x=\"{}\" y=\"{}\">{}</text>\n",
        x + 18.0,
        y + 7.0,
        escaped(name)
    )
}

/// Round numbers from 0, or from the smallest value if that is negative, to beyond the largest.
fn ticks(max: f64) -> Vec<f64> {
    let rough = max.max(f64::MIN_POSITIVE) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| *step >= rough).unwrap_or(rough);
    (0..=(max / step).ceil() as u32).map(|i| f64::from(i) * step).collect()
}

impl Chart {
    /// The chart as an SVG document. Points that are not finite numbers are left out, and on a
    /// logarithmic axis also points that are not positive.
    pub fn svg(&self) -> String {
        let fits = |x: f64, y: f64| x.is_finite() && y.is_finite() && (!self.log_x || x > 0.0);
        let all = || self.lines.iter().flat_map(|line| &line.points).filter(|(x, y)| fits(*x, *y));
        let scale = |x: f64| if self.log_x { x.log10() } else { x };
        let x_min =
            all().map(|(x, _)| scale(*x)).fold(f64::INFINITY, f64::min).min(if self.log_x { f64::MAX } else { 0.0 });
        let x_max = all().map(|(x, _)| scale(*x)).fold(f64::NEG_INFINITY, f64::max);
        let y_ticks = ticks(all().map(|(_, y)| *y).fold(0.0, f64::max));
        let y_max = y_ticks.last().copied().unwrap_or(1.0).max(f64::MIN_POSITIVE);
        let span = if x_max > x_min { x_max - x_min } else { 1.0 };
        let at_x = |x: f64| LEFT + (scale(x) - x_min) / span * (WIDTH - LEFT - RIGHT);
        let at_y = |y: f64| HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM);
        let x_ticks: Vec<f64> = if !all().any(|_| true) {
            Vec::new()
        } else if self.log_x {
            (x_min.floor() as i32..=x_max.ceil() as i32).map(|power| 10f64.powi(power)).collect()
        } else {
            ticks(x_max)
        };
        let mut svg = String::new();
        let mut put = |text: std::fmt::Arguments<'_>| svg.write_fmt(text).expect("a string takes all");
        put(format_args!("{}", head(WIDTH, HEIGHT, LEFT, &self.title)));
        for y in &y_ticks {
            let (at, right) = (at_y(*y), WIDTH - RIGHT);
            put(format_args!("<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" {GRID}/>\n"));
            put(format_args!(
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                LEFT - 6.0,
                at + 4.0,
                label(*y)
            ));
        }
        for x in x_ticks.into_iter().filter(|x| scale(*x) >= x_min && scale(*x) <= x_max + span * 1e-9) {
            let (at, bottom) = (at_x(x), HEIGHT - BOTTOM);
            put(format_args!("<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" {GRID}/>\n"));
            put(format_args!(
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                bottom + 16.0,
                label(x)
            ));
        }
        put(format_args!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
            HEIGHT - 14.0,
            escaped(&self.x)
        ));
        put(format_args!(
            "<text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            TOP + (HEIGHT - TOP - BOTTOM) / 2.0,
            escaped(&self.y)
        ));
        for (i, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let points = || line.points.iter().filter(|(x, y)| fits(*x, *y)).map(|(x, y)| (at_x(*x), at_y(*y)));
            let path: Vec<String> = points().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            put(format_args!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
                path.join(" ")
            ));
            for (x, y) in points() {
                put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>\n"));
            }
            put(format_args!("{}", legend(WIDTH - RIGHT + 12.0, TOP + 16.0 * i as f64, colour, &line.name)));
        }
        put(format_args!("</svg>\n"));
        svg
    }
}

/// The figures of one thing in a bar chart.
pub struct Bar {
    pub name: String,
    /// A figure for each name of the legend, where there is one.
    pub values: Vec<Option<f64>>,
}

/// Horizontal bars, one for each figure of each thing.
pub struct Bars {
    pub title: String,
    pub axis: String,
    pub logarithmic: bool,
    /// A line across all bars, to compare with.
    pub reference: Option<f64>,
    /// The legend, which is left out if it has one name.
    pub names: Vec<String>,
    pub bars: Vec<Bar>,
}

const BAR: f64 = 12.0;

impl Bars {
    /// The bars as an SVG document. On a logarithmic axis, figures that are not positive are left
    /// out.
    pub fn svg(&self) -> String {
        let fits = |value: &f64| value.is_finite() && (!self.logarithmic || *value > 0.0);
        let all: Vec<f64> = self.bars.iter().flat_map(|bar| &bar.values).flatten().copied().filter(fits).collect();
        let largest = all.iter().chain(&self.reference).copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let smallest = all.iter().chain(&self.reference).copied().filter(|value| *value > 0.0).fold(largest, f64::min);
        let scale = |value: f64| if self.logarithmic { value.log10() } else { value };
        let ticks: Vec<f64> = if self.logarithmic {
            (smallest.log10().floor() as i32..=largest.log10().ceil() as i32).map(|power| 10f64.powi(power)).collect()
        } else {
            ticks(largest)
        };
        let least = if self.logarithmic { scale(ticks[0]) } else { 0.0 };
        let span = (scale(ticks[ticks.len() - 1]) - least).max(f64::MIN_POSITIVE);
        let longest = self.bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
        let left = (24.0 + 6.6 * longest as f64).clamp(LEFT, 320.0);
        let widest = self.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let right = if self.names.len() > 1 { 84.0 + 6.6 * widest as f64 } else { 60.0 };
        let group = BAR * self.names.len().max(1) as f64 + 8.0;
        let bottom = TOP + group * self.bars.len() as f64 + 4.0;
        let at = |value: f64| left + (scale(value) - least) / span * (WIDTH - left - right);
        let mut svg = head(WIDTH, bottom + BOTTOM - 8.0, 12.0, &self.title);
        let mut put = |text: std::fmt::Arguments<'_>| svg.write_fmt(text).expect("a string takes all");
        for tick in &ticks {
            let x = at(*tick);
            put(format_args!("<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" {GRID}/>\n"));
            put(format_args!(
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                bottom + 16.0,
                label(*tick)
            ));
        }
        for (i, bar) in self.bars.iter().enumerate() {
            let top = TOP + group * i as f64 + 4.0;
            put(format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                left - 6.0,
                top + (group - 8.0) / 2.0 + 4.0,
                escaped(&bar.name)
            ));
            for (j, value) in bar.values.iter().enumerate() {
                let Some(value) = value.filter(fits) else { continue };
                let (y, end) = (top + BAR * j as f64, at(value).max(left));
                let (width, colour) = (end - left, COLOURS[j % COLOURS.len()]);
                put(format_args!(
                    "<rect class=\"bar\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>\
                     <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\">{}</text>\n",
                    BAR - 2.0,
                    end + 4.0,
                    y + 9.0,
                    figure(value)
                ));
            }
        }
        if let Some(reference) = self.reference {
            let x = at(reference);
            put(format_args!(
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#808080\" \
                 stroke-width=\"1.5\" stroke-dasharray=\"5 3\"/>\n"
            ));
        }
        put(format_args!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            (left + (WIDTH - left - right) / 2.0).round(),
            bottom + 36.0,
            escaped(&self.axis)
        ));
        if self.names.len() > 1 {
            for (j, name) in self.names.iter().enumerate() {
                let (x, y) = ((WIDTH - right + 44.0).round(), TOP + 4.0 + 16.0 * j as f64);
                put(format_args!("{}", legend(x, y, COLOURS[j % COLOURS.len()], name)));
            }
        }
        put(format_args!("</svg>\n"));
        svg
    }
}

/// Figures by the days on which they were measured.
pub struct Days {
    pub title: String,
    pub axis: String,
    /// A line across all days, to compare with.
    pub reference: Option<f64>,
    /// Lines through the median of each day. A day is a number.
    pub medians: Vec<Line>,
    /// All figures of each line.
    pub scattered: Vec<Vec<(f64, f64)>>,
}

impl Days {
    /// The chart as an SVG document, with `name` for the name of a day.
    pub fn svg(&self, name: impl Fn(f64) -> String) -> String {
        let all = || self.scattered.iter().flatten();
        let mut days: Vec<f64> = all().map(|(day, _)| *day).collect();
        days.sort_by(f64::total_cmp);
        days.dedup();
        let (first, last) = (days.first().copied().unwrap_or(0.0), days.last().copied().unwrap_or(0.0));
        let y_ticks = ticks(all().map(|(_, y)| *y).chain(self.reference).fold(0.0, f64::max));
        let y_max = y_ticks.last().copied().unwrap_or(1.0).max(f64::MIN_POSITIVE);
        let (begin, end) = (LEFT + 36.0, WIDTH - RIGHT - 36.0);
        let at_x = |day: f64| if last > first { begin + (day - first) / (last - first) * (end - begin) } else { begin };
        let at_y = |y: f64| HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM);
        let mut svg = head(WIDTH, HEIGHT, LEFT, &self.title);
        let mut put = |text: std::fmt::Arguments<'_>| svg.write_fmt(text).expect("a string takes all");
        for y in &y_ticks {
            let (at, right) = (at_y(*y), WIDTH - RIGHT);
            put(format_args!("<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" {GRID}/>\n"));
            let (x, y, text) = (LEFT - 6.0, at + 4.0, label(*y));
            put(format_args!("<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>\n"));
        }
        // Names of days that would overlap are left out, except for the last one.
        let mut free = f64::NEG_INFINITY;
        for day in &days {
            let x = at_x(*day);
            if x < free || (*day < last && at_x(last) - x < 76.0) {
                continue;
            }
            free = x + 76.0;
            let y = HEIGHT - BOTTOM + 16.0;
            put(format_args!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>\n", escaped(&name(*day))));
        }
        put(format_args!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">day of the run; the line goes through each day's median</text>\n",
            LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
            HEIGHT - 14.0,
        ));
        put(format_args!(
            "<text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            TOP + (HEIGHT - TOP - BOTTOM) / 2.0,
            escaped(&self.axis)
        ));
        if let Some(reference) = self.reference {
            let (y, right) = (at_y(reference), WIDTH - RIGHT);
            put(format_args!(
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#808080\" stroke-width=\"1.5\" \
                 stroke-dasharray=\"5 3\"/>\n"
            ));
        }
        for (i, (line, points)) in self.medians.iter().zip(&self.scattered).enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let path: Vec<String> =
                line.points.iter().map(|(day, y)| format!("{:.1},{:.1}", at_x(*day), at_y(*y))).collect();
            let path = path.join(" ");
            put(format_args!("<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n"));
            for (day, y) in points {
                let (x, y) = (at_x(*day), at_y(*y));
                put(format_args!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\" fill-opacity=\"0.6\"/>\n"
                ));
            }
            put(format_args!("{}", legend(WIDTH - RIGHT + 12.0, TOP + 16.0 * i as f64, colour, &line.name)));
        }
        put(format_args!("</svg>\n"));
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_inside_the_axes() {
        for log_x in [false, true] {
            let points = vec![(1e-7, 5.0), (0.1, 30.0), (1.0, f64::NAN), (1.0, 52.0), (-1.0, 3.0)];
            let line = Line { name: "a < b".into(), points };
            let chart = Chart { title: "t".into(), x: "x".into(), y: "y".into(), log_x, lines: vec![line] };
            let svg = chart.svg();
            assert!(svg.contains("a &lt; b"));
            assert_eq!(svg.matches("<circle").count(), if log_x { 3 } else { 4 });
            for circle in svg.split("<circle cx=\"").skip(1) {
                let x: f64 = circle.split('"').next().unwrap().parse().unwrap();
                assert!((LEFT - 0.1..=WIDTH - RIGHT + 0.1).contains(&x), "{x}");
            }
        }
        let empty = Chart { title: String::new(), x: String::new(), y: String::new(), log_x: true, lines: Vec::new() };
        assert!(empty.svg().ends_with("</svg>\n"));
    }

    #[test]
    fn bars_are_as_long_as_their_figures() {
        let lengths = |logarithmic| {
            let bar = |name: &str, value: f64| Bar { name: name.into(), values: vec![Some(value), None] };
            let (title, axis, names) = ("t".into(), "a".into(), vec!["n".into(), "m".into()]);
            let bars = vec![bar("x", 10.0), bar("y", 100.0), bar("z", 1000.0), bar("none", f64::NAN)];
            let svg = Bars { title, axis, logarithmic, reference: Some(1.0), names, bars }.svg();
            let width = |rest: &str| rest.split("width=\"").nth(1)?.split('"').next()?.parse::<f64>().ok();
            svg.split("class=\"bar\"").skip(1).map(|rest| width(rest).unwrap()).collect::<Vec<f64>>()
        };
        let [ten, hundred, thousand] = lengths(false)[..] else { panic!("three bars") };
        assert!((hundred - 10.0 * ten).abs() < 1.0 && (thousand - 10.0 * hundred).abs() < 1.0);
        let [ten, hundred, thousand] = lengths(true)[..] else { panic!("three bars") };
        assert!((hundred - 2.0 * ten).abs() < 0.2 && (thousand - 3.0 * ten).abs() < 0.2);
    }
}
