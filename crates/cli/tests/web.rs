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
        "web . --upload-limit 5m",
        "web . --install-desktop",
        "web . --open --install-service",
    ] {
        let words: Vec<_> = line.split(' ').collect();
        scratch.fails(2, &words);
    }
}

#[cfg(all(feature = "web", target_os = "linux"))]
mod serving {
    use std::fs;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};

    use serde_json::Value;

    #[cfg(feature = "s3")]
    use crate::common::stderr;
    use crate::common::{Scratch, inventory, skip};

    /// A server that is killed when the test ends.
    struct Server(Child);

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn start(scratch: &Scratch, args: &[&str]) -> (Server, Value) {
        start_with(scratch, args, &[])
    }

    fn start_with(
        scratch: &Scratch,
        args: &[&str],
        variables: &[(&str, String)],
    ) -> (Server, Value) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bandsaw"))
            .args(["web", "--json"])
            .args(args)
            .current_dir(scratch.path(""))
            .envs(variables.iter().map(|(name, value)| (*name, value)))
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

    /// Opens the address with the token. Returns the address of the pages, and the cookie.
    fn enter(url: &str) -> (String, String) {
        let entered = get(url, "");
        let cookie = entered.split("set-cookie: ").nth(1).unwrap();
        let base = url.split("open?").next().unwrap();
        let cookie = cookie.split(';').next().unwrap();
        (base.to_owned(), cookie.to_owned())
    }

    #[test]
    fn prefixes_of_urls_are_checked_at_the_start() {
        let scratch = Scratch::new();
        for prefix in [
            "/images",
            "ftp://host/",
            "https://me@host/",
            "https://host/?a",
        ] {
            let said = scratch.fails(2, &["web", ".", "--allow-urls", prefix]);
            assert!(said.contains("--allow-urls"), "{said}");
        }
        let (_server, report) = start(&scratch, &["--allow-urls", "https://host.example/images"]);
        let (base, cookie) = enter(report["url"].as_str().unwrap());
        assert!(get(&base, &cookie).contains("or an address"));
        let refused = get(&format!("{base}go?a=https://other.example/a.dmg"), &cookie);
        assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    }

    #[cfg(feature = "s3")]
    #[test]
    #[ignore = "full: a cluster of Ceph, for 30 s"]
    fn a_bundle_in_an_allowed_bucket_is_shown() {
        use crate::bucket::ceph::Ceph;

        let Some(ceph) = Ceph::start() else { return };
        ceph.make_bucket("test");
        let scratch = Scratch::new();
        scratch.sample();
        let image = "s3://test/backups/Docs.sparsebundle";
        let words = "create s3://test/backups/Docs.sparsebundle --size 64m --fs hfs+ --volname Docs --from src";
        let words: Vec<&str> = words.split(' ').collect();
        let mut create = scratch.command(&words);
        let created = create.envs(ceph.variables()).output().unwrap();
        assert!(created.status.success(), "{}", stderr(&created));
        let args = ["--allow-urls", "s3://test/backups"];
        let (_server, report) = start_with(&scratch, &args, &ceph.variables());
        let (base, cookie) = enter(report["url"].as_str().unwrap());
        let page = |address: &str| {
            let reply = get(&format!("{base}{address}"), &cookie);
            assert!(reply.starts_with("HTTP/1.1 200"), "{address}: {reply}");
            reply
        };
        let opened = get(&format!("{base}go?a={image}"), &cookie);
        assert!(opened.starts_with("HTTP/1.1 303"), "{opened}");
        let shown = page(field(&opened, "location"));
        assert!(shown.contains("Docs") && shown.contains("HFS+"), "{shown}");
        let folder = page(&link(&shown, "folder?", "v="));
        let file = page(&link(&folder, "file?", "hello.txt"));
        assert!(file.contains("hello, world"), "{file}");
        let raw = page(&link(&file, "raw?", "hello.txt"));
        assert!(raw.ends_with("\r\n\r\nhello, world\n"), "{raw}");
        page(&link(&shown, "space?", "url"));
        // Neither what is beside the prefix, nor changes.
        for other in [
            "s3://test/backups-old/a.sparsebundle",
            "s3://test/a.sparsebundle",
            "s3://other/backups/a.sparsebundle",
        ] {
            let refused = get(&format!("{base}go?a={other}"), &cookie);
            assert!(refused.starts_with("HTTP/1.1 400"), "{other}: {refused}");
        }
        assert!(!shown.contains("changes?"), "{shown}");
    }

    /// The first address of a page that begins so and has a part.
    #[cfg(feature = "s3")]
    fn link(page: &str, start: &str, part: &str) -> String {
        let attributes = ["href=\"", "src=\"", "action=\""];
        let mut links = attributes.iter().flat_map(|name| page.split(name).skip(1));
        let found = links.find_map(|rest| {
            let link = rest.split('"').next()?.replace("&amp;", "&");
            (link.starts_with(start) && link.contains(part)).then_some(link)
        });
        found.unwrap_or_else(|| panic!("no link to {start} with {part}: {page}"))
    }

    /// Replaces numbers and texts in a document by extreme ones, one in `step`, from `first`.
    fn spoil(value: &mut Value, count: &mut usize, (first, step): (usize, usize), with: &Value) {
        match value {
            Value::Array(all) => all
                .iter_mut()
                .for_each(|one| spoil(one, count, (first, step), with)),
            Value::Object(all) => {
                for (name, one) in all.iter_mut() {
                    if name != "schema" {
                        spoil(one, count, (first, step), with);
                    }
                }
            }
            Value::Number(_) | Value::String(_) => {
                *count += 1;
                if *count % step == first && value.is_number() == with.is_number() {
                    *value = with.clone();
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    #[test]
    fn results_of_benchmarks_are_shown() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.path("root/sub")).unwrap();
        scratch.ok(&[
            "bench",
            "files",
            ".",
            "--scale",
            "0.0001",
            "-o",
            "root/sub/files.json",
        ]);
        let results = fs::read(scratch.path("root/sub/files.json")).unwrap();
        fs::write(scratch.path("root/other.json"), "{\"schema\": 1}").unwrap();
        fs::write(scratch.path("root/none.json"), "\u{0}").unwrap();
        let (_server, report) = start(&scratch, &["root"]);
        let (base, cookie) = enter(report["url"].as_str().unwrap());
        assert!(get(&base, &cookie).contains("href=\"benchmarks\""));
        let list = get(&format!("{base}benchmarks"), &cookie);
        assert!(
            list.contains("sub/files.json") && !list.contains("none.json"),
            "{list}"
        );
        let page = get(&format!("{base}benchmark?r=0&i=sub/files.json"), &cookie);
        assert!(
            page.contains("Rates and latencies") && page.contains("<table"),
            "{page}"
        );
        let plots = page.split("src=\"plot.svg?").skip(1);
        let plots: Vec<_> = plots.map(|rest| rest.split('"').next().unwrap()).collect();
        assert!(!plots.is_empty());
        for plot in plots {
            let plot = get(
                &format!("{base}plot.svg?{}", plot.replace("&amp;", "&")),
                &cookie,
            );
            assert!(
                plot.contains("image/svg+xml") && plot.contains("<svg"),
                "{plot}"
            );
            assert!(plot.contains("content-security-policy: sandbox; default-src 'none'"));
        }
        // Files outside, and files that are none, are refused.
        for file in ["../files.json", "other.json", "none.json", "", "missing"] {
            let refused = get(&format!("{base}benchmark?r=0&i={file}"), &cookie);
            assert!(refused.starts_with("HTTP/1.1 4"), "{file}: {refused}");
        }
        // Files that lie are shown or refused, and the server goes on.
        let extremes = [
            Value::from(0),
            Value::from(1),
            Value::from(u64::MAX),
            Value::from(-1),
            Value::from(1e308),
            Value::from(1e-308),
            Value::from("<script>alert(1)</script>\u{202e}"),
        ];
        for with in &extremes {
            for step in [1, 2, 3, 7, 40] {
                for first in [0, step / 2] {
                    let mut lie: Value = serde_json::from_slice(&results).unwrap();
                    spoil(&mut lie, &mut 0, (first, step), with);
                    fs::write(scratch.path("root/lie.json"), lie.to_string()).unwrap();
                    let page = get(&format!("{base}benchmark?r=0&i=lie.json"), &cookie);
                    let is_fine =
                        page.starts_with("HTTP/1.1 200 ") || page.starts_with("HTTP/1.1 400 ");
                    assert!(is_fine, "{with} {step} {first}: {page}");
                    assert!(!page.contains("<script>alert"), "{page}");
                    for plot in page.split("src=\"plot.svg?").skip(1) {
                        let plot = plot.split('"').next().unwrap().replace("&amp;", "&");
                        let plot = get(&format!("{base}plot.svg?{plot}"), &cookie);
                        assert!(
                            plot.starts_with("HTTP/1.1 200 "),
                            "{with} {step} {first}: {plot}"
                        );
                        assert!(!plot.contains("<script"), "{plot}");
                    }
                }
            }
        }
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
        let (base, cookie) = enter(url);
        assert!(get(&base, &cookie).contains("a.sparsebundle"));
        for image in ["a.sparsebundle", "b.dmg"] {
            let folder = get(&format!("{base}folder?r=0&i={image}&v=1"), &cookie);
            assert!(folder.contains("hello.txt"), "{folder}");
        }
        // `Drop` kills it as `kill -9` does.
        drop(server);
        assert_eq!(inventory(&scratch.path("root")), before);
        scratch.ok(&["check", "root/a.sparsebundle"]);
        scratch.ok(&["put", "root/a.sparsebundle:/new", "--from", "src/hello.txt"]);
    }

    /// The value of a field of an answer.
    fn field<'a>(answer: &'a str, name: &str) -> &'a str {
        let (_, rest) = answer.split_once(&format!("{name}: ")).unwrap();
        rest.split("\r\n").next().unwrap()
    }

    fn post(url: &str, cookie: &str, form: &str) -> String {
        let (host, page) = url
            .strip_prefix("http://")
            .unwrap()
            .split_once('/')
            .unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let request = format!(
            "POST /{page} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nCookie: {cookie}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{form}",
            form.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        String::from_utf8_lossy(&all).into_owned()
    }

    #[test]
    fn a_server_killed_during_a_change_leaves_what_the_command_leaves() {
        let scratch = Scratch::new();
        scratch.sample();
        fs::create_dir(scratch.path("root")).unwrap();
        let image = "root/a.sparsebundle";
        scratch.ok(&["create", image, "--from", "src", "--size", "200m"]);
        for round in 0..4 {
            scratch.write("junk", "junk and more junk\n".repeat(400_000));
            let junk = format!("{image}:/junk{round}");
            scratch.ok(&["put", &junk, "--from", "junk"]);
            scratch.ok(&["rm", &junk]);
            let (server, report) = start(&scratch, &["root", "--allow-changes"]);
            let url = report["url"].as_str().unwrap();
            let (base, cookie) = enter(url);
            let page = get(&format!("{base}changes?r=0&i=a.sparsebundle"), &cookie);
            let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
            let csrf = rest.split('"').next().unwrap();
            let plan = post(
                &format!("{base}plan?r=0&i=a.sparsebundle"),
                &cookie,
                &format!("csrf={csrf}&kind=compact"),
            );
            let number = field(&plan, "location").split('=').nth(1).unwrap();
            get(&format!("{base}events?id={number}"), &cookie);
            let change = post(
                &format!("{base}change?r=0&i=a.sparsebundle"),
                &cookie,
                &format!("csrf={csrf}&kind=apply&confirm=yes&plan={number}"),
            );
            assert!(change.starts_with("HTTP/1.1 303"), "{change}");
            if round % 2 == 1 {
                let job = field(&change, "location").split('=').nth(1).unwrap();
                get(&format!("{base}events?id={job}"), &cookie);
            }
            // `Drop` kills it as `kill -9` does: at once, or after the change.
            drop(server);
            scratch.ok(&["check", image]);
            scratch.ok(&["compact", image]);
            assert!(scratch.ok(&["ls", image]).contains("hello.txt"));
        }
    }

    #[test]
    fn the_browser_is_opened_without_the_token_in_its_arguments() {
        let scratch = Scratch::new();
        for folder in ["root", "bin", "run"] {
            fs::create_dir(scratch.path(folder)).unwrap();
        }
        // The address that a browser would go to, and who else may read it.
        scratch.write(
            "bin/xdg-open",
            "#!/bin/sh\necho \"$@\" >\"$0.args\"\nstat -c %a \"$1\" >\"$0.mode\"\n\
             cp \"$1\" \"$0.page.new\"\nmv \"$0.page.new\" \"$0.page\"\n",
        );
        let script = scratch.path("bin/xdg-open");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_bandsaw"))
            .args(["web", "--json", "--open", "--end-when-idle", "root"])
            .current_dir(scratch.path(""))
            .env("PATH", format!("{}:{path}", scratch.path("bin").display()))
            .env("XDG_RUNTIME_DIR", scratch.path("run"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let mut server = Server(child);
        let mut documents = serde_json::Deserializer::from_reader(out).into_iter();
        let report: Value = documents.next().unwrap().unwrap();
        let url = report["url"].as_str().unwrap();
        let kept = |name: &str| scratch.path(&format!("bin/xdg-open.{name}"));
        let mut tries = 0..10_000_000;
        assert!(tries.any(|_| kept("page").exists()));
        let token = url.split("token=").nth(1).unwrap();
        assert!(!fs::read_to_string(kept("args")).unwrap().contains(token));
        assert_eq!(fs::read_to_string(kept("mode")).unwrap().trim(), "600");
        let page = fs::read_to_string(kept("page")).unwrap();
        assert!(page.contains(&format!("url={url}\"")), "{page}");
        // The server ends with its only session.
        let (base, cookie) = enter(url);
        let first = get(&base, &cookie);
        let (_, rest) = first.split_once("name=\"csrf\" value=\"").unwrap();
        let csrf = rest.split('"').next().unwrap();
        post(&format!("{base}end"), &cookie, &format!("csrf={csrf}"));
        assert!(server.0.wait().unwrap().success());
        let left = fs::read_dir(scratch.path("run")).unwrap();
        let mut names = left.map(|entry| entry.unwrap().file_name());
        assert!(names.all(|name| !name.to_string_lossy().ends_with(".html")));
    }

    #[test]
    fn a_service_and_a_desktop_entry_are_written_when_asked() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("a \"b\" 100% $x")).unwrap();
        let run = |args: &[&str]| {
            Command::new(env!("CARGO_BIN_EXE_bandsaw"))
                .arg("web")
                .args(args)
                .current_dir(scratch.path(""))
                .env("XDG_CONFIG_HOME", scratch.path("config"))
                .env("XDG_DATA_HOME", scratch.path("data"))
                .output()
                .unwrap()
        };
        let install = ["a \"b\" 100% $x", "--port", "8080", "--install-service"];
        assert!(run(&install).status.success());
        let unit = scratch.path("config/systemd/user/bandsaw-web.service");
        let text = fs::read_to_string(&unit).unwrap();
        assert!(
            text.contains("\"--port\" \"8080\" \"--\" \"/")
                && text.contains("a \\\"b\\\" 100%% $$x\""),
            "{text}"
        );
        fs::write(&unit, "mine").unwrap();
        assert!(!run(&install).status.success());
        assert_eq!(fs::read_to_string(&unit).unwrap(), "mine");
        assert!(
            run(&[&install[..], &["--overwrite"]].concat())
                .status
                .success()
        );
        assert_eq!(fs::read_to_string(&unit).unwrap(), text);
        if has("systemd-analyze") {
            let checked = Command::new("systemd-analyze")
                .args(["verify", "--user", "--man=no"])
                .arg(&unit)
                .env("XDG_RUNTIME_DIR", scratch.path(""))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&checked.stderr);
            assert!(!said.contains("bandsaw-web.service:"), "{said}");
        }
        assert!(run(&["--install-desktop"]).status.success());
        let entry = scratch.path("data/applications/bandsaw-web.desktop");
        assert!(fs::read_to_string(&entry).unwrap().contains(" web --open "));
        if has("desktop-file-validate") {
            let checked = Command::new("desktop-file-validate").arg(&entry).output();
            let checked = checked.unwrap();
            let said = String::from_utf8_lossy(&checked.stdout);
            assert!(checked.status.success(), "{said}");
        }
        assert!(!run(&["--install-desktop"]).status.success());
        let names = fs::read_dir(scratch.path("data/applications")).unwrap();
        assert_eq!(names.count(), 1);
    }

    /// Hides the service manager of the machine, if there is one, in name spaces of its own.
    const MOUNTS: &str = "
        set -eu
        mount --make-rprivate /
        mount -t tmpfs none /run
        umount -l /sys/fs/cgroup
        mount -t cgroup2 none /sys/fs/cgroup
    ";

    /// Starts a service manager of the user behind [`MOUNTS`]. It starts, loses, and stops the service; `$1` is a folder.
    const SERVICE_MANAGER: &str = r#"
        mkdir -p /run/systemd/system
        group=/sys/fs/cgroup/bandsaw-$$
        mkdir "$group"
        echo $$ >"$group/cgroup.procs"
        systemd --user --log-target=null &
        manager=$!
        try() { n=0; until "$@" >/dev/null 2>&1; do n=$((n + 1)); [ $n -lt 300 ]; sleep 0.1; done; }
        try systemctl --user list-units
        systemctl --user enable --now bandsaw-web
        try test -s "$1/log"
        echo started
        read -r line
        : >"$1/log"
        systemctl --user kill --signal=KILL bandsaw-web
        try test -s "$1/log"
        echo started again
        read -r line
        systemctl --user stop bandsaw-web
        systemctl --user show --property=ActiveState,Result,NRestarts bandsaw-web
        systemctl --user exit
        wait $manager || true
        echo $$ >/sys/fs/cgroup/cgroup.procs
        find "$group" -depth -type d -exec rmdir {} +
    "#;

    #[test]
    #[ignore = "full: a service manager of systemd, as root"]
    fn the_service_is_started_and_started_again() {
        if !has("systemd") || !has("unshare") {
            return skip::without_program("the service of web", "systemd is not installed");
        }
        let may_mount = Command::new("unshare")
            .args(["--mount", "--cgroup", "sh", "-c", MOUNTS])
            .status();
        if !may_mount.is_ok_and(|status| status.success()) {
            return skip::skip("the service of web", "name spaces cannot be made here");
        }
        let scratch = Scratch::new();
        for folder in ["root", "run"] {
            fs::create_dir(scratch.path(folder)).unwrap();
        }
        let run = scratch.path("run");
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
        // Without a journal, the address goes to a file.
        let log = scratch.path("log");
        scratch.write(
            "config/systemd/user/bandsaw-web.service.d/log.conf",
            format!("[Service]\nStandardOutput=append:{}\n", log.display()),
        );
        let mut install = scratch.command(&["web", "root", "--install-service"]);
        let installed = install
            .env("XDG_CONFIG_HOME", scratch.path("config"))
            .output();
        assert!(installed.unwrap().status.success());
        let mut manager = Command::new("unshare")
            .args([
                "--mount",
                "--cgroup",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                &format!("{MOUNTS}{SERVICE_MANAGER}"),
                "sh",
            ])
            .arg(scratch.path(""))
            .env("XDG_CONFIG_HOME", scratch.path("config"))
            .env("XDG_RUNTIME_DIR", run)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut go_on = manager.stdin.take().unwrap();
        let mut said = BufReader::new(manager.stdout.take().unwrap());
        let _manager = Server(manager);
        let mut addresses = Vec::new();
        for expected in ["started\n", "started again\n"] {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            assert_eq!(line, expected);
            let printed = fs::read_to_string(&log).unwrap();
            let url = printed
                .split_whitespace()
                .find(|word| word.starts_with("http://"));
            let (base, cookie) = enter(url.unwrap());
            assert!(get(&base, &cookie).contains("<h1>"));
            addresses.push(base);
            go_on.write_all(b"go on\n").unwrap();
        }
        assert_ne!(addresses[0], addresses[1]);
        let mut end = String::new();
        said.read_to_string(&mut end).unwrap();
        let mut lines: Vec<_> = end.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            ["ActiveState=inactive", "NRestarts=1", "Result=success"]
        );
    }

    fn has(program: &str) -> bool {
        let found = Command::new(program).arg("--help").output();
        found.is_ok_and(|output| output.status.success())
    }

    #[test]
    fn a_password_is_written_as_a_hash_for_its_owner_alone() {
        let scratch = Scratch::new();
        scratch.write("typed", "correct horse battery\n");
        scratch.ok(&["web", "--set-password", "hash", "--new-passfile", "typed"]);
        let hash = fs::read_to_string(scratch.path("hash")).unwrap();
        assert!(hash.starts_with("$scrypt$") && !hash.contains("horse"));
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
