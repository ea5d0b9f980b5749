//! Images that are not files of this host: in a bucket, behind https, or within an archive.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::{LAYER, OpenOptions, archive_member, snapshot};
use crate::address::{self, UrlPrefix};
use crate::container::{Format, sparsebundle};
use crate::crypt::aea::{LockedArchive, P256PrivateKey};
use crate::device::{Access, BlockDevice, ReadOnlyView, Slice};
use crate::store::{FlushTo, Local, Objects, Remote, RemoteOptions, Status, Store};
use crate::{Error, Kind, Result};

/// Options for images that are not on this host.
#[derive(Debug, Clone, Copy)]
pub struct NetworkOptions<'a> {
    /// Looks up the variables that name a store and its credentials, see
    /// `BucketOptions::from_variables`: the library does not read the environment itself. The
    /// default finds none.
    pub variables: fn(&str) -> Option<String>,
    /// Bandwidth limit for buckets, in bytes a second.
    pub bytes_per_second: Option<u64>,
    /// Time without a response after which a request fails. `None`: a minute.
    pub timeout: Option<Duration>,
    /// Takes the lease of a bundle in a bucket from a writer that appears to be alive.
    pub steal_lease: bool,
    /// A local disk cache for images in buckets. `None`: a cache in memory.
    pub cache: Option<LocalCache<'a>>,
    /// The only places to which a server of `https://` or `http://` may redirect. `None`: any.
    pub redirects: Option<&'a [UrlPrefix]>,
}

impl Default for NetworkOptions<'_> {
    fn default() -> Self {
        Self {
            variables: |_| None,
            bytes_per_second: None,
            timeout: None,
            steal_lease: false,
            cache: None,
            redirects: None,
        }
    }
}

impl NetworkOptions<'_> {
    /// Returns the same options without a cache: for new images, which are written once.
    pub fn without_cache(self) -> NetworkOptions<'static> {
        let Self {
            variables,
            bytes_per_second,
            timeout,
            steal_lease,
            cache: _,
            redirects,
        } = self;
        NetworkOptions {
            variables,
            bytes_per_second,
            timeout,
            steal_lease,
            cache: None,
            // A new image is never behind HTTP.
            redirects: redirects.map(|_| &[][..]),
        }
    }
}

/// A local disk cache for images in buckets.
#[derive(Debug, Clone, Copy)]
pub struct LocalCache<'a> {
    /// The folder, in which each image has its own.
    pub folder: &'a Path,
    /// Maximum number of bytes kept of each image.
    pub size: u64,
    /// The place where a flush makes data durable.
    pub flush: FlushTo,
}

/// The target of a name that is no path of this host.
pub(super) enum RemoteTarget {
    /// A folder in a bucket, possibly a sparse bundle, and its status.
    Folder(Arc<dyn Store>, Status),
    /// The folder of a snapshot of a bundle on this host.
    Snapshot(Arc<dyn Store>),
    /// A file.
    File(Arc<dyn BlockDevice>),
}

/// A file behind a URL, as devices of the same bytes.
pub(super) struct RemoteFile {
    /// For most readers: caches and prefetches large pieces.
    pub(super) usual: Arc<dyn BlockDevice>,
    /// For readers that cache and read ahead themselves: requests little more than is read.
    pub(super) frugal: Arc<dyn BlockDevice>,
}

impl RemoteFile {
    /// Returns the device to read the image at `range`: an encrypted archive reads whole segments and keeps
    /// them.
    pub(super) fn view(self, range: Range<u64>) -> Result<Arc<dyn BlockDevice>> {
        let is_whole = range == (0..self.usual.info().len);
        let part = |device: Arc<dyn BlockDevice>| -> Result<Arc<dyn BlockDevice>> {
            Ok(match is_whole {
                true => device,
                false => Arc::new(ReadOnlyView(Arc::new(Slice::new(device, range.clone())?))),
            })
        };
        let usual = part(self.usual)?;
        match LockedArchive::begins(&*usual)? {
            true => part(self.frugal),
            false => Ok(usual),
        }
    }
}

/// Returns the URL that `path` is, if it is one, with its scheme first.
pub(crate) fn url(path: &Path) -> Option<(&str, &str)> {
    let text = path.to_str()?;
    Some((address::scheme(text)?, text))
}

/// Returns true if `path` is a URL, or names a snapshot or a file in an archive, or seems to: there is no
/// file or folder of that path.
pub(crate) fn is_elsewhere(path: &Path) -> bool {
    let is_absent = |found: Result<bool>| !matches!(found, Ok(false));
    url(path).is_some()
        || is_absent(snapshot::on_host(path).map(|found| found.is_some()))
        || is_absent(archive_member::on_host(path, Access::ReadOnly).map(|found| found.is_some()))
}

