//! Pollux and its peers, side by side.
fn main() {}
