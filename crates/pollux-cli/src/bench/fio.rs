//! fio's options that `pollux bench` has under another name, or not at all, and those of `pollux serve`.

use clap::Arg;

use crate::cli::foreign::{Names, option, refused};

const OTHERS: [Names; 30] = [
    (&["--socket-path", "--socket_path"], "write --socket PATH"),
    (
        &["--blk-file", "--blk_file", "--file"],
        "write --filename FILE",
    ),
    (&["--io_depth", "--io-depth"], "write --iodepth N"),
    (
        &["--queues", "--num-queues", "--num_queues"],
        "each job has a queue; write --numjobs N",
    ),
    (
        &["--readonly", "--read-only", "--read_only"],
        "--rw read and randread write nothing without --verify; leave it out",
    ),
    (
        &["--buffered"],
        "give it to the disk: --disk file:path=FILE,cache=writeback",
    ),
    (
        &["--sync"],
        "give it to the disk: --disk file:path=FILE,cache=writethrough",
    ),
    (
        &["--ioengine"],
        "give it to the disk: --disk file:path=FILE,engine=io_uring",
    ),
    (
        &["--hipri"],
        "give --completion polled, or --hipri-percent N",
    ),
    (
        &["--hipri_percentage", "--hipri-percentage"],
        "write --hipri-percent N",
    ),
    (&["--rate"], "give requests a second: --rate-iops N"),
    (
        &["--rwmixwrite"],
        "give the percent of reads: --rwmixread N",
    ),
    (
        &["--randseed", "--randrepeat"],
        "every run has the same requests; leave it out",
    ),
    (
        &["--norandommap"],
        "random blocks always come with repetitions; leave it out",
    ),
    (
        &["--percentage_random", "--percentage-random"],
        "blocks come all in order or all at random; give --rw read or randread, for instance",
    ),
    (
        &["--nrfiles"],
        "there is one disk, of which each job has a part; leave it out",
    ),
    (&["--zonemode"], "no disk has zones; leave it out"),
    (
        &["--latency_target", "--latency-target"],
        "the load is not fitted to a latency; give --iodepth N or --rate-iops N",
    ),
    (&["--bsrange"], "all requests have one size; give --bs SIZE"),
    (
        &["--offset"],
        "the disk is used from its beginning; leave it out",
    ),
    (
        &[
            "--loops",
            "--io_size",
            "--io-size",
            "--number_ios",
            "--number-ios",
        ],
        "a run ends after a time; give --runtime TIME",
    ),
    (
        &["--invalidate"],
        "what the page cache holds stays; to go past it, give --disk file:path=FILE,cache=none",
    ),
    (
        &["--eta", "--status_interval", "--status-interval"],
        "a terminal shows how far a run is, and SIGUSR1 asks it; leave it out",
    ),
    (&["--fsync"], "no flushes are measured; leave it out"),
    (
        &["--do_verify", "--do-verify"],
        "--verify always reads back what it has written; leave it out",
    ),
    (&["--cpus_allowed", "--cpus-allowed"], "write --cpus LIST"),
    (&["--name"], "a run has no name; leave it out"),
    (&["--thread"], "a job is always a thread; leave it out"),
    (
        &["--group_reporting", "--group-reporting"],
        "all jobs are reported together; leave it out",
    ),
    (&["--minimal"], "write --output-format json"),
];

/// Those, and `--time_based`, which is always so.
pub fn options() -> impl Iterator<Item = Arg> {
    let time_based = option("--time_based")
        .alias("time-based")
        .value_parser(["1"]);
    refused(&OTHERS).chain([time_based])
}

/// One of ours, with underscores for hyphens as well, as fio writes it: they are in its id.
pub fn underscored(option: Arg) -> Arg {
    let id = option.get_id().clone();
    if id.as_str().contains('_') {
        option.alias(id)
    } else {
        option
    }
}