/// Refuses a URL if only files of this host are supported.
pub(crate) fn must_be_here(path: &Path) -> Result<()> {
    match url(path) {
        None => Ok(()),
        Some(("s3" | "http" | "https", _)) => {
            let message = "not on this machine, as this operation requires; copy it here \
                           (`bandsaw convert`)";
            Err(Error::new(Kind::ReadOnly, LAYER, message).in_file(path))
        }
        Some((scheme, _)) => Err(unknown(scheme).in_file(path)),
    }
}

/// Refuses a place for a new image that cannot hold images of its format.
pub(crate) fn check_holds(path: &Path, format: Format) -> Result<()> {
    match url(path) {
        Some(("s3", _)) if !format.is_folder() => {
            let message = format!(
                "cannot store {format} in a bucket: objects are replaced as a whole; use --format \
                 udsb"
            );
            Err(Error::invalid(LAYER, message).in_file(path))
        }
        Some(("s3", _)) | None => Ok(()),
        Some(("http" | "https", _)) => {
            let message = "cannot write over HTTP; create the image on this machine or in a \
                           bucket (s3://)";
            Err(Error::new(Kind::ReadOnly, LAYER, message).in_file(path))
        }
        Some((scheme, _)) => Err(unknown(scheme).in_file(path)),
    }
}

/// Begins a new bundle at `path`, if that is in a bucket. [`Kind::Conflict`] if `path` exists,
/// unless it is a bundle and `overwrite` is set.
pub(super) fn draft(
    path: &Path,
    overwrite: bool,
    network: NetworkOptions,
) -> Result<Option<Arc<Remote>>> {
    let Some(("s3", url)) = url(path) else {
        return Ok(None);
    };
    let objects = network::objects(url, network)?;
    let there = Remote::open(objects.clone(), &RemoteOptions::default())?;
    let is_bundle = sparsebundle::is_bundle(&*there)?;
    if overwrite && !is_bundle && !there.is_empty()? {
        let message = "the prefix has objects that are not of a sparse bundle and are not \
                       overwritten";
        return Err(Error::conflict(LAYER, message));
    }
    let options = RemoteOptions {
        steal: network.steal_lease,
        ..RemoteOptions::default()
    };
    Remote::draft(objects, &options, overwrite && is_bundle).map(Some)
}

/// Opens the bundle at `path`, if that is in a bucket: for its checkpoints and snapshots, without
/// opening its image.
pub(crate) fn bundle(
    path: &Path,
    access: Access,
    network: NetworkOptions,
) -> Result<Option<Arc<Remote>>> {
    let Some(("s3", url)) = url(path) else {
        return Ok(None);
    };
    let remote = network::open(url, network::objects(url, network)?, access, network)?;
    if !sparsebundle::is_bundle(&*remote)? {
        return Err(Error::new(Kind::NotFound, LAYER, "not a sparse bundle"));
    }
    Ok(Some(remote))
}

/// Opens the folder in a bucket that `path` names, or a snapshot of the bundle there. It may be empty, or
/// have a bundle. `None`: `path` is not in a bucket. Nothing is cached on a local disk.
pub fn bucket_folder(
    path: &Path,
    access: Access,
    snapshot: Option<&str>,
    network: NetworkOptions,
) -> Result<Option<Arc<Remote>>> {
    let Some(("s3", url)) = url(path) else {
        return Ok(None);
    };
    let options = RemoteOptions {
        access,
        snapshot: snapshot.map(str::to_owned),
        steal: network.steal_lease,
        ..RemoteOptions::default()
    };
    Remote::open(network::objects(url, network)?, &options).map(Some)
}

/// Opens the files of a sparse bundle to read them one by one: in a folder of this host, in a bucket, or of
/// a snapshot of one. The folder need not be a whole bundle.
pub fn bundle_files(path: &Path, network: NetworkOptions<'_>) -> Result<Arc<dyn Store>> {
    let options = OpenOptions {
        network,
        ..OpenOptions::default()
    };
    let expected = || Error::unsupported(LAYER, "expected the folder of a sparse bundle");
    match find(path, &options)? {
        Some(RemoteTarget::Folder(store, _) | RemoteTarget::Snapshot(store)) => Ok(store),
        Some(RemoteTarget::File(_)) => Err(expected()),
        None if path.is_dir() => Ok(Arc::new(Local::new(path))),
        None if path.exists() => Err(expected()),
        None => Err(Error::not_found(LAYER, path.display().to_string())),
    }
}

