//! How long requests took, as classic histograms: the text formats have no others.

use std::fmt;
use std::time::Duration;

use pollux::stats::{Kind, Times};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::model::op;

/// Writes those of each disk of which they are counted.
pub fn encode(disks: &[(String, Vec<(Kind, Times)>)], to: &mut DescriptorEncoder) -> fmt::Result {
    let (name, help) = (
        "pollux_disk_request_duration_seconds",
        "Time of requests from where they were found in the ring to where the driver was shown their end",
    );
    let mut metric = to.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (disk, latencies) in disks {
        for (kind, times) in latencies {
            let count = times.count();
            if count == 0 {
                continue;
            }
            let labels = [("disk", &**disk), ("op", op(*kind))];
            let sum = Duration::from_nanos(times.sum_ns).as_secs_f64();
            metric
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(sum, count, &powers(times), None)?;
        }
    }
    Ok(())
}

/// How many took longer than the power of two before, and no longer than this, in seconds: four times fewer buckets
/// than are counted, as each becomes a series.
fn powers(times: &Times) -> Vec<(f64, u64)> {
    let (mut buckets, mut since) = (Vec::new(), 0);
    for (at, counted) in times.buckets.iter().enumerate() {
        since += counted;
        match Times::bound_ns(at) {
            Some(bound) if bound.is_power_of_two() => {
                let bound = Duration::from_nanos(bound).as_secs_f64();
                buckets.push((bound, std::mem::take(&mut since)));
            }
            Some(_) => {}
            None => buckets.push((f64::MAX, since)),
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_counted_once() {
        let latencies = pollux::stats::Latencies::default();
        for took in [1, 128, 129, 256, 257, 1 << 35, u64::MAX] {
            latencies.record(Kind::Read, took);
        }
        let buckets = powers(&latencies.times(Kind::Read));
        let first: Vec<_> = buckets.iter().take(3).map(|(_, count)| *count).collect();
        assert_eq!(first, [2, 2, 1]);
        assert_eq!(buckets.last(), Some(&(f64::MAX, 1)));
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 7);
        assert!(buckets.is_sorted_by(|one, next| one.0 < next.0));
    }
}
