//! Groups of physical volumes for tests, laid out as those of macOS, but small.

use bandsaw_core::crypt::{Xts, encrypt_xts_unit, pbkdf2_sha256, wrap_key};
use uuid::{Uuid, uuid};
use zerocopy::{FromZeros, IntoBytes};

use super::context::data_key;
use super::layout::{
    BLOCK, BLOCK_HEADER, BlockRaw, ContinuedRaw, DescriptorRaw, ExtentRaw, FamilyRaw, HEADER,
    HeaderRaw, LabelRaw, PlaceRaw, RegionRaw, UserKeyRaw, VolumeKeyRaw, VolumeRaw, kind, seal,
};
use super::property_list::base64_of;

const BLOCK_SIZE: usize = 4096;
const LABELS: [u64; 4] = [1, 5, 9, 13];
/// First blocks of the two copies of the metadata, on the first physical volume.
pub const METADATA: [u64; 2] = [17, 65];
const METADATA_BLOCKS: u64 = 24;
/// First block of the contents.
const DATA: u64 = 113;
const GROUP: Uuid = uuid!("d1cc2d07-0a69-4e73-9472-dab3dad5e939");
const FAMILY: Uuid = uuid!("33a76caa-1481-4bc5-8d04-1ac1707c19c0");
const KEK: [u8; 16] = [0x4B; 16];
const VOLUME_KEY: [u8; 16] = [0x56; 16];
const TRANSACTION: u64 = 6;

/// Description of a group.
#[derive(Debug, Clone)]
pub struct Options {
    /// Contents of each logical volume, whole blocks of 4096 bytes.
    pub contents: Vec<u8>,
    /// Passphrases that open them; without any, they are not encrypted.
    pub passphrases: Vec<String>,
    /// Names of the logical volumes.
    pub names: Vec<String>,
    /// Number of physical volumes, over which each logical volume is spread.
    pub disks: usize,
    /// Conversion status.
    pub status: String,
    /// Keeps the keys in a file instead of the metadata, as for a Mac's start volume.
    pub keys_in_file: bool,
    /// Puts maps in relation to a region.
    pub region: bool,
    /// Stores the list of a family in two parts.
    pub in_parts: bool,
}

impl Options {
    /// An encrypted logical volume on one physical volume.
    pub fn new(contents: Vec<u8>, passphrase: &str) -> Self {
        Self {
            contents,
            passphrases: vec![passphrase.to_owned()],
            names: vec!["Untitled".to_owned()],
            disks: 1,
            status: "Complete".to_owned(),
            keys_in_file: false,
            region: false,
            in_parts: false,
        }
    }

    /// Builds the physical volumes.
    pub fn build(&self) -> Vec<Vec<u8>> {
        let blocks = self.contents.len() / BLOCK_SIZE;
        let share = blocks.div_ceil(self.disks);
        let len = (DATA as usize + share * self.names.len() + 1) * BLOCK_SIZE;
        let mut disks = vec![vec![0; len]; self.disks];
        for index in 0..self.disks {
            self.put_header(&mut disks[index], index, len);
            for label in LABELS {
                self.put_label(&mut disks[index], label, index);
            }
        }
        let mut stored = self.contents.clone();
        if !self.passphrases.is_empty() {
            let key = data_key(&VOLUME_KEY, FAMILY).expect("the key has 16 bytes");
            Xts::new(&key).encrypt(0, &mut stored);
        }
        for volume in 0..self.names.len() {
            for (disk, part) in disks.iter_mut().zip(stored.chunks(share * BLOCK_SIZE)) {
                let at = (DATA as usize + share * volume) * BLOCK_SIZE;
                disk[at..at + part.len()].copy_from_slice(part);
            }
        }
        let objects = self.objects(share, blocks);
        for first in METADATA {
            for (number, block) in (0..).zip(&objects) {
                put_metadata(&mut disks[0], first, number, block);
            }
        }
        disks
    }

