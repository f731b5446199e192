//! What kicks, calls and errors may be told through: eventfds, the latter two through one end of a pair of sockets as
//! well (User-Mode Linux does so), and pipes, where the frontend can hold nobody but itself.
//!
//! Workers wait for these descriptors, read and write them. Of an eventfd or a pair of sockets it is the kernel that
//! says whether that must wait, and it can be told not to. Of a pipe too, but for its lock: the kernel has that while
//! bytes are moved out of the pipe (`splice`) to where there is no room, and no flag or signal helps a thread that
//! waits for it. A socket that has a name, or whose other end has one,
//! is no pair: what is sent there in our name may mean something to its reader. A file may lie on a file system that is
//! a program of the frontend's (FUSE), and to wait for it, to read or to write it is to wait for that program;
//! of a directory no kick ever comes. So anything else is refused at the door.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::fs::{FileType, fstat, readlink};
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, getpeername, getsockname, sockopt};

use super::refusal::Refusal;

/// What a descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Kick,
    Call,
    Error,
}

/// Refuses what is not fit for its use; and a pipe, unless `pipes` are taken.
pub fn check(index: u8, what: Use, file: Option<&File>, pipes: bool) -> Result<(), Refusal> {
    let Some(file) = file else { return Ok(()) };
    let failed = Refusal::machine("tell what kind of descriptor this is");
    let what_for = match what {
        Use::Kick => "kick",
        Use::Call => "call",
        Use::Error => "error",
    };
    let kind = match FileType::from_raw_mode(fstat(file).map_err(failed)?.st_mode) {
        FileType::Fifo if pipes => return Ok(()),
        FileType::Fifo => {
            return Err(Refusal::Pipe {
                index,
                what: what_for,
            });
        }
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Socket if what == Use::Kick => "a socket",
        FileType::Socket if is_one_of_a_pair(file) => return Ok(()),
        FileType::Socket => "a socket that is none of a pair of unix sockets",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Symlink => "a symbolic link",
        // What has no place in any file system: eventfds, and others, told apart by name.
        FileType::Unknown if is_eventfd(file) => return Ok(()),
        FileType::Unknown => "something else of the kernel's",
    };
    Err(Refusal::NotifierKind {
        index,
        what: what_for,
        kind,
    })
}

/// A pair of stream or datagram sockets of this machine: connected, and neither end has a name.
fn is_one_of_a_pair(file: &File) -> bool {
    let kind = sockopt::socket_type(file);
    matches!(kind, Ok(SocketType::STREAM | SocketType::DGRAM))
        && getsockname(file).is_ok_and(|name| is_unnamed(&name))
        && getpeername(file).is_ok_and(|name| name.is_some_and(|name| is_unnamed(&name)))
}

/// A unix socket's address without a name is its family alone.
fn is_unnamed(name: &SocketAddrAny) -> bool {
    name.address_family() == AddressFamily::UNIX && name.addr_len() as usize == size_of::<u16>()
}

/// True as well where there is no `/proc` to ask: all that it could be is harmless.
fn is_eventfd(file: &File) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    readlink(path, Vec::new()).map_or(true, |name| name.as_bytes() == b"anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests;
