//! A daemon without its sockets and its sandbox, for tests and fuzzers of what is asked of it.

use std::path::Path;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::{Method, Request, Uri};
use pollux::device::{Device, Options, Tuning, Workers};

use super::folders::Folders;
use super::opener::Starting;
use super::routes::{self, Answer, Change, Reach};
use super::state::State;
use crate::disks::{Disks, Export, Stop};
use crate::limits::Groups;
use crate::socket::{Endpoint, Inherited, Rights};

/// It has a disk of 1 MiB, `root`, and takes others in a folder.
pub struct TestDaemon {
    folder: tempfile::TempDir,
    state: Arc<State>,
    runtime: tokio::runtime::Runtime,
}

/// Status, content type and body of an answer.
pub type Said = (u16, String, Vec<u8>);

impl TestDaemon {
    /// Starts it.
    pub fn new() -> Self {
        Self::with_folders(true)
    }

    /// The same, which takes disks or does not.
    pub fn with_folders(takes: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let workers = Arc::new(Workers::start(1, &[], Tuning::default()).expect("workers"));
        let disks = Disks::new(takes);
        let folders = takes.then(|| folder.path().to_owned());
        let folders = Folders::new(folders.as_slice()).expect("it is there");
        let opener = folders.map(|folders| {
            let starting = Starting::new(folders, None, Groups::default(), &disks, &[]);
            starting.expect("a thread").begin(Arc::clone(&workers)).0
        });
        let served = disks.serve(export(folder.path()), None, &workers);
        served.expect("a thread");
        let state = Arc::new(State::new(disks, workers, vec![], opener));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        Self {
            folder,
            state,
            runtime: runtime.expect("a runtime"),
        }
    }

    /// Where disks may be.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it knows.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// What a change is answered with; `None`: this is none.
    pub fn change(&self, reach: Reach, method: &Method, uri: &Uri, body: &[u8]) -> Option<Said> {
        let asked = Change {
            method,
            path: uri.path(),
            query: uri.query(),
            body,
            image: None,
        };
        let answer = self
            .runtime
            .block_on(routes::change(&self.state, reach, asked));
        answer.map(|answer| self.read(answer))
    }

    /// What a question is answered with.
    pub fn answer<B>(&self, reach: Reach, request: &Request<B>) -> Said {
        self.read(routes::answer(&self.state, reach, request))
    }

    fn read(&self, answer: Answer) -> Said {
        let status = answer.status().as_u16();
        let content = answer.headers()[hyper::header::CONTENT_TYPE].to_str();
        let content = content.expect("it is plain").to_owned();
        // Events do not end.
        if content == "text/event-stream" {
            return (status, content, Vec::new());
        }
        let body = self.runtime.block_on(answer.into_body().collect());
        (
            status,
            content,
            body.expect("it cannot fail").to_bytes().to_vec(),
        )
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        self.state.all().end();
        self.state.all().wait();
    }
}

fn export(folder: &Path) -> Export {
    let spec: pollux::disk::Spec = "memory:size=1M".parse().expect("it is well written");
    let disk = spec.open_with(&pollux::disk::Options::default(), &pollux::Drivers);
    let options = Options::new("root.sock")
        .num_queues(2)
        .queue_size(128)
        .serial("s");
    let endpoint = Endpoint::Path {
        path: folder.join("root.sock"),
        rights: Rights::default(),
    };
    Export {
        name: "root".to_owned(),
        spec,
        socket: endpoint
            .open(&mut Inherited::default())
            .expect("it is free"),
        socket_name: endpoint.whole_name(),
        endpoint,
        device: Arc::new(Device::new(disk.expect("there is memory"), options)),
        limit_group: None,
        stop: Arc::new(Stop::new().expect("an eventfd")),
    }
}
