//! How to attach disks: the lines a person pastes.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use os_display::Quotable;

/// The lines for the disks that are served on `sockets`, all in one virtual machine.
pub fn hints(sockets: &[PathBuf]) -> String {
    let (mut qemu, mut hypervisor, mut libvirt) = (String::new(), String::new(), String::new());
    for (number, socket) in sockets.iter().enumerate() {
        let id = match sockets {
            [_] => "pollux".to_owned(),
            _ => format!("pollux{number}"),
        };
        qemu.push_str(&of_qemu(socket, &id));
        write!(
            hypervisor,
            " \\\n    {}vhost_user=true,socket={},num_queues=1,queue_size=128",
            if number == 0 { "--disk " } else { "" },
            socket.maybe_quote()
        )
        .expect("a string takes everything");
        libvirt.push_str(&of_libvirt(socket, number));
    }
    format!(
        "\
Attach to a virtual machine. Its memory must be shared with this process: that is what the memory
options are for.

QEMU:
  qemu-system-x86_64 … -m 2G \\
    -object memory-backend-memfd,id=mem,size=2G,share=on -machine memory-backend=mem{qemu}
  QEMU 10.2 and newer: reconnect-ms=1000 in place of reconnect=1

Cloud Hypervisor (untested here):
  cloud-hypervisor … --memory size=2G,shared=on{hypervisor}

libvirt (untested here), in the domain's XML:
  <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>
  <devices>
{libvirt}  </devices>
"
    )
}

/// A comma in an option of QEMU's is written twice. With `reconnect`, the guest goes on once the daemon is back.
fn of_qemu(socket: &Path, id: &str) -> String {
    let path = socket.display().to_string().replace(',', ",,");
    let path = path.maybe_quote();
    format!(
        " \\\n    -chardev socket,id={id},path={path},reconnect=1 \\\n    -device vhost-user-blk-pci,chardev={id}"
    )
}

fn of_libvirt(socket: &Path, number: usize) -> String {
    let mut socket = socket.display().to_string();
    for (letter, entity) in [('&', "&amp;"), ('<', "&lt;"), ('\'', "&apos;")] {
        socket = socket.replace(letter, entity);
    }
    format!(
        "    <disk type='vhostuser' device='disk'>
      <driver name='qemu' type='raw'/>
      <source type='unix' path='{socket}'><reconnect enabled='yes' timeout='1'/></source>
      <target dev='vd{}' bus='virtio'/>
    </disk>
",
        letters(number)
    )
}

/// How the kernel counts disks: a to z, then aa.
fn letters(number: usize) -> String {
    let last = char::from(b'a' + u8::try_from(number % 26).expect("26 letters"));
    match number / 26 {
        0 => last.to_string(),
        more => letters(more - 1) + &last.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_waits_for_a_daemon_that_is_restarted() {
        let told = hints(&["/run/a,b.sock".into()]);
        let chardev = "-chardev socket,id=pollux,path=/run/a,,b.sock,reconnect=1 \\\n";
        assert!(told.contains(chardev), "{told}");
        assert!(told.contains("reconnect-ms=1000 in place"), "{told}");
        assert!(told.contains("<reconnect enabled='yes'"), "{told}");
    }

    #[test]
    fn a_path_is_one_word_for_the_shell_and_text_for_xml() {
        let told = hints(&["/run/a b&'c.sock".into()]);
        let quoted = "-chardev socket,id=pollux,path=\"/run/a b&'c.sock\",reconnect=1 \\";
        assert!(told.contains(quoted), "{told}");
        assert!(told.contains("path='/run/a b&amp;&apos;c.sock'"), "{told}");
    }

    #[test]
    fn each_of_several_disks_has_its_own_names_and_the_memory_is_there_once() {
        let told = hints(&["/run/a.sock".into(), "/run/b.sock".into()]);
        for once in [
            "id=mem,",
            "--memory ",
            "--disk ",
            "id=pollux0,path=/run/a.sock,",
            "id=pollux1,path=/run/b.sock,",
            "chardev=pollux0",
            "chardev=pollux1",
            "dev='vda'",
            "dev='vdb'",
        ] {
            assert_eq!(told.matches(once).count(), 1, "{once}: {told}");
        }
    }

    #[test]
    fn disks_are_counted_in_letters() {
        assert_eq!([0, 25, 26, 701].map(letters), ["a", "z", "aa", "zz"]);
    }
}
