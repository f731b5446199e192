//! What README and the book say is so: their commands are understood, their configurations read, their links lead
//! somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use clap::Parser;

use super::Cli;
use crate::file;

/// A page, with where it is.
struct Paper {
    path: PathBuf,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn papers() -> Vec<Paper> {
    let mut paths = vec![];
    for folder in ["", "docs/src", "docs/notes"] {
        let files = fs::read_dir(root().join(folder)).unwrap();
        paths.extend(files.map(|file| file.unwrap().path()));
    }
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "md"));
    let read = |path: PathBuf| Paper {
        text: fs::read_to_string(&path).unwrap(),
        path,
    };
    paths.into_iter().map(read).collect()
}

impl Paper {
    /// Its blocks of code in `language`.
    fn blocks(&self, language: &str) -> Vec<String> {
        let mut blocks = vec![];
        let mut open: Option<(bool, String)> = None;
        for line in self.text.lines() {
            match (line.strip_prefix("```"), &mut open) {
                (Some(_), Some((wanted, block))) => {
                    if *wanted {
                        blocks.push(std::mem::take(block));
                    }
                    open = None;
                }
                (Some(of), None) => open = Some((of == language, String::new())),
                (None, Some((_, block))) => block.extend([line, "\n"]),
                (None, None) => {}
            }
        }
        assert!(
            open.is_none(),
            "{}: a block without an end",
            self.path.display()
        );
        blocks
    }

    /// Without its blocks of code.
    fn prose(&self) -> impl Iterator<Item = &str> {
        self.text.split("```").step_by(2)
    }

    /// Where its links lead.
    fn links(&self) -> Vec<&str> {
        let targets = self.prose().flat_map(|prose| prose.split("](").skip(1));
        targets
            .filter_map(|target| target.split(')').next())
            .collect()
    }

    /// What its headings are called in links, as forges and mdBook call them.
    fn anchors(&self) -> BTreeSet<String> {
        let headings = self.prose().flat_map(str::lines);
        let headings = headings.filter_map(|line| line.strip_prefix('#'));
        let name = |heading: &str| -> String {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        };
        headings.map(name).collect()
    }
}

/// The words of the first command of a line of shell, without what the shell does with it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word) = (vec![], None::<String>);
    let mut quote = None;
    for c in line.chars() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            ('#' | '&' | '|' | '>', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn every_command_in_the_papers_is_understood() {
    let mut found = 0;
    for paper in papers() {
        for block in paper.blocks("sh") {
            for line in block.replace("\\\n", " ").lines() {
                let mut words = words(line);
                if words.first().is_none_or(|name| !name.ends_with("pollux")) {
                    continue;
                }
                found += 1;
                words[0] = "pollux".to_owned();
                if let Err(error) = Cli::try_parse_from(words) {
                    panic!("{}: {line}: {error}", paper.path.display());
                }
            }
        }
    }
    assert!(found > 30, "{found} commands");
}

#[test]
fn every_configuration_in_the_papers_is_read() {
    let mut found = 0;
    for paper in papers() {
        for block in paper.blocks("toml") {
            if block.contains("[[disk]]") {
                found += 1;
                file::parse(&block, &paper.path).unwrap();
            }
        }
    }
    assert!(found > 3, "{found} configurations");
}

#[test]
fn every_link_of_the_papers_leads_somewhere() {
    let papers = papers();
    let all: Vec<_> = papers
        .iter()
        .map(|paper| (paper.path.canonicalize().unwrap(), paper.anchors()))
        .collect();
    for paper in &papers {
        let wrong = |link: &str| panic!("{}: {link} leads nowhere", paper.path.display());
        for link in paper.links() {
            if link.starts_with("http") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = match path {
                "" => paper.path.clone(),
                path => paper.path.parent().unwrap().join(path),
            };
            let Ok(to) = to.canonicalize() else {
                wrong(link)
            };
            let there = all.iter().find(|(path, _)| *path == to);
            if !anchor.is_empty() && there.is_none_or(|(_, anchors)| !anchors.contains(anchor)) {
                wrong(link);
            }
        }
    }
}

/// `path` without the `..` in it, which would lead out of a folder that is a link.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{}", path.display()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn every_page_of_the_book_is_in_its_summary_and_links_to_what_the_book_has() {
    let tree = root().join("docs/tree");
    let read = |path: PathBuf| Paper {
        text: fs::read_to_string(tree.join(&path)).unwrap(),
        path,
    };
    let summary = read("SUMMARY.md".into());
    let listed: BTreeSet<_> = summary.links().into_iter().map(PathBuf::from).collect();
    for folder in ["docs/src", "docs/notes"] {
        for page in fs::read_dir(tree.join(folder)).unwrap() {
            let page = Path::new(folder).join(page.unwrap().file_name());
            assert!(listed.contains(&page), "{} is not listed", page.display());
        }
    }
    for page in listed.iter().cloned().map(read) {
        let links = page.links();
        for link in links.iter().filter(|link| !link.starts_with("http")) {
            let path = link.split('#').next().unwrap();
            let to = plain(&page.path.parent().unwrap().join(path));
            let is_page = to.extension().is_some_and(|kind| kind == "md");
            let is_there = path.is_empty() || tree.join(&to).is_file();
            let is_there = is_there && (!is_page || listed.contains(&to));
            assert!(
                is_there,
                "{}: {link} is not in the book",
                page.path.display()
            );
        }
    }
}
