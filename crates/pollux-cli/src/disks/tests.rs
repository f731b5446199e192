use super::*;

/// The end of the process closes disks, whose images another one could have then.
#[test]
fn nothing_is_announced_once_the_process_is_to_end() {
    let disks = Disks::new(true);
    let new: NewDisk = serde_json::from_str(r#"{ "disk": "memory:size=1M" }"#).unwrap();
    let limiter = Arc::new(Limiter::default());
    assert!(disks.announce("a", &new, &limiter));
    assert_eq!(disks.list().added().len(), 1);
    disks.withdraw("a");
    disks.end();
    assert!(!disks.announce("a", &new, &limiter));
    assert_eq!(disks.list().added().len(), 0);
}
