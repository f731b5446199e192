//! How SPDK's vhost target is started: it polls always, and does without huge pages.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// The environment variable that names the program. It is not fetched: building it takes longer than using it.
pub const PROGRAM: &str = "POLLUX_SPDK_VHOST";

/// The size of a block in bytes.
pub const BLOCK: u64 = 512;

/// The program, if there is one.
pub fn program() -> Option<PathBuf> {
    std::env::var_os(PROGRAM).map(PathBuf::from)
}

/// The disk that its `method` makes with `params` beside a name.
#[derive(Clone, Debug)]
pub struct Disk {
    method: &'static str,
    params: Value,
}

impl Disk {
    /// A disk that `method`, `bdev_null_create` or `bdev_malloc_create`, makes of nothing.
    pub fn of_size(method: &'static str, bytes: u64) -> Self {
        let params = json!({"name": "disk", "num_blocks": bytes / BLOCK, "block_size": BLOCK});
        Self { method, params }
    }

    /// The disk in `file`, which `method`, `bdev_aio_create` or `bdev_uring_create`, makes.
    pub fn of_file(method: &'static str, file: &Path) -> Self {
        let params = json!({"name": "disk", "filename": file, "block_size": BLOCK});
        Self { method, params }
    }
}

/// The command that serves `disk` on `socket` from processor `cpu`, with its files beside the socket.
pub fn command(program: &Path, disk: &Disk, socket: &Path, cpu: usize) -> io::Result<Command> {
    let folder = socket.parent().expect("a socket lies in a folder");
    let configuration = socket.with_extension("spdk.json");
    let name = socket.file_name().expect("a socket has a name");
    let text = configuration_of(disk, &name.to_string_lossy());
    std::fs::write(&configuration, text.to_string())?;
    let mut command = Command::new(program);
    command
        .args(["-m", &format!("{:#x}", 1u64 << cpu)])
        .args(["--no-huge", "-s", "1024", "--no-pci", "-S"])
        .arg(folder)
        .arg("-r")
        .arg(socket.with_extension("spdk.sock"))
        .arg("-c")
        .arg(configuration);
    Ok(command)
}

fn configuration_of(disk: &Disk, socket: &str) -> Value {
    let Disk { method, params } = disk;
    let controller = json!({"ctrlr": socket, "dev_name": "disk"});
    json!({"subsystems": [
        {"subsystem": "bdev", "config": [{"method": method, "params": params}]},
        {"subsystem": "vhost_blk", "config": [
            {"method": "vhost_create_blk_controller", "params": controller},
        ]},
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_of_its_disk_by_a_file_beside_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("disk.sock");
        let disk = Disk::of_file("bdev_aio_create", "t.img".as_ref());
        let command = command("vhost".as_ref(), &disk, &socket, 1).unwrap();
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        assert_eq!(words[..2], ["-m", "0x2"]);
        let text = std::fs::read_to_string(folder.path().join("disk.spdk.json")).unwrap();
        let told: Value = serde_json::from_str(&text).unwrap();
        let of = |at: usize| &told["subsystems"][at]["config"][0];
        assert_eq!(of(0)["method"], "bdev_aio_create");
        assert_eq!(of(0)["params"]["filename"], "t.img");
        assert_eq!(of(1)["params"]["ctrlr"], "disk.sock");
    }
}
