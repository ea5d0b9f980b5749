//! The resources of an image: its block tables, and others such as licenses and checksums of other
//! tools.
//!
//! Newer images store them in a property list, the oldest in a binary resource fork. Source:
//! docs/formats/udif.md §3, §10.

use plist::{Dictionary, Value};
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::base64_list::DecodedList;
use super::layout::fork::{ForkHeaderRaw, ForkMapRaw, ForkReferenceRaw, ForkTypeRaw, NO_NAME};
use super::mac_roman;
use crate::container::property_list;
use crate::size::narrow;
use crate::{Error, Result};

const LAYER: &str = "udif resources";

/// Maximum length of a property list in bytes: enough for half a terabyte in chunks. Larger lists
/// are not read, because several copies of the data are in memory at the same time.
pub(super) const MAX_BYTES: u64 = 32 << 20;
/// Maximum number of values and tags. Every block table is a dictionary of five entries.
const MAX_VALUES: usize = 1 << 21;
/// Key of the dictionary of types in an image's list.
const IN_IMAGES: &str = "resource-fork";

/// [`Resource::kind`] of a block table.
pub const BLOCK_TABLE: &str = "blkx";

/// One resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resource {
    /// Its type, four characters: `blkx`, `plst`, `LPic`, ...
    pub kind: String,
    /// Its number within its type, as written.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its attributes, as written (`0x0050`).
    pub attributes: String,
    /// Its contents.
    pub data: Vec<u8>,
    /// A second copy of its name, which newer images store.
    pub cf_name: Option<String>,
}

/// Reads the property list of an image, XML or binary.
pub(super) fn from_plist(bytes: &[u8]) -> Result<Vec<Resource>> {
    let (mut list, mut decoded) = read_list(bytes)?;
    match list.remove(IN_IMAGES) {
        Some(Value::Dictionary(types)) => of_types(types, &mut decoded),
        _ => Ok(Vec::new()),
    }
}

/// Reads a list of resources from the user: as in images, or only the resources, as
/// `hdiutil udifderez -xml` prints them.
///
/// [`Kind::Corrupt`](crate::Kind) if it is not a property list, [`Kind::Limit`](crate::Kind) if it exceeds the limits of
/// images.
pub fn from_list(bytes: &[u8]) -> Result<Vec<Resource>> {
    let wrapped = from_plist(bytes)?;
    if !wrapped.is_empty() {
        return Ok(wrapped);
    }
    let (list, mut decoded) = read_list(bytes)?;
    of_types(list, &mut decoded)
}

fn read_list(bytes: &[u8]) -> Result<(Dictionary, DecodedList)> {
    let mut decoded = DecodedList::out_of(bytes);
    let list = std::mem::take(&mut decoded.list);
    let list = property_list::parse(LAYER, &list, MAX_VALUES, 2 * MAX_BYTES)?;
    Ok((list, decoded))
}

/// Returns the resources of a dictionary of types, each with an array of them.
fn of_types(types: Dictionary, decoded: &mut DecodedList) -> Result<Vec<Resource>> {
    let (mut resources, mut held) = (Vec::new(), 0);
    for (kind, entries) in types {
        for entry in entries.into_array().into_iter().flatten() {
            let Value::Dictionary(entry) = entry else {
                continue;
            };
            let mut resource = Resource {
                kind: kind.clone(),
                ..Resource::default()
            };
            for (key, value) in entry {
                resource.set_value(&key, value);
            }
            // Entries of a binary list may share data, but the copies need memory each.
            resource.data = decoded.restored(resource.data);
            held += (size_of::<Resource>() + resource.data.len()) as u64;
            if held > MAX_BYTES {
                return Err(Error::limit(
                    LAYER,
                    format!("the resources exceed {MAX_BYTES} bytes"),
                ));
            }
            resources.push(resource);
        }
    }
    Ok(resources)
}

impl Resource {
    /// Sets a field from a key and its value; a value of the wrong type is ignored.
    fn set_value(&mut self, key: &str, value: Value) {
        match (key, value) {
            ("Data", Value::Data(bytes)) => self.data = bytes,
            ("ID", Value::String(text)) => self.id = text,
            ("Name", Value::String(text)) => self.name = text,
            ("Attributes", Value::String(text)) => self.attributes = text,
            ("CFName", Value::String(text)) => self.cf_name = Some(text),
            _ => {}
        }
    }
}

