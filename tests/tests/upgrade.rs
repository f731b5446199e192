//! A daemon is replaced under running guests: the sockets stay, and no guest notices.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::{self, File};
use std::path::Path;

use pollux_tests::activation::Sockets;
use pollux_tests::guest::{Kernel, Lab, VhostUserBlk};
use pollux_tests::server::{Ready, Server, pollux_binary};

const SIZE: u64 = 64 << 20;
const UPGRADES: usize = 4;

/// Serves both disks by `program`, on the sockets that stay.
fn serve(program: &Path, sockets: &Sockets, config: &Path) -> Server {
    let config = config.to_str().unwrap();
    let mut command = sockets.pass_to(program, &["serve", "--config", config]);
    Server::start(&mut command, Path::new(""), Ready::LogLine).unwrap()
}

/// A disk on storage, past the page cache, and one on tmpfs; under fio, which verifies what it writes.
#[test]
fn a_guest_goes_on_while_its_daemon_is_replaced() {
    let Some(lab) = Lab::open(Kernel::Linux61) else {
        return;
    };
    let mut text = String::new();
    let mut sockets = Sockets::default();
    let mut disks = Vec::new();
    let images = [
        ("root", lab.path("root.img"), "cache=writeback"),
        ("scratch", lab.path_in_memory("scratch.img"), "inline=off"),
    ];
    for (name, image, keys) in images {
        File::create(&image).unwrap().set_len(SIZE).unwrap();
        let path = lab.path(&format!("{name}.sock"));
        sockets.listen(name, &path).unwrap();
        let image = image.display();
        let disk = format!("[[disk]]\nfd-name = {name:?}\ndisk = \"file:path={image},{keys}\"\n");
        text.push_str(&disk);
        disks.push(VhostUserBlk::new(&path).with("num-queues=2").reconnects());
    }
    let config = lab.path("pollux.toml");
    fs::write(&config, text).unwrap();
    let mut server = serve(&pollux_binary(), &sockets, &config);
    let guest = lab.guest(include_str!("../guest/cases/upgrade.sh"));
    let mut guest = lab.starts(guest.disks(disks));
    for number in 0..UPGRADES {
        // Both have ended something with the daemon that is to go.
        for disk in ["vda", "vdb"] {
            lab.hears(&mut guest, &format!("{disk} went on"));
        }
        let (status, log) = server.terminate().unwrap();
        assert_eq!(status.code(), Some(0), "{status}\n{log}");
        assert!(log.contains("told to end"), "{log}");
        let program = lab.path(&format!("pollux-{number}"));
        fs::copy(pollux_binary(), &program).unwrap();
        server = serve(&program, &sockets, &config);
        // QEMU is back.
        assert!(server.says("a frontend connected"), "{}", server.log());
    }
    lab.hears(&mut guest, "vda went on");
    lab.tells(&mut guest, "enough");
    lab.ends_well(guest);
    let (status, log) = server.terminate().unwrap();
    assert_eq!(status.code(), Some(0), "{status}\n{log}");
}
