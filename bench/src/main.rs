//! Pollux and a peer, side by side: two servers under one client, two clients on one server.
//!
//! The two are never measured at the same time, nor far apart: for each cell they take turns,
//! A B A B, and only the ratio within a pair counts. What drifts (the clock of the processor, the
//! neighbours on the host) hits both of a pair alike; a pair whose two sides were measured in different states
//! of the host is none ([`pairing`]). See `RESULTS.md` for how to read the numbers.

mod cell;
mod client;
mod compare;
mod contender;
mod contenders;
mod fill;
mod fio;
mod images;
mod instructions;
mod interrupt;
mod machine;
mod measure;
mod options;
mod pairing;
mod perf;
mod pinned;
mod prices;
mod quiet;
mod results;
mod round_trip;
mod set;
mod spdk;
mod statistics;
mod stripe;
mod studies;
mod uml;
mod work;

use std::fs;
use std::io;
use std::process::ExitCode;

use clap::Parser;

use compare::Comparison;
use contender::Contender;
use contenders::Contenders;
use images::Images;
use instructions::Instructions;
use interrupt::Interrupt;
use measure::Syscalls;
use options::{Options, Part};
use prices::Prices;
use results::{Results, Section};

fn main() -> ExitCode {
    let options = Options::parse();
    let ended = match &options.part {
        Some(Part::CountedClient(client)) => client.run(),
        Some(Part::CountedLayer(layer)) => layer.run(),
        None => run(&options),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pollux-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that was asked for, one thing after the other: nothing runs beside a measurement.
fn run(options: &Options) -> io::Result<()> {
    let interrupt = Interrupt::watch()?;
    let folder = options.folder();
    let images = Images::below(&folder)?;
    let contenders = options.contenders();
    let no_syscalls = perf::unavailable();
    let syscalls = match &no_syscalls {
        None => Syscalls::Counted,
        Some(why) => {
            eprintln!("system calls are not counted: {why}");
            Syscalls::NotCounted
        }
    };
    let comparison = Comparison {
        options,
        contenders: &contenders,
        images: &images,
        interrupt: &interrupt,
        plan: options.plan(syscalls),
    };
    let everything = !options.prices && !options.instructions;
    if everything {
        comparison.check()?;
        studies::check(&comparison)?;
    }
    let mut results = Results {
        setting: machine::Setting::here(&contenders, &folder),
        pairs: options.pairs(),
        seconds: options.seconds(),
        no_syscalls,
        prices: None,
        instructions: None,
        sections: vec![],
        studies: vec![],
    };
    if options.prices || options.is_whole() {
        results.prices = Some(prices(options, &images)?);
        interrupt.check()?;
    }
    if options.instructions || options.is_whole() {
        results.instructions = instructions(options, &contenders.ours, &images)?;
        interrupt.check()?;
    }
    if everything {
        results.sections = compare(&comparison)?;
        results.studies = studies::run(&comparison)?;
        if results.sections.is_empty() && results.studies.is_empty() {
            return Err(nothing_measured(&options.only));
        }
    }
    write(options, &results)
}

/// An error, lest an empty file of results looks like one without losses.
fn nothing_measured(only: &str) -> io::Error {
    io::Error::other(format!(
        "nothing was measured: no row of these sets has {only:?} in its name; the first column of the tables in \
         bench/RESULTS.md and bench/policy has the names"
    ))
}

fn prices(options: &Options, images: &Images) -> io::Result<Prices> {
    let prices = Prices::measure(options.processors(), images)?;
    println!("{prices}");
    Ok(prices)
}

/// Instruction counts: an error without them only if it was they that were asked for.
fn instructions(
    options: &Options,
    contender: &Contender,
    images: &Images,
) -> io::Result<Option<Instructions>> {
    match Instructions::count(contender, images) {
        Err(error) if options.instructions => Err(error),
        Err(error) => {
            eprintln!("instructions are not counted: {error}");
            Ok(None)
        }
        Ok(None) => {
            eprintln!("instructions are counted of Pollux alone");
            Ok(None)
        }
        Ok(Some(counted)) => {
            println!("{counted}");
            Ok(Some(counted))
        }
    }
}

/// Every cell that was asked for, with the tables of each set at its end.
fn compare(comparison: &Comparison) -> io::Result<Vec<Section>> {
    let Contenders { ours, peer, .. } = comparison.contenders;
    let mut sections = vec![];
    for all in comparison.options.sets() {
        let mut section = Section::new(&all);
        let comparison = comparison.shortened(all.share_of_runtime);
        for cell in all.list {
            section.outcomes.push(comparison.run(cell)?);
        }
        println!("\n{} against {}. {}", ours.name, peer.name, section.plain());
        sections.push(section);
    }
    Ok(sections)
}

fn write(options: &Options, results: &Results) -> io::Result<()> {
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(results)?)?;
    }
    if let Some(path) = options.results() {
        fs::write(&path, results.markdown())?;
        for plot in results.plots() {
            fs::write(path.with_file_name(plot.file), plot.svg()?)?;
        }
        println!("written to {}", path.display());
    }
    Ok(())
}
