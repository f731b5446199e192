//! An image that is open: everything about it that blocks.
#![expect(
    unsafe_code,
    reason = "calls into librbd, with what this module keeps alive"
)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use pollux_disk::spec::Rbd;
use rustix::io::Errno;

use crate::blocking_thread::Task;
use crate::cluster::{Pool, check, failed, name};
use crate::error::{RbdError, errno};
use crate::library::{Ceph, Handle};

/// `RBD_LOCK_MODE_EXCLUSIVE`
const EXCLUSIVE: i32 = 0;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`
const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;

/// An open image. Requests hold it, so it is closed after the last of them.
pub struct Opened {
    pool: Pool,
    /// Of `rbd_open`; used until the drop.
    handle: Handle,
    /// As people write it.
    name: String,
    /// What librbd calls back with when something about the image has changed.
    watch: Option<(u64, Box<Watch>)>,
}

/// The task for a change of an image, and the thread that does it.
pub struct Watch {
    pub tasks: Sender<Task>,
    pub task: Arc<dyn Fn() + Send + Sync>,
}

// SAFETY: an `rbd_image_t` may be used by any number of threads at once.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

/// librbd is told so on a thread of its own, on which it must not be asked anything.
extern "C" fn changed(watch: *mut c_void) {
    // SAFETY: the box that `Opened::watch` made: it is kept until librbd has been told not to call any more, which
    // waits for calls that go on.
    let watch = unsafe { &*watch.cast::<Watch>() };
    let task = Arc::clone(&watch.task);
    // Where no one is there to hear it any more, the image is about to be closed.
    let _ = watch.tasks.send(Task::Run(Box::new(move || task())));
}

impl Opened {
    /// Opens what `spec` names.
    pub fn open(spec: &Rbd, read_only: bool) -> Result<Self, RbdError> {
        let pool = Pool::of(spec)?;
        let image = name(&spec.image)?;
        let snapshot: Option<CString> = spec.snapshot.as_deref().map(name).transpose()?;
        let snapshot = snapshot.as_deref().map_or(ptr::null(), CStr::as_ptr);
        let rbd = &pool.cluster.ceph().rbd;
        let open = if read_only {
            rbd.rbd_open_read_only
        } else {
            rbd.rbd_open
        };
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: the pool's context; the names live until the call has ended, and the handle is ours.
        let opened = unsafe { open(pool.context, image.as_ptr(), &raw mut handle, snapshot) };
        check(opened).map_err(|source| match source {
            Errno::NOENT => RbdError::NoImage {
                image: spec.name(),
                pool: spec.pool.clone(),
            },
            _ => failed("open", || spec.name())(source),
        })?;
        Ok(Self {
            pool,
            handle,
            name: spec.name(),
            watch: None,
        })
    }

    /// The libraries.
    pub fn ceph(&self) -> &'static Ceph {
        self.pool.cluster.ceph()
    }

    /// What calls that do not block are made with.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// As people write it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What an option of the connection is set to.
    pub fn option(&self, key: &CStr) -> Option<u64> {
        self.pool.cluster.number(key)
    }

    fn done(&self, doing: &'static str, returned: i32) -> Result<(), RbdError> {
        check(returned).map_err(|source| match source {
            Errno::SHUTDOWN => RbdError::Blocklisted {
                image: self.name.clone(),
            },
            _ => failed(doing, || self.name.clone())(source),
        })
    }

    /// Its size in bytes.
    pub fn size(&self) -> Result<u64, RbdError> {
        let mut size = 0;
        // SAFETY: our handle; the size goes into a variable of ours.
        let got = unsafe { (self.ceph().rbd.rbd_get_size)(self.handle, &raw mut size) };
        self.done("find the size of", got)?;
        Ok(size)
    }

    /// Can it be locked?
    pub fn has_lock(&self) -> Result<bool, RbdError> {
        let mut features = 0;
        // SAFETY: our handle; the features go into a variable of ours.
        let got = unsafe { (self.ceph().rbd.rbd_get_features)(self.handle, &raw mut features) };
        self.done("find the features of", got)?;
        Ok(features & FEATURE_EXCLUSIVE_LOCK != 0)
    }

    /// Makes it `bytes` large.
    pub fn resize(&self, bytes: u64) -> Result<(), RbdError> {
        // SAFETY: our handle.
        let resized = unsafe { (self.ceph().rbd.rbd_resize)(self.handle, bytes) };
        self.done("resize", resized)
    }

    /// Takes its lock, for as long as it is open or until it is given back: librbd hands it to no one that asks. Breaks
    /// that of a client which the cluster takes for dead, and shuts that client out first. `false`: another client that
    /// lives has it.
    pub fn try_lock(&self) -> Result<bool, RbdError> {
        // SAFETY: our handle.
        let locked = unsafe { (self.ceph().rbd.rbd_lock_acquire)(self.handle, EXCLUSIVE) };
        let busy = [Errno::ROFS, Errno::BUSY, Errno::AGAIN];
        if locked < 0 && busy.contains(&errno(locked)) {
            return Ok(false);
        }
        self.done("lock", locked)?;
        self.is_locked()
    }

    /// Have we its lock?
    pub fn is_locked(&self) -> Result<bool, RbdError> {
        let mut owner = 0;
        let ask = self.ceph().rbd.rbd_is_exclusive_lock_owner;
        // SAFETY: our handle; the answer goes into a variable of ours.
        let asked = unsafe { ask(self.handle, &raw mut owner) };
        self.done("find the owner of", asked)?;
        Ok(owner != 0)
    }

    /// Gives the lock back, once all that was written is in the cluster. Without the lock there is nothing to do.
    pub fn unlock(&self) -> Result<(), RbdError> {
        if !self.is_locked()? {
            return Ok(());
        }
        // SAFETY: our handle.
        let released = unsafe { (self.ceph().rbd.rbd_lock_release)(self.handle) };
        self.done("give back the lock of", released)
    }

    /// The address of the client that has its lock: asked of the cluster, as what librbd remembers may be old.
    pub fn holder(&self) -> Option<String> {
        let mut mode = 0;
        let mut owners = [ptr::null_mut::<c_char>(); 1];
        let mut count = owners.len();
        let list = owners.as_mut_ptr();
        let ask = self.ceph().rbd.rbd_lock_get_owners;
        // SAFETY: our handle; the list has room for as many as the count says, and an exclusive lock has one owner.
        let asked = unsafe { ask(self.handle, &raw mut mode, list, &raw mut count) };
        if asked < 0 || count == 0 {
            return None;
        }
        // SAFETY: librbd has put a text there, which stays until the list is given back.
        let address = unsafe { CStr::from_ptr(owners[0]) };
        let address = address.to_string_lossy().into_owned();
        // SAFETY: the list as librbd has filled it, given back once.
        unsafe { (self.ceph().rbd.rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count) };
        Some(address)
    }

    /// From now on, the task of `watch` is done whenever the image has changed.
    pub fn watch(&mut self, watch: Watch) -> Result<(), RbdError> {
        let watch = Box::new(watch);
        let mut number = 0;
        let register = self.ceph().rbd.rbd_update_watch;
        let argument = ptr::from_ref(&*watch).cast_mut().cast();
        // SAFETY: our handle; what it calls back with is kept until `rbd_update_unwatch` has returned.
        let watched = unsafe { register(self.handle, &raw mut number, changed, argument) };
        self.done("watch", watched)?;
        self.watch = Some((number, watch));
        Ok(())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let rbd = &self.ceph().rbd;
        if let Some((number, watch)) = self.watch.take() {
            // SAFETY: our handle, and what it was registered as.
            let unwatched = unsafe { (rbd.rbd_update_unwatch)(self.handle, number) };
            if unwatched < 0 {
                // It may still call: what it calls with stays.
                Box::leak(watch);
            }
        }
        // SAFETY: all users of the handle hold this, so there is none any more.
        let closed = unsafe { (rbd.rbd_close)(self.handle) };
        if closed < 0 {
            let error = errno(closed);
            tracing::warn!(image = self.name, %error, "an image could not be closed in order");
        }
    }
}
