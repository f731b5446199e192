//! Why an image cannot be used.

use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

/// Why an image cannot be opened, locked or resized.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
#[non_exhaustive]
pub enum RbdError {
    /// Ceph's client library is not installed.
    #[error(
        "Ceph's client library {library} cannot be loaded; install Debian's package `{package}`, or the like"
    )]
    NoLibrary {
        library: &'static str,
        package: &'static str,
        source: libloading::Error,
    },
    /// It is too old.
    #[error("{library} has no `{symbol}`; Ceph 16.2 or newer is needed")]
    OldLibrary {
        library: &'static str,
        symbol: String,
    },
    /// The configuration of the cluster cannot be read.
    #[error("cannot read Ceph's configuration {}; {}", conf_name(.conf.as_ref()), conf_remedy(.conf.as_ref()))]
    Conf {
        conf: Option<PathBuf>,
        source: Errno,
    },
    /// A name with a zero byte.
    #[error("`{name}` holds a zero byte, which no name in Ceph does")]
    Name { name: String },
    /// The cluster did not answer.
    #[error(
        "the cluster did not answer within {after:?}; see whether its monitors (`mon host`) can be reached and \
         `ceph -s` answers, or wait longer with `timeout=TIME`"
    )]
    Unreachable { after: Duration },
    /// The cluster did not answer in time whether it enlarges the image.
    #[error(
        "the cluster did not answer within {after:?}, and may enlarge the image later; see whether `ceph -s` answers, and \
         then how large the disk is, or wait longer with `timeout=TIME`"
    )]
    LateResize { after: Duration },
    /// The cluster turned the user away.
    #[error(
        "the cluster does not let the user `{user}` in; see its keyring and its `ceph auth get client.{user}`"
    )]
    Denied { user: String, source: Errno },
    /// No such pool.
    #[error("there is no pool `{pool}`; `ceph osd pool ls` lists those that there are")]
    NoPool { pool: String },
    /// No such image or snapshot.
    #[error("there is no image {image}; `rbd ls --long {pool}` lists those that there are")]
    NoImage { image: String, pool: String },
    /// It could be written by two.
    #[error(
        "{image} has no exclusive lock, so that others could write it at the same time; give it one with `rbd feature \
         enable {image} exclusive-lock`, or open it read-only (`--read-only`)"
    )]
    NoLock { image: String },
    /// Another client writes it.
    #[error(
        "{image} is in use: {} has its lock; end that use, or open the image read-only (`--read-only`; a dead one's lock is broken \
         once the cluster takes it for dead)",
        .holder.as_ref().map_or("another client".to_owned(), |address| format!("the client at {address}"))
    )]
    InUse {
        image: String,
        /// The address of the client that has the lock, as the cluster sees it.
        holder: Option<String>,
    },
    /// Another client has broken our lock.
    #[error(
        "this process was shut out of the cluster (blocklisted) when another client took over the lock of {image}; \
         restart it once that is done"
    )]
    Blocklisted { image: String },
    /// It ended with the cluster still busy.
    #[error("the thread that talks to the cluster has ended")]
    Gone,
    /// The machine lacks something.
    #[error("cannot {doing}")]
    Machine {
        doing: &'static str,
        source: std::io::Error,
    },
    /// The cluster said no.
    #[error("cannot {doing} {what}")]
    Cluster {
        doing: &'static str,
        what: String,
        source: Errno,
    },
}

fn conf_name(conf: Option<&PathBuf>) -> String {
    conf.map_or_else(
        || "(CEPH_CONF, /etc/ceph/ceph.conf)".to_owned(),
        |conf| conf.display().to_string(),
    )
}

fn conf_remedy(conf: Option<&PathBuf>) -> &'static str {
    match conf {
        Some(_) => "write a file that this user may read as `conf=PATH`",
        None => "write its path as `conf=PATH`",
    }
}

/// What a call of librbd that returns less than zero says.
pub fn errno(returned: i32) -> Errno {
    Errno::from_raw_os_error(returned.checked_neg().unwrap_or(i32::MAX).max(1))
}
