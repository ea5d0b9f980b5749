//! State with an owner: what a lock or an atomic guards is changed by the module of its type only.

use super::{Fault, Text};

/// Types that let threads share what they guard; atomics are recognized by their prefix.
const LOCKS: [&str; 5] = ["Mutex", "RwLock", "Condvar", "OnceLock", "UnitLocks"];

/// Returns a fault for each type of a file that has a lock or an atomic beside fields which other
/// modules see: those can be changed without it, or in another order.
pub(super) fn check(file: &Text) -> Vec<Fault> {
    let is_source = file.path.starts_with("src/")
        || file.path.starts_with("crates/") && file.path.contains("/src/");
    if !is_source {
        return Vec::new();
    }
    let text = file.code_text();
    let mut faults = Vec::new();
    for (at, _) in text.match_indices("struct ") {
        let before = text[..at].chars().next_back();
        let Some((name, body)) = declaration(&text[at + "struct ".len()..]) else {
            continue;
        };
        let visible = visible_fields(body);
        if before.is_none_or(char::is_whitespace) && !visible.is_empty() && has_lock(body) {
            let line = text[..at].matches('\n').count() + 1;
            let what = format!(
                "{name} has a lock, so that its fields are private: {}",
                visible.join(", ")
            );
            faults.push(file.fault(line, what));
        }
    }
    faults
}

/// Returns the name of a declared type and the text of its fields.
fn declaration(rest: &str) -> Option<(&str, &str)> {
    let name = &rest[..rest.find(|c: char| !is_word(c))?];
    let start = rest.find(['{', '(', ';'])?;
    let mut depth = 0;
    let end = rest[start..].find(|c| {
        depth += i32::from("{(".contains(c)) - i32::from("})".contains(c));
        depth == 0
    })?;
    Some((name, &rest[start..start + end]))
}

/// Returns the names of the fields that only a part of the crate sees.
fn visible_fields(body: &str) -> Vec<&str> {
    let limited = ["pub(super) ", "pub(crate) ", "pub(in "];
    let fields = body
        .match_indices("pub(")
        .map(|(at, _)| &body[at..])
        .filter(|field| limited.iter().any(|limit| field.starts_with(limit)));
    fields
        .filter_map(|field| {
            let field = field.split_once(") ")?.1;
            field.split(|c| !is_word(c)).next()
        })
        .collect()
}

fn has_lock(body: &str) -> bool {
    body.split(|c| !is_word(c))
        .any(|word| LOCKS.contains(&word) || word.starts_with("Atomic"))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::{shown, text};
    use super::*;

    fn faults(code: &str) -> Vec<String> {
        shown(check(&text("src/a.rs", code)))
    }

    #[test]
    fn fields_beside_a_lock_are_private() {
        let code = "//! A.\n\n/// B.\npub(crate) struct A<'a, T> {\n    /// The pub(super) one.\n    \
            pub(super) names: Vec<&'a T>,\n    count: AtomicU64,\n    pub(in crate::a) len: u64,\n}\n";
        assert_eq!(
            faults(code),
            ["src/a.rs:4: A has a lock, so that its fields are private: names, len"]
        );
        for lock in [
            "Arc<Mutex<u64>>",
            "RwLock<u64>",
            "[Condvar; 2]",
            "OnceLock<u64>",
        ] {
            let code = format!("struct A {{\n    pub(crate) a: u64,\n    b: {lock},\n}}\n");
            assert_eq!(faults(&code).len(), 1, "{lock}");
        }
        assert_eq!(faults("struct A(pub(super) Mutex<u64>);\n").len(), 1);
    }

    #[test]
    fn other_fields_may_be_visible() {
        for code in [
            "struct A {\n    pub(super) a: u64,\n}\nstruct B {\n    b: Mutex<u64>,\n}\n",
            "pub struct A {\n    pub a: u64,\n    b: Mutex<u64>,\n}\n",
            "struct A {\n    a: u64, // not a Mutex\n    pub(super) b: MutexGuard<'static, ()>,\n}\n",
            "struct A;\n\n#[cfg(test)]\nmod tests {\n    struct B {\n        pub(super) a: Mutex<u64>,\n    }\n}\n",
            "struct A {}\n\nimpl A {\n    pub(super) fn a(&self) -> &Mutex<u64> {\n    }\n}\n",
        ] {
            assert!(faults(code).is_empty(), "{code}");
        }
        let code = "struct A(pub(super) Mutex<u64>);\n";
        assert!(check(&text("tests/a.rs", code)).is_empty());
    }
}
