//! A descriptor as it lies in memory (VIRTIO 1.3, 2.7.5).

/// The flags of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorFlags(pub u16);

impl DescriptorFlags {
    /// The chain goes on at `next`.
    pub const NEXT: u16 = 1;
    /// The buffer is for the device to write.
    pub const WRITE: u16 = 2;
    /// The buffer holds a table of descriptors.
    pub const INDIRECT: u16 = 4;

    /// Is any of `bits` set?
    #[must_use]
    pub const fn has(self, bits: u16) -> bool {
        self.0 & bits != 0
    }
}

/// One descriptor, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    pub address: u64,
    pub len: u32,
    pub flags: DescriptorFlags,
    pub next: u16,
}

impl Descriptor {
    pub const SIZE: usize = 16;

    #[inline]
    pub fn parse(bytes: [u8; Self::SIZE]) -> Self {
        let low = u128::from_le_bytes(bytes);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "each field is cut out of the sixteen bytes"
        )]
        Self {
            address: low as u64,
            len: (low >> 64) as u32,
            flags: DescriptorFlags((low >> 96) as u16),
            next: (low >> 112) as u16,
        }
    }

    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let high = u64::from(self.len) | u64::from(self.flags.0) << 32 | u64::from(self.next) << 48;
        (u128::from(self.address) | u128::from(high) << 64).to_le_bytes()
    }
}

/// The bytes of a descriptor, for tables in memory of a driver's own.
#[inline]
#[must_use]
pub fn descriptor(address: u64, len: u32, flags: DescriptorFlags, next: u16) -> [u8; 16] {
    let descriptor = Descriptor {
        address,
        len,
        flags,
        next,
    };
    descriptor.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_laid_out_as_the_specification_says() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        let descriptor = Descriptor::parse(bytes);
        assert_eq!(descriptor.address, 0x0807_0605_0403_0201);
        assert_eq!(descriptor.len, 0x0c0b_0a09);
        assert_eq!(descriptor.flags, DescriptorFlags(0x0e0d));
        assert_eq!(descriptor.next, 0x100f);
        assert_eq!(descriptor.to_bytes(), bytes);
    }
}
