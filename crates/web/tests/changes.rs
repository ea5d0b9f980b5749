//! Changes through pages, as far as the server was started for them.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bandsaw::container::Format;
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::Silent;
use bandsaw::sync::Mutex;
use bandsaw_web::{Limits, LogSink, Permissions};

use crate::common::{Images, Reply, Site, Visitor, link, read_reply};

/// The lines of a log.
type Lines = Arc<Mutex<Vec<String>>>;

fn permitted(images: &Images, permissions: Permissions) -> (Site, Lines) {
    let lines = Lines::default();
    let kept = lines.clone();
    let sink = LogSink(Arc::new(move |line: &str| {
        kept.lock().push(line.to_owned());
    }));
    let permissions = Permissions {
        log: Some(sink),
        temporary: images.path(""),
        ..permissions
    };
    let site = Site::permitted(&images.root(), Limits::default(), permissions);
    (site, lines)
}

fn changing(images: &Images) -> (Site, Lines) {
    let permissions = Permissions {
        changes: true,
        ..Permissions::default()
    };
    permitted(images, permissions)
}

/// Waits for the job that an answer leads to, and returns its page.
fn page_of(visitor: &Visitor, started: &Reply) -> (String, String) {
    assert_eq!(started.status, 303, "{}", started.text());
    let job = started.field("location").unwrap();
    let number = job.split('=').nth(1).unwrap().to_owned();
    assert!(visitor.get(&format!("events?id={number}")).is_whole);
    let page = visitor.page(&job);
    assert!(
        !page.contains("/proc/self/fd") && !page.contains("<progress"),
        "{page}"
    );
    (page, number)
}

/// Runs a dry run, and returns its page and number.
fn plan(visitor: &Visitor, image: &str, form: &str) -> (String, String) {
    page_of(visitor, &visitor.post(&format!("plan?r=0&i={image}"), form))
}

/// Makes a confirmed change, and returns its page.
fn change(visitor: &Visitor, image: &str, form: &str) -> String {
    let form = format!("confirm=yes&{form}");
    page_of(
        visitor,
        &visitor.post(&format!("change?r=0&i={image}"), &form),
    )
    .0
}

fn upload(visitor: &Visitor, page: &str, csrf: &str, body: &str) -> Reply {
    let origin = format!("Origin: http://{}", visitor.host);
    let token = format!("X-Csrf: {csrf}");
    visitor.send(&visitor.request("POST", page, &[&origin, &token], body))
}

#[test]
fn nothing_changes_without_permission() {
    let images = Images::plain();
    images.create("a.sparsebundle", Format::Udsb, NewFormat::HfsPlus, None);
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    assert!(!visitor.page("image?r=0&i=docs.dmg").contains("changes?"));
    assert!(!visitor.page("").contains("id=\"upload\""));
    assert!(
        !visitor
            .page("folder?r=0&i=docs.dmg&v=1")
            .contains("id=\"upload\"")
    );
    assert_eq!(visitor.get("changes?r=0&i=a.sparsebundle").status, 403);
    for kind in [
        "kind=compact",
        "kind=undo&confirm=yes",
        "kind=create&name=x&confirm=yes",
    ] {
        for page in ["plan?r=0&i=a.sparsebundle", "change?r=0&i=a.sparsebundle"] {
            assert_eq!(visitor.post(page, kind).status, 403, "{page} {kind}");
        }
    }
    let csrf = visitor.csrf();
    for page in [
        "upload?into=0&name=a",
        "upload?r=0&i=docs.dmg&v=1&p=/&name=a",
    ] {
        assert_eq!(upload(visitor, page, &csrf, "x").status, 403);
    }
    // Each of both permissions alone lets nobody write into volumes.
    let (site, _) = changing(&images);
    let csrf = site.visitor.csrf();
    let page = "upload?r=0&i=a.sparsebundle&v=1&p=/&name=a";
    assert_eq!(upload(&site.visitor, page, &csrf, "x").status, 403);
    assert!(!images.root().join("a.sparsebundle/.bandsaw").exists());
}

