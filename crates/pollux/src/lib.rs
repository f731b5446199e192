//! Pollux.
