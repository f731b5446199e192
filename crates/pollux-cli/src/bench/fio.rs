//! fio's options that `pollux bench` has under another name, or not at all.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

/// They are refused with what to say instead, as the nearest name here may do something else.
const OTHERS: [(&str, &str); 11] = [
    (
        "buffered",
        "give it to the disk: --disk file:path=FILE,cache=writeback",
    ),
    (
        "ioengine",
        "give it to the disk: --disk file:path=FILE,engine=io_uring",
    ),
    ("hipri", "give --completion polled, or --hipri-percent N"),
    ("rate", "give requests a second: --rate-iops N"),
    ("rwmixwrite", "give the percent of reads: --rwmixread N"),
    ("randseed", "every run has the same requests; leave it out"),
    ("ramp_time", "measuring begins at once; leave it out"),
    ("fsync", "no flushes are measured; leave it out"),
    ("name", "a run has no name; leave it out"),
    ("thread", "a job is always a thread; leave it out"),
    (
        "group_reporting",
        "all jobs are reported together; leave it out",
    ),
];

/// Those, and `--time_based`, which is always so.
pub fn options() -> impl Iterator<Item = Arg> {
    let others = OTHERS.map(|(name, instead)| option(name).value_parser(Refusal { name, instead }));
    others
        .into_iter()
        .chain([option("time_based").value_parser(["1"])])
}

fn option(name: &'static str) -> Arg {
    let option = Arg::new(name)
        .long(name)
        .hide(true)
        .num_args(0..=1)
        .default_missing_value("1");
    // As ours are written.
    match name {
        "ramp_time" => option.alias("ramp-time"),
        "group_reporting" => option.alias("group-reporting"),
        "time_based" => option.alias("time-based"),
        _ => option,
    }
}

/// Takes no value, given or not: none may have been typed.
#[derive(Clone)]
struct Refusal {
    name: &'static str,
    instead: &'static str,
}

impl TypedValueParser for Refusal {
    type Value = String;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, _: &OsStr) -> Result<String, Error> {
        let Self { name, instead } = self;
        let told = format!("--{name}: {instead}\n");
        Err(Error::raw(ErrorKind::UnknownArgument, told).with_cmd(command))
    }
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
