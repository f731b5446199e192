//! Ceph's `librados` and `librbd`, loaded when they are needed first, and never unloaded: their threads may outlast any
//! disk.
#![expect(
    unsafe_code,
    reason = "symbols have the types that Ceph's headers say they have"
)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use pollux_memory::Span;

use crate::error::RbdError;

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t`, `rbd_completion_t`: what only Ceph looks into.
pub type Handle = *mut c_void;
/// Called once with the completion and what it was made with.
pub type Callback = extern "C" fn(Handle, *mut c_void);
/// Called with what it was registered with.
pub type Watcher = extern "C" fn(*mut c_void);

const RADOS: (&str, &str) = ("librados.so.2", "librados2");
const RBD: (&str, &str) = ("librbd.so.1", "librbd1");

/// Declares what of a library is called: a field of each symbol's name and type. `Option` where older libraries lack
/// it.
macro_rules! symbols {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($symbol:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*
        } optional {
            $($may:ident: fn($($has:ty),*) $(-> $returns:ty)?;)*
        }
    ) => {
        $(#[$doc])*
        #[allow(clippy::struct_field_names, reason = "they are the names of the symbols")]
        pub struct $name {
            $(pub $symbol: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $(pub $may: Option<unsafe extern "C" fn($($has),*) $(-> $returns)?>,)*
        }

        impl $name {
            fn load((name, package): (&'static str, &'static str)) -> Result<Self, RbdError> {
                // SAFETY: what Ceph's libraries do when they are loaded is to fill tables of their own.
                let library = unsafe { libloading::Library::new(name) };
                let library = library.map_err(|source| RbdError::NoLibrary { library: name, package, source })?;
                // It stays: its threads and exit handlers may run at any time.
                let library = Box::leak(Box::new(library));
                Ok(Self {
                    $($symbol: {
                        // SAFETY: Ceph's headers say that the symbol has this type, in all versions of this ABI.
                        let symbol = unsafe { library.get(concat!(stringify!($symbol), "\0").as_bytes()) };
                        *symbol.map_err(|_| RbdError::OldLibrary {
                            library: name,
                            symbol: stringify!($symbol).to_owned(),
                        })?
                    },)*
                    $($may: {
                        // SAFETY: as above.
                        let symbol = unsafe { library.get(concat!(stringify!($may), "\0").as_bytes()) };
                        symbol.ok().map(|symbol| *symbol)
                    },)*
                })
            }
        }
    };
}

symbols! {
    /// Of `librados`: the connection.
    Rados {
        rados_create: fn(*mut Handle, *const c_char) -> c_int;
        rados_conf_read_file: fn(Handle, *const c_char) -> c_int;
        rados_conf_set: fn(Handle, *const c_char, *const c_char) -> c_int;
        rados_conf_get: fn(Handle, *const c_char, *mut c_char, usize) -> c_int;
        rados_connect: fn(Handle) -> c_int;
        rados_shutdown: fn(Handle);
        rados_ioctx_create: fn(Handle, *const c_char, *mut Handle) -> c_int;
        rados_ioctx_set_namespace: fn(Handle, *const c_char);
        rados_ioctx_destroy: fn(Handle);
    } optional {}
}

symbols! {
    /// Of `librbd`: the image.
    Rbd {
        rbd_open: fn(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        rbd_open_read_only: fn(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        rbd_close: fn(Handle) -> c_int;
        rbd_get_size: fn(Handle, *mut u64) -> c_int;
        rbd_get_features: fn(Handle, *mut u64) -> c_int;
        rbd_resize: fn(Handle, u64) -> c_int;
        rbd_lock_acquire: fn(Handle, c_int) -> c_int;
        rbd_lock_release: fn(Handle) -> c_int;
        rbd_is_exclusive_lock_owner: fn(Handle, *mut c_int) -> c_int;
        rbd_lock_get_owners: fn(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
        rbd_lock_get_owners_cleanup: fn(*mut *mut c_char, usize);
        rbd_update_watch: fn(Handle, *mut u64, Watcher, *mut c_void) -> c_int;
        rbd_update_unwatch: fn(Handle, u64) -> c_int;
        rbd_aio_create_completion: fn(*mut c_void, Callback, *mut Handle) -> c_int;
        rbd_aio_get_return_value: fn(Handle) -> isize;
        rbd_aio_release: fn(Handle);
        rbd_aio_readv: fn(Handle, *const Span, c_int, u64, Handle) -> c_int;
        rbd_aio_writev: fn(Handle, *const Span, c_int, u64, Handle) -> c_int;
        rbd_aio_discard: fn(Handle, u64, u64, Handle) -> c_int;
        rbd_aio_flush: fn(Handle, Handle) -> c_int;
    } optional {
        rbd_aio_write_zeroes: fn(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
    }
}

/// Both.
pub struct Ceph {
    pub rados: Rados,
    pub rbd: Rbd,
}

/// Loads them, the first time.
pub fn load() -> Result<&'static Ceph, RbdError> {
    static LOADED: OnceLock<Ceph> = OnceLock::new();
    if let Some(ceph) = LOADED.get() {
        return Ok(ceph);
    }
    let ceph = Ceph {
        rados: Rados::load(RADOS)?,
        rbd: Rbd::load(RBD)?,
    };
    Ok(LOADED.get_or_init(|| ceph))
}