/// Reads a resource fork of classic Mac OS: a header, data with lengths, and a map of types,
/// references and names.
///
/// [`Kind::Corrupt`](crate::Kind) if a part is missing, [`Kind::Limit`](crate::Kind) above 32 MiB.
pub fn from_fork(bytes: &[u8]) -> Result<Vec<Resource>> {
    let fork = Fork(bytes);
    let header = fork.structure::<ForkHeaderRaw>(0)?;
    let (data, map_at) = (header.data_at.get() as usize, header.map_at.get() as usize);
    let map = fork.structure::<ForkMapRaw>(map_at)?;
    let types = map_at.saturating_add(map.types_at.get().into());
    let names = map_at.saturating_add(map.names_at.get().into());
    let (mut resources, mut held) = (Vec::new(), 0);
    // Counts are stored minus one; 0xFFFF is none.
    let count = fork.structure::<U16>(types)?.get().wrapping_add(1);
    for n in 0..usize::from(count) {
        let entry =
            fork.structure::<ForkTypeRaw>(element::<ForkTypeRaw>(types, size_of::<U16>(), n))?;
        let kind = mac_roman::decode(&entry.kind);
        let references = types.saturating_add(entry.references_at.get().into());
        for n in 0..=usize::from(entry.last.get()) {
            let at = element::<ForkReferenceRaw>(references, 0, n);
            let reference = fork.structure::<ForkReferenceRaw>(at)?;
            let [attributes, ..] = reference.place.to_bytes();
            let at = data.saturating_add((reference.place.get() & MAX_DATA_OFFSET) as usize);
            let length = fork.structure::<U32>(at)?.get() as usize;
            resources.push(Resource {
                kind: kind.clone(),
                id: reference.id.to_string(),
                name: fork.name(names, reference.name_at.get())?,
                attributes: format!("{attributes:#06x}"),
                data: fork.get(at + size_of::<U32>(), length)?.to_vec(),
                cf_name: None,
            });
            // References may share data, but the copies need memory each.
            held += (size_of::<Resource>() + length) as u64;
            if held > MAX_BYTES {
                return Err(Error::limit(
                    LAYER,
                    format!("the resources exceed {MAX_BYTES} bytes"),
                ));
            }
        }
    }
    Ok(resources)
}

/// Returns the place of element `n` of an array that begins `head` bytes after `start`.
fn element<T>(start: usize, head: usize, n: usize) -> usize {
    start.saturating_add(head + n * size_of::<T>())
}

/// Bytes before the data of a fork: the header, and room for the system and for applications.
const FORK_DATA: usize = 256;
/// Largest offset of a resource in the data of a fork.
const MAX_DATA_OFFSET: u32 = (1 << 24) - 1;

