//! Ctrl-C ends a run between two measurements, so that its files go: they hold gigabytes, some of
//! them of memory. A second one does not wait.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};

/// Whether anybody asked for the end.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT and SIGTERM from now on.
    pub fn watch() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset, and sets it.
            register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
            register(signal, Arc::clone(&asked))?;
        }
        Ok(Self(asked))
    }

    /// # Errors
    /// When somebody asked for the end.
    pub fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::Error::other("interrupted; nothing was written"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_is_an_error_and_not_the_end() {
        let interrupt = Interrupt::watch().unwrap();
        interrupt.check().unwrap();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert!(interrupt.check().is_err());
    }
}