    /// Returns the file with the keys, for [`keys_in_file`](Self::keys_in_file).
    pub fn key_file(&self) -> Vec<u8> {
        let mut file = format!("<plist version=\"1.0\">{}</plist>\n", self.context()).into_bytes();
        let mut key = [0; 32];
        key[..16].copy_from_slice(&key_of(0));
        encrypt_xts_unit(&key, 0, &mut file);
        file
    }

    fn put_header(&self, disk: &mut [u8], index: usize, len: usize) {
        let mut header = HeaderRaw::new_zeroed();
        header.version = 1.into();
        header.kind = kind::PHYSICAL.into();
        header.len = (len as u64).into();
        header.magic = *b"CS";
        header.sums = 1.into();
        header.label_count = 4.into();
        header.block_size = (BLOCK_SIZE as u32).into();
        header.label_size = (4 * BLOCK_SIZE as u32).into();
        for (place, label) in header.labels.iter_mut().zip(LABELS) {
            *place = label.into();
        }
        header.key_size = 16.into();
        header.cipher = 2.into();
        header.key = key_of(index);
        header.uuid = *uuid_of(index).as_bytes();
        header.group = *GROUP.as_bytes();
        let mut bytes = header.as_bytes().to_vec();
        seal(&mut bytes);
        disk[..HEADER].copy_from_slice(&bytes);
        disk[len - BLOCK_SIZE..][..HEADER].copy_from_slice(&bytes);
    }

    fn put_label(&self, disk: &mut [u8], block: u64, index: usize) {
        let disks: String = (0..self.disks)
            .map(|index| format!("<string>{}</string>", uuid_of(index)))
            .collect();
        let list = format!(
            "<dict ID=\"0\"><key>com.apple.corestorage.lvg.name</key><string>Group</string>\
             <key>com.apple.corestorage.lvg.physicalVolumes</key><array>{disks}</array></dict>"
        );
        let mut label = LabelRaw::new_zeroed();
        label.descriptor = (BLOCK as u32).into();
        label.list = (BLOCK as u32 + 48).into();
        label.list_len = (list.len() as u32).into();
        label.index = (index as u16).into();
        let mut descriptor = DescriptorRaw::new_zeroed();
        descriptor.count = METADATA_BLOCKS.into();
        descriptor.primary = PlaceRaw::new(METADATA[0], 0);
        descriptor.secondary = PlaceRaw::new(METADATA[1], 0);
        let at = block as usize * BLOCK_SIZE;
        disk[at..at + BLOCK].copy_from_slice(&metadata_block(kind::LABEL, 0, 0, label.as_bytes()));
        disk[at + BLOCK..][..48].copy_from_slice(descriptor.as_bytes());
        disk[at + BLOCK + 48..][..list.len()].copy_from_slice(list.as_bytes());
    }

    /// Returns the types, numbers and contents of all objects.
    fn objects(&self, share: usize, blocks: usize) -> Vec<Vec<u8>> {
        let mut objects: Vec<(u16, u64, Vec<u8>)> = Vec::new();
        for (volume, name) in self.names.iter().enumerate() {
            let id = 16 * (volume as u64 + 1);
            let mut map = (self.disks as u64).to_le_bytes().to_vec();
            let base = if self.region { DATA } else { 0 };
            for disk in 0..self.disks {
                let mut extent = ExtentRaw::new_zeroed();
                let first = share * disk;
                extent.logical = (first as u64).into();
                extent.count = (share.min(blocks - first) as u32).into();
                extent.place = PlaceRaw::new(DATA - base + (share * volume) as u64, disk as u16);
                map.extend(extent.as_bytes());
            }
            objects.push((kind::MAP, id, map));
            if self.region {
                let mut region = RegionRaw::new_zeroed();
                region.count = (share as u64).into();
                region.place = PlaceRaw::new(DATA, 0);
                let bytes = [&1_u64.to_le_bytes(), region.as_bytes()].concat();
                objects.push((kind::REGION, id + 1, bytes));
            }
            if !self.keys_in_file {
                self.add_family(&mut objects, id);
            }
            objects.push((kind::VOLUME, id + 3, self.volume(name, volume, id)));
        }
        let block = |(number, (kind, id, bytes)): (u64, &(u16, u64, Vec<u8>))| {
            metadata_block(*kind, *id, number, bytes)
        };
        (0..).zip(&objects).map(block).collect()
    }

