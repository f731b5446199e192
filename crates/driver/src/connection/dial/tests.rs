use std::os::unix::net::UnixListener;

use super::*;

const PATIENCE: Duration = Duration::from_millis(10);

#[test]
fn each_way_not_to_connect_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let dialled = dial(&missing, PATIENCE);
    assert!(matches!(dialled, Err(ConnectError::Missing { path }) if path == missing));

    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let dialled = dial(&file, PATIENCE);
    assert!(matches!(dialled, Err(ConnectError::NotASocket { path }) if path == file));

    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    dial(&socket, PATIENCE).unwrap();
    drop(listener);
    let dialled = dial(&socket, PATIENCE);
    assert!(matches!(dialled, Err(ConnectError::Refused { path }) if path == socket));

    let long = folder.path().join("x".repeat(200));
    let dialled = dial(&long, PATIENCE);
    assert!(matches!(dialled, Err(ConnectError::TooLong { path }) if path == long));
}

#[test]
fn a_full_queue_of_clients_is_not_waited_for_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    let refused = loop {
        match dial(&path, PATIENCE) {
            Ok(stream) => waiting.push(stream),
            Err(refused) => break refused,
        }
    };
    let silent = matches!(
        refused,
        ConnectError::Lost {
            source: Lost::Silent { .. },
            ..
        }
    );
    assert!(silent, "{refused}");
}
