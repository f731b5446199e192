//! The package of our own driver: installed as Debian does it, and the root disk booted from it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_tests::guest::{Export, Kernel, Lab};
use pollux_tests::peers;

fn here(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Runs a program that has to succeed.
fn run(command: &mut Command) {
    let output = command.output().expect("it starts");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{command:?}:\n{said}");
}

/// A root file system that says what it finds by `script`, in the file `image`.
fn root_disk(folder: &Path, image: &Path, script: &str) {
    let root = folder.join("root");
    for name in ["bin", "dev", "proc", "sys", "tmp", "run", "etc"] {
        fs::create_dir_all(root.join(name)).expect("the lab's folder is ours");
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox-static is installed");
    run(Command::new("chroot")
        .arg(&root)
        .args(["/bin/busybox", "--install", "-s", "/bin"]));
    fs::copy(here("guest/root-init"), root.join("bin/test-init"))
        .expect("the lab's folder is ours");
    let script = format!("{}\n{script}", include_str!("../guest/lib.sh"));
    fs::write(root.join("test.sh"), script).expect("the lab's folder is ours");
    let file = File::create(image).expect("the lab's folder is ours");
    file.set_len(64 << 20).expect("it takes a sparse file");
    run(Command::new("mkfs.ext4")
        .arg("-q")
        .arg("-d")
        .arg(&root)
        .arg(image));
}

/// By the package, the root disk gets our driver and the other disk keeps `virtio_blk`; a word on the kernel's command
/// line takes that back.
#[test]
#[ignore = "it takes minutes: make test-full"]
fn the_root_disk_boots_by_the_package() {
    let (Some(debs), Some(mut lab)) = (peers::fetched("packaging"), Lab::open(Kernel::Linux61))
    else {
        return;
    };
    let initrd = lab.path("initrd");
    let packaging = [debs, peers::directory().join("linux61")];
    let chosen = "# the root disk,serial=the-root";
    let script = Command::new(here("guest/package.sh"))
        .args(packaging)
        .arg(chosen)
        .arg(&initrd)
        .output();
    let output = script.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{said}",
        String::from_utf8_lossy(&output.stdout)
    );

    let image = lab.path("image");
    let case = include_str!("../guest/cases/root.sh");
    let script = format!(
        "for word in $(cat /proc/cmdline); do case $word in DRIVER=*) DRIVER=${{word#*=}} ;; esac; done; OTHER=virtio_blk\n{case}"
    );
    root_disk(&lab.path("."), &image, &script);
    let root = lab.serve(&Export::file(&image).serial("the-root"));
    let other = lab.serve(&Export::memory(64).serial("the-other"));
    for (driver, switch) in [
        ("pollux_blk", "on"),
        ("pollux_blk", "on"),
        ("virtio_blk", "off"),
    ] {
        let guest = lab.guest("").initrd(&initrd);
        let arguments =
            format!("root=/dev/vda rw init=/bin/test-init DRIVER={driver} pollux_blk={switch}");
        let guest = guest.kernel_argument(&arguments);
        lab.passes(guest.disks([root.clone(), other.clone()]));
    }
}
