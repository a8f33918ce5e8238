//! Line charts as SVG.

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

/// Round numbers from 0, or from the smallest value if that is negative, to beyond the largest.
fn ticks(max: f64) -> Vec<f64> {
    let rough = max.max(f64::MIN_POSITIVE) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| *step >= rough).unwrap_or(rough);
    (0..=(max / step).ceil() as u32).map(|i| f64::from(i) * step).collect()
}

impl Chart {
    /// As an SVG document. Points that are no numbers, and on a logarithmic axis those that are not
    /// positive, are left out.
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
        put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ));
        put(format_args!("<text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n", escaped(&self.title)));
        for y in &y_ticks {
            let (at, right) = (at_y(*y), WIDTH - RIGHT);
            put(format_args!("<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n"));
            put(format_args!(
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                LEFT - 6.0,
                at + 4.0,
                label(*y)
            ));
        }
        for x in x_ticks.into_iter().filter(|x| scale(*x) >= x_min && scale(*x) <= x_max + span * 1e-9) {
            let (at, bottom) = (at_x(x), HEIGHT - BOTTOM);
            put(format_args!("<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#eee\"/>\n"));
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
            let y = TOP + 16.0 * i as f64;
            let x = WIDTH - RIGHT + 12.0;
            put(format_args!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"4\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text>\n",
                x + 18.0,
                y + 7.0,
                escaped(&line.name)
            ));
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
}
