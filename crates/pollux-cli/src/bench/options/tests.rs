use super::*;
use crate::cli::{Cli, Command};

/// What `pollux bench` is asked by these options.
pub fn parse(line: &str) -> Result<BenchArgs, String> {
    let words = ["pollux", "bench"].into_iter();
    match Cli::read(words.chain(line.split_whitespace())) {
        Ok(Cli {
            command: Command::Bench(args),
            ..
        }) => Ok(*args),
        Ok(_) => unreachable!("the second word is `bench`"),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn the_defaults_are_fios() {
    let args = parse("--disk null:size=1G").unwrap();
    assert_eq!(args.rw, Rw::Read);
    assert_eq!(args.bs, Size(4096));
    assert_eq!((args.iodepth, args.numjobs), (1, 1));
    assert_eq!(args.runtime, Duration::from_secs(5));
    assert_eq!(args.ramp_time, Duration::ZERO);
    assert_eq!(args.completion, Waiting::Adaptive);
    assert_eq!(args.output_format, Output::Normal);
}

#[test]
fn every_option_is_read() {
    let args = parse(
        "--socket s --rw randrw --rwmixread 70 --bs 16k --iodepth 8 --numjobs 2 --runtime 2m \
         --size 1m --rate-iops 1000 --completion polled --verify crc32c --cpus 0,1 --share-queue \
         --kick-lock held --queue-size 128 --ramp_time=2s --output-format json",
    )
    .unwrap();
    assert_eq!(args.rw, Rw::Randrw);
    assert_eq!((args.bs, args.size), (Size(16 << 10), Some(Size(1 << 20))));
    assert_eq!(args.runtime, Duration::from_secs(120));
    assert_eq!(args.ramp_time, Duration::from_secs(2));
    assert_eq!(args.rate_iops, NonZeroU32::new(1000));
    assert_eq!(args.kick_lock, Some(KickLock::Held));
    assert_eq!(args.queue_size, Some(128));
    assert_eq!(args.process.cpus.as_deref(), Some("0,1"));
    assert_eq!(
        parse("--disk x --hipri-percent 50").unwrap().hipri_percent,
        Some(50)
    );
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for (line, words) in [
        ("--rw read", "--socket"),
        ("--socket s --disk d", "cannot be used with"),
        ("--disk d --iodepth 0", "--iodepth"),
        ("--disk d --iodepth -1", "--iodepth"),
        ("--disk d --iodepth=abc", "a whole number from 1 to 1024"),
        ("--disk d --threads 300", "a whole number from 1 to 256"),
        ("--disk d --rate-iops=-5", "a number from 1 on"),
        ("--disk d --numjobs 0", "--numjobs"),
        ("--disk d --bs 0", "--bs"),
        ("--disk d --bs four", "--bs"),
        ("--disk d --rwmixread 101", "--rwmixread"),
        ("--disk d --rate-iops 0", "leave it out for as many"),
        ("--disk d --rate-iops 1g", "such as 1000 or 1k"),
        ("--disk d --runtime 5x", "the units of time are"),
        ("--disk d --runtime 1m30s", "a time has one unit"),
        ("--disk d --runtime 0.2", "a time is a whole number"),
        ("--disk d --filename f", "cannot be used with"),
        ("--filename f --direct=2", "give 0 or 1"),
        ("--filename=", "--filename <FILE>"),
        ("--socket d --reconnect 0", "leave --reconnect out"),
        ("--disk d --reconnect 5s", "cannot be used with"),
        ("--filename f --reconnect 5s", "cannot be used with"),
        ("--disk d --queue-size 100", "a power of two from 4 to 1024"),
        (
            "--disk d --queue-size 2048",
            "a power of two from 4 to 1024",
        ),
        ("--disk d --ioengine libaio", "engine=io_uring"),
        ("--disk d --ramp_time=soon", "a time begins with a number"),
        ("--disk d --rwmixwrite=30", "--rwmixread"),
        ("--disk d --randseed 7", "leave it out"),
        ("--disk d --thread", "error: --thread: a job is always"),
        ("--disk d --hipri", "error: --hipri: give --completion"),
        (
            "--disk d --group_reporting",
            "error: --group_reporting: all",
        ),
        ("--disk d --time_based=0", "--time_based"),
        ("--socket-path s", "error: --socket-path: write --socket"),
        ("--socket_path s", "error: --socket_path: write --socket"),
        ("--blk-file f", "write --filename FILE"),
        ("--disk d --io_depth 4", "write --iodepth N"),
        ("--disk d --io-depth=4", "write --iodepth N"),
        ("--disk d --queues 2", "write --numjobs N"),
        ("--disk d --readonly", "leave it out"),
        ("--disk d --norandommap", "leave it out"),
        ("--disk d --randrepeat=0", "leave it out"),
        ("--disk d --cpus_allowed 0-1", "write --cpus LIST"),
        ("--disk d --loops 2", "give --runtime TIME"),
        ("--disk d --io_size=1g", "give --runtime TIME"),
        ("--disk d --invalidate=1", "cache=none"),
        ("--disk d --status-interval=1", "SIGUSR1"),
        (
            "--disk d --hipri_percentage=50",
            "error: --hipri_percentage: write --hipri-percent N",
        ),
        ("--disk d --sync=1", "error: --sync: give it to the disk"),
        ("--disk d --percentage_random=50", "--rw read or randread"),
        ("--disk d --nrfiles 2", "leave it out"),
        ("--disk d --zonemode=zbd", "leave it out"),
        ("--disk d --latency-target 1ms", "give --iodepth N"),
        ("--disk d --offset 1m", "leave it out"),
        ("--disk d --bsrange 4k-8k", "give --bs SIZE"),
        ("--disk d --do_verify=1", "leave it out"),
        ("--disk d --minimal", "write --output-format json"),
        ("--disk d --rw trim", "--rw"),
        ("--disk d --verify md5", "--verify"),
        (
            "--disk d --hipri-percent 5 --completion call",
            "cannot be used with",
        ),
        ("--disk d --kick-lock held", "--share-queue"),
        ("--disk d --sandbox on", "only `pollux serve`"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(words), "{line}: {error}");
    }
}

/// The nearest name may be one that writes.
#[test]
fn nobody_is_led_to_another_option() {
    for line in [
        "--rw randtrim",
        "--rw randwrit",
        "--io_size 1m",
        "--redirect",
    ] {
        let error = parse(&format!("--disk d {line}")).unwrap_err();
        assert!(!error.contains("similar"), "{line}: {error}");
    }
}

#[test]
fn what_fio_says_in_other_words_is_understood() {
    let args = parse(
        "--disk d --readwrite=rw --blocksize=8k --rate_iops=9k --time-based --hipri_percent 5 --poll_max_us 9",
    )
    .unwrap();
    assert_eq!((args.rw, args.bs), (Rw::Readwrite, Size(8192)));
    assert_eq!(args.rate_iops, NonZeroU32::new(9000));
    assert_eq!(args.hipri_percent, Some(5));
    assert_eq!(args.process.poll_max_us, Some(9));
    assert_eq!(parse("--disk d --rw readwrite").unwrap().rw, Rw::Readwrite);
}

#[test]
fn a_file_in_fios_words_is_a_disk_in_ours() {
    let spec = |line: &str| parse(line).unwrap().spec();
    for (line, disk) in [
        ("--filename a,b", "file:path=a,,b"),
        ("--filename=f --direct=0", "file:path=f"),
        ("--filename=f --direct=1", "file:path=f,cache=none"),
        ("--filename f --direct --rw rw", "file:path=f,cache=none"),
        ("--disk null:size=1G", "null:size=1G"),
    ] {
        assert_eq!(spec(line).unwrap().as_deref(), Some(disk), "{line}");
    }
    assert_eq!(spec("--socket s"), Ok(None));
    for line in ["--disk d --direct=1", "--socket s --direct"] {
        assert!(spec(line).unwrap_err().contains("cache=none"), "{line}");
    }
}

#[test]
fn times_have_units() {
    let table = [
        ("500ms", Some(500)),
        ("5", Some(5000)),
        ("5s", Some(5000)),
        ("2m", Some(120_000)),
        ("1h", Some(3_600_000)),
        ("0", None),
        ("0s", None),
        ("", None),
        ("s", None),
        ("-1s", None),
        ("1.5s", None),
        ("5 s", None),
    ];
    for (text, ms) in table {
        assert_eq!(runtime(text).ok(), ms.map(Duration::from_millis), "{text}");
    }
}