/// Returns a resource fork of classic Mac OS with these resources, sorted by type.
///
/// [`Kind::Invalid`](crate::Kind) if Mac Roman cannot represent a name, or a number is none;
/// [`Kind::Limit`](crate::Kind) above 16 MiB.
pub fn to_fork(resources: &[Resource]) -> Result<Vec<u8>> {
    let invalid = |resource: &Resource, message: &'static str| {
        let name = format!("{}:{}", resource.kind, resource.id);
        Error::invalid(LAYER, message).named(name)
    };
    let mut sorted: Vec<_> = resources.iter().collect();
    sorted.sort_by(|one, other| one.kind.cmp(&other.kind));
    let kinds: Vec<_> = sorted
        .chunk_by(|one, other| one.kind == other.kind)
        .collect();
    let (mut data, mut types, mut references, mut names) = (vec![], vec![], vec![], vec![]);
    let limit = || Error::limit(LAYER, "too many resources for a resource fork");
    let word = |number: usize| u16::try_from(number).map_err(|_| limit());
    // Counts are stored minus one; 0xFFFF is none.
    types.extend(word(kinds.len())?.wrapping_sub(1).to_be_bytes());
    let types_len = element::<ForkTypeRaw>(0, size_of::<U16>(), kinds.len());
    for kind in &kinds {
        let code = mac_roman::encode(&kind[0].kind).and_then(|code| code.try_into().ok());
        let entry = ForkTypeRaw {
            kind: code.ok_or_else(|| invalid(kind[0], "the type is not of four characters"))?,
            last: word(kind.len() - 1)?.into(),
            references_at: word(types_len + references.len())?.into(),
        };
        types.extend(entry.as_bytes());
        for resource in *kind {
            let id: i16 = resource
                .id
                .parse()
                .map_err(|_| invalid(resource, "no number"))?;
            let name = mac_roman::encode(&resource.name).filter(|name| name.len() < 256);
            let name = name.ok_or_else(|| invalid(resource, "the name cannot be stored"))?;
            let attributes = resource.attributes.trim_start_matches("0x");
            let attributes = u32::from_str_radix(attributes, 16).unwrap_or(0) & 0xFF;
            let at = u32::try_from(data.len()).ok();
            let at = at.filter(|at| *at <= MAX_DATA_OFFSET).ok_or_else(limit)?;
            let reference = ForkReferenceRaw {
                id: id.into(),
                name_at: match name.is_empty() {
                    true => NO_NAME,
                    false => word(names.len())?,
                }
                .into(),
                place: (attributes << 24 | at).into(),
                handle: 0.into(),
            };
            references.extend(reference.as_bytes());
            if !name.is_empty() {
                names.push(narrow::<u8>(name.len()));
                names.extend(name);
            }
            let len = u32::try_from(resource.data.len()).map_err(|_| limit())?;
            data.extend(len.to_be_bytes());
            data.extend(&resource.data);
        }
    }
    let types_at = size_of::<ForkMapRaw>();
    let names_at = types_at + types.len() + references.len();
    let long = |number: usize| u32::try_from(number).map(U32::new).map_err(|_| limit());
    let header = ForkHeaderRaw {
        data_at: long(FORK_DATA)?,
        map_at: long(FORK_DATA + data.len())?,
        data_len: long(data.len())?,
        map_len: long(names_at + names.len())?,
    };
    let mut fork = header.as_bytes().to_vec();
    fork.resize(FORK_DATA, 0);
    let map = ForkMapRaw {
        header,
        next_map: 0.into(),
        file: 0.into(),
        attributes: 0.into(),
        types_at: word(types_at)?.into(),
        names_at: word(names_at)?.into(),
    };
    let map = map.as_bytes().to_vec();
    Ok([fork, data, map, types, references, names].concat())
}

/// Bounds-checked reader.
struct Fork<'a>(&'a [u8]);

