use super::*;

pub const FEATURES: u64 = feature::BLK_SIZE | feature::SIZE_MAX | feature::SEG_MAX | feature::FLUSH;

pub fn sane() -> Config {
    Config {
        capacity: 2048,
        blk_size: 4096,
        size_max: 8192,
        seg_max: 4,
        ..Config::parse(&[0; Config::SIZE])
    }
}

fn facts(config: &Config) -> Result<Facts, Nonsense> {
    Facts::new(FEATURES, config, &Options::default())
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for bytes in [0, 1, 3, 256, 513, 4097, u32::MAX] {
        let config = Config {
            blk_size: bytes,
            ..sane()
        };
        assert_eq!(facts(&config).unwrap_err(), Nonsense::BlockSize { bytes });
    }
    for capacity in [1 << 55, u64::MAX] {
        let config = Config { capacity, ..sane() };
        let sectors = capacity;
        assert_eq!(facts(&config).unwrap_err(), Nonsense::Capacity { sectors });
    }
    let config = Config {
        size_max: 1000,
        ..sane()
    };
    let (most, block) = (4000, 4096);
    assert_eq!(
        facts(&config).unwrap_err(),
        Nonsense::Requests { most, block }
    );
    // A smaller queue than the device would take has the same effect.
    let options = Options {
        queue_size: 4,
        ..Options::default()
    };
    let config = Config {
        size_max: 2000,
        ..sane()
    };
    facts(&config).unwrap();
    let error = Facts::new(FEATURES, &config, &options).unwrap_err();
    assert_eq!(error, Nonsense::Requests { most: 4000, block });
}

#[test]
fn what_is_odd_but_can_be_is_taken() {
    for capacity in [0, 1, 2047, (1 << 55) - 1] {
        let config = Config { capacity, ..sane() };
        let bytes = facts(&config).unwrap().geometry.bytes;
        assert_eq!(bytes, capacity / 8 * 4096, "whole blocks");
    }
    let largest = Config {
        blk_size: 1 << 31,
        size_max: 0,
        seg_max: 0,
        ..sane()
    };
    assert_eq!(facts(&largest).unwrap().geometry.block, 1 << 31);
    let topology = pollux_blk::Topology {
        physical_block_exp: u8::MAX,
        alignment_offset: u8::MAX,
        min_io_size: u16::MAX,
        opt_io_size: u32::MAX,
    };
    let odd = Config { topology, ..sane() };
    Facts::new(u64::MAX, &odd, &Options::default()).unwrap();
}

#[test]
fn a_disk_grows_and_what_a_request_may_hold_stays() {
    let was = facts(&sane()).unwrap();
    let config = Config {
        capacity: 4096,
        size_max: 512,
        seg_max: 100,
        blk_size: 512,
        ..sane()
    };
    let is = was.followed_by(&config).unwrap();
    assert_eq!(is.geometry.bytes, 2 * was.geometry.bytes);
    assert_eq!((is.limits, is.generation), (was.limits, 1));
    assert_eq!(is.geometry.block, was.geometry.block);
    let capacity = u64::MAX;
    let config = Config { capacity, ..sane() };
    let error = was.followed_by(&config).unwrap_err();
    assert_eq!(error, Nonsense::Capacity { sectors: capacity });
}
