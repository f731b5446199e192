//! What driver and device agree on before there is a disk.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use pollux_blk::{Config, feature};
use vhost::VhostBackend as _;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures as Protocol,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};

use crate::Options;
use crate::connection::regions::Sending;
use crate::connection::wire::Wire;
use crate::error::{ConnectError, Refusal};

/// The features that the driver makes use of.
const FEATURES: u64 = feature::VERSION_1
    | feature::PROTOCOL_FEATURES
    | feature::EVENT_IDX
    | feature::INDIRECT_DESC
    | feature::SIZE_MAX
    | feature::SEG_MAX
    | feature::RO
    | feature::BLK_SIZE
    | feature::FLUSH
    | feature::TOPOLOGY
    | feature::CONFIG_WCE
    | feature::MQ
    | feature::DISCARD
    | feature::WRITE_ZEROES;

/// The protocol features that the driver makes use of. It does without each but `CONFIG`.
const PROTOCOL: Protocol = Protocol::MQ
    .union(Protocol::REPLY_ACK)
    .union(Protocol::CONFIG)
    .union(Protocol::CONFIGURE_MEM_SLOTS)
    .union(Protocol::BACKEND_REQ);

/// How many regions every server takes (the specification's figure for the whole table).
const TABLE_SLOTS: usize = 8;

/// What was agreed on.
#[derive(Debug)]
pub(crate) struct Agreed {
    /// Features of virtio.
    pub(crate) features: u64,
    /// Protocol features of vhost-user.
    protocol: Protocol,
    /// How many queues may be used.
    pub(crate) queues: u16,
    /// How memory is made known, and how much of it.
    pub(crate) memory: Sending,
    /// Our end of the channel on which the server sends messages of its own.
    pub(crate) notices: Option<UnixStream>,
}

impl Agreed {
    pub(crate) fn has(&self, feature: Protocol) -> bool {
        self.protocol.contains(feature)
    }
}

/// Why there was no agreement.
pub(crate) enum Failure {
    Lacks {
        what: &'static str,
        remedy: &'static str,
    },
    Refusal(Refusal),
    System(io::Error),
}

impl Failure {
    pub(crate) fn at(self, path: &Path) -> ConnectError {
        let path = path.to_owned();
        match self {
            Self::Lacks { what, remedy } => ConnectError::Lacks { path, what, remedy },
            Self::Refusal(Refusal::Lost(source)) => ConnectError::Lost { path, source },
            Self::Refusal(Refusal::Refused { message }) => ConnectError::Refusal { path, message },
            Self::Refusal(Refusal::System { source, .. }) | Self::System(source) => {
                ConnectError::System { path, source }
            }
            Self::Refusal(refusal @ Refusal::NoSlot { .. }) => ConnectError::System {
                path,
                source: refusal.into(),
            },
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Agrees with the server on features, and asks what its device tells of itself.
pub(crate) fn negotiate(
    wire: &Wire,
    frontend: &mut Frontend,
    options: &Options,
) -> Result<(Agreed, Config), Failure> {
    let offered = wire.exchange("its features", || {
        frontend.set_owner()?;
        frontend.get_features()
    })?;
    let features = offered & FEATURES & !options.experiment.without;
    require(
        features & feature::VERSION_1 != 0,
        "VERSION_1",
        "it speaks only the legacy virtio of before 2016; use a newer one",
    )?;
    require(
        features & feature::PROTOCOL_FEATURES != 0,
        "PROTOCOL_FEATURES, without which it cannot tell the size of its disk",
        "use a server of vhost-user-blk disks",
    )?;

    let offered = wire.exchange("its protocol features", || frontend.get_protocol_features())?;
    let protocol =
        offered & PROTOCOL & !Protocol::from_bits_retain(options.experiment.without_protocol);
    require(
        protocol.contains(Protocol::CONFIG),
        "the protocol feature CONFIG, without which it cannot tell the size of its disk",
        "is it a server of another kind of device? Use one of vhost-user-blk disks",
    )?;
    wire.exchange("to take the features", || {
        frontend.set_protocol_features(protocol)?;
        if protocol.contains(Protocol::REPLY_ACK) {
            // From here on every message tells whether it was obeyed.
            frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        frontend.set_features(features)
    })?;

    // First, so that what changes after this is read is told.
    let notices = notices(wire, frontend, protocol)?;
    let config = read_config(wire, frontend)?;
    let agreed = Agreed {
        features,
        protocol,
        queues: queues(wire, frontend, protocol, features, &config, options)?,
        memory: memory(wire, frontend, protocol)?,
        notices,
    };
    Ok((agreed, config))
}

fn require(there: bool, what: &'static str, remedy: &'static str) -> Result<(), Failure> {
    if there {
        return Ok(());
    }
    Err(Failure::Lacks { what, remedy })
}

/// Asks for the configuration space, as far as Pollux knows it: every server knows as much. (One that is
/// asked for more than it has answers with an empty message, after which crate `vhost` waits for the
/// rest: so there is no second try with another length.)
pub(crate) fn read_config(wire: &Wire, frontend: &mut Frontend) -> Result<Config, Refusal> {
    let size = u32::try_from(Config::SIZE).expect("60 bytes");
    let message = "its configuration";
    let (_, bytes) = wire.exchange(message, || {
        frontend.get_config(0, size, VhostUserConfigFlags::empty(), &[0; Config::SIZE])
    })?;
    let bytes = bytes
        .first_chunk()
        .expect("crate vhost takes no answer of another length");
    Ok(Config::parse(bytes))
}

/// How many queues may be used: what the server can serve, the device has and the caller wants.
fn queues(
    wire: &Wire,
    frontend: &mut Frontend,
    protocol: Protocol,
    features: u64,
    config: &Config,
    options: &Options,
) -> Result<u16, Failure> {
    let served = if protocol.contains(Protocol::MQ) {
        wire.exchange("its number of queues", || frontend.get_queue_num())?
    } else {
        1
    };
    let device = if features & feature::MQ != 0 {
        config.num_queues
    } else {
        1
    };
    let served = u16::try_from(served).unwrap_or(u16::MAX);
    let queues = served.min(device);
    require(queues > 0, "any queue", "give it at least one")?;
    Ok(queues.min(options.queues.unwrap_or(queues)).max(1))
}

/// How memory is made known to the server.
fn memory(wire: &Wire, frontend: &mut Frontend, protocol: Protocol) -> Result<Sending, Failure> {
    if !protocol.contains(Protocol::CONFIGURE_MEM_SLOTS) {
        return Ok(Sending::Whole { slots: TABLE_SLOTS });
    }
    let slots = wire.exchange("its number of memory slots", || {
        frontend.get_max_mem_slots()
    })?;
    Ok(Sending::Each {
        slots: usize::try_from(slots).unwrap_or(usize::MAX),
    })
}

/// Gives the server a channel for messages of its own: that its configuration has changed.
fn notices(
    wire: &Wire,
    frontend: &mut Frontend,
    protocol: Protocol,
) -> Result<Option<UnixStream>, Failure> {
    if !protocol.contains(Protocol::BACKEND_REQ) {
        return Ok(None);
    }
    // Only ours is kept, so that it tells when the server has let go of the other.
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    wire.exchange("to take a channel for its messages", || {
        frontend.set_backend_request_fd(&theirs)
    })?;
    Ok(Some(ours))
}
