//! One session with the command, for `scripts/test --quick`: a folder becomes an image, which is
//! listed, changed, compacted, checked and converted.

mod common;

use common::{Scratch, inventory};

#[test]
fn a_folder_becomes_an_image_and_comes_back() {
    let scratch = Scratch::new();
    let source = scratch.sample();
    for fs in ["apfs", "hfs+"] {
        let image = &*format!("{fs}.sparsebundle");
        scratch.ok(&["create", image, "--size", "1g", "--fs", fs, "--from", "src"]);
        assert_eq!(scratch.json(&["info", image])["format"], "UDSB");
        assert!(scratch.ok(&["ls", "-l", image]).contains("hello.txt"));
        let hello = scratch.ok(&["cat", &format!("{image}:/hello.txt")]);
        assert_eq!(hello, "hello, world\n");
        scratch.ok(&["cp", "src/big.bin", &format!("{image}:/copy.bin")]);
        scratch.ok(&["rm", &format!("{image}:/copy.bin")]);
        scratch.ok(&["compact", image]);
        scratch.ok(&["check", image]);
        let disk = &*format!("{fs}.dmg");
        scratch.ok(&["convert", image, disk, "--format", "udzo"]);
        scratch.ok(&["verify", disk]);
        let back = &*format!("back {fs}");
        scratch.ok(&["extract", disk, back]);
        assert_eq!(inventory(&scratch.path(back)), inventory(&source));
    }
}
