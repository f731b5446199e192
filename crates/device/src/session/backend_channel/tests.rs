use std::io::Read;
use std::os::unix::net::UnixStream;

use super::*;

fn change(channel: &BackendChannel) {
    channel.config_has_changed("disk", &Quota::new(1));
}

fn passed(channel: &BackendChannel) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    channel.offer(theirs.into());
    channel.take_offer();
    ours
}

#[test]
fn only_a_frontend_that_knows_the_configuration_space_is_told() {
    let channel = BackendChannel::default();
    change(&channel);
    let mut ours = passed(&channel);
    change(&channel);
    channel.wants_config_changes(true);
    change(&channel);
    drop(channel);
    let mut said = Vec::new();
    ours.read_to_end(&mut said).unwrap();
    assert_eq!(said, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn one_that_reads_nothing_or_has_left_holds_nobody() {
    let channel = BackendChannel::default();
    channel.wants_config_changes(true);
    let ours = passed(&channel);
    for _ in 0..10_000 {
        change(&channel);
    }
    drop(ours);
    change(&channel);
}
