//! All servers of a run: the two that were asked for, and those that stand beside them where they are there.

use crate::cell::Server as Which;
use crate::contender::{Contender, Program};
use crate::spdk;

/// All servers of a run.
#[derive(Clone, Debug)]
pub struct Contenders {
    /// `--ours`.
    pub ours: Contender,
    /// `--peer`.
    pub peer: Contender,
    /// A `qemu-storage-daemon`, where the peer is none.
    storage_daemon: Option<Contender>,
    /// SPDK, where there is one.
    spdk: Option<Contender>,
}

impl Contenders {
    /// With those that nobody has to ask for.
    pub fn new(ours: Contender, peer: Contender) -> Self {
        let is_storage_daemon = matches!(peer.program, Program::QemuStorageDaemon { .. });
        let storage_daemon = || "qsd-iothread".parse().expect("it is one of those known");
        let spdk = |program| Contender {
            name: "spdk".to_owned(),
            program: Program::Spdk(program),
        };
        Self {
            ours,
            peer,
            storage_daemon: (!is_storage_daemon).then(storage_daemon),
            spdk: spdk::program().map(spdk),
        }
    }

    /// That one, if it is there.
    pub const fn get(&self, server: Which) -> Option<&Contender> {
        match server {
            Which::Ours => Some(&self.ours),
            Which::Peer => Some(&self.peer),
            Which::StorageDaemon => self.storage_daemon.as_ref(),
            Which::Spdk => self.spdk.as_ref(),
        }
    }

    /// Each that is there.
    pub fn all(&self) -> impl Iterator<Item = &Contender> {
        Which::ALL.into_iter().filter_map(|which| self.get(which))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_daemon_stands_beside_a_peer_that_is_none() {
        let with = |peer: &str| {
            let [ours, peer] = ["pollux", peer].map(|text| text.parse().unwrap());
            Contenders::new(ours, peer)
                .get(Which::StorageDaemon)
                .is_some()
        };
        assert!(!with("qsd10"));
        assert!(with("pollux --poll never"));
    }
}
