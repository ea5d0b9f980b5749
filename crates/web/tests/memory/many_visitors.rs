//! Many visitors of a large folder: the memory of the process stays bounded, and the time of the
//! first page is printed.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bandsaw::container::Format;
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::Silent;
use bandsaw_web::Limits;

use crate::common::{Images, Site};

const FILES: usize = 100_000;
const VISITORS: usize = 50;
/// Bytes that the server may take for all visitors.
const MAX_MEMORY: u64 = 300 << 20;

fn status(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    line.split_whitespace()
        .next()
        .unwrap()
        .parse::<u64>()
        .unwrap()
        << 10
}

/// A tar archive of empty files.
fn archive() -> Vec<u8> {
    let mut all = Vec::with_capacity(FILES * 512 + 1024);
    for number in 0..FILES {
        let mut header = [0_u8; 512];
        let mut put =
            |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, &format!("many/file {number:06}"));
        put(100, "0000644\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, "00000000000\0");
        put(136, "00000000000\0");
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\0");
        put(263, "00");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        all.extend_from_slice(&header);
    }
    all.extend_from_slice(&[0; 1024]);
    all
}

/// Lists a small folder for many visitors while a bundle is checked again and again, and prints how
/// long that takes.
fn listings_during_checks(site: &Site) {
    let (visitor, is_over) = (&site.visitor, AtomicBool::new(false));
    let folder = "folder?r=0&i=bundle.sparsebundle&v=1.1";
    assert!(visitor.page(folder).contains("hello.txt"));
    let csrf = visitor.csrf();
    let origin = format!("Origin: http://{}", visitor.host);
    let form = format!("csrf={csrf}&kind=check");
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let checks = scope.spawn(|| {
            let mut count = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let page = "check?r=0&i=bundle.sparsebundle";
                let job = visitor.post_bare(page, &form, &[&origin]);
                let job = job.field("location").unwrap();
                let number = job.split('=').nth(1).unwrap();
                assert!(visitor.get(&format!("events?id={number}")).is_whole);
                assert!(visitor.page(&job).contains("no problem was found"));
                count += 1;
            }
            count
        });
        let lists: Vec<_> = (0..VISITORS)
            .map(|_| {
                scope.spawn(|| {
                    let list = || {
                        let begin = Instant::now();
                        let reply = visitor.get(folder);
                        assert_eq!(reply.status, 200, "{}", reply.text());
                        begin.elapsed()
                    };
                    (0..20).map(|_| list()).collect::<Vec<_>>()
                })
            })
            .collect();
        let times = lists.into_iter().flat_map(|list| list.join().unwrap());
        let times = times.collect();
        is_over.store(true, Ordering::Relaxed);
        println!("{} checks meanwhile", checks.join().unwrap());
        times
    });
    times.sort();
    println!(
        "{} listings by {VISITORS} visitors: median {:?}, p95 {:?}",
        times.len(),
        times[times.len() / 2],
        times[times.len() * 95 / 100]
    );
}

#[test]
fn many_visitors_of_a_large_folder_need_little_memory() {
    let images = Images::new();
    let tar = images.path("many.tar");
    fs::File::create(&tar)
        .unwrap()
        .write_all(&archive())
        .unwrap();
    let options = CreateOptions {
        format: Format::Udrw,
        volume: Some(NewVolume {
            layout: Layout::Gptspud,
            name: "Many".to_owned(),
            format: NewFormat::HfsPlus,
            block_size: None,
            source: Source::Tar(tar),
        }),
        ..CreateOptions::default()
    };
    drop(create(&images.root().join("many.dmg"), options, &Silent).unwrap());
    let before = status("VmHWM:").max(status("VmRSS:"));
    let now = status("VmRSS:");
    images.create("bundle.sparsebundle", Format::Udsb, NewFormat::Apfs, None);
    let limits = Limits {
        session_requests: VISITORS + 2,
        requests: VISITORS + 8,
        ..Limits::default()
    };
    let site = Site::with(&images.root(), limits);
    let first = "folder?r=0&i=many.dmg&v=1&p=/many";
    let begin = Instant::now();
    let page = site.visitor.page(first);
    println!("the first page of {FILES} entries: {:?}", begin.elapsed());
    assert!(page.contains("file 000000") && page.contains("100000 entries"));
    let begin = Instant::now();
    site.visitor.page(&format!("{first}&sort=name&down=1"));
    println!("the last entries by name: {:?}", begin.elapsed());

    let served = AtomicUsize::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..VISITORS {
            let (visitor, served) = (site.visitor.clone(), &served);
            scope.spawn(move || {
                for page in [
                    first.to_owned(),
                    format!("{first}&sort=size"),
                    format!("{first}&sort=stored&n={}", number * 2000),
                    "archive.tar?r=0&i=many.dmg&v=1&p=/sub".to_owned(),
                ] {
                    // A session has a limit of its own: one that is refused asks again.
                    let reply = loop {
                        let reply = visitor.get(&page);
                        if ![429, 503].contains(&reply.status) {
                            break reply;
                        }
                        std::thread::yield_now();
                    };
                    served.fetch_add(
                        usize::from([200, 404].contains(&reply.status)),
                        Ordering::Relaxed,
                    );
                }
            });
        }
    });
    println!(
        "{} pages for {VISITORS} visitors: {:?}",
        served.load(Ordering::Relaxed),
        begin.elapsed()
    );
    assert_eq!(served.load(Ordering::Relaxed), 4 * VISITORS);
    listings_during_checks(&site);
    let most = status("VmHWM:");
    println!(
        "{} MiB at most, {} before the server",
        most >> 20,
        now >> 20
    );
    // The memory for making the image is not the server's.
    assert!(
        most.saturating_sub(now) < MAX_MEMORY || most <= before,
        "{most}"
    );
}
