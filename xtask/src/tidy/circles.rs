//! Circles of files: each uses another of them, so that none can be understood or moved alone.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fault, Text};

/// Maximum number of files in a circle.
const MAX_FILES: usize = 5;

/// Maximum number of circles in the tree. Lower it when some are dissolved.
const MAX_CIRCLES: usize = 24;

/// The path of a module or an item from the root of its crate.
type Path = Vec<String>;

/// A file that is a module.
#[derive(Default)]
struct Module<'a> {
    file: Option<&'a Text>,
    /// Paths that it names.
    uses: Vec<Path>,
    /// Paths of the items that it re-exports, by their names here.
    reexports: BTreeMap<String, Path>,
}

/// Returns a fault for each circle of too many files, and for all circles if there are too many. A
/// file may use the modules that contain it: what they share is not a circle. Tests are not counted.
pub(super) fn check(files: &[Text]) -> Vec<Fault> {
    let mut crates: BTreeMap<&str, Vec<(Path, &Text)>> = BTreeMap::new();
    for file in files {
        if let Some((root, module)) = module_of(&file.path) {
            crates.entry(root).or_default().push((module, file));
        }
    }
    let circles: Vec<_> = crates.into_values().flat_map(check_crate).collect();
    let are_too_many = circles.len() > MAX_CIRCLES;
    let faults = circles
        .into_iter()
        .filter(|(files, _)| are_too_many || *files > MAX_FILES);
    faults.map(|(_, fault)| fault).collect()
}

/// Returns the number of files of each circle, and the fault that it is if it must not be.
fn check_crate(files: Vec<(Path, &Text)>) -> Vec<(usize, Fault)> {
    let names: BTreeSet<Path> = files.iter().map(|(module, _)| module.clone()).collect();
    let modules: BTreeMap<Path, Module<'_>> = files
        .into_iter()
        .map(|(module, file)| (module.clone(), read(&module, file, &names)))
        .collect();
    let graph: BTreeMap<&Path, BTreeSet<&Path>> = modules
        .iter()
        .map(|(module, of)| {
            let used = of.uses.iter().filter_map(|path| resolve(path, &modules, 0));
            let used = used.filter(|used| !module.starts_with(used));
            (module, used.collect())
        })
        .collect();
    circles(&graph)
        .into_iter()
        .filter_map(|circle| {
            let names: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
            let what = format!(
                "{} files use each other in a circle, at most {MAX_FILES} may, and {MAX_CIRCLES} \
                 circles may exist: {}",
                names.len(),
                names.join(", ")
            );
            Some((circle.len(), modules[circle[0]].file?.fault(1, what)))
        })
        .collect()
}

/// Returns the root folder of a file's crate, and the path of the module. `None` for tests and
/// files of other kinds.
fn module_of(path: &str) -> Option<(&str, Path)> {
    let at = if path.starts_with("src/") {
        0
    } else {
        path.find("/src/")? + 1
    };
    let (root, rest) = path.split_at(at + "src".len());
    let rest = rest[1..].strip_suffix(".rs")?;
    let module: Path = rest
        .split('/')
        .filter(|part| *part != "mod")
        .map(str::to_owned)
        .collect();
    let is_entry = ["lib", "main"].contains(&rest);
    (!is_entry && !module.iter().any(|part| part == "tests")).then_some((root, module))
}

fn read<'a>(module: &Path, file: &'a Text, names: &BTreeSet<Path>) -> Module<'a> {
    let text = file.code_text();
    let mut found = Module {
        file: Some(file),
        ..Module::default()
    };
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let line = rest.lines().next().unwrap_or_default().trim_start();
        let (public, tree) = match line.split_once("use ") {
            Some((before, _)) if before.is_empty() || before.starts_with("pub") => {
                let end = rest.find(';').unwrap_or(rest.len() - 1);
                let start = rest.find("use ").unwrap_or_default() + "use ".len();
                let tree = &rest[start.min(end)..end];
                rest = &rest[end + 1..];
                (!before.is_empty(), tree)
            }
            _ => {
                let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
                found.uses.extend(inline(&rest[..end], module, names));
                rest = &rest[end..];
                continue;
            }
        };
        for (path, name) in expand(tree) {
            let Some(path) = absolute(&path, module, names) else {
                continue;
            };
            if public {
                found.reexports.insert(name, path.clone());
            }
            found.uses.push(path);
        }
    }
    found
}

