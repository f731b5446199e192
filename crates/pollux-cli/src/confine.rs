//! What the configured disks need of the sandbox.

use std::path::{Path, PathBuf};

use pollux::disk::Spec;
use pollux::disk::file::Engine;
use pollux_sandbox::Plan;

use crate::paths::folder;
use crate::socket::Endpoint;

/// Adds what serving a disk as `spec` says at `endpoint` needs to `plan`.
pub fn add(plan: &mut Plan, spec: &Spec, endpoint: &Endpoint) {
    if let Endpoint::Path { path, .. } = endpoint {
        plan.removes_in.push(folder(path));
    }
    for part in spec.parts() {
        add_part(plan, part);
    }
}

/// Adds what disks need that are added later, with their images and sockets in these `folders` and the list of them in
/// the folder of `state`.
pub fn add_later(plan: &mut Plan, folders: &[PathBuf], state: Option<&Path>) {
    plan.opens_in.extend_from_slice(folders);
    plan.keeps_in = state.map(folder);
    plan.needs.opener = true;
    plan.needs.files = true;
    plan.needs.images = true;
    plan.needs.io_uring = true;
    plan.needs.driver = true;
}

/// Adds what answering on a control socket needs: one at `path`, if it has one.
pub fn add_control(plan: &mut Plan, path: Option<&Path>) {
    plan.removes_in.extend(path.map(folder));
    plan.needs.control = true;
}

fn add_part(plan: &mut Plan, part: &Spec) {
    match part {
        Spec::File { settings, .. } => {
            plan.needs.files = true;
            plan.needs.io_uring |= settings.engine != Engine::Threads;
        }
        Spec::Qcow2 { settings, .. } => {
            plan.needs.files = true;
            plan.needs.images = true;
            plan.needs.io_uring |= settings.file.engine != Engine::Threads;
        }
        Spec::VhostUser(disk) => {
            plan.needs.driver = true;
            plan.connects_in.push(folder(&disk.path));
        }
        Spec::Rbd(disk) => {
            plan.needs.cluster = true;
            plan.reads.extend(pollux::rbd::reads(disk));
        }
        // Whatever is new here has to say what it needs, or is stopped by the first test of it.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use pollux_sandbox::Needs;

    use super::*;

    fn plan(spec: &str) -> Plan {
        let mut plan = Plan::default();
        add(&mut plan, &spec.parse().unwrap(), &Endpoint::Fd(3));
        plan
    }

    #[test]
    fn a_disk_below_another_is_planned_for() {
        let files = Needs {
            files: true,
            ..Needs::default()
        };
        assert_eq!(plan("memory:size=1M").needs, Needs::default());
        let threads = plan("fault:delay=1ms,on=file:path=a.img,engine=threads");
        assert_eq!(threads.needs, files);
        assert!(plan("file:path=a.img").needs.io_uring);
        let image = plan("fault:delay=1ms,on=qcow2:path=a.qcow2,engine=threads").needs;
        assert_eq!(
            image,
            Needs {
                images: true,
                ..files
            }
        );
        assert!(plan("linear:memory:size=1M+file:path=a.img").needs.files);
        let cluster = plan("rbd:pool=p,image=i,conf=/srv/ceph.conf");
        assert!(cluster.needs.cluster);
        assert!(cluster.reads.contains(&"/srv/ceph.conf".into()));
        let elsewhere = plan("vhost-user:path=/run/a/b.sock");
        assert!(elsewhere.needs.driver);
        assert_eq!(elsewhere.connects_in, [Path::new("/run/a")]);
    }
}