/// Opens the target of `path`, if it is a URL, or names a snapshot or a file in an archive. Changing a bundle in a bucket
/// requires its lease.
pub(super) fn find(path: &Path, options: &OpenOptions<'_>) -> Result<Option<RemoteTarget>> {
    let Some((scheme, url)) = url(path) else {
        let Some(folder) = snapshot::on_host(path)? else {
            let member = archive_member::on_host(path, options.access)?;
            return Ok(member.map(RemoteTarget::File));
        };
        snapshot::refuse_changes(options.access)?;
        return Ok(Some(RemoteTarget::Snapshot(Arc::new(Local::new(folder)))));
    };
    match scheme {
        "http" | "https" if options.access == Access::ReadWrite => {
            let message = "read-only over HTTP; convert it to a local image to change it \
                           (`bandsaw convert`)";
            Err(Error::new(Kind::ReadOnly, LAYER, message))
        }
        "s3" => network::bucket(url, options.access, options.network)
            .map(|(store, status)| Some(RemoteTarget::Folder(store, status))),
        "http" | "https" => {
            let open = |url: &str| network::file(url, options.network);
            archive_member::behind_url(url, &open).map(|file| Some(RemoteTarget::File(file)))
        }
        _ => Err(unknown(scheme)),
    }
}

/// Maximum length of the answer with a private key, in bytes.
const MAX_KEY: usize = 64 << 10;

/// Fetches the private key for an archive of system software from the address that its metadata names: over
/// https, from that host and no other.
pub(super) fn private_key(url: &str, network: NetworkOptions) -> Result<P256PrivateKey> {
    let refused = |why: &'static str| {
        let message = format!(
            "cannot fetch the private key from {}: {why}",
            address::shown(url)
        );
        Err(Error::invalid(LAYER, message))
    };
    let Some(rest) = url.strip_prefix("https://") else {
        return refused("the address in the metadata is not https://");
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = UrlPrefix::parse(&format!("https://{host}/"))?;
    if !host.contains(url) {
        return refused("the address in the metadata is ambiguous");
    }
    let is_allowed = |allowed: &[UrlPrefix]| allowed.iter().any(|prefix| prefix.contains(url));
    if !network.redirects.is_none_or(is_allowed) {
        return refused("the address is not allowed");
    }
    let failed = |error: Error| {
        let message = format!("cannot fetch the private key from {}", address::shown(url));
        Error::new(error.kind(), LAYER, message).caused_by(error)
    };
    let pem = network::small_file(url, MAX_KEY, network, &[host]).map_err(failed)?;
    P256PrivateKey::parse(&pem).map_err(failed)
}

fn unknown(scheme: &str) -> Error {
    Error::unsupported(
        LAYER,
        format!("unsupported scheme {scheme}://: expected s3://, https://, http:// or file://"),
    )
}

#[cfg(feature = "s3")]
mod network {
    use std::fs::{DirBuilder, File};
    use std::io;
    use std::os::unix::fs::DirBuilderExt;

    use sha2::{Digest, Sha256};

    use super::*;
    use crate::store::objects::has_any;
    use crate::store::{Bucket, BucketOptions, BucketPlace, CacheOptions, Local, web};

    fn parse_bucket_url(url: &str) -> Result<BucketPlace> {
        let invalid = || {
            Error::invalid(
                LAYER,
                "expected two hexadecimal digits after %; write a % as %25",
            )
        };
        BucketPlace::parse(&address::percent_decoded(url).ok_or_else(invalid)?)
    }

    pub(super) fn objects(url: &str, network: NetworkOptions) -> Result<Arc<dyn Objects>> {
        let mut options = BucketOptions::from_variables(&network.variables)?;
        options.bytes_per_second = network.bytes_per_second;
        options.timeout = network.timeout;
        Ok(Arc::new(Bucket::new(parse_bucket_url(url)?, &options)?))
    }

