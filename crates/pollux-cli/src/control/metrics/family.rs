//! A family of metrics: all samples of one name, told apart by their labels.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Writes a family of counters.
pub fn counts<L: EncodeLabelSet>(
    to: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let samples = samples.into_iter();
    let samples = samples.map(|(labels, count)| (labels, ConstCounter::new(count)));
    family(to, name, help, MetricType::Counter, samples)
}

/// Writes a family of times in nanoseconds. Seconds are what Prometheus counts time in.
pub fn seconds<L: EncodeLabelSet>(
    to: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let samples = samples.into_iter().map(|(labels, ns)| {
        let seconds = Duration::from_nanos(ns).as_secs_f64();
        (labels, ConstCounter::new(seconds))
    });
    family(to, name, help, MetricType::Counter, samples)
}

/// Writes a family of gauges, which have a sign.
pub fn gauges<L: EncodeLabelSet>(
    to: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let samples = samples.into_iter().map(|(labels, value)| {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        (labels, ConstGauge::new(value))
    });
    family(to, name, help, MetricType::Gauge, samples)
}

fn family<L: EncodeLabelSet>(
    to: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    kind: MetricType,
    samples: impl Iterator<Item = (L, impl EncodeMetric)>,
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in samples {
        value.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
