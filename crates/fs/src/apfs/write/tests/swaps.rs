//! Tests of swapping two entries.

use super::*;

#[test]
fn whatever_they_are_and_wherever() {
    let device = container(8 << 20, false);
    let fs = open(&device);
    let root = fs.root();
    let [dir, below] = ["dir", "other"].map(|name| {
        fs.create(root, name, &NewNode::new(NewKind::Folder))
            .unwrap()
    });
    let inner = fs
        .create(dir, "inner", &NewNode::new(NewKind::Folder))
        .unwrap();
    let (a, b) = (file(&fs, root, "Größe", b"a"), file(&fs, dir, "b", b"b"));
    fs.link(b, root, "b again").unwrap();
    let is_at = |dir, name: &str| fs.lookup(dir, name).unwrap().unwrap().id;

    fs.swap((root, "GRÖSSE"), (dir, "B")).unwrap();
    assert_eq!(
        (
            is_at(root, "Größe"),
            is_at(dir, "b"),
            is_at(root, "b again")
        ),
        (b, a, b)
    );
    // A file and a folder that is not empty.
    fs.swap((dir, "b"), (root, "other")).unwrap();
    assert_eq!((is_at(root, "other"), is_at(dir, "b")), (a, below));
    // Names keep their spelling; two names of one file stay as they are.
    fs.swap((root, "größe"), (root, "b again")).unwrap();
    fs.swap((root, "other"), (root, "OTHER")).unwrap();
    let names: Vec<_> = fs
        .entries(root)
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert!(
        names.contains(&"Größe".to_owned()) && names.contains(&"other".to_owned()),
        "{names:?}"
    );

    assert_eq!(kind(fs.swap((root, "dir"), (dir, "inner"))), Kind::Invalid);
    assert_eq!(
        kind(fs.swap((inner, "none"), (root, "dir"))),
        Kind::NotFound
    );
    assert_eq!(
        kind(fs.swap((root, "other"), (root, "none"))),
        Kind::NotFound
    );
    let deep = file(&fs, inner, "deep", b"deep");
    assert_eq!(kind(fs.swap((root, "dir"), (inner, "deep"))), Kind::Invalid);
    fs.swap((inner, "deep"), (root, "other")).unwrap();
    fs.unmount().unwrap();
    let found = read(&device);
    assert_eq!(
        (
            contents(&found, "/other"),
            contents(&found, "/dir/inner/deep")
        ),
        (b"deep".to_vec(), b"a".to_vec())
    );
    assert_eq!(
        (contents(&found, "/Größe"), contents(&found, "/b again")),
        (b"b".to_vec(), b"b".to_vec())
    );
    assert_eq!(
        (
            found.resolve("/dir/b").unwrap().id,
            found.resolve("/other").unwrap().id
        ),
        (below, deep)
    );
    assert_eq!((found.volume().files, found.volume().folders), (3, 3));
}
