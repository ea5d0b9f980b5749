//! Storage of deleted and compressed files.

use super::*;

/// The storage of a deleted file leaves the image after fsync of a folder, and after unmounting.
#[test]
fn deleted_files_leave_every_plain_container() {
    let Some(host) = Host::new("deleted_files_leave_every_plain_container") else {
        return;
    };
    for name in ["x.img", "x.sparsebundle", "x.sparseimage", "x.asif"] {
        host.bundle(name);
        host.ok(&["mount", name, "mnt"]);
        let image = host.path(name);
        let before = du(&image);
        let mnt = host.path("mnt");
        fs::write(mnt.join("stays"), vec![1; 1 << 20]).unwrap();
        let mut large = File::create(mnt.join("large")).unwrap();
        large.write_all(&vec![2; 24 << 20]).unwrap();
        large.sync_all().unwrap();
        drop(large);
        let full = du(&image);
        assert!(full >= before + (24 << 20), "{name}: {before} {full}");
        fs::remove_file(mnt.join("large")).unwrap();
        let began = Instant::now();
        while du(&image) > full - (20 << 20) {
            assert!(
                began.elapsed() < Duration::from_secs(15),
                "{name}: {before} {full} {}",
                du(&image)
            );
            File::open(&mnt).unwrap().sync_all().unwrap();
            thread::sleep(Duration::from_millis(50));
        }
        host.ok(&["detach", name]);
        assert!(
            du(&image) < before + (4 << 20),
            "{name}: {before} {full} {}",
            du(&image)
        );
        host.0.ok(&["check", name]);
    }
}

/// Storage of deleted files returns at the deletion or when the image is used the next time,
/// whatever its type and its volume. APFS holds blocks back for older checkpoints, so that only the
/// next use can return them.
#[test]
fn storage_of_deleted_files_returns_by_the_next_use() {
    let Some(host) = Host::new("storage_of_deleted_files_returns_by_the_next_use") else {
        return;
    };
    for (image, fs) in [
        ("a.img", "apfs"),
        ("a.sparsebundle", "apfs"),
        ("a.sparseimage", "apfs"),
        ("a.asif", "apfs"),
        ("h.img", "hfs+"),
        ("h.sparsebundle", "hfs+"),
        ("h.sparseimage", "hfs+"),
        ("h.asif", "hfs+"),
    ] {
        let path = host.path(image);
        host.0.ok(&[
            "create",
            image,
            "--size",
            "64m",
            "--fs",
            fs,
            "--volname",
            "Vol",
        ]);
        let empty = du(&path);
        for next in ["mount", "attach", "serve"] {
            host.ok(&["mount", image, "mnt"]);
            fs::write(host.path("mnt/stays"), vec![1; 1 << 20]).unwrap();
            fs::write(
                host.path("mnt/large"),
                (0..12_000_000_u32)
                    .map(|at| (at * 7 / 5) as u8)
                    .collect::<Vec<_>>(),
            )
            .unwrap();
            host.ok(&["detach", image]);
            assert!(
                du(&path) > empty + 11_000_000,
                "{image} {next}: {empty} {}",
                du(&path)
            );
            host.ok(&["mount", image, "mnt"]);
            fs::remove_file(host.path("mnt/large")).unwrap();
            host.ok(&["detach", image]);
            match next {
                "serve" => host.serve(image),
                "attach" => drop(host.ok(&["attach", image, "--mountroot", "Volumes"])),
                _ => drop(host.ok(&["mount", image, "mnt"])),
            }
            if next != "serve" {
                host.ok(&["detach", image]);
            }
            // The file that stays, and what the volume itself has got meanwhile.
            assert!(
                du(&path) < empty + (3 << 20),
                "{image} {next}: {empty} {}",
                du(&path)
            );
            host.0.ok(&["check", image]);
        }
        let stays = host
            .0
            .command(&["cat", &format!("{image}:/stays")])
            .output()
            .unwrap()
            .stdout;
        assert!(stays == vec![1; 1 << 20], "{image}");
    }
}

/// HFS+ has no holes: what is punched in a file of it becomes zeros, and stays allocated.
#[test]
fn an_image_on_a_host_without_holes_gives_whole_bands_back() {
    let Some(host) = Host::new("an_image_on_a_host_without_holes_gives_whole_bands_back") else {
        return;
    };
    host.bundle("host.sparsebundle");
    host.ok(&["mount", "host.sparsebundle", "mnt"]);
    let image = "mnt/in.sparsebundle";
    host.0.ok(&[
        "create",
        image,
        "--size",
        "32m",
        "--fs",
        "hfs+",
        "--band-size",
        "1m",
    ]);
    let bands = host.path(image).join("bands");
    fs::write(bands.join("10"), vec![2; 1 << 20]).unwrap();
    // The last band has the copy of the volume header at its end.
    let last = File::options().write(true).open(bands.join("1f")).unwrap();
    last.write_all_at(&vec![2; 512 << 10], 0).unwrap();
    last.sync_all().unwrap();
    drop(last);

    let number = |value: &Value| value.as_u64().unwrap();
    let usage = || host.ok(&["du", image])["items"][0]["image"]["units"].clone();
    let before = usage();
    assert_eq!(
        (&before["holes"], number(&before["reclaimable_parts"])),
        (&Value::Bool(false), 0),
        "{before}"
    );
    assert!(
        number(&before["reclaimable_whole"]) >= 1 << 20
            && number(&before["unreclaimable"]) >= 512 << 10,
        "{before}"
    );
    let done = host.ok(&["compact", "--zeros", "--battery-allowed", image]);
    assert!(
        done["holes"] == Value::Bool(false) && number(&done["reclaimed"]) >= 1 << 20,
        "{done}"
    );
    assert!(!bands.join("10").exists() && bands.join("1f").exists());
    let after = usage();
    assert!(
        number(&after["reclaimable_whole"]) == 0 && number(&after["unreclaimable"]) >= 512 << 10,
        "{after}"
    );
    assert!(
        host.0
            .ok(&["du", image])
            .contains("not known to support holes in files")
    );
    let mut names: Vec<_> = fs::read_dir(host.path(image))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["Info.bckup", "Info.plist", "bands", "lock", "token"],
        "nothing that holes were tried on is left"
    );
    host.0.ok(&["check", image]);
    host.ok(&["detach", "mnt"]);
}

