//! Kicks and calls: the descriptors of a frontend's that carry them, and what keeps them from holding a worker.

mod call;
mod kick;
mod pipe;

pub use call::Call;
pub use kick::KickFd;
