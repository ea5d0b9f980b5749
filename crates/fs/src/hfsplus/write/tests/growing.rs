//! Files that grow alternately in small steps.

use super::file::file_of;
use super::*;
use crate::hfsplus::layout::fork_type;
use bandsaw_core::Kind;
use bandsaw_core::device::AfterDiscard;

/// Opens a volume whose dates are today's: with a fixed date nothing is reserved.
fn open(device: &Arc<Memory>) -> HfsPlusMut {
    let options = WriteOptions {
        now: None,
        ..options()
    };
    HfsPlusMut::open(device.clone(), options).unwrap()
}

/// Returns the number of extents of a file.
fn pieces(fs: &HfsPlusMut, id: NodeId) -> usize {
    let volume = fs.shared.read();
    let (_, file) = file_of(&volume, Cnid(id.0 as u32)).unwrap();
    volume
        .fork_map(&file.data_fork, Cnid(id.0 as u32), fork_type::DATA)
        .unwrap()
        .extents
        .len()
}

fn append(file: &dyn BlockDevice, bytes: &[u8]) {
    let len = file.info().len;
    file.set_len(len + bytes.len() as u64, AfterDiscard::Any)
        .unwrap();
    file.write_at(len, bytes).unwrap();
}

#[test]
fn files_that_grow_in_turns_lie_together() {
    for (piece, sync) in [(3000, false), (3000, true), (20_000, false)] {
        let device = empty(64 << 20);
        let fs = open(&device);
        let free = fs.volume().free;
        let ids: Vec<_> = (0..3)
            .map(|number| {
                fs.create(fs.root(), &format!("log {number}"), &file())
                    .unwrap()
            })
            .collect();
        let logs: Vec<_> = ids
            .iter()
            .map(|id| fs.open_mut(*id, Fork::Data).unwrap())
            .collect();
        let rounds = 6_000_000 / piece;
        for round in 0..rounds {
            for (number, log) in logs.iter().enumerate() {
                append(&**log, &bytes(piece, (round + number) as u8));
                // Other files created in the meantime are not allocated in between.
                if round % 50 == number {
                    fs.create(fs.root(), &format!("other {round}"), &file())
                        .unwrap();
                }
            }
            if sync && round % 10 == 0 {
                logs[round % 3].flush().unwrap();
            }
        }
        let found: Vec<_> = ids.iter().map(|id| pieces(&fs, *id)).collect();
        assert!(
            found.iter().all(|pieces| *pieces <= 12),
            "{found:?} pieces of files of 6 MB"
        );
        fs.sync().unwrap();

        // Reserved blocks are not allocated, in particular not on disk.
        let used = 3 * (piece * rounds).next_multiple_of(4096) as u64;
        assert!(
            free - fs.volume().free < used + (1 << 20),
            "{} bytes for {used}",
            free - fs.volume().free
        );
        let crashed = Arc::new(Memory::from(device.to_vec()));
        open(&crashed).unmount().unwrap();
        sound(crashed);
        drop(logs);
        drop(fs);
        sound(device.clone());
        let fs = open(&device);
        for number in 0..3 {
            let expected: Vec<u8> = (0..rounds)
                .flat_map(|round| bytes(piece, (round + number) as u8))
                .collect();
            assert!(
                contents(&fs, &format!("/log {number}")) == expected,
                "log {number}"
            );
        }
    }
}

#[test]
fn reserved_space_is_given_up_when_space_is_short() {
    let device = empty(4 << 20);
    let fs = open(&device);
    let ids: Vec<_> = (0..4)
        .map(|number| {
            fs.create(fs.root(), &format!("log {number}"), &file())
                .unwrap()
        })
        .collect();
    let logs: Vec<_> = ids
        .iter()
        .map(|id| fs.open_mut(*id, Fork::Data).unwrap())
        .collect();
    for round in 0..20 {
        logs.iter()
            .for_each(|log| append(&**log, &bytes(3000, round)));
    }
    // All free space, to the last block.
    let id = fs.create(fs.root(), "all", &file()).unwrap();
    let all = fs.open_mut(id, Fork::Data).unwrap();
    let free = u64::from(fs.shared.read().read.header.free_blocks) * 4096;
    let mut len = free;
    while let Err(error) = all.set_len(len, AfterDiscard::Any) {
        assert_eq!(error.kind(), Kind::Limit);
        len -= 4096;
    }
    // Trees may have grown in the meantime.
    assert!(free - len <= 64 << 10, "{len} of {free} bytes");
    let error = logs[0].set_len(1 << 20, AfterDiscard::Any).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
    all.set_len(0, AfterDiscard::Any).unwrap();
    append(&*logs[0], &bytes(100_000, 9));
    drop((all, logs));
    drop(fs);
    sound(device);
}

/// A closed file has no reservation.
#[test]
fn closed_files_reserve_nothing() {
    let device = empty(4 << 20);
    let fs = open(&device);
    let grown = |name: &str| {
        let id = fs.create(fs.root(), name, &file()).unwrap();
        let open = fs.open_mut(id, Fork::Data).unwrap();
        append(&*open, &bytes(4096, 1));
        append(&*open, &bytes(4096, 2));
        (id, open)
    };
    let (first, open) = grown("first");
    drop(open);
    let (second, _held) = grown("second");
    let end_of = |id: NodeId| {
        let volume = fs.shared.read();
        let (_, file) = file_of(&volume, Cnid(id.0 as u32)).unwrap();
        let extents = volume
            .fork_map(&file.data_fork, Cnid(id.0 as u32), fork_type::DATA)
            .unwrap()
            .extents;
        (extents[0].start.0, extents[0].end() as u32)
    };
    assert_eq!(end_of(first).1, end_of(second).0);
    let (third, _open) = grown("third");
    assert!(
        end_of(third).0 > end_of(second).1,
        "behind what is kept for the second"
    );
}

/// With a fixed date, the bytes of a volume do not depend on when files are closed.
#[test]
fn nothing_is_kept_with_a_fixed_date() {
    let made = |hold: bool| {
        let device = empty(4 << 20);
        let fs = HfsPlusMut::open(device.clone(), options()).unwrap();
        let mut held = Vec::new();
        for name in ["first", "second", "third"] {
            let id = fs.create(fs.root(), name, &file()).unwrap();
            let open = fs.open_mut(id, Fork::Data).unwrap();
            append(&*open, &bytes(4096, 1));
            append(&*open, &bytes(4096, 2));
            if hold {
                held.push(open);
            }
        }
        drop(held);
        drop(fs);
        sound(device.clone());
        device.to_vec()
    };
    assert!(made(false) == made(true), "different bytes");
}
