//! Requests to the control socket: a line with method and target, and after it the body.
//!
//! The daemon has no sandbox here, so what keeps a request within the folders is what Pollux checks itself.

use std::cell::OnceCell;
use std::fs;
use std::path::PathBuf;

use pollux_cli::requests::Daemon;

const MIB: u64 = 1 << 20;
const PRECIOUS: &[u8] = b"precious";

/// What is asked, and what lies outside of its folder.
struct Target {
    daemon: Daemon,
    outside: tempfile::TempDir,
}

thread_local! {
    static TARGET: OnceCell<Target> = const { OnceCell::new() };
}

/// One request. In its text, `DIR` stands for the folder for disks, and `OUT` for one beside it.
pub fn run(data: &[u8]) {
    TARGET.with(|target| target.get_or_init(Target::new).ask(data));
}

impl Target {
    fn new() -> Self {
        let daemon = Daemon::default();
        let outside = tempfile::tempdir().expect("a folder");
        fs::write(outside.path().join("secret"), PRECIOUS).expect("a file");
        std::os::unix::fs::symlink(outside.path(), daemon.folder().join("link")).expect("a link");
        Self { daemon, outside }
    }

    fn ask(&self, data: &[u8]) {
        let image = self.daemon.folder().join("a.img");
        fs::write(&image, [0; 8192]).expect("an image");
        let Ok(text) = std::str::from_utf8(data) else {
            return;
        };
        let folder = |path: &std::path::Path| path.display().to_string();
        let text = text.replace("DIR", &folder(self.daemon.folder()));
        let text = text.replace("OUT", &folder(self.outside.path()));
        let (line, body) = text.split_once('\n').unwrap_or((&text, ""));
        let (method, target) = line.split_once(' ').unwrap_or((line, "/"));
        if let Some((status, content, body)) =
            self.daemon
                .ask(method.as_bytes(), target.as_bytes(), body.as_bytes())
        {
            check(status, &content, &body);
        }
        self.nothing_else_has_changed();
    }

    /// The first disk is there as it was; all that were added lie where they may, and are removed.
    fn nothing_else_has_changed(&self) {
        let disks = self.daemon.disks();
        let root = disks.iter().find(|(name, _)| name == "root");
        if let Some((_, bytes)) = root {
            assert_eq!(*bytes, MIB, "the size of a disk that keeps it");
        }
        for (name, _) in &disks {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            assert!(
                (1..=64).contains(&name.len()) && name.bytes().all(is_plain),
                "{name:?}"
            );
            if name != "root" {
                let target = format!("/v1/disks/{name}?force=true");
                let gone = self.daemon.ask(b"DELETE", target.as_bytes(), b"");
                assert_eq!(gone.map(|(status, ..)| status), Some(204), "{name}");
            }
        }
        let outside: Vec<PathBuf> = fs::read_dir(self.outside.path())
            .expect("the folder is there")
            .map(|entry| entry.expect("it can be read").path())
            .collect();
        assert_eq!(outside, [self.outside.path().join("secret")]);
        assert_eq!(fs::read(&outside[0]).expect("it is there"), PRECIOUS);
        if root.is_none() {
            // It was removed, as it may be; the next request finds it again.
            let body = br#"{"disk": "memory:size=1M"}"#;
            let again = self.daemon.ask(b"PUT", b"/v1/disks/root", body);
            assert_eq!(again.map(|(status, ..)| status), Some(201));
        }
    }
}

/// Every answer is one of those that are described, and says what to do where it is none.
fn check(status: u16, content: &str, body: &[u8]) {
    let known = [200, 201, 202, 204, 400, 403, 404, 405, 409, 500, 503];
    assert!(known.contains(&status), "{status}");
    if status < 400 {
        return;
    }
    assert_eq!(content, "application/problem+json");
    let problem: serde_json::Value = serde_json::from_slice(body).expect("it is JSON");
    assert_eq!(problem["status"], status);
    for field in ["title", "detail", "remedy"] {
        let said = problem[field].as_str().unwrap_or_default();
        assert!(!said.is_empty(), "{field} of {problem}");
    }
}
