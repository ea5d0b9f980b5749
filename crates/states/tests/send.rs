//! States on their way to another folder.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use bandsaw::Kind;
use bandsaw::progress::Silent;
use bandsaw_states::{Have, Received, Sent, have, receive, send, send_to_folder};

use crate::common::{BAND, BANDS, Fixture, Random, contents, files};

const NAME: &str = "b.sparsebundle";

fn target(fixture: &Fixture) -> PathBuf {
    fixture.scratch.path().join("target")
}

fn copy(fixture: &Fixture) -> bandsaw::Result<(Sent, Received)> {
    let (_, shelf) = fixture.open();
    send_to_folder(&shelf, None, NAME, &target(fixture), &Silent)
}

fn stream(fixture: &Fixture, have: &Have) -> Vec<u8> {
    let (_, shelf) = fixture.open();
    let mut bytes = Vec::new();
    send(&shelf, None, have, &mut bytes, &Silent).unwrap();
    bytes
}

/// Returns the names of the visible states that arrived.
fn arrived(fixture: &Fixture) -> Vec<String> {
    let folder = fs::read_dir(target(fixture).join(NAME))
        .into_iter()
        .flatten();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| !name.starts_with('.') && name != "lock")
        .collect()
}

#[test]
fn only_changed_bands_are_sent() {
    let mut fixture = Fixture::new(60);
    let first = fixture.keep();
    let (sent, received) = copy(&fixture).unwrap();
    assert_eq!((&sent.id, sent.size), (&first.id, received.size));
    assert!(contents(&files(&received.path)) == contents(&fixture.files()));
    fixture.write_band(3);
    fixture.keep();
    let (sent, second) = copy(&fixture).unwrap();
    assert_eq!((sent.files, sent.size), (1, BAND as u64));
    assert!(second.shared_files >= BANDS - 1, "{second:?}");
    assert!(contents(&files(&second.path)) == contents(&fixture.files()));
    let inode = |state: &Received| fs::metadata(state.path.join("bands/2")).unwrap().ino();
    assert_eq!(inode(&received), inode(&second));
    // The same once more.
    let (sent, again) = copy(&fixture).unwrap();
    assert_eq!((sent.files, again.id), (0, second.id));
    // The bundle returns to what arrived, on the host that has both.
    let (bundle, _) = fixture.open();
    let shelf = bandsaw_states::Shelf::of(&bundle, Some(&target(&fixture))).unwrap();
    let kept = fixture.files();
    fixture.write_band(1);
    bandsaw_states::roll_back(&bundle, &shelf, None, &Silent).unwrap();
    assert!(contents(&fixture.files()) == contents(&kept));
}

#[test]
fn a_stream_that_ends_early_is_resumed() {
    let fixture = Fixture::new(61);
    fixture.keep();
    let whole = stream(&fixture, &Have::default());
    let mut random = Random::new(61);
    let mut resumed = 0;
    for _ in 0..30 {
        let _ = fs::remove_dir_all(target(&fixture));
        let end = random.below(whole.len() as u64) as usize;
        let cut = receive(&target(&fixture), &mut &whole[..end], &Silent);
        assert_eq!(cut.unwrap_err().kind(), Kind::Corrupt, "at {end}");
        assert!(arrived(&fixture).is_empty());
        let known = have(&target(&fixture), NAME, &Silent).unwrap();
        let rest = stream(&fixture, &known);
        resumed += u64::from(rest.len() + BAND < whole.len());
        let received = receive(&target(&fixture), &mut &rest[..], &Silent).unwrap();
        assert!(contents(&files(&received.path)) == contents(&fixture.files()));
    }
    assert!(resumed > 10, "{resumed}");
}

#[test]
fn a_damaged_stream_never_becomes_a_state() {
    let fixture = Fixture::new(62);
    fixture.keep();
    let whole = stream(&fixture, &Have::default());
    let mut random = Random::new(62);
    for n in 0..300_u64 {
        let mut bytes = whole.clone();
        // Half of them in the header and the first names.
        let end = if n.is_multiple_of(2) {
            4000
        } else {
            bytes.len() as u64
        };
        let at = random.below(end) as usize;
        bytes[at] ^= 1 << random.below(8);
        let received = receive(&target(&fixture), &mut &bytes[..], &Silent);
        assert!(received.is_err(), "byte {at}");
        assert!(arrived(&fixture).is_empty(), "byte {at}");
    }
}

#[test]
fn a_stream_that_relies_on_missing_contents_is_refused() {
    let fixture = Fixture::new(63);
    fixture.keep();
    copy(&fixture).unwrap();
    let known = have(&target(&fixture), NAME, &Silent).unwrap();
    fs::remove_dir_all(target(&fixture)).unwrap();
    let rest = stream(&fixture, &known);
    let refused = receive(&target(&fixture), &mut &rest[..], &Silent);
    assert_eq!(refused.unwrap_err().kind(), Kind::NotFound);
    assert!(arrived(&fixture).is_empty());
}

#[test]
fn another_state_of_the_same_name_stays() {
    let mut fixture = Fixture::new(64);
    let first = fixture.keep();
    let (_, received) = copy(&fixture).unwrap();
    let before = files(&received.path);
    fs::remove_dir_all(fixture.state(&first.id)).unwrap();
    fixture.write_band(1);
    let other = fixture.keep();
    if other.id != first.id {
        fs::rename(fixture.state(&other.id), fixture.state(&first.id)).unwrap();
    }
    assert_eq!(copy(&fixture).unwrap_err().kind(), Kind::Conflict);
    assert!(files(&received.path) == before);
}

#[test]
fn rot_is_neither_sent_nor_shared() {
    let mut fixture = Fixture::new(65);
    let rot = |path: PathBuf| {
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[500] ^= 2;
        fs::write(&path, bytes).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(modified).unwrap();
    };
    fixture.keep();
    let (_, first) = copy(&fixture).unwrap();
    rot(first.path.join("bands/5"));
    fixture.write_band(1);
    let second = fixture.keep();
    assert_eq!(copy(&fixture).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(arrived(&fixture), [first.id]);
    // All contents, whatever the receiver has.
    let all = stream(&fixture, &Have::default());
    let received = receive(&target(&fixture), &mut &all[..], &Silent).unwrap();
    assert!(contents(&files(&received.path)) == contents(&fixture.files()));
    rot(fixture.state(&second.id).join("bands/1"));
    let (_, shelf) = fixture.open();
    let sent = send(
        &shelf,
        None,
        &Have::default(),
        &mut std::io::sink(),
        &Silent,
    );
    assert_eq!(sent.unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn a_bundle_is_no_folder_of_states() {
    let fixture = Fixture::new(66);
    fixture.keep();
    let before = fixture.files();
    let (_, shelf) = fixture.open();
    let into = send_to_folder(&shelf, None, NAME, fixture.scratch.path(), &Silent);
    assert_eq!(into.unwrap_err().kind(), Kind::Conflict);
    assert!(fixture.files() == before);
}
