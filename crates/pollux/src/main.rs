//! The `pollux` program.
fn main() {}
