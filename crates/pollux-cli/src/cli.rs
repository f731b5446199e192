//! The command line.

pub mod foreign;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use tracing_subscriber::filter::LevelFilter;

use crate::bench::BenchArgs;
use crate::control::{DiskArgs, TopArgs};
use crate::export::ExportArgs;
use crate::log::{Format, level};
use crate::process::{ProcessArgs, below_zero, listen_address};

/// A virtio-blk stack with both ends of the ring.
#[allow(clippy::doc_markdown, reason = "these are help texts for a terminal")]
#[derive(Debug, Parser)]
#[command(name = "pollux", version, propagate_version = true, about, long_about = None)]
pub struct Cli {
    /// Log messages of this level and above: off, error, warn, info, debug or trace. The variable POLLUX_LOG says the
    /// same [default: info; of bench and disk: warn; of top: error]
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        value_parser = level,
        help_heading = "Output"
    )]
    pub log_level: Option<LevelFilter>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve disks to virtual machines over vhost-user
    Serve(Box<ServeArgs>),
    /// List, add, change and remove disks of running daemons, over their control sockets
    Disk(DiskArgs),
    /// Watch the disks and workers of running daemons, and what keeps a disk from being faster
    Top(TopArgs),
    /// Drive a disk over vhost-user, and measure it
    Bench(Box<BenchArgs>),
    /// Print completions of this command line for a shell, or write its manual pages
    #[command(subcommand)]
    Generate(Generate),
}

/// What is made from the description of the command line.
#[derive(Debug, Subcommand)]
pub enum Generate {
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, pollux.1 and one for each command
    Man {
        /// An existing folder
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

const SERVE_EXAMPLES: &str = "\
Examples:
  pollux serve --socket-path /run/disk.sock --blk-file disk.img
  pollux serve --socket-path /run/disk.sock --disk memory:size=1G --show-attach
  pollux serve --config /etc/pollux.toml

A file or block device: --disk file:path=F[,OPTION]...; of each option, the first is the default
  cache=writeback|none|writethrough      the page cache, past it (O_DIRECT), or through it at once
  engine=auto|io_uring|threads           what does I/O that must be waited for; auto: threads only
                                         where there is no io_uring
  inline=on|off                          serve at once what the page cache holds
  buffers=plain|registered               registered: pin ALL guest memory, for direct I/O
  lock=always|running                    running: lock the image only while a guest uses it, so
                                         that the guest can migrate from one daemon to another; on
                                         block devices and network file systems with cache=none only
  format=probe|raw                       probe: refuse images of other formats (qcow2, LUKS, ...),
                                         and keep the guest from making one; raw: serve any bytes
  An image has one writer: QEMU's locks are honoured, and hold QEMU off.

An image in QEMU's format: --disk qcow2:path=F[,OPTION]...
  cache, engine, inline, buffers, lock   as of a file
  backing=named|none|PATH                the backing file: as the image says, forbidden, or this
An image in a Ceph cluster: --disk rbd:pool=P,image=I[,OPTION]...
  the page \"Disks and their options\" of the book has its options

A disk that misbehaves, to see how a guest copes with it
  --disk fault:[seed=N,][log=F,]RULE[,RULE]...,on=SPEC
  RULE       ACTION[,CONDITION]..., for example error=EIO,op=write,every=100
  ACTION     delay=TIME | delay=TIME-TIME | delay=exp:TIME | delay=pareto:TIME
             error=EIO|ENOSPC|EOPNOTSUPP|...
             torn=BYTES|random[,then=fail|ok|hang]    stores only the beginning of a write
             hang=request|device                      never answers it, or anything any more
  CONDITION  op=read+write+flush+discard+write-zeroes+resize  range=BYTES-BYTES  after=N
             every=N  chance=P%  times=N
  TIME       200us, 3ms, 1s
  F          a file to which each request is appended before it reaches the disk below
  --disk fault:seed=7,delay=exp:1ms,error=EIO,chance=0.1%,on=memory:size=1G

Disks made of disks, to any depth; a LEG is a path, MAJOR:MINOR, or any SPEC, in brackets if it
contains what would end it
  --disk linear:LEG+LEG...               one after the other
  --disk striped:chunk=64K:LEG,LEG...    in chunks, round-robin
  --disk 'table:0 6291456 striped 3 128 a.img 0 b.img 0 c.img 0'
                                         device-mapper's language; lines end by ;

Signals: SIGTERM, SIGINT and SIGHUP finish what is in flight and exit with status 0; a second
SIGTERM or SIGINT does not wait, and with nohup, SIGHUP stays ignored. SIGUSR1 prints the counters
of all queues to the log; with --log-format json, as one line of JSON for each queue.";

#[derive(Args, Debug)]
#[command(after_help = SERVE_EXAMPLES)]
#[command(mut_args(below_zero))]
pub struct ServeArgs {
    // Headings stand in the order of their first options.
    /// Serve the disks that this file describes, in one process; the page "Disks and their options" of the book
    /// has an example
    #[arg(long, value_name = "FILE.toml", help_heading = "Which disk")]
    pub config: Option<PathBuf>,

    /// Answer HTTP on this unix socket, for `pollux disk` and curl: what is served, and what was counted. Only its
    /// owner may connect [default: none]
    #[arg(long, value_name = "PATH", help_heading = "While it runs")]
    pub control: Option<PathBuf>,

    /// Answer GET /metrics on this TCP address, for Prometheus, and nothing else: 127.0.0.1:9464 [default: none]
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        value_parser = listen_address,
        help_heading = "While it runs"
    )]
    pub metrics_listen: Option<SocketAddr>,

    /// Take disks while this runs (`pollux disk add`), with their images and sockets in this folder; may be given
    /// several times. The sandbox leaves these folders open, and the daemon stays until it is told to end
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        help_heading = "While it runs"
    )]
    pub disk_folder: Vec<PathBuf>,

    /// Keep the list of disks that were added in this file, and serve them again after a restart
    #[arg(long, value_name = "FILE.json", help_heading = "While it runs")]
    pub state: Option<PathBuf>,

    #[command(flatten)]
    pub process: ProcessArgs,

    #[command(flatten)]
    pub export: ExportArgs,

    /// Print how to attach the disk in QEMU, Cloud Hypervisor and libvirt, then serve
    #[arg(long, help_heading = "Output")]
    pub show_attach: bool,

    /// Print what this back end can do, as QEMU's conventions ask, and exit
    #[arg(long, help_heading = "Output")]
    pub print_capabilities: bool,

    /// Format of log lines
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub log_format: Format,
}

#[cfg(test)]
mod papers;
#[cfg(test)]
mod tests;
