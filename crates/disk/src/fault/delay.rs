//! How long a completion is held back.

use std::time::Duration;

use fastrand::Rng;

/// How long, in the long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delay {
    /// Always that long.
    Fixed(Duration),
    /// From the first to the second, each as likely.
    Uniform(Duration, Duration),
    /// That long on average: mostly less, sometimes a few times as long.
    Exponential(Duration),
    /// That long at least, and three times that on average; one in a thousand takes a hundred times as
    /// long. (A Pareto distribution with the exponent 3/2.)
    Pareto(Duration),
}

impl Delay {
    /// The longest: more is a device that hangs.
    pub const LONGEST: Duration = Duration::from_secs(3600);

    /// One such delay, at most [`Delay::LONGEST`].
    pub(super) fn draw(self, rng: &mut Rng) -> Duration {
        // From 0, exclusive, to 1.
        let part = 1.0 - rng.f64();
        let (from, factor, times) = match self {
            Self::Fixed(delay) => (delay, Duration::ZERO, 0.0),
            Self::Uniform(from, to) => (from, to.saturating_sub(from), part),
            Self::Exponential(mean) => (Duration::ZERO, mean, -part.ln()),
            Self::Pareto(least) => (Duration::ZERO, least, part.powf(-2.0 / 3.0)),
        };
        let longest = Self::LONGEST.as_secs_f64();
        let random = (factor.as_secs_f64() * times).clamp(0.0, longest);
        from.saturating_add(Duration::from_secs_f64(random))
            .min(Self::LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn drawn(delay: Delay) -> Vec<Duration> {
        let mut rng = Rng::with_seed(7);
        let mut drawn: Vec<_> = (0..10_000).map(|_| delay.draw(&mut rng)).collect();
        drawn.sort_unstable();
        drawn
    }

    fn mean(delays: &[Duration]) -> f64 {
        delays.iter().map(Duration::as_secs_f64).sum::<f64>() / 10_000.0
    }

    #[test]
    fn every_distribution_is_what_it_is_called() {
        assert!(drawn(Delay::Fixed(MS)).iter().all(|&delay| delay == MS));
        let uniform = drawn(Delay::Uniform(MS, 3 * MS));
        assert!(uniform[0] >= MS && uniform[9999] <= 3 * MS);
        assert!((uniform[5000].as_secs_f64() - 0.002).abs() < 1e-4);
        let exponential = drawn(Delay::Exponential(MS));
        assert!((mean(&exponential) - 0.001).abs() < 5e-5);
        assert!((exponential[5000].as_secs_f64() - 0.000_693).abs() < 5e-5);
        let pareto = drawn(Delay::Pareto(MS));
        assert!(pareto[0] >= MS);
        assert!(pareto[9950] > 20 * MS, "a long tail");
        assert!(pareto[5000] < 2 * MS, "most are short");
    }

    #[test]
    fn no_delay_is_longer_than_the_longest() {
        for delay in [
            Delay::Fixed(Duration::MAX),
            Delay::Uniform(Duration::ZERO, Duration::MAX),
            Delay::Exponential(Duration::MAX),
            Delay::Pareto(Duration::MAX),
        ] {
            assert!(drawn(delay)[9999] <= Delay::LONGEST, "{delay:?}");
        }
    }
}
