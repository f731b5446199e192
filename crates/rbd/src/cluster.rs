//! A connection to a cluster, which the disks of one configuration and user share.
#![expect(
    unsafe_code,
    reason = "calls into librados, with what this module keeps alive"
)]

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Mutex, Weak};

use pollux_disk::spec::{Rbd, RbdCache};
use pollux_threads::lock;
use rustix::io::Errno;

use crate::error::{RbdError, errno};
use crate::library::{Ceph, Handle, load};

/// What makes two connections the same. The cache is a setting of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    conf: Option<PathBuf>,
    id: Option<String>,
    cache: RbdCache,
}

/// One connection; it ends with the last that has it.
pub struct Cluster {
    ceph: &'static Ceph,
    /// Of `rados_create`, connected; used until the drop.
    rados: Handle,
}

// SAFETY: a `rados_t` may be used by any number of threads at once, as Ceph's header says.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

/// One slot for each connection, locked while it is made: the second to come waits for it.
type Slot = Arc<Mutex<Weak<Cluster>>>;
static CLUSTERS: Mutex<Option<HashMap<Key, Slot>>> = Mutex::new(None);

impl Cluster {
    /// The connection that `spec` asks for: one that there is, or a new one.
    pub fn of(spec: &Rbd) -> Result<Arc<Self>, RbdError> {
        let key = Key {
            conf: spec.conf.clone(),
            id: spec.id.clone(),
            cache: spec.cache,
        };
        let slot = {
            let mut clusters = lock(&CLUSTERS);
            let slots = clusters.get_or_insert_default();
            Arc::clone(slots.entry(key).or_default())
        };
        let mut slot = lock(&slot);
        if let Some(cluster) = slot.upgrade() {
            return Ok(cluster);
        }
        let cluster = Arc::new(Self::connect(spec)?);
        *slot = Arc::downgrade(&cluster);
        Ok(cluster)
    }

    fn connect(spec: &Rbd) -> Result<Self, RbdError> {
        let cluster = Self::prepare(spec)?;
        let connect = cluster.ceph.rados.rados_connect;
        // SAFETY: the handle of a connection that is not made yet.
        let connected = unsafe { connect(cluster.rados) };
        check(connected).map_err(|source| match source {
            Errno::TIMEDOUT => RbdError::Unreachable {
                after: spec.timeout,
            },
            Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::KEYREJECTED => RbdError::Denied {
                user: spec.id.clone().unwrap_or_else(|| "admin".to_owned()),
                source,
            },
            _ => failed("connect to", || "the cluster".to_owned())(source),
        })?;
        Ok(cluster)
    }

    /// All but the connection.
    fn prepare(spec: &Rbd) -> Result<Self, RbdError> {
        let ceph = load()?;
        let id = spec.id.as_deref().map(name).transpose()?;
        let mut rados: Handle = ptr::null_mut();
        let id = id.as_deref().map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: `rados` is where the handle goes; the name lives until the call has ended, or is null.
        let created = unsafe { (ceph.rados.rados_create)(&raw mut rados, id) };
        check(created).map_err(failed("prepare a connection to", || {
            "the cluster".to_owned()
        }))?;
        // From here on it is shut down whatever happens.
        let cluster = Self { ceph, rados };
        cluster.configure(spec)?;
        Ok(cluster)
    }

    /// What the file says, and then what the description of the disk says.
    fn configure(&self, spec: &Rbd) -> Result<(), RbdError> {
        let path = spec.conf.as_ref().map(|path| {
            let bytes = path.as_os_str().as_bytes();
            CString::new(bytes).map_err(|_| RbdError::Name {
                name: path.display().to_string(),
            })
        });
        let path = path.transpose()?;
        let path = path.as_deref().map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: our handle; the path lives until the call has ended, or is null.
        let read = unsafe { (self.ceph.rados.rados_conf_read_file)(self.rados, path) };
        check(read).map_err(|source| RbdError::Conf {
            conf: spec.conf.clone(),
            source,
        })?;
        let cached = spec.cache != RbdCache::None;
        self.set(c"rbd_cache", if cached { c"true" } else { c"false" })?;
        if spec.cache == RbdCache::Writethrough {
            self.set(c"rbd_cache_policy", c"writethrough")?;
        }
        // In whole seconds, of which none is for ever.
        let seconds = spec.timeout.as_millis().div_ceil(1000);
        let timeout = name(&seconds.to_string())?;
        self.set(c"client_mount_timeout", &timeout)
    }

