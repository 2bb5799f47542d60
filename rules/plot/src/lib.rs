//! Pictures of series as SVG: lines, bands, thresholds, marks.
//!
//! A [`Plot`] says what is to be seen, [`Plot::svg`] draws it. Whatever a text has in it, it stays text; what is drawn is bounded: of a long line
//! the lowest and highest point of each pixel remain, so that no peak is lost, and marks beyond a bound are counted in the caption.

mod axis;
mod scatter;
mod thin;

pub use scatter::{ScatterPlot, ScatterPoint};

use axis::{Times, Values};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size of a picture in pixels.
const SIZE: (u32, u32) = (960, 420);
/// Longest text, in characters.
const MAX_TEXT: usize = 120;
/// Series, bands and levels of a picture, each.
const MAX_PARTS: usize = 20;
/// Marks of a picture.
const MAX_MARKS: usize = 200;

/// Result of drawing.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A picture cannot be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the picture cannot be drawn: {0}")]
pub struct Error(String);

/// Style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineStyle {
    /// Measured values.
    Measured,
    /// Predicted values.
    Predicted,
}

/// A line over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Style of the line.
    pub look: LineStyle,
    /// Times in milliseconds since the epoch, ascending, and values; the line is broken where there is none.
    pub points: Vec<(i64, Option<f64>)>,
}

/// Area between two lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Name in the legend.
    pub name: String,
    /// Times, ascending, with the lower and the upper value.
    pub points: Vec<(i64, f64, f64)>,
}

/// A level line.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Name in the legend.
    pub name: String,
    /// Value of the line.
    pub value: f64,
}

/// A moment that something happened at.
#[derive(Clone, Debug, PartialEq)]
pub struct EventMarker {
    /// Time, in milliseconds since the epoch.
    pub time: i64,
    /// Text, shown where one points at it.
    pub text: String,
}

/// Content of a picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// Above the picture.
    pub title: String,
    /// Name of the values.
    pub values: String,
    /// Lines: the first 20.
    pub series: Vec<Series>,
    /// Bands: the first 20.
    pub bands: Vec<Band>,
    /// Levels: the first 20.
    pub levels: Vec<Level>,
    /// Moments: the first 200.
    pub marks: Vec<EventMarker>,
    /// Name of moments in the legend.
    pub marks_name: String,
}

const INK: RGBColor = RGBColor(40, 44, 52);
const GRID: RGBColor = RGBColor(225, 228, 232);
const MEASURED: RGBColor = RGBColor(31, 111, 178);
const PREDICTED: RGBColor = RGBColor(214, 97, 20);
const LEVEL: RGBColor = RGBColor(178, 34, 52);
const MARK: RGBColor = RGBColor(130, 40, 150);

