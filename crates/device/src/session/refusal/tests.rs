use super::*;

#[test]
fn memory_that_is_not_shared_has_its_remedy() {
    let told = Refusal::RingOutside {
        index: 0,
        area: "descriptor",
        address: 0x7f00_0000_0000,
    };
    let told = told.to_string();
    assert!(
        told.contains("at 0x7f0000000000 is not in the shared memory; share"),
        "{told}"
    );
    assert!(
        told.ends_with("share=on and -machine memory-backend=ID"),
        "{told}"
    );
}
