//! What every disk of Pollux does, as tests that any engine can run against itself.
//!
//! An engine implements [`Disk`] and [`Channel`](pollux_disk::Channel). Its test makes disks and hands them over:
//!
//! ```
//! use std::sync::Arc;
//! use pollux_disk::{Geometry, Memory};
//! use pollux_disk_conformance::behaves_like_a_disk;
//!
//! # /*
//! #[test]
//! # */
//! fn a_memory_disk_behaves() {
//!     behaves_like_a_disk(&|bytes| Arc::new(Memory::new(Geometry::plain(bytes)).unwrap()));
//! }
//! # a_memory_disk_behaves();
//! ```
//!
//! | the engine's test calls | with | and it is checked that |
//! |---|---|---|
//! | [`behaves_like_a_disk`] | a function that makes disks | contents agree with a model, and all of the following |
//! | [`keeps_its_contents`] | the one disk there is, a device for instance | the same, on the disk's first and last blocks |
//! | [`answers_like_a_disk`] | a disk, even one that keeps nothing | every request ends once, in bounds, and wakes its owner |
//! | [`changes_nothing`] | a read-only disk | it is read, and whatever would change it is refused |
//!
//! A check that fails panics and says what was asked and what came of it. A request that has not ended after a minute
//! aborts the process, as its memory cannot be taken back.
//!
//! [`Client`] and [`Buffer`] are what the checks are made of; tests of what only one engine does can use them too, and
//! file systems of their own ([`Mount`]).

mod answers;
mod buffer;
mod client;
mod contents;
mod eventually;
mod held;
mod mount;
mod read_only;
mod requests;

use std::sync::Arc;

use pollux_disk::Disk;

pub use buffer::Buffer;
pub use client::Client;
pub use contents::Make;
pub use eventually::eventually;
pub use mount::Mount;
pub use requests::{pattern, read, write, zeroes};

use held::Held;

/// The engine that the book shows.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/engines.md")]
struct Engines;

/// Everything that a disk does which keeps what is written to it.
pub fn behaves_like_a_disk(make: Make) {
    contents::agree_with_a_model(make);
    let small = Held::new(make(1 << 20));
    contents::of_neighbours_stay_apart(&small);
    contents::go_into_the_spans_and_nowhere_else(&small);
    contents::outlive_a_channel(&small);
    drop(small);
    contents::of_a_thousand_requests_are_their_own(&Held::new(make(64 << 20)));
    answers_like_a_disk(make(1 << 20));
}

/// Everything of that which can be tried on the one disk there is, of at least 1 MiB. It is overwritten.
pub fn keeps_its_contents(disk: Arc<dyn Disk>) {
    let disk = Held::new(disk);
    contents::agree_on_a_device(&disk);
    contents::of_neighbours_stay_apart(&disk);
    contents::go_into_the_spans_and_nowhere_else(&disk);
    contents::outlive_a_channel(&disk);
    answers::all(&disk);
}

/// What a disk of at least 1 MiB does even if it keeps nothing.
pub fn answers_like_a_disk(disk: Arc<dyn Disk>) {
    answers::all(&Held::new(disk));
}

/// What a read-only disk does.
pub fn changes_nothing(disk: Arc<dyn Disk>) {
    read_only::changes_nothing(&Held::new(disk));
}
