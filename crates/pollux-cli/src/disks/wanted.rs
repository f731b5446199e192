//! From what was said of a disk to one that can be served.

use std::sync::Arc;

use pollux::device::Device;
use pollux::disk::spec::DiskOpener;
use pollux::disk::{Spec, Subscription};
use tokio::sync::watch;

use super::served::Served;
use super::stop::Stop;
use crate::export::{ExportArgs, Offer};
use crate::limits::Groups;
use crate::model::{self, NewDisk};
use crate::socket::{Endpoint, Inherited, Passed, Socket, SocketError};

type Error = Box<dyn std::error::Error>;

/// One disk that is to be served.
pub struct Wanted {
    pub name: String,
    pub offer: Offer,
    pub endpoint: Endpoint,
}

impl Wanted {
    pub fn new(args: &ExportArgs, passed: &mut Passed) -> Result<Self, Error> {
        let endpoint = args.endpoint(passed)?;
        Ok(Self {
            name: model::name(args.name.as_deref(), &endpoint)?,
            offer: args.offer(endpoint.name())?,
            endpoint,
        })
    }

    pub fn open(
        self,
        inherited: &mut Inherited,
        groups: &mut Groups,
        opener: &dyn DiskOpener,
    ) -> Result<Export, NotServed> {
        let endpoint = self.endpoint;
        let (limit_group, limits) = (self.offer.limit_group.clone(), self.offer.limits);
        let spec = self.offer.disk.clone();
        let device = self.offer.open(groups, opener);
        let device = device.map_err(NotServed::Disk)?;
        let socket = endpoint.open(inherited).map_err(NotServed::Socket)?;
        let stop = Stop::new().map_err(|error| NotServed::Disk(error.into()))?;
        // Of the whole group, so not for a disk that could not be opened.
        if !limits.is_empty() {
            device.limiter().set(limits);
        }
        Ok(Export {
            name: self.name,
            spec,
            socket_name: endpoint.whole_name(),
            endpoint,
            socket,
            device,
            limit_group,
            stop: Arc::new(stop),
        })
    }
}

/// What cannot be had.
pub enum NotServed {
    Disk(Error),
    Socket(SocketError),
}

impl From<NotServed> for Error {
    fn from(why: NotServed) -> Self {
        match why {
            NotServed::Disk(error) => error,
            NotServed::Socket(error) => error.of("--socket-path"),
        }
    }
}

/// One disk with its socket.
pub struct Export {
    pub name: String,
    pub spec: Spec,
    pub endpoint: Endpoint,
    pub socket_name: String,
    pub socket: Socket,
    pub device: Arc<Device>,
    pub limit_group: Option<String>,
    pub stop: Arc<Stop>,
}

impl Export {
    /// What others are told of it. `added`: as it was added, if it was.
    pub fn served(&self, added: Option<NewDisk>, resizes: Option<Subscription>) -> Served {
        Served {
            name: self.name.clone(),
            spec: self.spec.clone(),
            socket: self.socket_name.clone(),
            device: Arc::clone(&self.device),
            limit_group: self.limit_group.clone(),
            stop: Arc::clone(&self.stop),
            added,
            removed: false,
            ended: watch::Sender::new(()),
            resizes,
        }
    }
}
