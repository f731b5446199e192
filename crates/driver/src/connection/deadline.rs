//! An end to waiting for a server that does not answer.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pollux_threads::{Birth, Kind};

/// Did it end by itself?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Yes.
    InTime,
    /// It was shut down over it.
    TooLate,
}

/// Runs `exchange`, which talks over a socket, and `shut_down` beside it if that takes longer than `patience`,
/// which shuts the socket down, so that `exchange` fails.
///
/// Timeouts of the socket itself would be simpler, but crate `vhost` tries again whenever one expires,
/// for ever. A thread is started each time: messages to the server are rare, and this way none is left
/// behind that has to be woken, ended, or counted as idle.
///
/// # Errors
///
/// When no thread can be started; then `exchange` has not run.
pub(crate) fn bounded<T>(
    patience: Duration,
    shut_down: impl FnOnce() + Send,
    exchange: impl FnOnce() -> T,
) -> io::Result<(T, Ended)> {
    thread::scope(|scope| {
        let (asking, end) = mpsc::channel::<()>();
        let birth = Birth::of(Kind::DriverPatience);
        let watch = thread::Builder::new().name("driver-patience".to_owned());
        let watch = watch.spawn_scoped(scope, move || {
            birth.happens();
            match end.recv_timeout(patience) {
                Err(RecvTimeoutError::Timeout) => {
                    shut_down();
                    Ended::TooLate
                }
                Ok(()) | Err(RecvTimeoutError::Disconnected) => Ended::InTime,
            }
        })?;
        let answer = exchange();
        drop(asking);
        let ended = watch
            .join()
            .expect("waiting and shutting down do not panic");
        Ok((answer, ended))
    })
}

#[cfg(test)]
mod tests;