#[test]
fn compressed_files_are_written_and_options_obeyed() {
    let Some(host) = Host::new("compressed_files_are_written_and_options_obeyed") else {
        return;
    };
    let text = "the same line again and again\n".repeat(4000);
    host.0.write("src/text", &text);
    host.0.write("src/read", &text);
    host.0.ok(&[
        "create",
        "x.sparsebundle",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--size",
        "32m",
    ]);
    host.0.ok(&["compress", "x.sparsebundle:/"]);
    host.ok(&[
        "mount",
        "x.sparsebundle",
        "mnt",
        "-o",
        "uid=12,gid=34,umask=027",
    ]);
    let path = host.path("mnt/text");
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(
        (meta.uid(), meta.gid(), meta.mode() & 0o7777),
        (12, 34, 0o640)
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"one more").unwrap();
    drop(file);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        text.clone() + "one more"
    );
    assert_eq!(fs::read_to_string(host.path("mnt/read")).unwrap(), text);
    host.ok(&["detach", "mnt"]);
    assert_eq!(
        host.0.ok(&["cat", "x.sparsebundle:/text"]),
        text + "one more"
    );
    host.0.ok(&["check", "x.sparsebundle"]);
    assert!(
        host.fails(2, &["mount", "x.sparsebundle", "mnt", "-o", "compress=lzo"])
            .contains("compress")
    );
    let helper = host.path("mount.bandsaw");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bandsaw"), &helper).unwrap();
    let mut command = Command::new(&helper);
    command
        .arg(host.path("x.sparsebundle"))
        .arg(host.path("mnt"))
        .args(["-o", "ro,noauto,nofail"]);
    assert!(
        command
            .env("XDG_RUNTIME_DIR", host.path(""))
            .status()
            .unwrap()
            .success()
    );
    assert!(fs::write(host.path("mnt/new"), "x").is_err());
    host.ok(&["detach", "mnt"]);
}

/// A compressed file of an image that lacks a band, while a file with another name may be that band: to
/// store the contents again would make zeros of it final. Other files are written.
#[test]
fn a_compressed_file_is_not_rewritten_while_a_band_may_be_misnamed() {
    let Some(host) = Host::new("a_compressed_file_is_not_rewritten_while_a_band_may_be_misnamed")
    else {
        return;
    };
    let mut random = bandsaw::testing::Random::new(1);
    fs::create_dir(host.path("src")).unwrap();
    for n in 0..10 {
        fs::write(host.path("src").join(format!("{n}")), random.bytes(500_000)).unwrap();
    }
    let text = "contents ".repeat(10_000);
    fs::write(host.path("src/text"), &text).unwrap();
    let create =
        "create x.sparsebundle --size 12m --band-size 1m --fs apfs --compress zlib --from src";
    host.0.ok(&create.split(' ').collect::<Vec<_>>());
    let band = |name: &str| host.path("x.sparsebundle/bands").join(name);
    fs::rename(band("3"), band("3.tmp")).unwrap();
    host.fails(9, &["decompress", "x.sparsebundle:/text"]);
    let mounted = host.ok(&["mount", "x.sparsebundle", "mnt"]);
    let write = |name: &str| {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(host.path("mnt").join(name))?;
        file.write_all(b"more").and_then(|()| file.sync_all())
    };
    assert_eq!(write("text").unwrap_err().raw_os_error(), Some(5));
    assert!(fs::read_to_string(host.path("mnt/text")).unwrap() == text);
    let log = host.log(&mounted);
    assert!(log.contains("3.tmp"), "{log}");
    write("other").unwrap();
    host.ok(&["detach", "mnt"]);
    fs::rename(band("3.tmp"), band("3")).unwrap();
    host.0.ok(&["check", "x.sparsebundle"]);
    assert!(host.0.ok(&["cat", "x.sparsebundle:/text"]) == text);
    host.ok(&["mount", "x.sparsebundle", "mnt"]);
    write("text").unwrap();
    host.ok(&["detach", "mnt"]);
    assert!(host.0.ok(&["cat", "x.sparsebundle:/text"]) == text + "more");
}