    fn set(&self, key: &CStr, value: &CStr) -> Result<(), RbdError> {
        let set = self.ceph.rados.rados_conf_set;
        // SAFETY: our handle; both texts live until the call has ended.
        let set = unsafe { set(self.rados, key.as_ptr(), value.as_ptr()) };
        let what = || key.to_string_lossy().into_owned();
        check(set).map_err(failed("set Ceph's option", what))
    }

    /// What an option is set to.
    fn option(&self, key: &CStr) -> Option<String> {
        let mut value = [0; 4096];
        let get = self.ceph.rados.rados_conf_get;
        // SAFETY: our handle; the key lives until the call has ended, and so many bytes are ours.
        let got = unsafe { get(self.rados, key.as_ptr(), value.as_mut_ptr(), value.len()) };
        check(got).ok()?;
        // SAFETY: a text that fits is there, ended by a zero.
        let value = unsafe { CStr::from_ptr(value.as_ptr()) };
        Some(value.to_str().ok()?.to_owned())
    }

    /// What it is set to, where it is a number.
    pub fn number(&self, key: &CStr) -> Option<u64> {
        self.option(key)?.parse().ok()
    }

    /// The libraries.
    pub fn ceph(&self) -> &'static Ceph {
        self.ceph
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the handle has no owner any more: whatever was opened by it holds the cluster.
        unsafe { (self.ceph.rados.rados_shutdown)(self.rados) }
    }
}

/// What a client of the cluster reads: its configuration, its keys, and what the C library reads to find addresses.
/// Asked before anything is out of reach.
#[must_use]
pub fn reads(spec: &Rbd) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = [
        "/etc",
        "/usr/lib",
        "/usr/share",
        "/proc",
        "/sys/devices/system",
    ]
    .map(PathBuf::from)
    .into();
    paths.extend(spec.conf.clone());
    paths.extend(std::env::var_os("CEPH_CONF").map(PathBuf::from));
    // Where that fails, opening the disk fails too, and says why.
    if let Ok(cluster) = Cluster::prepare(spec) {
        let keyrings = cluster.option(c"keyring").unwrap_or_default();
        let keys = cluster.option(c"keyfile").unwrap_or_default();
        let files = keyrings.split([',', ';', ' ']).chain([&*keys]);
        paths.extend(files.filter(|path| !path.is_empty()).map(PathBuf::from));
    }
    paths
}

/// A pool of a cluster, and a namespace in it.
pub struct Pool {
    pub cluster: Arc<Cluster>,
    /// Of `rados_ioctx_create`; used until the drop.
    pub context: Handle,
}

// SAFETY: an `rados_ioctx_t` is used by any number of threads at once.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// The one that `spec` names.
    pub fn of(spec: &Rbd) -> Result<Self, RbdError> {
        let cluster = Cluster::of(spec)?;
        let pool = name(&spec.pool)?;
        let mut context: Handle = ptr::null_mut();
        let create = cluster.ceph.rados.rados_ioctx_create;
        // SAFETY: the cluster's handle; the name lives until the call has ended, and the context is ours.
        let created = unsafe { create(cluster.rados, pool.as_ptr(), &raw mut context) };
        check(created).map_err(|source| match source {
            Errno::NOENT => RbdError::NoPool {
                pool: spec.pool.clone(),
            },
            _ => failed("use the pool", || spec.pool.clone())(source),
        })?;
        let pool = Self { cluster, context };
        if let Some(namespace) = &spec.namespace {
            let namespace = name(namespace)?;
            // SAFETY: the context was just made; the name lives until the call has ended.
            unsafe {
                (pool.cluster.ceph.rados.rados_ioctx_set_namespace)(context, namespace.as_ptr());
            };
        }
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the image that was opened by it is closed: it holds the pool.
        unsafe { (self.cluster.ceph.rados.rados_ioctx_destroy)(self.context) }
    }
}

/// A text as C has it.
pub fn name(text: &str) -> Result<CString, RbdError> {
    CString::new(text).map_err(|_| RbdError::Name {
        name: text.to_owned(),
    })
}

/// What a call returned, if that is an error.
pub fn check(returned: i32) -> Result<(), Errno> {
    if returned < 0 {
        return Err(errno(returned));
    }
    Ok(())
}

pub fn failed(
    doing: &'static str,
    what: impl FnOnce() -> String,
) -> impl FnOnce(Errno) -> RbdError {
    move |source| RbdError::Cluster {
        doing,
        what: what(),
        source,
    }
}
