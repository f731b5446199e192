//! Competitors of single crates, kept out of their builds.