impl Fork<'_> {
    fn get(&self, at: usize, length: usize) -> Result<&[u8]> {
        let end = at.checked_add(length);
        end.and_then(|end| self.0.get(at..end)).ok_or_else(|| {
            let message = format!(
                "{length} bytes reach past the end of the resource fork of {}",
                self.0.len()
            );
            Error::corrupt(LAYER, at as u64, message)
        })
    }

    fn structure<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &self,
        at: usize,
    ) -> Result<&T> {
        let bytes = self.get(at, size_of::<T>())?;
        T::ref_from_bytes(bytes).map_err(|_| Error::corrupt(LAYER, at as u64, "unreadable"))
    }

    /// Returns a name by its offset in the list of names; 0xFFFF is none.
    fn name(&self, names: usize, offset: u16) -> Result<String> {
        if offset == NO_NAME {
            return Ok(String::new());
        }
        let at = names.saturating_add(offset.into());
        let [length] = *self.structure::<[u8; 1]>(at)?;
        Ok(mac_roman::decode(self.get(at + 1, length.into())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn a_property_list_gives_its_resources() {
        let list = "<?xml version=\"1.0\"?><plist version=\"1.0\"><dict><key>other</key><dict><key>x</key><array><dict>\
            <key>Data</key><data>AAAA</data></dict></array></dict><key>resource-fork</key><dict><key>blkx</key><array>\
            <dict><key>Attributes</key><string>0x0050</string><key>Data</key><data>bWlzaA==</data><key>ID</key><string>-1</string>\
            <key>Name</key><string>whole disk</string></dict></array><key>plst</key><array><dict><key>Data</key><data></data>\
            </dict></array></dict></dict></plist>";
        let resources = from_plist(list.as_bytes()).unwrap();
        assert_eq!(resources.len(), 2);
        let expected = Resource {
            kind: "blkx".into(),
            id: "-1".into(),
            name: "whole disk".into(),
            attributes: "0x0050".into(),
            data: b"mish".to_vec(),
            cf_name: None,
        };
        assert_eq!(resources[0], expected);
        assert_eq!(
            (resources[1].kind.as_str(), resources[1].data.len()),
            ("plst", 0)
        );
        assert!(from_plist(b"<plist").is_err());
        for more in ["\0\0", "\n", " <more", "text"] {
            assert_eq!(
                from_plist(format!("{list}{more}").as_bytes()).unwrap(),
                resources,
                "{more:?}"
            );
        }
    }

    #[test]
    fn a_resource_fork_gives_its_resources() {
        // Data at 16: one resource of 4 bytes. Map at 24: types at 28 in it, names at 50.
        let mut fork = vec![0; 16];
        fork.extend([0, 0, 0, 4, b'm', b'i', b's', b'h']);
        let map = fork.len();
        fork.extend([0; 24]);
        fork.extend([0, 28, 0, 50, 0, 0]); // types, names, no more types than one
        fork.extend(*b"blkx");
        fork.extend([0, 0, 0, 10]);
        fork.extend([0xFF, 0xFE, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
        fork.extend([4, b'd', b'i', b's', b'k']);
        fork[..16].copy_from_slice(&[0, 0, 0, 16, 0, 0, 0, map as u8, 0, 0, 0, 8, 0, 0, 0, 60]);
        let resources = from_fork(&fork).unwrap();
        assert_eq!(resources.len(), 1);
        assert_eq!(
            (
                resources[0].id.as_str(),
                resources[0].name.as_str(),
                resources[0].data.as_slice()
            ),
            ("-2", "disk", &b"mish"[..])
        );
        for cut in 0..fork.len() {
            let _ = from_fork(&fork[..cut]);
        }
    }

    #[test]
    fn a_resource_fork_keeps_what_it_is_made_of() {
        let resource = |kind: &str, id: i16, name: &str, data: &[u8]| Resource {
            kind: kind.into(),
            id: id.to_string(),
            name: name.into(),
            attributes: "0x0020".into(),
            data: data.to_vec(),
            cf_name: None,
        };
        let made = [
            resource("LPic", 5000, "", &[0; 10]),
            resource("STR#", 5000, "English", b"\0\0"),
            resource("STR#", -1, "Fran\u{e7}ais", b""),
            resource("TEXT", 5000, "English", &[b'a'; 70_000]),
        ];
        let fork = to_fork(&made).unwrap();
        assert_eq!(from_fork(&fork).unwrap(), made);
        assert_eq!(from_fork(&to_fork(&[]).unwrap()).unwrap(), []);
        for wrong in [
            resource("TEX", 1, "", b""),
            resource("TEXT", 1, "\u{8a31}", b""),
            resource("TEXT", 1, &"x".repeat(256), b""),
        ] {
            assert_eq!(to_fork(&[wrong]).unwrap_err().kind(), Kind::Invalid);
        }
        let large = resource("TEXT", 1, "", &vec![0; 1 << 24]);
        let two = [large, resource("TEXT", 2, "", b"")];
        assert_eq!(to_fork(&two).unwrap_err().kind(), Kind::Limit);
    }

    #[test]
    fn bytes_that_are_shared_are_counted_each_time() {
        // 1 MiB of data, and 20 types of 100 references each, all to that data.
        let (data, types) = (1usize << 20, 20u32);
        let mut fork = vec![0; 16];
        fork.extend((data as u32).to_be_bytes());
        fork.resize(20 + data, 7);
        let map = fork.len() as u32;
        fork.extend([0; 24]);
        fork.extend([0, 28, 0xFF, 0]);
        fork.extend((types as u16 - 1).to_be_bytes());
        (0..types).for_each(|_| fork.extend([b"TEXT", &[0, 99, 0, 162][..]].concat()));
        (0..100).for_each(|_| fork.extend([0, 1, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0]));
        fork[..8].copy_from_slice(&[16u32.to_be_bytes(), map.to_be_bytes()].concat());
        assert_eq!(from_fork(&fork).unwrap_err().kind(), Kind::Limit);
    }
}
