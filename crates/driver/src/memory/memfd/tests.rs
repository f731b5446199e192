use super::*;

#[test]
fn all_of_the_memory_is_there_and_stays() {
    let region = memfd_region("test", 5000).unwrap();
    let (file, offset) = region.file();
    assert_eq!((offset, region.len()), (0, file.metadata().unwrap().len()));
    region.write(0, &vec![7; region.addresses().len()]);
    file.set_len(0).unwrap_err();
}
