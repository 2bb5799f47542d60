//! Pictures of points in a plane, coloured by their group.

use plotters::prelude::*;

use crate::{Error, GRID, INK, MARK, Result, SIZE, text};

/// Points of a picture.
const MAX_POINTS: usize = 5_000;
/// Colours of groups; later groups take them again.
const GROUPS: [RGBColor; 8] = [
    RGBColor(31, 111, 178),
    RGBColor(46, 139, 87),
    RGBColor(214, 97, 20),
    RGBColor(120, 94, 190),
    RGBColor(0, 139, 139),
    RGBColor(178, 134, 11),
    RGBColor(199, 21, 133),
    RGBColor(85, 107, 47),
];
/// Colour of points without a group.
const NO_GROUP: RGBColor = RGBColor(150, 150, 150);
/// Groups that are named in the legend, at most.
const MAX_NAMED: usize = 8;

/// A point of a scatter plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScatterPoint {
    /// Horizontal coordinate.
    pub x: f64,
    /// Vertical coordinate.
    pub y: f64,
    /// Group that gives the colour.
    pub group: Option<u32>,
    /// `true` if it is drawn as a mark.
    pub is_marked: bool,
}

/// A picture of points in a plane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScatterPlot {
    /// Above the picture.
    pub title: String,
    /// Name of the horizontal axis.
    pub x: String,
    /// Name of the vertical axis.
    pub y: String,
    /// Points: the first 5,000.
    pub points: Vec<ScatterPoint>,
    /// Name of marks in the legend.
    pub marks_name: String,
}

impl ScatterPlot {
    /// Draws it: 960 by 420 pixels. Points that are not finite are left out.
    ///
    /// # Errors
    /// Defects of drawing.
    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| Error(error.to_string()))?;
        Ok(svg)
    }

    fn draw<'a>(&self, svg: &'a mut String) -> std::result::Result<(), Box<dyn std::error::Error + 'a>> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let is_finite = |point: &&ScatterPoint| point.x.is_finite() && point.y.is_finite();
        let points: Vec<&ScatterPoint> = self.points.iter().filter(is_finite).take(MAX_POINTS).collect();
        let font = |size: i32| ("sans-serif", size).into_font().color(&INK);
        let mut chart = ChartBuilder::on(&area)
            .caption(text(&self.title), font(18))
            .margin(10)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(
                range(points.iter().map(|point| point.x)),
                range(points.iter().map(|point| point.y)),
            )?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(font(12))
            .x_desc(text(&self.x))
            .y_desc(text(&self.y))
            .axis_desc_style(font(13))
            .draw()?;
        let mut groups: Vec<Option<u32>> = points.iter().map(|point| point.group).collect();
        groups.sort_unstable();
        groups.dedup();
        for (place, group) in groups.into_iter().enumerate() {
            let colour = group.map_or(NO_GROUP, |group| GROUPS[group as usize % GROUPS.len()]);
            let of_group = points.iter().filter(|point| point.group == group && !point.is_marked);
            let drawn = chart.draw_series(
                of_group.map(|point| Circle::new((point.x, point.y), 2, colour.mix(0.7).filled())),
            )?;
            if place < MAX_NAMED {
                let name = group.map_or_else(|| "no cluster".to_owned(), |group| format!("cluster {group}"));
                drawn.label(name).legend(move |(x, y)| Circle::new((x + 9, y), 4, colour.filled()));
            }
        }
        let marked = points.iter().filter(|point| point.is_marked);
        chart
            .draw_series(marked.map(|point| TriangleMarker::new((point.x, point.y), 5, MARK.filled())))?
            .label(text(&self.marks_name))
            .legend(move |(x, y)| TriangleMarker::new((x + 9, y), 5, MARK.filled()));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(GRID)
            .label_font(font(12))
            .draw()?;
        area.present()?;
        Ok(())
    }
}

/// The range of coordinates, with a little room.
fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (low, high) = values
        .map(|value| value.clamp(f64::MIN / 8.0, f64::MAX / 8.0))
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return 0.0..1.0;
    }
    let room = match high - low {
        0.0 => low.abs().max(1.0) * 0.1,
        span => span * 0.05,
    };
    low - room..high + room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_marks_are_drawn_and_names_stay_text() {
        let point = |x: f64, group, is_marked| ScatterPoint { x, y: -x, group, is_marked };
        let plot = ScatterPlot {
            title: "<b>".to_owned(),
            points: vec![
                point(1.0, Some(0), false),
                point(2.0, None, true),
                point(f64::NAN, None, false),
                point(1e308, Some(9), false),
            ],
            marks_name: "anomalies".to_owned(),
            ..ScatterPlot::default()
        };
        let svg = plot.svg().unwrap();
        assert!(svg.contains("cluster 0") && svg.contains("anomalies") && svg.contains("&lt;b&gt;"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
        assert!(ScatterPlot::default().svg().is_ok());
    }
}