impl Plot {
    /// Draws it: 960 by 420 pixels, times in UTC. It is some tens of kilobytes, at most some hundreds, and work of some
    /// milliseconds.
    ///
    /// # Errors
    /// A value that is not finite has nowhere to be: it is left out. What is left are defects of drawing.
    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            self.draw(&area).map_err(|error| Error(error.to_string()))?;
            area.present().map_err(|error| Error(error.to_string()))?;
        }
        Ok(svg)
    }

    fn draw<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> std::result::Result<(), Box<dyn std::error::Error + 'a>> {
        area.fill(&WHITE)?;
        let (times, values) = (self.times(), self.range());
        let font = |size: i32| ("sans-serif", size).into_font().color(&INK);
        let mut chart = ChartBuilder::on(area)
            .caption(text(&self.title), font(18))
            .margin(10)
            .margin_right(24)
            .x_label_area_size(34)
            .y_label_area_size(76)
            .build_cartesian_2d(times, values)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(font(12))
            .y_desc(text(&self.values))
            .axis_desc_style(font(13))
            .x_labels(10)
            .y_labels(8)
            .draw()?;
        let width = SIZE.0 as usize;
        for band in self.bands.iter().take(MAX_PARTS) {
            let points = thin::band(&band.points, width);
            let outline: Vec<(i64, f64)> = points
                .iter()
                .map(|(time, low, _)| (*time, *low))
                .chain(points.iter().rev().map(|(time, _, high)| (*time, *high)))
                .collect();
            let style = PREDICTED.mix(0.18);
            chart
                .draw_series([Polygon::new(outline, style)])?
                .label(text(&band.name))
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], style.filled()));
        }
        for level in self.levels.iter().take(MAX_PARTS).filter(|level| level.value.is_finite()) {
            let (from, to) = self.ends();
            let style = LEVEL.stroke_width(1);
            chart
                .draw_series(DashedLineSeries::new([(from, level.value), (to, level.value)], 6, 4, style))?
                .label(text(&level.name))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        for series in self.series.iter().take(MAX_PARTS) {
            let style = match series.look {
                LineStyle::Measured => MEASURED.stroke_width(1),
                LineStyle::Predicted => PREDICTED.stroke_width(2),
            };
            chart
                .draw_series(LineSeries::new(Vec::<(i64, f64)>::new(), style))?
                .label(text(&series.name))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            for part in thin::line(&series.points, width) {
                // A lone point is no line.
                match part.as_slice() {
                    [point] => chart.draw_series([Circle::new(*point, 1, style)]).map(drop)?,
                    _ => chart.draw_series(LineSeries::new(part, style)).map(drop)?,
                }
            }
        }
        self.draw_marks(&mut chart)?;
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(GRID)
            .label_font(font(12))
            .draw()?;
        Ok(())
    }

    fn draw_marks<'a>(
        &self,
        chart: &mut ChartContext<'_, SVGBackend<'a>, Cartesian2d<Times, Values>>,
    ) -> std::result::Result<(), Box<dyn std::error::Error + 'a>> {
        let (from, to) = self.ends();
        let within = self.marks.iter().filter(|mark| (from..=to).contains(&mark.time));
        let marks: Vec<&EventMarker> = within.take(MAX_MARKS).collect();
        if marks.is_empty() {
            return Ok(());
        }
        let (low, high) = self.bounds();
        let style = MARK.mix(0.8);
        let lines = marks.iter().map(|mark| PathElement::new([(mark.time, low), (mark.time, high)], style));
        let more = match self.marks.len() - marks.len() {
            0 => String::new(),
            more => format!(" ({more} more)"),
        };
        chart
            .draw_series(lines)?
            .label(text(&format!("{}{more}", self.marks_name)))
            .legend(move |(x, y)| PathElement::new([(x + 9, y - 6), (x + 9, y + 6)], style));
        chart
            .draw_series(marks.iter().map(|mark| TriangleMarker::new((mark.time, high), 5, MARK.filled())))?;
        // Only few texts can be read beside one another.
        if marks.len() <= 6 {
            let anchor = Pos::new(HPos::Left, VPos::Top);
            let font = ("sans-serif", 11).into_font().color(&MARK).pos(anchor);
            chart.draw_series(
                marks.iter().map(|mark| Text::new(text(&mark.text), (mark.time, high), font.clone())),
            )?;
        }
        Ok(())
    }

    /// The first and the last time of all lines and bands.
    fn ends(&self) -> (i64, i64) {
        let lines = self.series.iter().flat_map(|series| &series.points).map(|(time, _)| *time);
        let bands = self.bands.iter().flat_map(|band| &band.points).map(|(time, _, _)| *time);
        let times = lines.chain(bands);
        let ends = times.fold(None, |ends: Option<(i64, i64)>, time| {
            Some(ends.map_or((time, time), |(from, to)| (from.min(time), to.max(time))))
        });
        let (from, to) = ends.unwrap_or((0, 0));
        (from, to.max(from.saturating_add(1)))
    }

    /// The lowest and the highest value of all that is drawn, with a little room.
    fn bounds(&self) -> (f64, f64) {
        let lines = self.series.iter().flat_map(|series| &series.points).filter_map(|(_, value)| *value);
        let bands = self.bands.iter().flat_map(|band| &band.points).flat_map(|(_, low, high)| [*low, *high]);
        let levels = self.levels.iter().map(|level| level.value);
        let (low, high) = lines
            .chain(bands)
            .chain(levels)
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return (0.0, 1.0);
        }
        let room = match high / 2.0 - low / 2.0 {
            0.0 => low.abs().max(1.0) * 0.1,
            half => half * 0.1,
        };
        ((low - room).max(f64::MIN / 4.0), (high + room).min(f64::MAX / 4.0))
    }

    fn times(&self) -> Times {
        let (from, to) = self.ends();
        Times { from, to }
    }

    fn range(&self) -> Values {
        let (low, high) = self.bounds();
        Values { low, high }
    }
}

