//! The public interface is listed in `crates/pollux/api`, a file for each crate of the facade: a change of it is seen
//! there, and is meant. `make api` writes the lists anew.
//!
//! They are made from the source, as the JSON of rustdoc is of another format with every few versions of Rust.

mod listing;
mod tree;

use std::path::Path;

use expect_test::expect_file;

use tree::Crate;

/// What is public in the crate in that folder of `crates/`.
fn listed(folder: &str) -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    listing::of(&Crate::read(&crates.join(folder).join("src/lib.rs")))
}

macro_rules! the_interface_is_as_listed {
    ($($name:ident in $folder:literal,)*) => {$(
        #[test]
        fn $name() {
            expect_file![concat!("../../api/", $folder, ".txt")].assert_eq(&listed($folder));
        }
    )*};
}

the_interface_is_as_listed! {
    blk_is_as_listed in "blk",
    device_is_as_listed in "device",
    disk_is_as_listed in "disk",
    driver_is_as_listed in "driver",
    memory_is_as_listed in "memory",
    pollux_is_as_listed in "pollux",
    rbd_is_as_listed in "rbd",
    ring_is_as_listed in "ring",
    stats_is_as_listed in "stats",
}

/// A list that left out what is public would not see its changes.
#[test]
fn a_list_has_what_is_public_and_nothing_else() {
    let list = listing::of(&Crate::parse(
        "
        mod inner {
            #[derive(Debug)]
            #[non_exhaustive]
            pub struct Shown { pub field: u8, hidden: u8 }
            impl Shown {
                pub fn method(&self) -> u8 { self.hidden }
                fn private(&self) {}
                #[doc(hidden)] pub fn unlisted(&self) {}
            }
            impl Clone for Shown { fn clone(&self) -> Self { todo!() } }
            pub struct Unreachable;
            impl Clone for Unreachable { fn clone(&self) -> Self { Self } }
            #[cfg(test)] impl Shown { pub fn in_tests() {} }
        }
        pub mod open {
            pub trait Open { type Kind; fn needed(&self); fn given(&self) -> u8 { 7 } }
            pub(crate) fn closed() {}
        }
        impl<T> open::Open for &T { type Kind = u8; fn needed(&self) {} }
        pub use inner::Shown as Seen;
        pub use elsewhere::Foreign;
        ",
    ));
    let expected = "\
pub use elsewhere::Foreign;

// `Seen`:
#[derive(Debug)]
#[non_exhaustive]
pub struct Shown {
    pub field: u8,
    private: _,
}
impl Clone for Shown {}
impl Shown {
    pub fn method(&self) -> u8 {}
}

// open

pub trait Open {
    type Kind;
    fn needed(&self);
    fn given(&self) -> u8 {}
}
impl<T> open::Open for &T {
    type Kind = u8;
}
";
    assert_eq!(list, expected);
}
