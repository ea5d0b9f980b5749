//! `Info.plist`: the properties of a bundle. Source: docs/formats/sparsebundle.md §2.

use plist::Value;

use super::LAYER;
use crate::container::{SECTOR, property_list};
use crate::{Error, Kind, Result};

/// The primary property list.
pub(super) const INFO: &str = "Info.plist";
/// The copy, read if the primary is missing or unreadable, and written before it.
pub(super) const BACKUP: &str = "Info.bckup";

/// Maximum length of a list in bytes. macOS writes about 500 bytes.
pub(super) const MAX_BYTES: u64 = 64 * 1024;
/// Maximum number of values and tags.
const MAX_VALUES: usize = 4096;

const TYPE: &str = "com.apple.diskimage.sparsebundle";
/// Replaces [`TYPE`] during a change of the band size.
const REBANDING_TYPE: &str = "bandsaw.rebanding";
/// The key in the copy, during a change of the disk size, with the size before.
const SIZE_BEFORE: &str = "bandsaw-size-before";
/// `bundle-backingstore-version` during a change of the band size; no reader supports it.
const REBANDING_VERSION: u32 = 1000;

/// The properties of `Info.plist` or `Info.bckup`, validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// Length of the disk in bytes, a multiple of 512.
    pub size: u64,
    /// Band size in bytes, a multiple of 512, not 0.
    pub band_size: u64,
    /// Version of the bundle format; only version 2 has `mapped/`.
    pub version: Version,
}

/// `bundle-backingstore-version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Bands only, as hdiutil writes.
    One,
    /// Bands and `mapped/`, as DiskImages2 writes.
    Two,
}

