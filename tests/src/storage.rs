//! Storage for a disk's file that can lose its power: what was not made durable is gone afterwards.
//!
//! A process that dies by SIGKILL leaves the page cache behind, so killing the daemon alone shows only what
//! had stayed in the daemon. Here everything lies on a loop device over a file in memory, and
//! [`Storage::cut_power`] brings back what that file holds: ext4 is shut down without writing anything more
//! (`EXT4_IOC_SHUTDOWN`, made for such tests) and mounted anew; of a block device, what its page cache has
//! not written is left out. (The device mapper could do it too, where the kernel has it.) Two things it
//! cannot show: a loop device has no cache of its own to lose, so a direct write to one is durable at once;
//! and the kernel may write back early, as it always may.
//!
//! All this takes root. Mounts are made in a mount namespace of the test's own thread and loop devices
//! are detached when their last user lets go, so nothing stays behind, however the test ends.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_disk_conformance::Mount;
use tempfile::TempDir;

use crate::peers;

/// What a disk's file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A sparse file on ext4.
    FileOnExt4,
    /// A loop device.
    BlockDevice,
}

/// Storage that holds one disk and can lose its power.
pub struct Storage {
    disk: PathBuf,
    // In the order in which they are given up.
    mount: Option<Mount>,
    device: LoopDevice,
    folder: TempDir,
}

impl Storage {
    /// Empty storage for a disk of `bytes`. `None`, and `SKIP` on the output, where it takes more rights
    /// than the test has.
    pub fn new(medium: Medium, bytes: u64) -> Option<Self> {
        allowed("a loop device or a mount", Self::make(medium, bytes))
    }

    fn make(medium: Medium, bytes: u64) -> io::Result<Self> {
        // Room for the file system's own: its journal, mostly.
        const OVERHEAD: u64 = 32 << 20;
        let folder = TempDir::new_in("/dev/shm")?;
        let backing = backing_in(&folder);
        let size = match medium {
            Medium::FileOnExt4 => bytes + OVERHEAD,
            Medium::BlockDevice => bytes,
        };
        File::create(&backing)?.set_len(size)?;
        let device = LoopDevice::over(&backing)?;
        let (mount, disk) = match medium {
            Medium::BlockDevice => (None, device.path.clone()),
            Medium::FileOnExt4 => {
                run(Command::new("mkfs.ext4").arg("-qF").arg(&device.path))?;
                let at = folder.path().join("mnt");
                fs::create_dir(&at)?;
                let mount = mount_ext4(&device.path, at)?;
                let disk = mount.at().join("disk.img");
                File::create(&disk)?.set_len(bytes)?;
                // The file itself, unlike what will be written to it, is meant to be there.
                rustix::fs::syncfs(File::open(mount.at())?)?;
                (Some(mount), disk)
            }
        };
        let storage = Self {
            disk,
            mount,
            device,
            folder,
        };
        // The file itself, unlike what will be written to it, is meant to be there.
        storage.sync()?;
        Ok(storage)
    }

    /// What was written so far is there after a power cut. (Of a block device, its page cache is not.)
    pub fn sync(&self) -> io::Result<()> {
        self.mount.as_ref().map_or(Ok(()), |mount| {
            Ok(rustix::fs::syncfs(File::open(mount.at())?)?)
        })
    }

    /// The file or block device to serve.
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// Makes the block device larger, as its own tools do. Its users are not told.
    pub fn enlarge_device(&self, bytes: u64) -> io::Result<()> {
        let backing = File::options().write(true).open(backing_in(&self.folder))?;
        backing.set_len(bytes)?;
        run(Command::new("losetup")
            .arg("--set-capacity")
            .arg(self.device.path()))
        .map(drop)
    }

