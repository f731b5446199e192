//! An image that is locked only while it is used: so that a guest that migrates takes it from one daemon to another.
//!
//! What others may have made of it meanwhile is looked at anew, its tables and all that was kept of them. When it is
//! let go it is closed: nothing of it is left in memory.

use std::io;
use std::sync::{Arc, Mutex};

use pollux_threads::lock;

use super::chain::Chain;
use super::engine::Engine;
use super::map::Map;
use super::work::Work;
use crate::file::Raw;

/// The files, and when they are locked.
pub struct Running {
    /// Those that are written.
    written: Vec<Raw>,
    chain: Arc<Mutex<Chain>>,
    /// It is locked: no other program can have changed it since.
    used: Mutex<bool>,
}

impl Running {
    pub fn new(chain: Chain) -> Self {
        Self {
            written: chain.files[..chain.written()].to_vec(),
            chain: Arc::new(Mutex::new(chain)),
            used: Mutex::new(false),
        }
    }

    /// The image is used from now on. `is` is told how large the disk is, before it can be enlarged.
    ///
    /// # Errors
    ///
    /// Where another program uses it, or has left something else in its place.
    pub fn acquire(
        &self,
        work: &Work,
        map: &Arc<Map>,
        block: u32,
        is: impl FnOnce(u64) + Send + 'static,
    ) -> io::Result<()> {
        let mut used = lock(&self.used);
        if *used {
            return Ok(());
        }
        let (chain, map) = (Arc::clone(&self.chain), Arc::clone(map));
        let begin = move |engine: &mut Option<Engine>| {
            if engine.is_none() {
                let mut chain = lock(&chain);
                chain.look_again().map_err(io::Error::other)?;
                let built = chain.build().map_err(io::Error::other)?;
                *engine = Some(Engine::new(&chain, built, map, block));
            }
            is(engine.as_ref().map_or(0, Engine::bytes));
            Ok(())
        };
        let locked = self.written.iter().try_for_each(Raw::acquire);
        locked.and_then(|()| work.call(begin)).inspect_err(|_| {
            // Nothing was written: what fails here has failed already.
            let _ = self.unlock();
        })?;
        *used = true;
        Ok(())
    }

    /// The image is used no more.
    ///
    /// # Errors
    ///
    /// Where not all of it is on stable storage: it is kept then.
    pub fn release(&self, work: &Work, map: &Arc<Map>) -> io::Result<()> {
        let mut used = lock(&self.used);
        let map = Arc::clone(map);
        work.call(move |engine| {
            if let Some(open) = engine {
                open.close()?;
                *engine = None;
            }
            map.forget();
            Ok(())
        })?;
        // The tables are let go of, whatever is said of the locks.
        *used = false;
        self.unlock()
    }

    fn unlock(&self) -> io::Result<()> {
        self.written.iter().try_for_each(Raw::release)
    }
}
