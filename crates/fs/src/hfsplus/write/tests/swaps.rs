//! Exchange of two entries.

use super::*;
use bandsaw_core::Kind;

fn kind<T: std::fmt::Debug>(result: bandsaw_core::Result<T>) -> Kind {
    result.unwrap_err().kind()
}

#[test]
fn whatever_they_are_and_wherever() {
    for case_sensitive in [false, true] {
        let device = Arc::new(Memory::zeros(4 << 20));
        format(&*device, layout(case_sensitive, None));
        let fs = open(&device);
        let root = fs.root();
        let [dir, below] = ["dir", "other"].map(|name| fs.create(root, name, &folder()).unwrap());
        let inner = fs.create(dir, "inner", &folder()).unwrap();
        let (a, b) = (
            fs.create(root, "Größe", &file()).unwrap(),
            fs.create(dir, "b", &file()).unwrap(),
        );
        fs.write_all(a, b"a").unwrap();
        fs.write_all(b, b"b").unwrap();
        fs.link(b, root, "b again").unwrap();
        let is_at = |dir, name: &str| fs.lookup(dir, name).unwrap().unwrap().id;

        fs.swap((root, "Größe"), (dir, "b")).unwrap();
        assert_eq!(
            (
                is_at(root, "Größe"),
                is_at(dir, "b"),
                is_at(root, "b again")
            ),
            (b, a, b)
        );
        // A file and a folder: their parents count folders, if the volume has folder counts.
        fs.swap((dir, "b"), (root, "other")).unwrap();
        assert_eq!((is_at(root, "other"), is_at(dir, "b")), (a, below));
        fs.unmount().unwrap();
        sound(device.clone());
        // Two names of the same file remain unchanged.
        fs.swap((root, "Größe"), (root, "b again")).unwrap();
        fs.swap((root, "other"), (root, "other")).unwrap();
        assert_eq!(is_at(root, "other"), a);

        assert_eq!(kind(fs.swap((root, "dir"), (dir, "inner"))), Kind::Invalid);
        assert_eq!(
            kind(fs.swap((inner, "none"), (root, "dir"))),
            Kind::NotFound
        );
        assert_eq!(
            kind(fs.swap((root, "other"), (root, "none"))),
            Kind::NotFound
        );
        let deep = fs.create(inner, "deep", &file()).unwrap();
        assert_eq!(kind(fs.swap((root, "dir"), (inner, "deep"))), Kind::Invalid);
        fs.swap((inner, "deep"), (root, "other")).unwrap();
        fs.unmount().unwrap();
        sound(device.clone());
        let found = HfsPlus::open(device).unwrap();
        assert_eq!(
            (
                contents(&found, "/dir/inner/deep"),
                contents(&found, "/other")
            ),
            (b"a".to_vec(), Vec::new())
        );
        assert_eq!(
            (contents(&found, "/Größe"), contents(&found, "/b again")),
            (b"b".to_vec(), b"b".to_vec())
        );
        assert_eq!(found.resolve("/other").unwrap().id, deep);
    }
}
