//! Messages of ours to the frontend, on the channel that it passed for them.
//!
//! Crate `vhost` 0.18 can send none that is for disks, and keeps the channel to itself; so there is a copy of it here.
//! The only message is a header alone, and no answer is asked for, so nothing waits for a frontend.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use pollux_disk::{Admitted, Quota};
use pollux_threads::lock;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendFlags, send};

/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`, version 1, no payload.
const CONFIG_CHANGE: [u32; 3] = [2, 1, 0];

/// The channel of one session, if its frontend has passed any.
#[derive(Debug, Default)]
pub struct BackendChannel {
    state: Mutex<ChannelState>,
}

#[derive(Debug, Default)]
struct ChannelState {
    /// Passed by a message that is yet to be checked.
    offered: Option<OwnedFd>,
    socket: Option<OwnedFd>,
    /// Does the frontend know the configuration space at all?
    config: bool,
}

impl BackendChannel {
    pub fn offer(&self, channel: OwnedFd) {
        let _old = lock(&self.state).offered.replace(channel);
    }

    /// What was offered is a stream socket, and is the channel from now on.
    pub fn take_offer(&self) {
        // Closed last, and without the lock: what is left in it may be slow to close.
        let _old = {
            let mut state = lock(&self.state);
            let offered = state.offered.take();
            mem::replace(&mut state.socket, offered)
        };
    }

    pub fn wants_config_changes(&self, config: bool) {
        lock(&self.state).config = config;
    }

    /// Has the frontend read the configuration space of `disk` anew. What the log is told of it has a `quota`.
    pub fn config_has_changed(&self, disk: &str, quota: &Quota) {
        let state = lock(&self.state);
        let told = state.config.then_some(state.socket.as_ref()).flatten();
        let Some(socket) = told else {
            if let Some(Admitted { withheld }) = quota.admits() {
                tracing::info!(
                    disk,
                    withheld,
                    "the frontend takes no news of the disk: its guest sees the new size when the frontend is started anew"
                );
            }
            return;
        };
        let message = CONFIG_CHANGE.map(u32::to_ne_bytes).concat();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match retry_on_intr(|| send(socket, &message, flags)) {
            // Where there is no room, it has yet to read one like it, and asks after that.
            Ok(sent) if sent == message.len() => {}
            Err(Errno::AGAIN) => {}
            failed => {
                if let Some(Admitted { withheld }) = quota.admits() {
                    tracing::warn!(
                        disk,
                        ?failed,
                        withheld,
                        "the frontend cannot be told of the new size: it has closed the channel"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