impl Version {
    /// Returns the number in `Info.plist`.
    pub const fn number(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// Reason why bytes do not parse as an [`Info`].
pub(super) enum InfoError {
    /// Not a property list, or a key is missing: the copy is read instead.
    Unreadable(Error),
    /// A list with invalid or unsupported values. The copy is not read.
    Refused(Error),
    /// The list written during a change of the band size: the state is in `rebanding.plist`.
    Rebanding(Error),
}

impl From<InfoError> for Error {
    fn from(unread: InfoError) -> Self {
        match unread {
            InfoError::Unreadable(error)
            | InfoError::Refused(error)
            | InfoError::Rebanding(error) => error,
        }
    }
}

/// The values of the relevant keys that were present.
#[derive(Default)]
struct PlistValues {
    size: Option<u64>,
    band_size: Option<u64>,
    version: Option<u64>,
    bundle_type: Option<String>,
}

impl Info {
    /// Parses an XML or binary property list; `name` is the file's, for errors.
    pub(super) fn parse(bytes: &[u8], name: &str) -> Result<Self, InfoError> {
        let found =
            PlistValues::read(bytes).map_err(|error| InfoError::Unreadable(error.named(name)))?;
        let lacks = |key: &str| {
            let message = format!("the key {key} is missing or of the wrong type");
            InfoError::Unreadable(Error::new(Kind::Corrupt, LAYER, message).named(name))
        };
        let bundle_type = found
            .bundle_type
            .ok_or_else(|| lacks("diskimage-bundle-type"))?;
        if bundle_type == REBANDING_TYPE {
            let message = "a change of the band size was interrupted; run `bandsaw reband` to \
                           finish it";
            return Err(InfoError::Rebanding(
                Error::conflict(LAYER, message).named(name),
            ));
        }
        let band_size = found.band_size.ok_or_else(|| lacks("band-size"))?;
        let version = found
            .version
            .ok_or_else(|| lacks("bundle-backingstore-version"))?;
        let size = found.size.ok_or_else(|| lacks("size"))?;

        let refuse = |message: String| {
            Err(InfoError::Refused(
                Error::new(Kind::Corrupt, LAYER, message).named(name),
            ))
        };
        if bundle_type != TYPE {
            return refuse(format!(
                "expected diskimage-bundle-type {TYPE}, found {bundle_type:.100}"
            ));
        }
        if band_size == 0 || !band_size.is_multiple_of(SECTOR) {
            return refuse(format!(
                "expected a band-size of whole {SECTOR}-byte sectors, found {band_size}"
            ));
        }
        if !size.is_multiple_of(SECTOR) {
            return refuse(format!(
                "expected a size of whole {SECTOR}-byte sectors, found {size}"
            ));
        }
        let version = match version {
            1 => Version::One,
            2 => Version::Two,
            other => {
                let message = format!(
                    "unsupported bundle-backingstore-version {other}: only 1 and 2 are supported"
                );
                return Err(InfoError::Refused(
                    Error::unsupported(LAYER, message).named(name),
                ));
            }
        };
        Ok(Self {
            size,
            band_size,
            version,
        })
    }

    /// Returns the list as macOS writes it.
    pub(super) fn to_xml(self) -> String {
        self.to_xml_after("")
    }

    /// Returns the contents of the copy while the size changes from `size` to this one.
    pub(super) fn to_xml_while_resizing(self, size: u64) -> String {
        self.to_xml_after(&format!(
            "\t<key>{SIZE_BEFORE}</key>\n\
             \t<integer>{size}</integer>\n"
        ))
    }

    /// Returns the list with `lines` before the band size: macOS sorts the keys.
    fn to_xml_after(self, lines: &str) -> String {
        dictionary(&format!(
            "\t<key>CFBundleInfoDictionaryVersion</key>\n\
             \t<string>6.0</string>\n\
             {lines}\
             \t<key>band-size</key>\n\
             \t<integer>{}</integer>\n\
             \t<key>bundle-backingstore-version</key>\n\
             \t<integer>{}</integer>\n\
             \t<key>diskimage-bundle-type</key>\n\
             \t<string>{TYPE}</string>\n\
             \t<key>size</key>\n\
             \t<integer>{}</integer>\n",
            self.band_size,
            self.version.number(),
            self.size
        ))
    }
}

/// Returns the size before, if the list is one of
/// [`to_xml_while_resizing`](Info::to_xml_while_resizing).
pub(super) fn size_before(bytes: &[u8]) -> Option<u64> {
    let mut size = None;
    let read = each_value(bytes, &mut |key, value| {
        if let (SIZE_BEFORE, Value::Integer(number)) = (key, value) {
            size = number.as_unsigned();
        }
    });
    read.ok().and(size)
}

/// Returns the contents of both lists during a change of the band size. To other software this is
/// another bundle type of an unknown version, without band size and disk size.
pub(super) fn rebanding_xml() -> String {
    dictionary(&format!(
        "\t<key>CFBundleInfoDictionaryVersion</key>\n\
         \t<string>6.0</string>\n\
         \t<key>bundle-backingstore-version</key>\n\
         \t<integer>{REBANDING_VERSION}</integer>\n\
         \t<key>diskimage-bundle-type</key>\n\
         \t<string>{REBANDING_TYPE}</string>\n"
    ))
}

/// Returns a property list, formatted as by macOS, with the given lines in its dictionary.
pub(super) fn dictionary(lines: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <plist version=\"1.0\">\n\
         <dict>\n\
         {lines}\
         </dict>\n\
         </plist>\n"
    )
}

/// Calls `each` for the keys of the list and their values.
pub(super) fn each_value(bytes: &[u8], each: &mut dyn FnMut(&str, &Value)) -> Result<()> {
    let list = property_list::parse(LAYER, bytes, MAX_VALUES, 4 * MAX_BYTES)?;
    list.iter().for_each(|(key, value)| each(key, value));
    Ok(())
}

impl PlistValues {
    fn read(bytes: &[u8]) -> Result<Self> {
        let mut found = Self::default();
        each_value(bytes, &mut |key, value| found.set_value(key, value))?;
        Ok(found)
    }

