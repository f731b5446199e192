use std::io::Read;
use std::os::unix::net::UnixStream;

use super::*;

fn passed(channel: &BackendChannel) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    channel.offer(theirs.into());
    channel.take_offer();
    ours
}

#[test]
fn only_who_knows_the_configuration_space_is_told() {
    let channel = BackendChannel::default();
    channel.config_has_changed("disk");
    let mut ours = passed(&channel);
    channel.config_has_changed("disk");
    channel.wants_config_changes(true);
    channel.config_has_changed("disk");
    drop(channel);
    let mut said = Vec::new();
    ours.read_to_end(&mut said).unwrap();
    assert_eq!(said, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn one_that_reads_nothing_holds_nobody_and_one_that_left_is_forgotten() {
    let channel = BackendChannel::default();
    channel.wants_config_changes(true);
    let ours = passed(&channel);
    for _ in 0..10_000 {
        channel.config_has_changed("disk");
    }
    assert!(lock(&channel.state).socket.is_some());
    drop(ours);
    channel.config_has_changed("disk");
    assert!(lock(&channel.state).socket.is_none());
}
