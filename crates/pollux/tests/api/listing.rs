//! What can be reached from outside, as declarations without bodies.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use syn::{
    Attribute, Block, Expr, Fields, ImplItem, Item, ItemImpl, TraitItem, Type, Visibility,
    parse_quote,
};

use crate::tree::{
    Crate, Module, Place, attributes, is_public, is_there, name_of, named, segments,
};

/// The list of a crate.
pub fn of(all: &Crate) -> String {
    let mut seen = Seen::default();
    seen.module(all, &[], &[]);
    let mut impls = seen.implementations(all);
    let mut list = String::new();
    for (at, module) in &seen.modules {
        if !at.is_empty() {
            write!(list, "\n// {}\n", at.join("::")).expect("a string takes all");
        }
        for path in &module.foreign {
            writeln!(list, "pub use {path};").expect("a string takes all");
        }
        for (name, defined) in &module.named {
            list.push('\n');
            let item = seen.items[defined].clone();
            if name_of(&item).as_ref() != Some(name) {
                writeln!(list, "// `{name}`:").expect("a string takes all");
            }
            list += &printed(declared(item));
            // What has two names is implemented once.
            list.extend(impls.remove(defined).unwrap_or_default());
        }
    }
    list.trim_start().to_owned()
}

/// What is in a public module.
#[derive(Default)]
struct Names {
    /// Names of this crate's items, and where they are defined.
    named: BTreeMap<String, Place>,
    /// What is handed on from other crates.
    foreign: Vec<String>,
}

#[derive(Default)]
struct Seen {
    modules: BTreeMap<Place, Names>,
    items: BTreeMap<Place, Item>,
}

impl Seen {
    /// What the module at `place` shows, under the name `shown`.
    fn module(&mut self, all: &Crate, place: &[String], shown: &[String]) {
        let module = all.module(place).expect("a module that was found");
        let mut names = Names::default();
        for item in &module.items {
            if let Some(name) = name_of(item).filter(|_| is_shown(item)) {
                self.item(&mut names, place, name.clone(), &name, module);
            }
        }
        for (name, is_public) in &module.modules {
            if *is_public {
                self.module(all, &below(place, name), &below(shown, name));
            }
        }
        for used in module.uses.iter().filter(|used| used.is_public) {
            assert_ne!(
                used.name, "*",
                "a name that is not written cannot be listed"
            );
            let Some(defined) = all.resolve(place, &used.path) else {
                let path = used.path.join("::");
                names.foreign.push(match used.path.last() {
                    Some(last) if *last != used.name => format!("{path} as {}", used.name),
                    _ => path,
                });
                continue;
            };
            let (name, at) = defined.split_last().expect("a use has a path");
            if all.module(&defined).is_some() {
                self.module(all, &defined, &below(shown, &used.name));
            } else {
                let module = all.module(at).expect("what was found is in a module");
                self.item(&mut names, at, used.name.clone(), name, module);
            }
        }
        names.foreign.sort();
        self.modules.insert(shown.to_vec(), names);
    }

    fn item(
        &mut self,
        names: &mut Names,
        place: &[String],
        shown: String,
        name: &str,
        module: &Module,
    ) {
        let mut items = module.items.iter();
        let item = items.find(|item| name_of(item).as_deref() == Some(name));
        let defined = below(place, name);
        let item = item.expect("an item that was found").clone();
        self.items.insert(defined.clone(), item);
        names.named.insert(shown, defined);
    }

    /// What is implemented for items that are shown, and for other types if the trait is.
    fn implementations(&self, all: &Crate) -> BTreeMap<Place, Vec<String>> {
        let mut found: BTreeMap<Place, Vec<String>> = BTreeMap::new();
        for (place, module) in all.modules() {
            for item in &module.items {
                let Item::Impl(item) = item else { continue };
                let of = |path: &syn::Path| all.resolve(place, &segments(path));
                let of_type = match &*item.self_ty {
                    Type::Path(path) => of(&path.path),
                    _ => None,
                };
                let of_trait = item.trait_.as_ref().and_then(|name| of(&name.0));
                let mut owners = [of_type, of_trait].into_iter().flatten();
                let owner = owners.find(|owner| self.items.contains_key(owner));
                if let (Some(owner), Some(item)) = (owner, implemented(item.clone())) {
                    let printed = printed(Item::Impl(item));
                    found.entry(owner).or_default().push(printed);
                }
            }
        }
        for list in found.values_mut() {
            list.sort();
        }
        found
    }
}

