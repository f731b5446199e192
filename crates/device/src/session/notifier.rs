//! What kicks, calls and errors may be told through: an eventfd; for calls and errors also one end of a pair of stream
//! sockets (User-Mode Linux does so); and a pipe, where the frontend can hold only its own disk by it.
//!
//! Workers wait for these descriptors, read and write them. Of an eventfd or a pair of sockets it is the kernel that
//! says whether that must wait, and it can be told not to. Of a pipe too, but for its lock: the kernel has that while
//! bytes are moved out of the pipe (`splice`) to where there is no room, and no flag or signal helps a thread that
//! waits for it. A socket that has a name, or whose other end has one, is no pair: what is sent there in our name may
//! mean something to its reader. One for datagrams can be given another end at any time. A file may lie on a file
//! system that is a program of the frontend's (FUSE), and to wait for it, to read or to write it is to wait for that
//! program; of a directory no kick ever comes. So anything else is refused at the door.

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

impl Use {
    fn name(self) -> &'static str {
        match self {
            Self::Kick => "kick",
            Self::Call => "call",
            Self::Error => "error",
        }
    }
}

/// Refuses what is not fit for its use; and a pipe, unless `pipes` are taken.
pub fn check(index: u8, what: Use, file: Option<&File>, pipes: bool) -> Result<(), Refusal> {
    let Some(file) = file else { return Ok(()) };
    let failed = Refusal::machine("tell what kind of descriptor this is");
    let kind = match FileType::from_raw_mode(fstat(file).map_err(failed)?.st_mode) {
        FileType::Fifo if pipes => return Ok(()),
        FileType::Fifo => {
            let what = what.name();
            return Err(Refusal::Pipe { index, what });
        }
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Socket if what == Use::Kick => "a socket",
        FileType::Socket if is_one_of_a_pair(file) => return Ok(()),
        FileType::Socket => "a socket that is none of a pair of stream sockets",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Symlink => "a symbolic link",
        // What has no place in any file system: eventfds, and others, told apart by name.
        FileType::Unknown if is_eventfd(file)? => return Ok(()),
        FileType::Unknown => "something else of the kernel's",
    };
    let what = what.name();
    Err(Refusal::NotifierKind { index, what, kind })
}

/// A pair of stream sockets of this machine: connected, and neither end has a name.
fn is_one_of_a_pair(file: &File) -> bool {
    sockopt::socket_type(file) == Ok(SocketType::STREAM)
        && getsockname(file).is_ok_and(|name| is_unnamed(&name))
        && getpeername(file).is_ok_and(|name| name.is_some_and(|name| is_unnamed(&name)))
}

/// A unix socket's address without a name is its family alone.
fn is_unnamed(name: &SocketAddrAny) -> bool {
    name.address_family() == AddressFamily::UNIX && name.addr_len() as usize == size_of::<u16>()
}

/// Others without a place in a file system have locks that their users can hold, as an epoll instance does. It takes
/// `/proc` to tell them apart.
fn is_eventfd(file: &File) -> Result<bool, Refusal> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let failed = Refusal::machine("ask /proc what kind of descriptor this is");
    Ok(readlink(path, Vec::new()).map_err(failed)?.as_bytes() == b"anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests;
