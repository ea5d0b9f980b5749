//! Resource lists and forks, and images in several files.

use std::sync::Arc;

use crate::codec::Codec;
use crate::container::udif::{SegmentPart, SplitMethod, Udif, from_list, image_list, read_list};
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::progress::Silent;
use crate::testing::udif;

/// Maximum number of bytes of a disk that are read.
const MAX_READ: u64 = 1 << 20;

/// Takes an input of a byte that selects the format of the rest, a list (even) or a resource fork
/// (odd). It is refused, or the resources are the same after a round trip, unless XML cannot
/// represent their names.
pub fn udif_resources(input: &[u8]) {
    let Some((&[which], bytes)) = input.split_first_chunk() else {
        return;
    };
    let Ok((mut resources, _)) = read_list(&Memory::read_only(file(which & 1 == 1, bytes))) else {
        return;
    };
    let Ok(list) = image_list(&resources) else {
        return;
    };
    resources.sort_by(|one, other| one.kind.cmp(&other.kind));
    for resource in resources
        .iter_mut()
        .filter(|resource| resource.attributes.is_empty())
    {
        resource.attributes = "0x0000".into();
    }
    // Readers of XML differ on spaces around a text.
    let read = from_list(&list).expect("what was written is read");
    assert_eq!(read.len(), resources.len());
    for (read, written) in read.iter().zip(&resources) {
        assert_eq!(read.data, written.data);
        assert_eq!(read.id.trim(), written.id.trim());
    }
}

/// Returns a file with only these resources.
fn file(is_fork: bool, bytes: &[u8]) -> Vec<u8> {
    let mut trailer = vec![0; 512];
    trailer[..12].copy_from_slice(b"koly\0\0\0\x04\0\0\x02\0");
    let field = if is_fork { 0x30 } else { 0xe0 };
    trailer[field..field + 8].copy_from_slice(&(bytes.len() as u64).to_be_bytes());
    [bytes, &trailer].concat()
}

/// Takes an input of the length of the first of three files and of the second (16 bits each), and
/// the three. They are refused, or an image that reads the same in one call and in halves, across
/// the boundaries of the files.
pub fn udif_set(input: &[u8]) {
    let Some((&[a, b, c, d], files)) = input.split_first_chunk() else {
        return;
    };
    let lens = [[a, b], [c, d]].map(|len| usize::from(u16::from_le_bytes(len)));
    let (first, rest) = files.split_at(lens[0].min(files.len()));
    let (second, third) = rest.split_at(lens[1].min(rest.len()));
    let part = |bytes: &[u8]| SegmentPart {
        name: "part".into(),
        file: Arc::new(Memory::read_only(bytes)),
    };
    let Ok(image) = Udif::open_parts([first, second, third].map(part).to_vec()) else {
        return;
    };
    let len = image.info().len.min(MAX_READ) as usize;
    let halves =
        [0..len / 2, len / 2..len].map(|half| image.read_vec(half.start as u64, half.len()));
    if let (Ok(whole), [Ok(first), Ok(second)]) = (image.read_vec(0, len), halves) {
        assert!(whole == [first, second].concat());
    }
    if image.info().len <= MAX_READ {
        let _ = image.verify(&Silent);
    }
}

fn disk() -> Vec<u8> {
    (0..40 * 512u32).map(|n| ((n * n) >> 7) as u8).collect()
}

pub(super) fn resource_seeds() -> Vec<Vec<u8>> {
    let image = udif::image(&disk(), Some(Codec::Zlib));
    let of = |field: usize, image: &[u8]| {
        let trailer = &image[image.len() - 512..];
        let number = |at: usize| {
            u64::from_be_bytes(trailer[at..at + 8].try_into().expect("eight bytes")) as usize
        };
        image[number(field)..][..number(field + 8)].to_vec()
    };
    let fork = of(0x28, &udif::with_fork(&image, false));
    vec![
        [vec![0], of(0xd8, &image)].concat(),
        [vec![1], fork].concat(),
    ]
}

pub(super) fn set_seeds() -> Vec<Vec<u8>> {
    let seed = |codec| {
        let image = Udif::open(Arc::new(Memory::read_only(udif::image(&disk(), codec))))
            .expect("the image is good");
        let parts = image
            .cut(SplitMethod::Count {
                first: None,
                parts: 3,
            })
            .expect("there is room");
        let write = |number| {
            let file = Memory::zeros(0);
            parts
                .write(number, &file, &Silent)
                .expect("memory takes everything");
            file.to_vec()
        };
        let files = [write(1), write(2), write(3)];
        let lens = [&files[0], &files[1]].map(|file| (file.len() as u16).to_le_bytes());
        [lens.concat(), files.concat()].concat()
    };
    vec![seed(None), seed(Some(Codec::Zlib))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_good() {
        for seed in resource_seeds() {
            let (resources, _) =
                read_list(&Memory::read_only(file(seed[0] == 1, &seed[1..]))).unwrap();
            assert!(
                resources.iter().any(|resource| resource.kind == "blkx"),
                "{resources:?}"
            );
        }
        for seed in set_seeds() {
            let lens = [0, 2].map(|at| usize::from(u16::from_le_bytes([seed[at], seed[at + 1]])));
            assert!(lens.iter().sum::<usize>() + 4 < seed.len() && seed.len() < 1 << 16);
            udif_set(&seed);
        }
    }
}
