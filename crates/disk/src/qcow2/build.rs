//! An image, of files that are open.

use std::io;
use std::path::Path;
use std::sync::Arc;

use imago::qcow2::Qcow2;
use imago::raw::Raw as RawImage;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder};

use super::chain::{Chain, Layer, failed, refused};
use super::header::{Header, Refusal};
use super::node::{Node, Role};
use super::order::Order;
use crate::file;
use crate::{Access, OpenError};

/// What reads and writes the image.
pub struct Built {
    pub image: FormatAccess<Node>,
    /// Unless it is only read.
    pub order: Option<Arc<Order>>,
    /// Bytes of the backing file's disk.
    pub backing_size: u64,
}

impl Chain {
    /// Looks at the image once more, which others may have changed since.
    ///
    /// # Errors
    ///
    /// Where it is not what it was.
    pub fn look_again(&mut self) -> Result<(), OpenError> {
        let path = &self.layers[0].path;
        for leg in 0..self.written() {
            let length = file::size(&self.cached[leg]);
            self.lengths[leg] = length.map_err(failed("find the size of", path))?;
        }
        let now = Header::read(&self.cached[0], self.access);
        let now = now.map_err(failed("read the header of", path))?;
        let now = now.map_err(|why| refused(path, why))?;
        if !now.is_same_image(self.header()) {
            return Err(refused(path, Refusal::Changed));
        }
        self.layers[0].header = Some(now);
        Ok(())
    }

    /// From the bottom up.
    pub fn build(&self) -> Result<Built, OpenError> {
        let mut below = None;
        for layer in self.layers[1..].iter().rev() {
            let built = self.read_only(layer, below);
            below = Some(built.map_err(|error| bad(&layer.path, &error))?);
        }
        let (top, header) = (&self.layers[0], self.header());
        let backing_size = below.as_ref().map_or(0, FormatAccess::size);
        let (built, order) = if self.access == Access::ReadOnly {
            (self.read_only(top, below), None)
        } else {
            self.lengthen_data(top, header)?;
            let order = self.order(&top.path, header)?;
            (self.writable(&order, top.data, below), Some(order))
        };
        let image = built.map_err(|error| bad(&top.path, &error))?;
        if let Some(order) = &order {
            order.opened();
        }
        Ok(Built {
            image,
            order,
            backing_size,
        })
    }

    /// What is not there in a file of data is zero, and is read in place as well.
    fn lengthen_data(&self, top: &Layer, header: &Header) -> Result<(), OpenError> {
        match top.data {
            Some(leg) if self.lengths[leg] < header.size => {
                let lengthened = self.cached[leg].set_len(header.size);
                lengthened.map_err(failed("lengthen the data file of", &top.path))
            }
            _ => Ok(()),
        }
    }

    fn order(&self, path: &Path, header: &Header) -> Result<Arc<Order>, OpenError> {
        let (file, barrier) = (Arc::clone(&self.cached[0]), Arc::clone(&self.barrier));
        let opened = Order::new(file, header.clone(), barrier, self.grows);
        let order = opened.map_err(failed("read the tables of", path))?;
        Ok(Arc::new(order.map_err(|source| refused(path, source))?))
    }

    fn node(&self, leg: usize, role: Role) -> Node {
        Node::new(leg, Arc::clone(&self.cached[leg]), role)
    }

    fn read_only(
        &self,
        layer: &Layer,
        below: Option<FormatAccess<Node>>,
    ) -> io::Result<FormatAccess<Node>> {
        if layer.header.is_none() {
            let node = self.node(layer.leg, Role::ReadOnly);
            let raw = RawImage::builder(node).open(DenyImplicitOpenGate::default())?;
            return Ok(FormatAccess::new(raw));
        }
        let data = layer.data.map(|leg| self.node(leg, Role::ReadOnly));
        let node = self.node(layer.leg, Role::ReadOnlyImage);
        let image = Qcow2::<Node>::builder(node)
            .backing(below)
            .data_file(data)
            .open(DenyImplicitOpenGate::default())?;
        Ok(FormatAccess::new(image))
    }

    fn writable(
        &self,
        order: &Arc<Order>,
        data: Option<usize>,
        below: Option<FormatAccess<Node>>,
    ) -> io::Result<FormatAccess<Node>> {
        let data = data.map(|leg| self.node(leg, Role::Data(Arc::clone(order))));
        let node = self.node(0, Role::Image(Arc::clone(order)));
        let image = Qcow2::<Node>::builder(node)
            .backing(below)
            .data_file(data)
            .write(true)
            .open(DenyImplicitOpenGate::default())?;
        Ok(FormatAccess::new(image))
    }
}

fn bad(path: &Path, error: &io::Error) -> OpenError {
    refused(path, Refusal::Damaged(error.to_string()))
}