    /// Adds the family of a volume.
    fn add_family(&self, objects: &mut Vec<(u16, u64, Vec<u8>)>, id: u64) {
        let list = format!(
            "<dict ID=\"100\"><key>com.apple.corestorage.lvf.encryption.context</key>{}\
             <key>DefaultEncryptionContext</key><integer size=\"32\">0x1</integer></dict>",
            self.context()
        );
        let (start, end) = list
            .as_bytes()
            .split_at(list.len() / if self.in_parts { 2 } else { 1 });
        let mut raw = FamilyRaw::new_zeroed();
        raw.next = if self.in_parts { id + 4 } else { 0 }.into();
        raw.packed_len = (list.len() as u32).into();
        raw.len = raw.packed_len;
        raw.list = ((BLOCK_HEADER + size_of::<FamilyRaw>()) as u32).into();
        raw.list_len = (start.len() as u32).into();
        objects.push((kind::FAMILY, id + 2, [raw.as_bytes(), start].concat()));
        if !self.in_parts {
            return;
        }
        let mut more = ContinuedRaw::new_zeroed();
        more.len = (end.len() as u32).into();
        objects.push((kind::CONTINUED, id + 4, [more.as_bytes(), end].concat()));
    }

    fn volume(&self, name: &str, number: usize, id: u64) -> Vec<u8> {
        let list = format!(
            "<dict ID=\"0\"><key>com.apple.corestorage.lv.familyUUID</key><string ID=\"1\">\
             {FAMILY:X}</string><key>com.apple.corestorage.lv.name</key><string ID=\"2\">{name}\
             </string><key>com.apple.corestorage.lv.uuid</key><string ID=\"3\">\
             E82EC3B4-6FA6-4A43-AA98-ECA628DD39{number:02X}</string>\
             <key>com.apple.corestorage.lv.size</key><integer size=\"64\" ID=\"4\">0x{:x}\
             </integer></dict>\0",
            self.contents.len()
        );
        let mut raw = VolumeRaw::new_zeroed();
        raw.family = (id + 2).into();
        raw.map = id.into();
        raw.region = if self.region { id + 1 } else { 0 }.into();
        raw.len = (list.len() as u32).into();
        raw.packed_len = raw.len;
        raw.list = ((BLOCK_HEADER + size_of::<VolumeRaw>()) as u32).into();
        raw.list_len = (list.len() as u32).into();
        [raw.as_bytes(), list.as_bytes()].concat()
    }

    /// Returns the encryption context.
    fn context(&self) -> String {
        let is_encrypted = !self.passphrases.is_empty();
        let users: String = self.passphrases.iter().map(|one| user(one)).collect();
        let mut key = VolumeKeyRaw::new_zeroed();
        key.kind = 2.into();
        key.len = 24.into();
        key.key.copy_from_slice(&wrapped(&KEK, &VOLUME_KEY));
        let keys = match is_encrypted {
            true => format!(
                "<dict><key>VolumeKeyIndex</key><integer size=\"32\">0x1</integer>\
                 <key>KeyEncryptingKeyIdent</key><string>kek</string>\
                 <key>BlockAlgorithm</key><string>AES-XTS</string>\
                 <key>KEKWrappedVolumeKeyStruct</key><data>{}</data></dict>",
                base64_of(key.as_bytes())
            ),
            false => String::new(),
        };
        format!(
            "<dict ID=\"1\"><key>CryptoUsers</key><array ID=\"2\">{users}</array>\
             <key>WrappedVolumeKeys</key><array ID=\"50\"><dict><key>VolumeKeyIndex</key>\
             <integer size=\"32\" ID=\"51\">0x0</integer><key>BlockAlgorithm</key>\
             <string>None</string><key>KEKWrappedVolumeKeyStruct</key><data></data></dict>{keys}\
             </array><key>ConversionInfo</key><dict ID=\"52\"><key>TargetContext</key>\
             <integer size=\"32\">{}</integer><key>ConversionStatus</key><string>{}</string>\
             </dict></dict>",
            u8::from(is_encrypted),
            self.status
        )
    }
}

