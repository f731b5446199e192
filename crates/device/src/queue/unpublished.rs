//! What has ended in this turn and is still to be shown.

/// What has ended and is not, or not quite, published.
#[derive(Debug, Default)]
pub struct Unpublished {
    /// Requests that the driver has not been shown.
    pub hidden: u16,
    /// What all is worth for which no call was made.
    pub worth: u64,
}

impl Unpublished {
    /// A request with so many bytes of data was staged.
    #[inline]
    pub fn add(&mut self, bytes: u64) {
        self.hidden += 1;
        self.worth += bytes.div_ceil(4096).max(1);
    }
}
