//! Medians, and how far to trust them.

use std::fmt;

/// The middle of `values`; of an even number, the mean of the two in the middle.
///
/// # Panics
/// Without a value there is no middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// The value below which `share` of `values` lie, rounded to one that is there.
///
/// # Panics
/// Without a value.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "an index, rounded from within the range"
)]
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// A median with the interval that holds it in 95 of 100 cases.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The median of what was measured.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, low, high } = self;
        write!(f, "{median:.2} ({low:.2}–{high:.2})")
    }
}

impl Estimate {
    /// The median of `values` and its 95 % interval by the percentile bootstrap: draw as many values
    /// again, with replacement, a few thousand times, and see where the medians lie. The draws are
    /// the same every time, so that the same measurements give the same interval.
    pub fn bootstrap(values: &[f64]) -> Self {
        const DRAWS: usize = 4000;
        let mut random = fastrand::Rng::with_seed(1);
        let mut again = || -> f64 {
            let draw = |_| values[random.usize(..values.len())];
            median(&(0..values.len()).map(draw).collect::<Vec<_>>())
        };
        let mut medians: Vec<f64> = (0..DRAWS).map(|_| again()).collect();
        medians.sort_by(f64::total_cmp);
        Self {
            median: median(values),
            low: medians[DRAWS * 25 / 1000],
            high: medians[DRAWS * 975 / 1000 - 1],
        }
    }
}

/// The least and the greatest of `values`.
pub fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (least, greatest)
}

#[cfg(test)]
#[allow(clippy::float_cmp)] // medians of small whole numbers are exact
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn the_interval_holds_the_median_and_widens_with_the_spread() {
        let narrow = Estimate::bootstrap(&[1.0, 1.01, 1.02, 1.03, 1.04]);
        let wide = Estimate::bootstrap(&[0.5, 0.8, 1.02, 1.3, 2.0]);
        for estimate in [narrow, wide] {
            assert_eq!(estimate.median, 1.02);
            assert!(estimate.low < 1.02 && 1.02 < estimate.high, "{estimate:?}");
        }
        assert!(wide.high - wide.low > narrow.high - narrow.low);
    }

    #[test]
    fn one_outlier_does_not_move_it() {
        let estimate = Estimate::bootstrap(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0]);
        assert_eq!((estimate.low, estimate.high), (1.0, 1.0));
    }
}
