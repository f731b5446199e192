//! Memory that another process may write at any moment: how it is mapped, found and copied.
//!
//! A virtio driver and its device share memory but not trust. No reference (`&T`, `&[T]`) to such
//! memory is ever formed: it is named by a [`Span`] and copied. Which spans exist is decided by the
//! session's [`Memory`], a table of mapped [`Region`]s.

mod address_space;
mod alarm;
pub mod eventfd;
mod fence;
pub mod file;
mod guard;
pub mod io;
mod loan;
mod memfd;
mod pages;
mod peer;
mod region;
mod span;
mod sparse;
mod table;
pub mod uring;
mod word;

pub use alarm::Alarm;
pub use fence::Side;
pub use loan::Loan;
pub use memfd::memfd;
pub use pages::DirtyPages;
pub use peer::Peer;
pub use region::{MapError, Region};
pub use span::{Span, Spans};
pub use sparse::Sparse;
pub use table::{Memory, TableError};
pub use word::Word;
