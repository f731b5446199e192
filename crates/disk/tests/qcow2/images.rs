//! Images that QEMU makes, and what it says of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pollux_disk::qcow2::Settings;
use pollux_disk::{Image, OpenError, Options};
use tempfile::TempDir;

use super::skip;

pub fn open(path: &Path) -> Image {
    try_open(path).unwrap()
}

pub fn try_open(path: &Path) -> Result<Image, OpenError> {
    Image::open(path, Settings::default(), &Options::default())
}

/// A folder for images.
pub struct Lab(TempDir);

impl Lab {
    /// `None`, with a word, where QEMU's tools are missing.
    pub fn new() -> Option<Self> {
        for tool in ["qemu-img", "qemu-io"] {
            if let Err(error) = Command::new(tool).arg("--version").output() {
                skip(&format!("{tool}: {error}"));
                return None;
            }
        }
        Some(Self(TempDir::new().unwrap()))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// An empty image; with `options` as `-o` takes them.
    pub fn create(&self, name: &str, options: &str, size: u64) -> PathBuf {
        let path = self.path(name);
        let options = match options {
            "" => String::new(),
            options => format!("-o {options}"),
        };
        self.img(&format!(
            "create -q -f qcow2 {options} {} {size}",
            path.display()
        ));
        path
    }

    /// `qemu-img` in the folder, with these words.
    pub fn img(&self, words: &str) {
        let output = self.tool("qemu-img", &words.split_whitespace().collect::<Vec<_>>());
        assert!(output.status.success(), "qemu-img {words}: {output:?}");
    }

    pub fn tool(&self, tool: &str, arguments: &[&str]) -> Output {
        Command::new(tool)
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    /// Commands of `qemu-io` to an image.
    pub fn io(&self, path: &Path, commands: &[String]) {
        let mut arguments = vec!["-f", "qcow2", "-d", "unmap"];
        for command in commands {
            arguments.extend(["-c", command]);
        }
        arguments.push(path.to_str().unwrap());
        let output = self.tool("qemu-io", &arguments);
        let said = String::from_utf8_lossy(&output.stdout).to_lowercase();
        let failed = !output.status.success() || said.contains("failed") || said.contains("error");
        assert!(!failed, "{commands:?}: {output:?}");
    }

    /// How many clusters leak; fails where there is an error.
    pub fn check(&self, path: &Path) -> u64 {
        let name = path.to_str().unwrap();
        let output = self.tool(
            "qemu-img",
            &["check", "-U", "-f", "qcow2", "--output=json", name],
        );
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // 3: leaks, and nothing else.
        let sound = matches!(output.status.code(), Some(0 | 3));
        assert!(sound, "{}: {output:?}", path.display());
        let leaks = said.split("\"leaks\":").nth(1);
        let digits = |text: &str| {
            text.trim()
                .chars()
                .take_while(char::is_ascii_digit)
                .collect()
        };
        let digits: Option<String> = leaks.map(digits);
        digits.map_or(0, |leaks| leaks.parse().unwrap())
    }

    /// The disk in an image, as QEMU sees it.
    pub fn raw(&self, path: &Path) -> Vec<u8> {
        let raw = self.path("converted.raw");
        let names = format!("{} {}", path.display(), raw.display());
        self.img(&format!("convert -U -f qcow2 -O raw {names}"));
        let bytes = fs::read(&raw).unwrap();
        fs::remove_file(&raw).unwrap();
        bytes
    }
}
