//! Starting and stopping the queues of a device.

use std::sync::Arc;

use vhost::vhost_user::VhostUserFrontend as _;
use vhost::{VhostBackend as _, VringConfigData};

use crate::connection::{Connection, Exchange, fd};
use crate::device::rings::Rings;
use crate::error::{Lost, Refusal};
use crate::notify::call::Call;
use crate::notify::shared_fd::SharedFd;

/// What a queue and its device wake each other by: two eventfds.
#[derive(Clone, Debug)]
pub(crate) struct QueueFds {
    /// Driver to device.
    pub(crate) kick: Arc<SharedFd>,
    /// Device to driver.
    pub(crate) call: Arc<Call<SharedFd>>,
}

impl Connection {
    /// Starts the queue of `rings`, from its beginning. The memory that they lie in was added before.
    ///
    /// # Errors
    ///
    /// When the device is gone or refuses.
    pub(crate) fn start_queue(
        &self,
        index: u16,
        fds: &QueueFds,
        rings: &Rings,
    ) -> Result<(), Refusal> {
        let message = "to start a queue";
        let copy = |fd: &SharedFd| {
            let copy = fd.copy().map(fd::event_fd);
            copy.map_err(|source| Refusal::System { message, source })
        };
        let (kick, call) = (copy(&fds.kick)?, copy(fds.call.fd())?);
        let (at, size) = (rings.addresses(), rings.size());
        let addresses = VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr: at.descriptor,
            used_ring_addr: at.device,
            avail_ring_addr: at.driver,
            log_addr: None,
        };
        let index = usize::from(index);
        let mut exchange = self.lock();
        let Exchange { session, line, .. } = &mut *exchange;
        let frontend = &mut line.frontend;
        session
            .wire
            .exchange("the size of a queue, `Options::queue_size`", || {
                frontend.set_vring_num(index, size)
            })?;
        rings.are_told();
        session.wire.exchange(message, || {
            let frontend = &mut line.frontend;
            frontend.set_vring_base(index, 0)?;
            frontend.set_vring_addr(index, &addresses)?;
            // Before the kick, upon which the ring starts.
            frontend.set_vring_call(index, &call)?;
            frontend.set_vring_kick(index, &kick)?;
            frontend.set_vring_enable(index, true)?;
            line.settle()
        })
    }

    /// Stops a queue. The server answers once no request of it is in flight; whether it has drained
    /// them is for the used ring to tell. Returns where in the available ring it stopped.
    ///
    /// # Errors
    ///
    /// When the device is gone or refuses.
    pub(crate) fn stop_queue(&self, index: u16) -> Result<u16, Refusal> {
        let message = "to stop a queue";
        let exchange = self.lock();
        let wire = &exchange.session.wire;
        let stopped = wire.exchange(message, || {
            exchange.line.frontend.get_vring_base(usize::from(index))
        })?;
        u16::try_from(stopped).map_err(|_| {
            let fault = format!("it stopped at {stopped}, beyond every index");
            wire.lose(Lost::Protocol { message, fault }).into()
        })
    }
}