/// Returns the paths of a `use` tree, each with the name that it gets.
pub(super) fn expand(tree: &str) -> Vec<(Path, String)> {
    let tree = tree.trim();
    if let Some(open) = tree.find('{') {
        let prefix = names(&tree[..open]);
        let end = tree.rfind('}').filter(|end| *end > open);
        let inner = &tree[open + 1..end.unwrap_or(tree.len())];
        let mut depth = 0;
        let items = inner.split(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        let paths = items.flat_map(expand).map(|(path, name)| {
            let path = prefix.iter().cloned().chain(path).collect();
            (path, name)
        });
        return paths.collect();
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let path = names(path);
    match path.last() {
        Some(last) if alias.is_empty() => vec![(path.clone(), last.clone())],
        Some(_) => vec![(path, alias.trim().to_owned())],
        None => Vec::new(),
    }
}

fn names(path: &str) -> Path {
    path.split("::")
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// Returns the paths in a line of code besides `use`.
fn inline(line: &str, module: &Path, modules: &BTreeSet<Path>) -> Vec<Path> {
    let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    words
        .filter(|word| word.contains("::"))
        .filter_map(|word| absolute(&names(word), module, modules))
        .collect()
}

/// Returns a path from the root of the crate. `None` if it leads out of the crate.
fn absolute(path: &[String], module: &Path, modules: &BTreeSet<Path>) -> Option<Path> {
    let ups = path.iter().take_while(|name| *name == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (&[][..], &path[1..]),
        "self" => (&module[..], &path[1..]),
        "super" => (&module[..module.len().checked_sub(ups)?], &path[ups..]),
        first => {
            let child: Path = module.iter().cloned().chain([first.to_owned()]).collect();
            modules.contains(&child).then_some((&module[..], path))?
        }
    };
    Some([base, rest].concat())
}

/// Returns the module that a path leads to, through re-exports.
fn resolve<'a>(
    path: &[String],
    modules: &'a BTreeMap<Path, Module<'_>>,
    depth: usize,
) -> Option<&'a Path> {
    /// Maximum number of re-exports of re-exports.
    const MAX_DEPTH: usize = 6;
    let (len, (module, of)) = (1..=path.len())
        .rev()
        .find_map(|len| Some((len, modules.get_key_value(&path[..len])?)))?;
    let further = path.get(len).and_then(|name| of.reexports.get(name));
    let further = further.filter(|further| depth < MAX_DEPTH && further[..] != *path);
    let through = further.and_then(|further| {
        let further = [&further[..], &path[len + 1..]].concat();
        resolve(&further, modules, depth + 1)
    });
    Some(through.unwrap_or(module))
}

/// Returns the sets of nodes that reach each other, of at least two.
fn circles<'a>(graph: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> Vec<Vec<&'a Path>> {
    let reach: BTreeMap<_, _> = graph
        .keys()
        .map(|start| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![*start]);
            while let Some(node) = next.pop() {
                let further = graph.get(node).into_iter().flatten();
                next.extend(further.filter(|further| seen.insert(**further)));
            }
            (*start, seen)
        })
        .collect();
    let mut found: BTreeSet<Vec<&Path>> = BTreeSet::new();
    for (start, seen) in &reach {
        let circle: Vec<_> = seen
            .iter()
            .filter(|node| reach.get(**node).is_some_and(|back| back.contains(start)))
            .copied()
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    /// Returns files that use each other in a circle of this many, each written in another way, and
    /// one that re-exports their types.
    fn circle(count: usize) -> Vec<Text> {
        let reexports: String = (0..count)
            .map(|n| format!("pub(crate) use crate::m{n}::T as T{n};\n"))
            .collect();
        let files = (0..count).map(|n| {
            let next = (n + 1) % count;
            let uses = match n % 4 {
                0 => format!("use crate::{{\n    x::Y,\n    m{next}::{{self, Z}},\n}};\n"),
                1 => format!("use super::m{next}::Z as Other;\n"),
                2 => format!("fn f() {{\n    crate::m{next}::f();\n}}\n"),
                _ => format!("use crate::reexports::T{next};\n"),
            };
            text(&format!("src/m{n}.rs"), &uses)
        });
        let mut files: Vec<_> = files.collect();
        files.push(text("src/reexports.rs", &reexports));
        files
    }

    #[test]
    fn large_circles_are_found() {
        assert!(check(&circle(MAX_FILES)).is_empty());
        for count in [MAX_FILES + 1, MAX_FILES + 2] {
            let mut files = circle(count);
            let faults = check(&files);
            assert_eq!(faults.len(), 1);
            let expected = format!(
                "src/m0.rs:1: {count} files use each other in a circle, at most 5 may, and \
                 {MAX_CIRCLES} circles may exist: m0"
            );
            assert!(
                faults[0].to_string().starts_with(&expected),
                "{}",
                faults[0]
            );
            files.remove(2);
            assert!(check(&files).is_empty());
        }
    }

    #[test]
    fn circles_are_counted() {
        let pairs = |count: usize| {
            let file = |n: usize| {
                let other = n ^ 1;
                text(
                    &format!("src/m{n}.rs"),
                    &format!("use crate::m{other}::T;\n"),
                )
            };
            (0..2 * count).map(file).collect::<Vec<_>>()
        };
        assert!(check(&pairs(MAX_CIRCLES)).is_empty());
        assert_eq!(check(&pairs(MAX_CIRCLES + 1)).len(), MAX_CIRCLES + 1);
    }

    #[test]
    fn a_module_and_its_parts_are_no_circle() {
        let mut files: Vec<_> = (0..10)
            .map(|n| text(&format!("src/a/p{n}.rs"), "use super::Shared;\n"))
            .collect();
        let parts: String = (0..10).map(|n| format!("pub use p{n}::T;\n")).collect();
        files.push(text("src/a/mod.rs", &parts));
        assert!(check(&files).is_empty());
        assert!(module_of("src/a/tests/b.rs").is_none());
        assert!(module_of("tests/a.rs").is_none());
    }
}