    /// Has every change of the file system wait, such as a file that is to become longer. What is there can be read.
    ///
    /// # Panics
    /// On a block device.
    pub fn freeze(&self) -> io::Result<Frozen<'_>> {
        let mount = self.mount.as_ref().expect("there is a file system");
        run(Command::new("fsfreeze").arg("--freeze").arg(mount.at()))?;
        Ok(Frozen(mount))
    }

    /// Bytes of memory that the disk's file, or that which lies behind the block device, takes up.
    pub fn allocated(&self) -> io::Result<u64> {
        match self.mount {
            Some(_) => allocated(&self.disk),
            None => allocated(&backing_in(&self.folder)),
        }
    }

    /// From now on nothing reaches the storage: every operation on a file system fails. (A block device
    /// stays as it is; its power is cut when it is looked at.)
    pub fn fail(&self) -> io::Result<()> {
        self.mount.as_ref().map_or(Ok(()), shut_down)
    }

    /// Cuts the power and returns what the disk holds when it is back.
    pub fn cut_power(mut self) -> io::Result<Vec<u8>> {
        match self.mount.take() {
            // Read beneath the device, whose page cache still has what was never written.
            None => fs::read(backing_in(&self.folder)),
            Some(mount) => {
                let mount = self.mount_anew(mount)?;
                let survived = fs::read(&self.disk);
                drop(mount);
                survived
            }
        }
    }

    /// Cuts the power and copies all files that there are when it is back to the folder `to`.
    ///
    /// # Panics
    /// On a block device.
    pub fn cut_power_to(mut self, to: &Path) -> io::Result<()> {
        let mount = self.mount.take().expect("there is a file system");
        let mount = self.mount_anew(mount)?;
        for entry in fs::read_dir(mount.at())? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    fn mount_anew(&self, mount: Mount) -> io::Result<Mount> {
        shut_down(&mount)?;
        let at = mount.at().to_owned();
        mount.unmount();
        mount_ext4(&self.device.path, at)
    }
}

/// Bytes of `path` that take up space on its file system.
pub fn allocated(path: &Path) -> io::Result<u64> {
    const UNIT: u64 = 512; // stat(2): st_blocks counts these, whatever the file system's blocks are
    Ok(path.metadata()?.blocks() * UNIT)
}

fn backing_in(folder: &TempDir) -> PathBuf {
    folder.path().join("backing")
}

/// A block device over a file.
pub struct LoopDevice {
    path: PathBuf,
    /// Held open, because the last one to close a block device writes all of its page cache.
    #[expect(dead_code, reason = "held until the device may go")]
    open: File,
}

impl LoopDevice {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn over(file: &Path) -> io::Result<Self> {
        let path = run(Command::new("losetup").args(["--find", "--show"]).arg(file))?;
        let path = PathBuf::from(path.trim());
        let open = File::open(&path);
        // It stays until its last user lets go, and no longer.
        run(Command::new("losetup").arg("--detach").arg(&path))?;
        Ok(Self { path, open: open? })
    }
}

/// A file system that takes no changes until this is dropped.
pub struct Frozen<'a>(&'a Mount);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("fsfreeze").arg("--unfreeze").arg(self.0.at())) {
            let _ = writeln!(io::stderr(), "{error}");
        }
    }
}

/// A file system in memory that is soon full.
pub struct SmallTmpfs {
    mount: Mount,
    #[expect(dead_code, reason = "what is mounted there goes first")]
    folder: TempDir,
}

impl SmallTmpfs {
    /// One of `bytes`. `None`, and `SKIP` on the output, where it takes more rights than the test has.
    pub fn new(bytes: u64) -> Option<Self> {
        allowed("a mount", Self::make(bytes))
    }

    fn make(bytes: u64) -> io::Result<Self> {
        let folder = TempDir::new()?;
        let size = CString::new(format!("size={bytes}"))?;
        let at = folder.path().to_owned();
        let mount = Mount::new(Path::new("tmpfs"), at, "tmpfs", Some(&size))?;
        Ok(Self { mount, folder })
    }

    /// A sparse file of `bytes`, more than there is room for.
    pub fn file(&self, bytes: u64) -> io::Result<PathBuf> {
        let path = self.mount.at().join("disk.img");
        File::create(&path)?.set_len(bytes)?;
        Ok(path)
    }

    /// A block device of `bytes`, more than there is room for: only writing its page cache shows that.
    pub fn device(&self, bytes: u64) -> io::Result<LoopDevice> {
        LoopDevice::over(&self.file(bytes)?)
    }
}

/// What was made, unless this machine does not allow it.
fn allowed<T>(what: &str, made: io::Result<T>) -> Option<T> {
    made.map_err(|error| peers::denied(what, &error)).ok()
}

fn mount_ext4(device: &Path, at: PathBuf) -> io::Result<Mount> {
    // By itself ext4 would write a file that replaces another.
    Mount::new(device, at, "ext4", Some(c"noauto_da_alloc"))
}

/// Fails everything from now on, the file system's journal included.
fn shut_down(mount: &Mount) -> io::Result<()> {
    // Linux, fs/ext4/ext4.h: EXT4_IOC_SHUTDOWN is _IOR('X', 125, __u32).
    const SHUTDOWN: libc::c_ulong = 0x8004_587d;
    const WITHOUT_FLUSHING_THE_LOG: u32 = 2;
    let root = File::open(mount.at())?;
    // SAFETY: this request reads one `u32` through the pointer, which is valid for the call.
    let done = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, &WITHOUT_FLUSHING_THE_LOG) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// What `command` prints.
fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {error}")))
}
