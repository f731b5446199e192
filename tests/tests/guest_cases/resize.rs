//! The disk grows under a guest that uses it.

use std::fs::File;

use pollux_tests::control::change;
use pollux_tests::guest::{Export, Lab, System};
use pollux_tests::subject::Program;
use serde_json::{Value, json};

use super::MIB;

/// Its file grows at our word, then by somebody else's: the kernel of the guest sees both under running I/O.
pub fn a_disk_grows_under_load(system: impl Into<System>) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    if lab.program() != Program::Pollux {
        return lab.skip("it is told by Pollux' control socket");
    }
    let image = lab.path("image");
    let file = File::create(&image).expect("the lab's folder is ours");
    let enlarged = |mib: u64| file.set_len(mib * MIB).expect("it takes a sparse file");
    enlarged(64);
    let disk = lab.serve(&Export::file(&image).controlled());
    let control = lab.path("0.control");
    let resize = |lab: &Lab, body: &Value, mib: u64| {
        let answer = change(&control, "POST", "/v1/disks/0/resize", body);
        let (status, disk) = answer.expect("the server answers");
        if (status, disk["bytes"].as_u64()) != (200, Some(mib * MIB)) {
            lab.fail(&format!("not {mib} MiB: {status} {disk}"));
        }
    };
    let guest = lab.guest(include_str!("../../guest/cases/resize.sh"));
    let mut guest = lab.starts(guest.disk(disk));
    lab.hears(&mut guest, "under load");
    resize(&lab, &json!({ "bytes": 128 * MIB }), 128);
    lab.hears(&mut guest, "grown to 128");
    enlarged(192);
    resize(&lab, &json!({}), 192);
    lab.hears(&mut guest, "grown to 192");
    lab.ends_well(guest);
}