#[test]
fn changes_need_a_dry_run_and_a_confirmation() {
    let images = Images::plain();
    images.create("a.sparsebundle", Format::Udsb, NewFormat::HfsPlus, None);
    images.create("b.sparsebundle", Format::Udsb, NewFormat::HfsPlus, None);
    let (site, lines) = changing(&images);
    let visitor = &site.visitor;
    let (page, number) = plan(visitor, "a.sparsebundle", "kind=compact");
    assert!(page.contains("would be freed"), "{page}");
    for (image, form, status) in [
        ("a.sparsebundle", format!("kind=apply&plan={number}"), 400),
        (
            "a.sparsebundle",
            format!("kind=apply&plan={number}&confirm=no"),
            400,
        ),
        (
            "a.sparsebundle",
            "kind=apply&plan=0123&confirm=yes".to_owned(),
            409,
        ),
        ("a.sparsebundle", "kind=apply&confirm=yes".to_owned(), 409),
        // The dry run was one of another image.
        (
            "b.sparsebundle",
            format!("kind=apply&plan={number}&confirm=yes"),
            409,
        ),
        ("a.sparsebundle", "kind=undo".to_owned(), 400),
        ("a.sparsebundle", "kind=create&name=x".to_owned(), 400),
        ("a.sparsebundle", "kind=other&confirm=yes".to_owned(), 400),
    ] {
        let reply = visitor.post(&format!("change?r=0&i={image}"), &form);
        assert_eq!(reply.status, status, "{form}");
    }
    assert!(lines.lock().is_empty());
    // The token of the session is needed as for all forms.
    let origin = format!("Origin: http://{}", visitor.host);
    let form = format!("kind=apply&plan={number}&confirm=yes&csrf=wrong");
    let forged = visitor.post_bare("change?r=0&i=a.sparsebundle", &form, &[&origin]);
    assert_eq!(forged.status, 403);
    let done = change(
        visitor,
        "a.sparsebundle",
        &format!("kind=apply&plan={number}"),
    );
    assert!(
        done.contains("freed.") && done.contains("Allocated now"),
        "{done}"
    );
}