fn below(place: &[String], name: &str) -> Place {
    let mut path = place.to_vec();
    path.push(name.to_owned());
    path
}

fn is_shown(item: &Item) -> bool {
    named(item).is_some_and(|(_, visibility)| is_public(visibility)) && is_there(attributes(item))
}

fn printed(item: Item) -> String {
    prettyplease::unparse(&syn::File {
        shebang: None,
        frontmatter: None,
        attrs: Vec::new(),
        items: vec![item],
    })
}

/// Those attributes that a user can tell.
fn kept(attributes: &mut Vec<Attribute>) {
    attributes.retain(|attribute| {
        [
            "derive",
            "non_exhaustive",
            "must_use",
            "deprecated",
            "from",
            "repr",
        ]
        .iter()
        .any(|name| attribute.path().is_ident(name))
    });
}

fn empty() -> Block {
    parse_quote!({})
}

fn unknown() -> Box<Expr> {
    Box::new(parse_quote!(_))
}

/// An item as its users see it.
fn declared(mut item: Item) -> Item {
    match &mut item {
        Item::Const(item) => {
            kept(&mut item.attrs);
            item.expr = unknown();
        }
        Item::Static(item) => {
            kept(&mut item.attrs);
            item.expr = unknown();
        }
        Item::Fn(item) => {
            kept(&mut item.attrs);
            *item.block = empty();
        }
        Item::Enum(item) => {
            kept(&mut item.attrs);
            for variant in &mut item.variants {
                kept(&mut variant.attrs);
                variant
                    .fields
                    .iter_mut()
                    .for_each(|field| kept(&mut field.attrs));
            }
        }
        Item::Struct(item) => {
            kept(&mut item.attrs);
            fields(&mut item.fields);
        }
        Item::Trait(item) => {
            kept(&mut item.attrs);
            item.items.retain_mut(provided);
        }
        Item::Type(item) => kept(&mut item.attrs),
        other => panic!("{other:?} cannot be listed"),
    }
    item
}

/// A private field is told, but neither its name nor its type.
fn fields(fields: &mut Fields) {
    match fields {
        Fields::Named(named) => {
            let all = named.named.len();
            let public = std::mem::take(&mut named.named).into_iter();
            named.named = public.filter(|field| is_public(&field.vis)).collect();
            for field in &mut named.named {
                kept(&mut field.attrs);
            }
            if named.named.len() < all {
                named.named.push(parse_quote!(private: _));
            }
        }
        Fields::Unnamed(unnamed) => {
            for field in &mut unnamed.unnamed {
                kept(&mut field.attrs);
                if !is_public(&field.vis) {
                    field.vis = Visibility::Inherited;
                    field.ty = parse_quote!(_);
                }
            }
        }
        Fields::Unit => {}
    }
}

fn provided(item: &mut TraitItem) -> bool {
    let attributes = match item {
        TraitItem::Const(item) => {
            if let Some((_, value)) = &mut item.default {
                *value = *unknown();
            }
            &mut item.attrs
        }
        TraitItem::Fn(item) => {
            item.default = item.default.take().map(|_| empty());
            &mut item.attrs
        }
        TraitItem::Type(item) => &mut item.attrs,
        other => panic!("{other:?} cannot be listed"),
    };
    let is_there = is_there(attributes);
    kept(attributes);
    is_there
}

/// An `impl` as users see it; nothing if they see nothing of it.
fn implemented(mut item: ItemImpl) -> Option<ItemImpl> {
    let is_inherent = item.trait_.is_none();
    kept(&mut item.attrs);
    item.items.retain_mut(|item| match item {
        ImplItem::Fn(item) => {
            let is_shown = is_inherent && is_public(&item.vis) && is_there(&item.attrs);
            kept(&mut item.attrs);
            item.block = empty();
            is_shown
        }
        ImplItem::Const(item) => {
            let is_shown = is_inherent && is_public(&item.vis) && is_there(&item.attrs);
            kept(&mut item.attrs);
            item.expr = *unknown();
            is_shown
        }
        ImplItem::Type(item) => {
            kept(&mut item.attrs);
            true
        }
        _ => false,
    });
    (!is_inherent || !item.items.is_empty()).then_some(item)
}
