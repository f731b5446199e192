//! Curves as a picture: a page of panels, each with logarithmic axes and one line for each thing that is compared.

use std::error::Error;
use std::io;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::statistics::range;

/// A picture.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its file, beside that of the tables.
    pub file: &'static str,
    /// Two in a row.
    pub panels: Vec<Panel>,
}

/// One pair of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What it shows.
    pub title: String,
    /// What is to the right, and in which unit.
    pub x: &'static str,
    /// What is up.
    pub y: &'static str,
    /// What is compared.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// What the legend calls it.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: u32 = 520;
const HEIGHT: u32 = 360;

/// Dark enough for white paper, and told apart by those who do not see red and green.
const COLOURS: [RGBColor; 3] = [
    RGBColor(0, 90, 181),
    RGBColor(220, 50, 32),
    RGBColor(64, 64, 64),
];

impl Plot {
    /// The picture. It has a background of its own, so that it can be read on a dark page too.
    pub fn svg(&self) -> io::Result<String> {
        let mut text = String::new();
        self.draw(&mut text)
            .map_err(|error| io::Error::other(format!("{}: {error}", self.file)))?;
        Ok(text)
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn Error>> {
        let has_points = |panel: &&Panel| panel.lines.iter().any(|line| !line.points.is_empty());
        let panels: Vec<&Panel> = self.panels.iter().filter(has_points).collect();
        let rows = panels.len().div_ceil(2);
        let size = (2 * WIDTH, HEIGHT * u32::try_from(rows)?);
        let page = SVGBackend::with_string(text, size).into_drawing_area();
        page.fill(&WHITE)?;
        for (number, area) in page
            .split_evenly((rows, 2))
            .iter()
            .enumerate()
            .take(panels.len())
        {
            let legend = match number % 2 {
                0 => Legend::Shown,
                _ => Legend::Left,
            };
            let drawn = panels[number].draw(area, legend);
            drawn.map_err(|error| error.to_string())?;
        }
        page.present()?;
        Ok(())
    }

    /// How Markdown shows it.
    pub fn markdown(&self) -> String {
        let titles: Vec<&str> = self.panels.iter().map(|panel| &panel.title[..]).collect();
        format!("![{}]({})\n", titles.join("; "), self.file)
    }
}

/// What names the lines of a panel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Legend {
    /// It does.
    Shown,
    /// That of the panel to the left, so that it hides nothing here.
    Left,
}

impl Panel {
    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        legend: Legend,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let xs = around(points().map(|point| point.0));
        let ys = around(points().map(|point| point.1));
        let floor = ys.start;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(14)
            .x_label_area_size(42)
            .y_label_area_size(62)
            .build_cartesian_2d(xs.log_scale(), ys.log_scale())?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .axis_desc_style(("sans-serif", 14))
            .label_style(("sans-serif", 12))
            .x_label_formatter(&plain)
            .y_label_formatter(&plain)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (line, colour) in self.lines.iter().zip(COLOURS) {
            // On such an axis nothing has no place; it is drawn on the floor.
            let points = line.points.iter().map(|&(x, y)| (x, y.max(floor)));
            let series = LineSeries::new(points, colour.stroke_width(2)).point_size(3);
            chart
                .draw_series(series)?
                .label(line.name.clone())
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
                });
        }
        if legend == Legend::Left {
            return Ok(());
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .label_font(("sans-serif", 13))
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()
    }
}

/// From the power of ten below all of `values` that have a place on a logarithmic axis to a little above them.
fn around(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (least, most) = range(&values.filter(|value| *value > 0.0).collect::<Vec<_>>());
    if most < least {
        return 1.0..10.0; // there are none
    }
    10f64.powf(least.log10().floor())..most * 1.3
}

/// As one writes it.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "plotters asks for it")]
fn plain(value: &f64) -> String {
    match *value {
        large if large >= 1e6 => format!("{} M", large / 1e6),
        middle if middle >= 1e3 => format!("{} k", middle / 1e3),
        small => format!("{small}"),
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp)] // of small whole numbers they are exact
mod tests {
    use super::*;

    fn panel(title: &str, points: Vec<(f64, f64)>) -> Panel {
        let name = "adaptive".to_owned();
        Panel {
            title: title.into(),
            x: "requests a second",
            y: "p99 µs",
            lines: vec![Line { name, points }],
        }
    }

    #[test]
    fn a_picture_names_its_axes_and_its_lines() {
        let plot = Plot {
            file: "load.svg",
            panels: vec![
                panel("null: p99 µs", vec![(100.0, 30.0), (1e5, 0.0)]),
                panel("direct: p99 µs", vec![]),
            ],
        };
        let svg = plot.svg().unwrap();
        for word in ["null: p99 µs", "requests a second", "adaptive", "100 k"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert!(!svg.contains("direct"), "nothing was measured there");
    }

    #[test]
    fn axes_begin_at_a_power_of_ten_and_hold_everything() {
        assert_eq!(around([130.0, 20.0, 0.0].into_iter()), 10.0..169.0);
        assert_eq!(around([10.0].into_iter()), 10.0..13.0);
        assert_eq!(around([0.0].into_iter()), 1.0..10.0);
    }
}
