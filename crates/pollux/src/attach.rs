//! How to attach a disk: the lines a person pastes.

use std::path::Path;

/// The lines for a disk that is served on `socket`.
pub fn hints(socket: &Path) -> String {
    let socket = socket.display();
    format!(
        "\
Attach this disk to a virtual machine. Its memory must be shared with this process: that is what
the memory options are for.

QEMU:
  qemu-system-x86_64 … -m 2G \\
    -object memory-backend-memfd,id=mem,size=2G,share=on -machine memory-backend=mem \\
    -chardev socket,id=pollux,path={socket} \\
    -device vhost-user-blk-pci,chardev=pollux

Cloud Hypervisor (untested here):
  cloud-hypervisor … --memory size=2G,shared=on \\
    --disk vhost_user=true,socket={socket},num_queues=1,queue_size=128

libvirt (untested here), in the domain's XML:
  <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>
  <devices>
    <disk type='vhostuser' device='disk'>
      <driver name='qemu' type='raw'/>
      <source type='unix' path='{socket}'/>
      <target dev='vda' bus='virtio'/>
    </disk>
  </devices>
"
    )
}
