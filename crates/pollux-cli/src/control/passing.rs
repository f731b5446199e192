//! A connection over which a descriptor may be passed (`SCM_RIGHTS`), beside the bytes of HTTP.
//!
//! HTTP knows nothing of descriptors, and a unix socket sends them with bytes. So one may come with any byte of a
//! request, and belongs to that request, as a connection carries no other.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use pollux_threads::lock;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

/// What has come with a request.
#[derive(Clone, Debug, Default)]
pub struct Received(Arc<Mutex<Vec<OwnedFd>>>);

/// More than one descriptor came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Received {
    /// The descriptor, if one has come.
    pub fn take(&self) -> Result<Option<OwnedFd>, TooMany> {
        let mut all = lock(&self.0);
        let first = all.pop();
        if all.is_empty() {
            Ok(first)
        } else {
            Err(TooMany)
        }
    }

    /// Keeps two at most: the second is there to be complained of.
    fn add(&self, descriptor: OwnedFd) {
        let mut all = lock(&self.0);
        if all.len() < 2 {
            all.push(descriptor);
        }
    }
}

/// The connection.
#[derive(Debug)]
pub struct Passing {
    stream: UnixStream,
    received: Received,
    /// Goes with the first byte that is sent.
    sent: Option<OwnedFd>,
}

impl Passing {
    /// Takes what comes.
    pub fn receiving(stream: UnixStream, received: Received) -> Self {
        let sent = None;
        Self {
            stream,
            received,
            sent,
        }
    }

    /// Sends this descriptor, if there is one.
    pub fn sending(stream: UnixStream, sent: Option<OwnedFd>) -> Self {
        let received = Received::default();
        Self {
            stream,
            received,
            sent,
        }
    }
}

impl AsyncRead for Passing {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            let read = self.stream.try_io(Interest::READABLE, || {
                receive(&self.stream, unfilled, &self.received)
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(bytes) => {
                    buffer.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

fn receive(from: impl AsFd, into: &mut [u8], received: &Received) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = RecvAncillaryBuffer::new(&mut room);
    let got = recvmsg(
        from,
        &mut [IoSliceMut::new(into)],
        &mut beside,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            descriptors.for_each(|descriptor| received.add(descriptor));
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("more descriptors than fit a request"));
    }
    Ok(got.bytes)
}

impl AsyncWrite for Passing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(descriptor) = self.sent.take() else {
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        };
        loop {
            match self.stream.poll_write_ready(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.sent = Some(descriptor);
                    return Poll::Pending;
                }
            }
            let sent = self.stream.try_io(Interest::WRITABLE, || {
                send(&self.stream, bytes, &descriptor)
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn send(to: impl AsFd, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut room);
    let descriptors = [descriptor.as_fd()];
    let fits = beside.push(SendAncillaryMessage::ScmRights(&descriptors));
    debug_assert!(fits, "there is room for one");
    Ok(sendmsg(
        to,
        &[IoSlice::new(bytes)],
        &mut beside,
        SendFlags::NOSIGNAL,
    )?)
}
