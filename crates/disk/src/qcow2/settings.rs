//! How an image is used.

use std::path::PathBuf;

use crate::file;

/// May an image be made of other files as well?
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Those that it names are opened.
    #[default]
    Named,
    /// One that names another is refused: the maker of the image would choose what this process reads.
    None,
    /// This is its backing file, instead of the one that it names, and of the format that it says. Those below are the
    /// ones that they name.
    At(PathBuf),
}

/// How an image is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How its files are.
    pub file: file::Settings,
    /// Which files those may be.
    pub backing: Backing,
}
