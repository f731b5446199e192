//! The socket on which frontends connect.

mod claim;
mod endpoint;
mod error;
mod inherited;
mod listener;
mod passed;
mod rights;

pub use endpoint::Endpoint;
pub use error::SocketError;
pub use inherited::Inherited;
pub use listener::{Listener, Socket, listen_at};
pub use passed::Passed;
pub use rights::Rights;