#[test]
fn changes_are_logged_with_visitor_time_result_and_undo() {
    let images = Images::new();
    images.create("a.sparsebundle", Format::Udsb, NewFormat::HfsPlus, None);
    let (site, lines) = changing(&images);
    let visitor = &site.visitor;
    let (_, number) = plan(visitor, "a.sparsebundle", "kind=compact&zeros=1");
    change(
        visitor,
        "a.sparsebundle",
        &format!("kind=apply&plan={number}"),
    );
    let failed = change(visitor, "a.sparsebundle", "kind=delete&name=none");
    assert!(failed.contains("class=\"bad\""), "{failed}");
    let written = lines.lock().clone();
    assert_eq!(written.len(), 4, "{written:#?}");
    for line in &written {
        assert!(
            line.contains("Z session 1 at 127.0.0.1: ") && line.contains("a.sparsebundle"),
            "{line}"
        );
    }
    assert!(written[0].ends_with(": begins") && written[0].contains("compact with zeros"));
    assert!(written[1].contains(": done: ") && written[1].contains("; undo: none is needed"));
    assert!(written[3].contains(": failed: ") && !written[3].contains("/proc/self"));
    let log = visitor.page("log");
    for part in [
        "compact with zeros",
        "delete snapshot none",
        "session 1 at 127.0.0.1",
        "none is needed",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

#[test]
fn a_damaged_map_is_repaired_and_the_repair_undone() {
    let images = Images::new();
    images.create("disk.img", Format::Udrw, NewFormat::HfsPlus, None);
    let path = images.root().join("disk.img");
    let mut bytes = fs::read(&path).unwrap();
    bytes[512 + 16..512 + 24].fill(0xA5);
    fs::write(&path, &bytes).unwrap();
    let (site, lines) = changing(&images);
    let visitor = &site.visitor;
    let (page, number) = plan(visitor, "disk.img", "kind=repair");
    assert!(
        page.contains("Steps") && page.contains("would be made"),
        "{page}"
    );
    assert_eq!(fs::read(&path).unwrap(), bytes, "a dry run changes nothing");
    let done = change(visitor, "disk.img", &format!("kind=apply&plan={number}"));
    assert!(
        done.contains("Repairs made") && done.contains("disk.img.undo"),
        "{done}"
    );
    assert_ne!(fs::read(&path).unwrap(), bytes);
    assert!(images.root().join("disk.img.undo").is_dir());
    let line = lines.lock().last().unwrap().clone();
    assert!(
        line.contains("done: Repairs made") && line.contains("; undo: “Undo repairs”"),
        "{line}"
    );
    let again = plan(visitor, "disk.img", "kind=repair").0;
    assert!(
        again.contains("nothing that could be repaired") && !again.contains("Confirm"),
        "{again}"
    );
    let page = visitor.page("changes?r=0&i=disk.img");
    assert!(page.contains("Undo data of repairs"), "{page}");
    let undone = change(visitor, "disk.img", "kind=undo");
    assert!(undone.contains("Repairs undone: 1"), "{undone}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
    // Once more, and the undo data is removed.
    let (_, number) = plan(visitor, "disk.img", "kind=repair");
    change(visitor, "disk.img", &format!("kind=apply&plan={number}"));
    let removed = change(visitor, "disk.img", "kind=commit");
    assert!(removed.contains("undo data of 1 repairs"), "{removed}");
    assert!(!images.root().join("disk.img.undo").exists());
}

#[test]
fn a_repair_asks_for_decisions() {
    let images = Images::new();
    images.create("a.sparsebundle", Format::Udsb, NewFormat::HfsPlus, None);
    let list = |name: &str| images.root().join("a.sparsebundle").join(name);
    let text = fs::read_to_string(list("Info.plist")).unwrap();
    let (head, rest) = text.split_once("<key>size</key>").unwrap();
    let size = rest.split(['>', '<']).nth(2).unwrap();
    let other = (size.parse::<u64>().unwrap() / 1024 * 512).to_string();
    // Both lists contradict everything else.
    let wrong = format!("{head}<key>size</key>{}", rest.replacen(size, &other, 1));
    for name in ["Info.plist", "Info.bckup"] {
        fs::write(list(name), &wrong).unwrap();
    }
    let (site, _) = changing(&images);
    let visitor = &site.visitor;
    let (page, number) = plan(visitor, "a.sparsebundle", "kind=repair");
    let (_, choice) = page.split_once("name=\"assume\" value=\"").unwrap();
    let choice = choice.split('"').next().unwrap();
    assert!(choice.starts_with(&format!("size={size} ")), "{page}");
    assert!(!page.contains("Change the image"), "{page}");
    let apply = format!("kind=apply&confirm=yes&plan={number}");
    let refused = visitor.post("change?r=0&i=a.sparsebundle", &apply);
    assert_eq!(refused.status, 409);
    let choice = choice.replace('=', "%3D").replace(' ', "+");
    let form = format!("kind=repair&assume={choice}");
    let (page, number) = plan(visitor, "a.sparsebundle", &form);
    assert!(page.contains("Change the image"), "{page}");
    assert_eq!(fs::read_to_string(list("Info.plist")).unwrap(), wrong);
    let form = format!("kind=apply&plan={number}");
    let done = change(visitor, "a.sparsebundle", &form);
    assert!(done.contains("Repairs made"), "{done}");
    assert_eq!(fs::read_to_string(list("Info.plist")).unwrap(), text);
    let odd = plan(visitor, "a.sparsebundle", "kind=repair&assume=nonsense").0;
    assert!(
        odd.contains("class=\"bad\"") && !odd.contains("Change the image"),
        "{odd}"
    );
}

#[test]
fn losses_are_accepted_as_shown_or_nothing_changes() {
    let images = Images::new();
    for number in 0..120 {
        let name = format!("tree/sub/a file with a name of some length {number:03}");
        fs::write(images.path(&name), "hello").unwrap();
    }
    let options = CreateOptions {
        volume: Some(NewVolume {
            layout: Layout::None,
            name: "Docs".to_owned(),
            format: NewFormat::HfsPlus,
            block_size: None,
            source: Source::Folder(images.path("tree")),
        }),
        ..CreateOptions::default()
    };
    let path = images.root().join("x.img");
    drop(create(&path, options, &Silent).unwrap());
    let mut disk = fs::read(&path).unwrap();
    let number = |disk: &[u8], at: usize| {
        usize::try_from(u32::from_be_bytes(*disk[at..].first_chunk().unwrap())).unwrap()
    };
    let tree = number(&disk, 1024 + 288) * number(&disk, 1024 + 40);
    let size = usize::from(u16::from_be_bytes(
        *disk[tree + 32..].first_chunk().unwrap(),
    ));
    let first = tree + number(&disk, tree + 24) * size;
    let leaf = tree + number(&disk, first) * size;
    disk[leaf..leaf + size].fill(0);
    fs::write(&path, &disk).unwrap();

    let (site, lines) = changing(&images);
    let visitor = &site.visitor;
    let (page, number) = plan(visitor, "x.img", "kind=repair");
    assert!(
        page.contains("name=\"accept-loss\"") && page.contains("of some length"),
        "{page}"
    );
    let form = format!("kind=apply&plan={number}");
    let unasked = visitor.post("change?r=0&i=x.img", &format!("confirm=yes&{form}"));
    assert_eq!(unasked.status, 400);
    // More is lost now than was shown.
    let mut more = disk.clone();
    more[first..first + size].fill(0);
    fs::write(&path, &more).unwrap();
    let other = change(visitor, "x.img", &format!("{form}&accept-loss=yes"));
    assert!(!other.contains("Repairs made"), "{other}");
    assert_eq!(fs::read(&path).unwrap(), more);
    fs::write(&path, &disk).unwrap();
    let done = change(visitor, "x.img", &format!("{form}&accept-loss=yes"));
    assert!(
        done.contains("Repairs made") && done.contains("losses.txt"),
        "{done}"
    );
    let line = lines.lock().last().unwrap().clone();
    assert!(line.contains("losses accepted"), "{line}");
    change(visitor, "x.img", "kind=undo");
    assert_eq!(fs::read(&path).unwrap(), disk);
}

#[test]
fn snapshots_are_created_restored_and_deleted() {
    let images = Images::new();
    images.create("a.sparsebundle", Format::Udsb, NewFormat::HfsPlus, None);
    let permissions = Permissions {
        changes: true,
        upload_folders: vec![images.root()],
        ..Permissions::default()
    };
    let (site, lines) = permitted(&images, permissions);
    let visitor = &site.visitor;
    let changes = "changes?r=0&i=a.sparsebundle";
    let created = change(visitor, "a.sparsebundle", "kind=create&name=before");
    assert!(created.contains("was created"), "{created}");
    assert!(visitor.page(changes).contains("<bdi>before</bdi>"));
    let bad = change(visitor, "a.sparsebundle", "kind=create&name=..%2Fx");
    assert!(bad.contains("class=\"bad\""), "{bad}");

    let csrf = visitor.csrf();
    let page = "upload?r=0&i=a.sparsebundle&v=1&p=/sub&name=new.txt";
    let reply = upload(visitor, page, &csrf, "new contents");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let number = reply.text().split('=').nth(1).unwrap().to_owned();
    assert!(visitor.get(&format!("events?id={number}")).is_whole);
    let done = visitor.page(&reply.text());
    assert!(done.contains("The file was written"), "{done}");
    let raw = "raw?r=0&i=a.sparsebundle&v=1&p=/sub/new.txt";
    assert_eq!(visitor.get(raw).text(), "new contents");
    // A second one does not replace it unasked.
    let reply = upload(visitor, page, &csrf, "other");
    let number = reply.text().split('=').nth(1).unwrap().to_owned();
    assert!(visitor.get(&format!("events?id={number}")).is_whole);
    assert!(visitor.page(&reply.text()).contains("already exists"));
    assert_eq!(visitor.get(raw).text(), "new contents");

    let restored = change(visitor, "a.sparsebundle", "kind=restore&name=before");
    assert!(restored.contains("was restored"), "{restored}");
    assert_eq!(visitor.get(raw).status, 404);
    change(visitor, "a.sparsebundle", "kind=delete&name=before");
    assert!(!visitor.page(changes).contains("<bdi>before</bdi>"));
    assert!(lines.lock().len() >= 10);
    let (checked, _) = page_of(
        visitor,
        &visitor.post("check?r=0&i=a.sparsebundle", "kind=check"),
    );
    assert!(checked.contains("no problem was found"), "{checked}");
}

#[test]
fn an_encrypted_image_is_changed_with_its_passphrase() {
    let images = Images::new();
    images.create(
        "secret.sparsebundle",
        Format::Udsb,
        NewFormat::Apfs,
        Some("key"),
    );
    let (site, _) = changing(&images);
    let visitor = &site.visitor;
    let locked = plan(visitor, "secret.sparsebundle", "kind=compact").0;
    assert!(locked.contains("passphrase"), "{locked}");
    visitor.post("unlock?r=0&i=secret.sparsebundle", "passphrase=key");
    let (page, number) = plan(visitor, "secret.sparsebundle", "kind=compact");
    assert!(page.contains("would be freed"), "{page}");
    let done = change(
        visitor,
        "secret.sparsebundle",
        &format!("kind=apply&plan={number}"),
    );
    assert!(done.contains("freed."), "{done}");
    let raw = visitor.get("raw?r=0&i=secret.sparsebundle&v=1.1&p=/hello.txt");
    assert_eq!(raw.text(), "hello, world\n");
}

#[test]
fn uploads_stay_in_their_folder_and_replace_nothing_unasked() {
    let images = Images::plain();
    let folder = images.path("inbox");
    fs::create_dir(&folder).unwrap();
    let permissions = Permissions {
        upload_folders: vec![folder.clone()],
        upload_limit: 1000,
        ..Permissions::default()
    };
    let (site, lines) = permitted(&images, permissions);
    let visitor = &site.visitor;
    let form = visitor.page("");
    assert!(link(&form, "upload.js", "").ends_with("upload.js") && form.contains("inbox"));
    let csrf = visitor.csrf();
    let csrf = csrf.as_str();
    for (page, token, body, status) in [
        ("upload?into=0&name=a.dmg", "wrong", "x", 403),
        ("upload?into=0&name=a.dmg", "", "x", 403),
        ("upload?into=0&name=..%2Fa.dmg", csrf, "x", 400),
        ("upload?into=0&name=%2Fetc%2Fpasswd", csrf, "x", 400),
        ("upload?into=0&name=.hidden", csrf, "x", 400),
        ("upload?into=0&name=a%00b", csrf, "x", 400),
        ("upload?into=0", csrf, "x", 400),
        ("upload?into=1&name=a.dmg", csrf, "x", 403),
        ("upload?r=0&i=docs.dmg&v=1&p=/&name=a.dmg", csrf, "x", 403),
        ("upload?into=0&name=a.dmg", csrf, "first", 200),
        ("upload?into=0&name=a.dmg", csrf, "second", 409),
    ] {
        let reply = upload(visitor, page, token, body);
        assert_eq!(reply.status, status, "{page}: {}", reply.text());
    }
    let large = upload(visitor, "upload?into=0&name=b.dmg", csrf, &"x".repeat(1001));
    assert_eq!(large.status, 413);
    assert_eq!(fs::read(folder.join("a.dmg")).unwrap(), b"first");
    let reply = upload(visitor, "upload?into=0&name=a.dmg&replace=1", csrf, "third");
    assert_eq!(reply.status, 200);
    assert_eq!(fs::read(folder.join("a.dmg")).unwrap(), b"third");
    let mut stranger = visitor.clone();
    stranger.cookie = None;
    let reply = upload(&stranger, "upload?into=0&name=c.dmg", csrf, "x");
    assert_eq!(reply.status, 401);
    // A client that goes away leaves nothing.
    let origin = format!("Origin: http://{}", visitor.host);
    let token = format!("X-Csrf: {csrf}");
    let page = "upload?into=0&name=cut.dmg";
    let whole = visitor.request("POST", page, &[&origin, &token], &"x".repeat(900));
    let mut stream = visitor.connect();
    stream
        .write_all(&whole.as_bytes()[..whole.len() - 400])
        .unwrap();
    stream.flush().unwrap();
    stream.end();
    let reply = read_reply(&mut *stream);
    assert!([0, 400, 408].contains(&reply.status), "{}", reply.head);
    let mut tries = 0..2_000;
    assert!(tries.any(|_| {
        thread::sleep(Duration::from_millis(10));
        let lines = lines.lock();
        lines.iter().any(|line| line.contains("cut.dmg: failed"))
    }));
    let names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["a.dmg"]);
}

#[test]
fn files_are_restored_into_the_given_folder_only() {
    let images = Images::plain();
    images.create("secret.dmg", Format::Udrw, NewFormat::Apfs, Some("key"));
    let folder = images.path("restored");
    fs::create_dir(&folder).unwrap();
    let restore = "restore?r=0&i=docs.dmg&v=1";
    let (site, _) = changing(&images);
    let reply = site
        .visitor
        .post(&format!("{restore}&p=/sub"), "into=0&confirm=yes");
    assert_eq!(reply.status, 403);
    let permissions = Permissions {
        restore_folders: vec![folder.clone()],
        ..Permissions::default()
    };
    let (site, lines) = permitted(&images, permissions);
    let visitor = &site.visitor;
    assert!(
        visitor
            .page("folder?r=0&i=docs.dmg&v=1")
            .contains("action=\"restore?")
    );
    for (form, status) in [("into=0", 400), ("into=1&confirm=yes", 403), ("", 403)] {
        let reply = visitor.post(&format!("{restore}&p=/sub"), form);
        assert_eq!(reply.status, status, "{form}");
    }
    let run = |path: &str| {
        let started = visitor.post(&format!("{restore}&p={path}"), "into=0&confirm=yes");
        page_of(visitor, &started).0
    };
    let done = run("/sub");
    assert!(
        done.contains("Restored: 1 file,") && done.contains("restored/sub"),
        "{done}"
    );
    let deep = folder.join("sub/deep/a b&c.txt");
    assert_eq!(fs::read(&deep).unwrap(), b"deep\n");
    run("/hello.txt");
    let hello = folder.join("hello.txt");
    assert_eq!(fs::read(&hello).unwrap(), b"hello, world\n");
    fs::write(&hello, "mine").unwrap();
    for path in ["/hello.txt", "/sub", "/nothing"] {
        let refused = run(path);
        assert!(refused.contains("class=\"bad\""), "{refused}");
    }
    assert_eq!(fs::read(&hello).unwrap(), b"mine");
    // The volume as a whole gets its name.
    run("/");
    assert!(folder.join("Docs & <more>/hello.txt").exists());
    let started = visitor.post(
        "restore?r=0&i=secret.dmg&v=1.1&p=/sub",
        "into=0&confirm=yes",
    );
    let locked = page_of(visitor, &started).0;
    assert!(locked.contains("passphrase"), "{locked}");
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["Docs & <more>", "hello.txt", "sub"]);
    let lines = lines.lock().clone();
    assert!(lines.iter().any(|line| line.contains("restore /sub of ")));
    assert!(
        lines
            .iter()
            .any(|line| line.contains("failed: ") && line.contains("already exists"))
    );
}