fn user(passphrase: &str) -> String {
    let mut user = UserKeyRaw::new_zeroed();
    user.salt_kind = 3.into();
    user.salt_len = 16.into();
    user.salt = [0x53; 16];
    user.key_kind = 16.into();
    user.key_len = 24.into();
    user.iterations = 100.into();
    let derived = pbkdf2_sha256(passphrase.as_bytes(), &user.salt, 100);
    user.key.copy_from_slice(&wrapped(&derived[..16], &KEK));
    format!(
        "<dict><key>PassphraseWrappedKEKStruct</key><data>{}</data>\
         <key>PassphraseHint</key><string>a hint</string>\
         <key>KeyEncryptingKeyIdent</key><string>kek</string></dict>",
        base64_of(user.as_bytes())
    )
}

fn wrapped(outer: &[u8], key: &[u8]) -> Vec<u8> {
    wrap_key(outer, key).expect("keys of 16 bytes")
}

fn key_of(index: usize) -> [u8; 16] {
    [index as u8 + 1; 16]
}

fn uuid_of(index: usize) -> Uuid {
    Uuid::from_bytes([0xA0 + index as u8; 16])
}

/// Returns a metadata block with these contents.
fn metadata_block(kind: u16, object: u64, number: u64, contents: &[u8]) -> Vec<u8> {
    let mut header = BlockRaw::new_zeroed();
    header.version = 1.into();
    header.kind = kind.into();
    header.transaction = TRANSACTION.into();
    header.object = object.into();
    header.object_copy = object.into();
    header.number = number.into();
    header.block_size = (BLOCK as u32).into();
    let mut block = [header.as_bytes(), contents].concat();
    assert!(block.len() <= BLOCK, "{} bytes", block.len());
    block.resize(BLOCK, 0);
    seal(&mut block);
    block
}

/// Encrypts and stores block `number` of the metadata that begins at block `first`.
fn put_metadata(disk: &mut [u8], first: u64, number: u64, block: &[u8]) {
    let mut block = block.to_vec();
    encrypt_xts_unit(&metadata_key(), number, &mut block);
    let at = metadata_at(first, number);
    disk[at..at + BLOCK].copy_from_slice(&block);
}

/// Returns the offset of block `number` of the metadata that begins at block `first`.
pub fn metadata_at(first: u64, number: u64) -> usize {
    first as usize * BLOCK_SIZE + number as usize * BLOCK
}

fn metadata_key() -> [u8; 32] {
    let mut key = [0; 32];
    key[..16].copy_from_slice(&key_of(0));
    key[16..].copy_from_slice(uuid_of(0).as_bytes());
    key
}

/// Changes the plain bytes of a block of the first copy of the metadata, and corrects its checksum.
pub fn change_metadata(disk: &mut [u8], number: u64, change: impl Fn(&mut [u8])) {
    for first in METADATA {
        let at = metadata_at(first, number);
        let mut block = disk[at..at + BLOCK].to_vec();
        bandsaw_core::crypt::decrypt_xts_unit(&metadata_key(), number, &mut block);
        change(&mut block);
        seal(&mut block);
        put_metadata(disk, first, number, &block);
    }
}

/// Corrects the checksums of the header and of the labels.
pub fn reseal(disk: &mut [u8]) {
    if let Some(header) = disk.get_mut(..HEADER) {
        seal(header);
    }
    for label in LABELS {
        let at = label as usize * BLOCK_SIZE;
        if let Some(block) = disk.get_mut(at..at + BLOCK) {
            seal(block);
        }
    }
}