    /// Records the value of a known key; a value of the wrong type is ignored.
    fn set_value(&mut self, key: &str, value: &Value) {
        match (key, value) {
            ("size", Value::Integer(number)) => self.size = number.as_unsigned(),
            ("band-size", Value::Integer(number)) => self.band_size = number.as_unsigned(),
            ("bundle-backingstore-version", Value::Integer(number)) => {
                self.version = number.as_unsigned()
            }
            ("diskimage-bundle-type", Value::String(text)) => self.bundle_type = Some(text.clone()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: Info = Info {
        size: 40_960_000,
        band_size: 8 << 20,
        version: Version::One,
    };

    fn parse(text: &str) -> Result<Info, InfoError> {
        Info::parse(text.as_bytes(), "Info.plist")
    }

    fn dict(body: &str) -> String {
        format!("<?xml version=\"1.0\"?><plist version=\"1.0\"><dict>{body}</dict></plist>")
    }

    /// Returns the list of `INFO` with one key's value replaced.
    fn with(key: &str, value: &str) -> String {
        let xml = INFO.to_xml();
        let (before, rest) = xml.split_once(&format!("<key>{key}</key>\n")).unwrap();
        let (_, after) = rest.split_once('\n').unwrap();
        format!("{before}<key>{key}</key>\n{value}\n{after}")
    }

    fn refused(text: &str) -> String {
        match parse(text) {
            Err(InfoError::Refused(error)) => error.to_string(),
            Err(unread) => panic!("the copy would be asked: {}", Error::from(unread)),
            Ok(info) => panic!("{info:?} from {text}"),
        }
    }

    fn unreadable(text: &str) -> String {
        match parse(text) {
            Err(InfoError::Unreadable(error)) => error.to_string(),
            Err(unread) => panic!("the copy would not be asked: {}", Error::from(unread)),
            Ok(info) => panic!("{info:?} from {text}"),
        }
    }

    #[test]
    fn lists_read_back() {
        for version in [Version::One, Version::Two] {
            let info = Info { version, ..INFO };
            assert_eq!(parse(&info.to_xml()).ok(), Some(info));
        }
    }

    #[test]
    fn order_and_further_keys_do_not_matter() {
        let text = dict(
            "<key>size</key><integer>1024</integer>\
             <key>other</key><array><string>band-size</string><integer>3</integer><dict><key>size</key><integer>7</integer></dict></array>\
             <key>diskimage-bundle-type</key><string>com.apple.diskimage.sparsebundle</string>\
             <key>bundle-backingstore-version</key><integer>2</integer>\
             <key>flag</key><true/>\
             <key>band-size</key><integer>512</integer>",
        );
        assert_eq!(
            parse(&text).ok(),
            Some(Info {
                size: 1024,
                band_size: 512,
                version: Version::Two
            })
        );
    }

    #[test]
    fn binary_lists_are_read() {
        let mut bytes = Vec::new();
        plist::Value::from_reader_xml(INFO.to_xml().as_bytes())
            .unwrap()
            .to_writer_binary(&mut bytes)
            .unwrap();
        assert_eq!(Info::parse(&bytes, "Info.plist").ok(), Some(INFO));
    }

    #[test]
    fn nonsense_is_refused_by_key() {
        for (key, value, expected) in [
            ("band-size", "<integer>0</integer>", "found 0"),
            ("band-size", "<integer>1000</integer>", "found 1000"),
            ("size", "<integer>513</integer>", "found 513"),
            (
                "bundle-backingstore-version",
                "<integer>3</integer>",
                "version 3",
            ),
            (
                "diskimage-bundle-type",
                "<string>com.apple.diskimage</string>",
                "expected diskimage-bundle-type",
            ),
        ] {
            let error = refused(&with(key, value));
            assert!(
                error.contains(expected) && error.contains("Info.plist"),
                "{error}"
            );
        }
    }

    #[test]
    fn lists_that_do_not_parse_are_unreadable() {
        for (text, expected) in [
            (String::new(), "expected a property list"),
            ("\0\0\0\0".repeat(100), "expected a property list"),
            ("<plist><array/></plist>".to_owned(), "that is a dictionary"),
            (INFO.to_xml().replace("</dict>", ""), "property list"),
            (
                INFO.to_xml().replace("band-size", "bandsize"),
                "the key band-size",
            ),
            (with("size", "<string>40960000</string>"), "the key size"),
            (with("size", "<integer>-512</integer>"), "the key size"),
            (
                with("size", "<integer>99999999999999999999</integer>"),
                "property list",
            ),
        ] {
            let error = unreadable(&text);
            assert!(error.contains(expected), "{error} for {text}");
        }
    }

    #[test]
    fn deep_and_unfolding_lists_end() {
        let deep = dict(&format!("<key>a</key>{}", "<array>".repeat(9000)));
        assert!(unreadable(&deep).contains("more than 64 nested collections"));
        assert!(
            Info::parse(&unfolding(), "Info.plist")
                .is_err_and(|unread| Error::from(unread).kind() == Kind::Limit)
        );
    }

    /// Returns a binary list of 40 arrays, each of which holds the next one twice: 2^40 values in
    /// 300 bytes.
    fn unfolding() -> Vec<u8> {
        let mut bytes = b"bplist00".to_vec();
        let mut offsets = Vec::new();
        let mut object = |bytes: &mut Vec<u8>, of: &[u8]| {
            offsets.push(bytes.len() as u8);
            bytes.extend(of);
        };
        object(&mut bytes, &[0xd1, 1, 2]); // a dictionary of one pair
        object(&mut bytes, &[0x51, b'a']);
        for n in 2..42 {
            object(&mut bytes, &[0xa2, n + 1, n + 1]);
        }
        object(&mut bytes, &[0x09]);
        let table = bytes.len() as u64;
        let count = offsets.len() as u64;
        bytes.extend(offsets);
        bytes.extend([0, 0, 0, 0, 0, 0, 1, 1]);
        bytes.extend(
            [count, 0, table]
                .iter()
                .flat_map(|number| number.to_be_bytes()),
        );
        bytes
    }
}
