//! `bandsaw web`: the command around the pages, whose tests are those of their crate.

use crate::common::Scratch;

#[cfg(not(all(feature = "web", target_os = "linux")))]
#[test]
fn a_build_without_pages_names_the_feature() {
    let scratch = Scratch::new();
    let said = scratch.fails(6, &["web", "."]);
    let expected = if cfg!(feature = "web") {
        "on Linux only"
    } else {
        "(feature `web`)"
    };
    assert!(said.contains(expected), "{said}");
}

#[test]
fn options_for_other_hosts_belong_together() {
    let scratch = Scratch::new();
    for line in [
        "web",
        "web . --listen 0.0.0.0",
        "web . --listen 0.0.0.0 --cert a --key b",
        "web . --cert a",
        "web . --port 70000",
        "web . --port 8080 --socket s",
        "web . --set-password p",
    ] {
        let words: Vec<_> = line.split(' ').collect();
        scratch.fails(2, &words);
    }
}

#[cfg(all(feature = "web", target_os = "linux"))]
mod serving {
    use std::fs;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};

    use serde_json::Value;

    use crate::common::{Scratch, inventory};

    /// A server that is killed when the test ends.
    struct Server(Child);

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn start(scratch: &Scratch, args: &[&str]) -> (Server, Value) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bandsaw"))
            .args(["web", "--json"])
            .args(args)
            .current_dir(scratch.path(""))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let mut documents = serde_json::Deserializer::from_reader(out).into_iter();
        let report = documents.next().unwrap().unwrap();
        (Server(child), report)
    }

    fn get(url: &str, cookie: &str) -> String {
        let (host, page) = url
            .strip_prefix("http://")
            .unwrap()
            .split_once('/')
            .unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let request = format!(
            "GET /{page} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        String::from_utf8_lossy(&all).into_owned()
    }

    #[test]
    fn a_killed_server_leaves_images_as_they_were() {
        let scratch = Scratch::new();
        scratch.sample();
        fs::create_dir(scratch.path("root")).unwrap();
        scratch.ok(&["create", "root/a.sparsebundle", "--from", "src"]);
        scratch.ok(&["create", "root/b.dmg", "--format", "udzo", "--from", "src"]);
        let before = inventory(&scratch.path("root"));
        let (server, report) = start(&scratch, &["root"]);
        let url = report["url"].as_str().unwrap();
        assert_eq!(
            (&report["schema"], report.get("address")),
            (&Value::from(2), None)
        );
        let entered = get(url, "");
        let cookie = entered
            .split("set-cookie: ")
            .nth(1)
            .unwrap()
            .split(';')
            .next()
            .unwrap();
        let base = url.split("open?").next().unwrap();
        assert!(get(base, cookie).contains("a.sparsebundle"));
        for image in ["a.sparsebundle", "b.dmg"] {
            let folder = get(&format!("{base}folder?r=0&i={image}&v=1"), cookie);
            assert!(folder.contains("hello.txt"), "{folder}");
        }
        // `Drop` kills it as `kill -9` does.
        drop(server);
        assert_eq!(inventory(&scratch.path("root")), before);
        scratch.ok(&["check", "root/a.sparsebundle"]);
        scratch.ok(&["put", "root/a.sparsebundle:/new", "--from", "src/hello.txt"]);
    }

    #[test]
    fn a_password_is_written_as_a_hash_for_its_owner_alone() {
        let scratch = Scratch::new();
        scratch.write("typed", "correct horse battery\n");
        scratch.ok(&["web", "--set-password", "hash", "--new-passfile", "typed"]);
        let hash = fs::read_to_string(scratch.path("hash")).unwrap();
        assert!(hash.starts_with("$argon2id$") && !hash.contains("horse"));
        let mode = scratch
            .path("hash")
            .metadata()
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        // An existing file is not replaced.
        let again = ["web", "--set-password", "hash", "--new-passfile", "typed"];
        assert!(!scratch.run(&again).status.success());
        scratch.write("short", "short");
        scratch.fails(
            2,
            &["web", "--set-password", "other", "--new-passfile", "short"],
        );
        assert!(!scratch.path("other").exists());
    }
}