    /// Returns the cache of this bundle: in a folder of its own, whose name identifies the store,
    /// the bucket and the prefix.
    fn cache(url: &str, network: NetworkOptions) -> Result<Option<CacheOptions>> {
        let Some(cache) = network.cache else {
            return Ok(None);
        };
        let (place, options) = (
            parse_bucket_url(url)?,
            BucketOptions::from_variables(&network.variables)?,
        );
        let endpoint = options
            .endpoint
            .as_deref()
            .unwrap_or_default()
            .trim_end_matches('/');
        let whole =
            Sha256::digest(format!("{endpoint}\n{}\n{}", place.bucket, place.prefix).as_bytes());
        let number = whole[..8]
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        let last = place.prefix.rsplit('/').next().unwrap_or_default();
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') {
                c
            } else {
                '_'
            }
        };
        let name: String = last.chars().map(plain).take(64).collect();
        let folder = cache.folder.join(format!("{name}-{number:016x}"));
        make_private(&folder).map_err(|error| {
            Error::io(LAYER, "create the folder of the cache", error).in_file(&folder)
        })?;
        let shown = folder.display().to_string();
        Ok(Some(CacheOptions {
            flush: cache.flush,
            ..CacheOptions::new(Arc::new(Local::new(folder)), shown, cache.size)
        }))
    }

    /// Creates a folder, durably, that only its owner can access.
    fn make_private(folder: &Path) -> io::Result<()> {
        let folder = std::path::absolute(folder)?;
        let new: Vec<_> = folder
            .ancestors()
            .take_while(|above| !above.exists())
            .collect();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        new.iter()
            .filter_map(|folder| folder.parent())
            .try_for_each(|above| File::open(above)?.sync_all())
    }

    pub(super) fn bucket(
        url: &str,
        access: Access,
        network: NetworkOptions,
    ) -> Result<(Arc<dyn Store>, Status)> {
        let objects = objects(url, network)?;
        if let Some((url, objects, name)) = snapshot(url, &*objects, network)? {
            snapshot::refuse_changes(access)?;
            let options = RemoteOptions {
                snapshot: Some(name),
                cache: cache(url, network)?,
                ..RemoteOptions::default()
            };
            let remote = Remote::open(objects, &options)?;
            let status = remote.status();
            return Ok((remote, status));
        }
        let remote = open(url, objects, access, network)?;
        let status = remote.status();
        Ok((remote, status))
    }

    /// A bundle, by its URL and its objects, and the name of a snapshot of it.
    type NamedSnapshot<'a> = (&'a str, Arc<dyn Objects>, String);

    /// Returns the bundle and the snapshot of it that `url` names, unless a bundle has exactly this
    /// name.
    fn snapshot<'a>(
        url: &'a str,
        objects: &dyn Objects,
        network: NetworkOptions,
    ) -> Result<Option<NamedSnapshot<'a>>> {
        let mut cuts = snapshot::cuts(url).peekable();
        if cuts.peek().is_none() || is_bundle(objects)? {
            return Ok(None);
        }
        for (bundle, name) in cuts {
            let objects = self::objects(bundle, network)?;
            if is_bundle(&*objects)? {
                return Ok(Some((
                    bundle,
                    objects,
                    address::percent_decoded(name).unwrap_or_else(|| name.to_owned()),
                )));
            }
        }
        Ok(None)
    }

    /// Opens the bundle behind `objects`; for changes only if there is a bundle.
    pub(super) fn open(
        url: &str,
        objects: Arc<dyn Objects>,
        access: Access,
        network: NetworkOptions,
    ) -> Result<Arc<Remote>> {
        // Without a bundle, nothing is written.
        if access == Access::ReadWrite && !is_bundle(&*objects)? {
            return Err(Error::new(
                Kind::NotFound,
                LAYER,
                "not a sparse bundle: no Info.plist",
            ));
        }
        let cache = cache(url, network)?;
        Remote::open(
            objects,
            &RemoteOptions {
                access,
                steal: network.steal_lease,
                cache,
                ..RemoteOptions::default()
            },
        )
    }

    /// Returns true if there is a bundle, or was one.
    fn is_bundle(objects: &dyn Objects) -> Result<bool> {
        let has_log = has_any(objects, ".bandsaw/manifest/", &|_| true)?;
        Ok(has_log
            || objects.stat("Info.plist")?.is_some()
            || objects.stat("Info.bckup")?.is_some())
    }

    pub(super) fn small_file(
        url: &str,
        most: usize,
        network: NetworkOptions,
        redirects: &[UrlPrefix],
    ) -> Result<Zeroizing<Vec<u8>>> {
        web::small_file(url, most, network.timeout, redirects)
    }

    pub(super) fn file(url: &str, network: NetworkOptions) -> Result<RemoteFile> {
        let web::WebViews { usual, frugal } = web::open(url, network.timeout, network.redirects)?;
        Ok(RemoteFile { usual, frugal })
    }
}

#[cfg(not(feature = "s3"))]
mod network {
    use super::*;

    pub(super) fn small_file(
        _url: &str,
        _most: usize,
        _network: NetworkOptions,
        _redirects: &[UrlPrefix],
    ) -> Result<Zeroizing<Vec<u8>>> {
        let message = "this build does not support https:// (feature `s3`)";
        Err(Error::unsupported(LAYER, message))
    }

    fn without() -> Error {
        Error::unsupported(
            LAYER,
            "this build does not support s3:// and https:// (feature `s3`)",
        )
    }

    pub(super) fn objects(_url: &str, _reach: NetworkOptions) -> Result<Arc<dyn Objects>> {
        Err(without())
    }

    pub(super) fn bucket(
        _url: &str,
        _access: Access,
        _reach: NetworkOptions,
    ) -> Result<(Arc<dyn Store>, Status)> {
        Err(without())
    }

    pub(super) fn open(
        _url: &str,
        _objects: Arc<dyn Objects>,
        _access: Access,
        _reach: NetworkOptions,
    ) -> Result<Arc<Remote>> {
        Err(without())
    }

    pub(super) fn file(_url: &str, _reach: NetworkOptions) -> Result<RemoteFile> {
        Err(without())
    }
}
