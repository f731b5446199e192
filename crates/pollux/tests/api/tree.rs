//! The modules of a crate, and where a name that one of them uses is defined.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use syn::{Attribute, Ident, Item, Meta, Path as Name, UseTree, Visibility};

/// The names of modules, from the root of the crate on.
pub type Place = Vec<String>;

/// A crate as its source says, with all features and without tests, loom's models and what only fuzzing sees.
pub struct Crate {
    modules: BTreeMap<Place, Module>,
}

#[derive(Default)]
pub struct Module {
    /// All but modules and uses.
    pub items: Vec<Item>,
    /// Its modules: name, and whether it is public.
    pub modules: Vec<(String, bool)>,
    pub uses: Vec<Use>,
}

/// `use path as name`.
#[derive(Clone)]
pub struct Use {
    pub path: Vec<String>,
    pub name: String,
    pub is_public: bool,
}

impl Crate {
    /// The crate with that root.
    pub fn read(root: &Path) -> Self {
        let mut all = Self {
            modules: BTreeMap::new(),
        };
        let folder = root.parent().expect("a file lies in a folder");
        all.add(Vec::new(), items(root), Some(folder));
        all
    }

    /// A crate of one file.
    pub fn parse(source: &str) -> Self {
        let mut all = Self {
            modules: BTreeMap::new(),
        };
        let file = syn::parse_file(source).expect("it is Rust");
        all.add(Vec::new(), file.items, None);
        all
    }

    fn add(&mut self, place: Place, items: Vec<Item>, folder: Option<&Path>) {
        let mut module = Module::default();
        for item in items {
            if !is_there(attributes(&item)) {
                continue;
            }
            match item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    module.modules.push((name.clone(), is_public(&inner.vis)));
                    let below = folder.map(|folder| folder.join(&name));
                    let items = match (inner.content, &below) {
                        (Some((_, items)), _) => items,
                        (None, Some(below)) => self::items(&file_of(below)),
                        (None, None) => panic!("{name} has no source"),
                    };
                    let mut place = place.clone();
                    place.push(name);
                    self.add(place, items, below.as_deref());
                }
                Item::Use(used) => {
                    let is_public = is_public(&used.vis);
                    flatten(&used.tree, &mut Vec::new(), &mut |path, name| {
                        module.uses.push(Use {
                            path,
                            name,
                            is_public,
                        });
                    });
                }
                item => module.items.push(item),
            }
        }
        self.modules.insert(place, module);
    }

    /// All modules.
    pub fn modules(&self) -> impl Iterator<Item = (&Place, &Module)> {
        self.modules.iter()
    }

    pub fn module(&self, place: &[String]) -> Option<&Module> {
        self.modules.get(place)
    }

    /// Where what `path` means in module `place` is defined, as the path from the root; nothing if in another crate.
    pub fn resolve(&self, place: &[String], path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (Vec::new(), rest),
            "self" => (place.to_vec(), rest),
            "super" => (place[..place.len() - 1].to_vec(), rest),
            _ => (place.to_vec(), path),
        };
        while let Some((name, later)) = rest.split_first() {
            let module = self.module(&at)?;
            let is_module = module.modules.iter().any(|(inner, _)| inner == name);
            let mut items = module.items.iter();
            let is_item = items.any(|item| name_of(item).as_ref() == Some(name));
            let used = module.uses.iter().find(|used| used.name == *name);
            // A module and a function may have one name.
            match used {
                _ if is_module && !later.is_empty() || is_item => at.push(name.clone()),
                _ if name == "super" => _ = at.pop(),
                Some(used) if used.path != [name.as_str()] => at = self.resolve(&at, &used.path)?,
                _ if is_module => at.push(name.clone()),
                _ => return None,
            }
            rest = later;
        }
        Some(at)
    }
}

fn items(file: &Path) -> Vec<Item> {
    let source = fs::read_to_string(file)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
    let parsed = syn::parse_file(&source);
    parsed
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        .items
}

/// The file of the module whose own modules lie in `folder`.
fn file_of(folder: &Path) -> std::path::PathBuf {
    let beside = folder.with_extension("rs");
    if beside.exists() {
        beside
    } else {
        folder.join("mod.rs")
    }
}

fn flatten(tree: &UseTree, path: &mut Vec<String>, each: &mut impl FnMut(Vec<String>, String)) {
    let mut end = |path: &[String], last: String, name: String| {
        let mut whole = path.to_vec();
        if last != "self" || whole.is_empty() {
            whole.push(last);
        }
        each(whole, name);
    };
    match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            flatten(&step.tree, path, each);
            path.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            let last = path.last().cloned().unwrap_or_default();
            end(path, "self".to_owned(), last);
        }
        UseTree::Name(name) => end(path, name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(name) => end(path, name.ident.to_string(), name.rename.to_string()),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, path, each);
            }
        }
        UseTree::Glob(_) => end(path, "*".to_owned(), "*".to_owned()),
    }
}

/// The segments of a path.
pub fn segments(name: &Name) -> Vec<String> {
    let segments = name.segments.iter();
    segments.map(|segment| segment.ident.to_string()).collect()
}

pub fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// What an item is called, if it has a name that can be used.
pub fn name_of(item: &Item) -> Option<String> {
    named(item).map(|(ident, _)| ident.to_string())
}

/// The name and the visibility of an item that has them.
pub fn named(item: &Item) -> Option<(&Ident, &Visibility)> {
    Some(match item {
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        Item::Static(item) => (&item.ident, &item.vis),
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        Item::Union(item) => (&item.ident, &item.vis),
        _ => return None,
    })
}

pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Is what has these attributes compiled, and no secret?
pub fn is_there(attributes: &[Attribute]) -> bool {
    attributes.iter().all(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            holds(&list.parse_args().expect("a condition"))
        }
        Meta::List(list) if list.path.is_ident("doc") => list.tokens.to_string() != "hidden",
        _ => true,
    })
}

/// Conditions hold, but for those of tests, models and fuzzing.
fn holds(condition: &Meta) -> bool {
    let inner = |list: &syn::MetaList| {
        let metas = list
            .parse_args_with(syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated);
        metas.expect("conditions")
    };
    match condition {
        Meta::List(list) if list.path.is_ident("not") => !inner(list).iter().all(holds),
        Meta::List(list) if list.path.is_ident("any") => inner(list).iter().any(holds),
        Meta::List(list) => inner(list).iter().all(holds),
        Meta::Path(path) => !["test", "doctest", "loom", "fuzzing", "miri"]
            .iter()
            .any(|name| path.is_ident(name)),
        Meta::NameValue(pair) => !matches!(
            &pair.value,
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) if text.value() == "fuzzing"
        ),
    }
}
