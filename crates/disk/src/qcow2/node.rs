//! A file of a chain, as `imago` reads and writes it.

use std::fmt;
use std::fs;
use std::io;
use std::sync::Arc;

use imago::Storage;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::PreallocateMode;
use imago::storage::drivers::CommonStorageHelper;

use super::header::unmark;
use super::order::{Order, read_or_zero, write_all, zero};
use crate::file::size;

/// A file.
#[derive(Debug)]
pub struct Node {
    /// Which of the chain it is.
    pub leg: usize,
    file: Arc<fs::File>,
    role: Role,
    helper: CommonStorageHelper,
}

/// What it is to the image that is served.
#[derive(Debug)]
pub enum Role {
    /// It has data that is only read.
    ReadOnly,
    /// It has tables that are only read.
    ReadOnlyImage,
    /// It has the tables, and is written in their order.
    Image(Arc<Order>),
    /// It has the data of the image with those tables.
    Data(Arc<Order>),
}

impl Node {
    /// File number `leg` of the chain.
    pub fn new(leg: usize, file: Arc<fs::File>, role: Role) -> Self {
        Self {
            leg,
            file,
            role,
            helper: CommonStorageHelper::default(),
        }
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        match &self.role {
            Role::Image(order) => order.read(bytes, at),
            Role::Data(_) | Role::ReadOnly => read_or_zero(&self.file, bytes, at),
            Role::ReadOnlyImage => {
                read_or_zero(&self.file, bytes, at)?;
                unmark(bytes, at);
                Ok(())
            }
        }
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match &self.role {
            Role::Image(order) => order.write(at, bytes),
            Role::Data(order) => {
                order.depends();
                write_all(&self.file, bytes, at)
            }
            Role::ReadOnly | Role::ReadOnlyImage => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {} of the chain", self.leg)
    }
}

#[expect(
    unsafe_code,
    reason = "what is implemented is unsafe to call; nothing in it is"
)]
impl Storage for Node {
    fn size(&self) -> io::Result<u64> {
        size(&self.file)
    }

    unsafe fn pure_readv(&self, bufv: IoVectorMut<'_>, mut at: u64) -> io::Result<()> {
        for slice in bufv.into_inner() {
            let slice = imago::io_buffers::IoBufferMut::from(slice).into_slice();
            self.read(slice, at)?;
            at += slice.len() as u64;
        }
        Ok(())
    }

    unsafe fn pure_writev(&self, bufv: IoVector<'_>, at: u64) -> io::Result<()> {
        let len = usize::try_from(bufv.len()).map_err(io::Error::other)?;
        let mut bytes = vec![0; len];
        bufv.copy_into_slice(&mut bytes);
        self.write(&bytes, at)
    }

    unsafe fn pure_write_zeroes(&self, at: u64, len: u64) -> io::Result<()> {
        match &self.role {
            Role::Image(order) => order.zero(at, len),
            Role::Data(order) => {
                order.depends();
                zero(&self.file, at, len)
            }
            Role::ReadOnly | Role::ReadOnlyImage => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    }

    /// A data file that is longer than the disk keeps what lies there: that is not the disk's.
    fn resize(&self, bytes: u64, _: PreallocateMode) -> io::Result<()> {
        if matches!(self.role, Role::Data(_)) && self.size()? >= bytes {
            return Ok(());
        }
        self.file.set_len(bytes)
    }

    /// All that was written is in the file: whose order it is knows when it is to be on stable storage.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        &self.helper
    }
}