/// A text as it is drawn: bounded, and without what no XML may have.
fn text(given: &str) -> String {
    let mut text: String =
        given.chars().take(MAX_TEXT).map(|one| if is_drawable(one) { one } else { '\u{fffd}' }).collect();
    if given.chars().nth(MAX_TEXT).is_some() {
        text.push('…');
    }
    text
}

fn is_drawable(one: char) -> bool {
    !one.is_control() && !matches!(one, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let hour = |at: i64| 1_769_853_600_000 + at * 3_600_000;
        Plot {
            title: "cpu".to_owned(),
            values: "percent".to_owned(),
            series: vec![
                Series {
                    name: "measured".to_owned(),
                    look: LineStyle::Measured,
                    points: (0..100)
                        .map(|at| (hour(at), (at % 10 != 9).then_some((at % 7) as f64)))
                        .collect(),
                },
                Series {
                    name: "predicted".to_owned(),
                    look: LineStyle::Predicted,
                    points: (100..110).map(|at| (hour(at), Some(3.0))).collect(),
                },
            ],
            bands: vec![Band {
                name: "95 %".to_owned(),
                points: (100..110).map(|at| (hour(at), 1.0, 5.0)).collect(),
            }],
            levels: vec![Level { name: "threshold".to_owned(), value: 8.0 }],
            marks: vec![EventMarker { time: hour(50), text: "alert".to_owned() }],
            marks_name: "alerts".to_owned(),
        }
    }

    #[test]
    fn all_parts_are_there() {
        let svg = plot().svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg:.200}");
        for part in [
            "cpu",
            "percent",
            "measured",
            "predicted",
            "95 %",
            "threshold",
            "alerts",
            "2026-02-0",
            "<polygon",
            "<polyline",
        ] {
            assert!(svg.contains(part), "{part}");
        }
    }

    #[test]
    fn texts_stay_texts() {
        let evil = "</text><script>alert('1')</script>&\u{0}\u{1b}\"";
        let mut plot = plot();
        (plot.title, plot.values, plot.marks_name) = (evil.to_owned(), evil.to_owned(), evil.to_owned());
        plot.series[0].name = evil.to_owned();
        plot.bands[0].name = evil.to_owned();
        plot.levels[0].name = evil.to_owned();
        plot.marks[0].text = evil.to_owned();
        let svg = plot.svg().unwrap();
        assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"));
        assert!(svg.chars().all(|one| one == '\n' || is_drawable(one)));
    }

    #[test]
    fn nothing_much_and_too_much_are_drawn() {
        for empty in [Plot::default(), Plot { title: "x".repeat(10_000), ..Plot::default() }] {
            assert!(empty.svg().unwrap().len() < 20_000);
        }
        let line = |points: Vec<(i64, Option<f64>)>| {
            let series = Series { name: "s".to_owned(), look: LineStyle::Measured, points };
            Plot { series: vec![series], ..Plot::default() }
        };
        let long = (0..1_000_000).map(|at| (at, Some(f64::from(at as i32 % 1000)))).collect();
        assert!(line(long).svg().unwrap().len() < 300_000);
        let broken = (0..1_000_000).map(|at| (at, (at % 2 == 0).then_some(1.0))).collect();
        assert!(line(broken).svg().unwrap().len() < 300_000);
        let lone = line(vec![(0, Some(1.0)), (1, None), (2, Some(1.0))]).svg().unwrap();
        assert_eq!(lone.matches("<circle").count(), 2, "{lone}");
        for odd in [f64::NAN, f64::INFINITY, f64::MAX, f64::MIN, 0.0, -0.0, 1e-300] {
            line(vec![(5, Some(odd)), (6, Some(1.0))]).svg().unwrap();
            line(vec![(i64::MIN, Some(odd)), (i64::MAX, Some(f64::MIN))]).svg().unwrap();
        }
        let mut marked = plot();
        marked.marks = (0..1000)
            .map(|at| EventMarker { time: 1_769_853_600_000 + at * 60_000, text: "m".to_owned() })
            .collect();
        let svg = marked.svg().unwrap();
        assert!(svg.contains("800 more") && svg.len() < 200_000);
    }
}
