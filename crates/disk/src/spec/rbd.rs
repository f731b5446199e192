//! `rbd:pool=P,image=I`: an image in a Ceph cluster. Opened by a program that has Ceph's client library.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::SpecError;
use super::options::{Choices, Given, LOCKS, escaped, shown};
use super::time::printed_time;
use crate::file::Locked;

pub const RBD: &str = "rbd:pool=rbd,image=disk";

/// An image of Ceph's RADOS block device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rbd {
    /// The pool in which the image lies.
    pub pool: String,
    /// The namespace of the pool, if it is not the default one.
    pub namespace: Option<String>,
    /// The name of the image.
    pub image: String,
    /// The snapshot to read; without one, the image itself.
    pub snapshot: Option<String>,
    /// The user: `admin` for `client.admin`, which it is without one.
    pub id: Option<String>,
    /// The configuration of the cluster; without one, where Ceph looks for it: `/etc/ceph/ceph.conf`, for example.
    pub conf: Option<PathBuf>,
    /// What this host may hold back.
    pub cache: RbdCache,
    /// When the image is locked.
    pub lock: Locked,
    /// How long the cluster may take to open the image, and the holder of its lock to give it up.
    pub timeout: Duration,
}

/// What becomes of a write on its way to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RbdCache {
    /// It is complete once the cluster has it: nothing is lost when this process is killed.
    #[default]
    None,
    /// It may be complete once it is in the cache of this process, as Ceph's configuration says. When this process is
    /// killed, what no flush followed is lost, and the guest does not know.
    Writeback,
    /// It is complete once the cluster has it; what was read or written is kept to be read again.
    Writethrough,
}

const CACHES: Choices<RbdCache, 3> = [
    ("none", RbdCache::None),
    ("writeback", RbdCache::Writeback),
    ("writethrough", RbdCache::Writethrough),
];

/// More than the 30 s for which a cluster takes a client for alive that is not.
const TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3600);

impl Rbd {
    /// As Ceph's tools call it: `POOL[/NAMESPACE]/IMAGE[@SNAPSHOT]`.
    #[must_use]
    pub fn name(&self) -> String {
        let namespace = self.namespace.as_ref();
        let namespace = namespace.map_or(String::new(), |name| format!("{name}/"));
        let snapshot = self.snapshot.as_ref();
        let snapshot = snapshot.map_or(String::new(), |name| format!("@{name}"));
        format!("{}/{namespace}{}{snapshot}", self.pool, self.image)
    }
}

pub fn parse(rest: &str) -> Result<Rbd, SpecError> {
    let mut given = Given::parse("rbd", RBD, rest)?;
    let pool = given.text("pool")?;
    let (namespace, snapshot) = (given.text("namespace")?, given.text("snapshot")?);
    let (id, conf) = (given.text("id")?, given.text("conf")?);
    let cache = given.choice("cache", &CACHES)?;
    let lock = given.choice("lock", &LOCKS)?;
    let timeout = given.time("timeout")?;
    if let Some(long) = timeout.filter(|timeout| *timeout > LONGEST) {
        return Err(SpecError::Choice {
            key: "timeout",
            value: printed_time(long),
            values: "an hour at most".to_owned(),
        });
    }
    let image = given.last("image")?;
    Ok(Rbd {
        pool: pool.ok_or(SpecError::Missing {
            key: "pool",
            example: RBD,
        })?,
        namespace,
        image,
        snapshot,
        id,
        conf: conf.map(PathBuf::from),
        cache,
        lock,
        timeout: timeout.unwrap_or(TIMEOUT),
    })
}

/// As [`parse`] reads it.
pub fn print(rbd: &Rbd, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "rbd:pool={}", escaped(rbd.pool.as_ref()))?;
    write!(f, ",image={}", escaped(rbd.image.as_ref()))?;
    for (key, value) in [
        ("snapshot", rbd.snapshot.as_ref()),
        ("namespace", rbd.namespace.as_ref()),
        ("id", rbd.id.as_ref()),
    ] {
        if let Some(value) = value {
            write!(f, ",{key}={}", escaped(value.as_ref()))?;
        }
    }
    if let Some(conf) = &rbd.conf {
        write!(f, ",conf={}", escaped(conf))?;
    }
    shown(f, "cache", &CACHES, &rbd.cache)?;
    shown(f, "lock", &LOCKS, &rbd.lock)?;
    if rbd.timeout != TIMEOUT {
        write!(f, ",timeout={}", printed_time(rbd.timeout))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;

    fn rbd(spec: &str) -> Rbd {
        match spec.parse().unwrap() {
            Spec::Rbd(rbd) => rbd,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn an_image_is_described_and_printed() {
        for spec in [
            "rbd:pool=rbd,image=a",
            "rbd:pool=p,image=a,,b,snapshot=s,namespace=n,id=user,conf=/etc/c,,d.conf,\
             cache=writeback,lock=running,timeout=5s",
        ] {
            assert_eq!(Spec::Rbd(rbd(spec)).to_string(), spec);
        }
        let other = "rbd:image=i,pool=p,snapshot=s,namespace=n,cache=none,timeout=1m";
        assert_eq!(rbd(other).name(), "p/n/i@s");
        let short = "rbd:pool=p,image=i,snapshot=s,namespace=n";
        assert_eq!(Spec::Rbd(rbd(other)).to_string(), short);
        assert_eq!(rbd(other).timeout, TIMEOUT);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (spec, told) in [
            ("rbd:image=i", "`pool` is missing"),
            ("rbd:pool=p", "`image` is missing"),
            ("rbd:pool=,image=i", "`pool=` is empty"),
            ("rbd:pool=p,image=i,snapshot=", "`snapshot=` is empty"),
            ("rbd:pool=p,namespace=,image=i", "`namespace=` is empty"),
            ("rbd:pool=p,image=i,id=", "`id=` is empty"),
            ("rbd:pool=p,image=i,conf=", "`conf=` is empty"),
            ("rbd:pool=p,image=i,timeout=0s", "a time such as `500ms`"),
            ("rbd:pool=p,image=i,timeout=61m", "an hour at most"),
            ("rbd:pool=p,image=i,timeout=60", "a time such as `500ms`"),
            ("rbd:pool=p,image=i,cache=writearound", "`writethrough`"),
            ("rbd:pool=p,image=i,user=a", "has no `user`"),
        ] {
            let refused = spec.parse::<Spec>().unwrap_err().to_string();
            assert!(refused.contains(told), "{spec}: {refused}");
        }
    }
}
