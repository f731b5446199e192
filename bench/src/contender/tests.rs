use super::*;

#[test]
fn options_of_the_disk_and_of_the_program_are_told_apart() {
    let ours: Contender = "pollux disk:engine=threads --poll never".parse().unwrap();
    let disk = vec!["engine=threads".to_owned()];
    let options = vec!["--poll".to_owned(), "never".to_owned()];
    assert_eq!(ours.program, Program::Pollux { disk, options });
    assert!(ours.refuses(Disk::Tmpfs).is_none());
    assert!(ours.refuses(Disk::Null).unwrap().contains("--set file"));
}

#[test]
fn several_disks_have_a_socket_each_and_a_file_that_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let exports = Exports {
        count: 2,
        ..Exports::one(Disk::Memory)
    };
    let first = folder.path().join("disk.sock");
    let sockets = exports.sockets(&first);
    assert_eq!(sockets, [first.clone(), folder.path().join("disk.1.sock")]);
    pollux(exports, "memory:size=1M", &first).unwrap();
    let file = fs::read_to_string(folder.path().join("disk.toml")).unwrap();
    for socket in sockets {
        let socket = socket.display();
        let line = format!("socket-path = \"{socket}\"\ndisk = \"memory:size=1M\"\n");
        assert!(file.contains(&line), "{file}");
    }
}

#[test]
fn a_storage_daemon_takes_an_aio_and_a_program() {
    let peer: Contender = "qsd-iothread aio=native /opt/qsd".parse().unwrap();
    let expected = Program::QemuStorageDaemon {
        path: "/opt/qsd".into(),
        looper: Looper::Iothread,
        aio: Some("native".into()),
    };
    assert_eq!(peer.program, expected);
    assert!("qsd cache=none".parse::<Contender>().is_err());
}

#[test]
fn a_command_must_say_where_socket_and_file_go() {
    assert!(
        "exec: server --socket {socket}"
            .parse::<Contender>()
            .is_err()
    );
    assert!("exec:".parse::<Contender>().is_err());
    let peer: Contender = "exec: server -s {socket} -f {file},{size}".parse().unwrap();
    let Program::Command(words) = peer.program else {
        panic!("{peer:?}");
    };
    let values = [
        (SOCKET, "/run/a b".to_owned()),
        (FILE, "f.img".to_owned()),
        ("{size}", "4096".to_owned()),
    ];
    assert_eq!(
        filled_in(&words, &values),
        ["server", "-s", "/run/a b", "-f", "f.img,4096"]
    );
}

#[test]
fn a_command_that_takes_specs_serves_every_disk() {
    let files: Contender = "exec: server {socket} {file}".parse().unwrap();
    assert!(files.refuses(Disk::Null).unwrap().contains("{disk}"));
    assert!(!files.starts_empty(Disk::Memory));
    let older: Contender = "exec: old serve --disk {disk} --socket-path {socket}"
        .parse()
        .unwrap();
    assert_eq!(older.refuses(Disk::Null), None);
    assert!(older.starts_empty(Disk::Memory));
}

#[test]
fn what_nobody_knows_is_refused_by_name() {
    let refusal = "spdk".parse::<Contender>().unwrap_err();
    assert!(refusal.contains("`spdk`"), "{refusal}");
}

#[test]
fn both_servers_are_told_of_an_image_in_a_cluster_by_the_same_keys() {
    let place = "rbd:pool=rbd,image=0,conf=/run/ceph.conf";
    let cached = ["cache=writeback".to_owned()];
    assert_eq!(
        spec(Disk::Rbd, place, &cached),
        format!("{place},cache=writeback")
    );
    assert_eq!(
        blockdev(Disk::Rbd, place, None),
        "driver=rbd,cache.direct=on,pool=rbd,image=0,conf=/run/ceph.conf"
    );
}
