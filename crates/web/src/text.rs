//! The messages of the pages, in one place.

pub(crate) const TITLE: &str = "Bandsaw";
pub(crate) const IMAGES: &str = "Images";
pub(crate) const BENCHMARKS: &str = "Benchmarks";
pub(crate) const NO_BENCHMARKS: &str = "No results were found. `bandsaw bench images . -o NAME.json` \
    in a folder of this server writes some.";
pub(crate) const LOCK: &str = "Forget passphrases";
pub(crate) const END: &str = "Sign out";
pub(crate) const SKIP: &str = "Skip to the contents";

pub(crate) const NO_SESSION: &str = "There is no session, or it has ended. Start `bandsaw web` again \
    and open the address that it prints: each address is valid once, and for ten minutes.";
pub(crate) const BAD_TOKEN: &str = "The address has been used already, or has expired. Start \
    `bandsaw web` again.";
pub(crate) const PREFETCH: &str = "The address is not exchanged for a session in advance.";
pub(crate) const NO_HOST: &str = "The request names no host, or several.";
pub(crate) const OTHER_HOST: &str = "The request names another host than this server.";
pub(crate) const OTHER_ORIGIN: &str = "The request was caused by a page of another site, or does not \
    tell by which.";
pub(crate) const METHOD: &str = "The method is not supported.";
pub(crate) const WRONG_TOKEN: &str = "The form is of another session. Load the page again.";
pub(crate) const NO_FORM: &str = "Expected the fields of a form.";
pub(crate) const LONG_FORM: &str = "The form is too long.";
pub(crate) const SLOW: &str = "The request took too long to arrive.";
pub(crate) const BUSY: &str = "The server is busy. Try again later.";
pub(crate) const TOO_MANY: &str = "Too many requests of this session at the same time.";
pub(crate) const MISSING: &str = "There is no such page.";
pub(crate) const TRY_LATER: &str = "Too many attempts. Try again in five minutes.";
pub(crate) const WRONG_PASSWORD: &str = "The password is wrong.";
pub(crate) const FAILED: &str = "The request failed.";
pub(crate) const LOCKED: &str = "The passphrase is wrong.";
pub(crate) const NEEDS_KEY: &str = "The passphrase is kept in memory only. It is forgotten after 15 \
    minutes without use, or at once with “Forget passphrases”.";
pub(crate) const DOCUMENT: &str = "If the browser shows nothing here, download the file.";
pub(crate) const NO_PREVIEW: &str = "There is no preview for this type of file.";

pub(crate) const UNKNOWN_HEALTH: &str = "opens, not checked";
pub(crate) const LOCKED_HEALTH: &str = "locked, not checked";
pub(crate) const UNREADABLE: &str = "cannot be opened";
pub(crate) const OPENS: &str = "The image opens, and no problem was found.";
pub(crate) const DAMAGED: &str = "The image is damaged.";
pub(crate) const NOT_ALL_CHECKED: &str = "No damage was found, but a part was not checked";
pub(crate) const WARNED: &str = "Everything was checked. There are warnings.";
pub(crate) const UNCHECKED: &str = "The container is sound. Its contents are of kinds that are not \
    checked.";
pub(crate) const SOUND: &str = "Everything was checked, and no problem was found.";
pub(crate) const CHECKED: &str = "checked";
pub(crate) const BROKEN: &str = "damaged, not checked further";
pub(crate) const NO_CHECK: &str = "not checked";
pub(crate) const CUT: &str = "The search was ended by its limits. Name a folder closer to the images, \
    or search for a part of the name.";
pub(crate) const NO_URLS: &str = "Addresses are not opened: the server was started without \
    `--allow-urls`.";
pub(crate) const OTHER_URL: &str = "The address is not below one that `--allow-urls` allows.";
pub(crate) const OPEN_PATH: &str = "Open a path below the folders of this server";
pub(crate) const OPEN_PATH_OR_URL: &str =
    "Open a path below the folders of this server, or an address";
pub(crate) const NO_IMAGES: &str = "No image was found.";
pub(crate) const ONLY_ORDER: &str = "The folder is large and is shown in the order of the volume. \
    Choose a column to sort it.";
pub(crate) const ZIP_NOTE: &str = "A zip archive has contents and permissions, and at most 65,535 \
    entries; a tar archive has all attributes and resource forks, too.";
pub(crate) const NOT_ALL_MEASURED: &str = "The measurement was ended by its limits: sizes are at \
    least these.";
pub(crate) const NOW: &str = "Now";
pub(crate) const NO_STATES: &str = "The volume has neither snapshots nor Time Machine backups.";
pub(crate) const NO_DIFFERENCE: &str = "There is no difference.";
pub(crate) const LONG_SEARCH: &str = "This takes too long for a page. Begin at a folder further down, \
    or run `bandsaw timemachine versions` or `bandsaw timemachine diff`.";
pub(crate) const INCOMPLETE: &str = "The last download is incomplete";

pub(crate) const NOT_ALLOWED: &str = "Changes are not allowed: the server was started without \
    `--allow-changes`.";
pub(crate) const NO_UPLOADS: &str = "Uploads are not allowed here: the server was started without \
    `--allow-upload`, or without `--allow-changes` for an upload into a volume.";
pub(crate) const NO_RESTORES: &str = "Restores are not allowed: the server was started without \
    `--allow-restore`.";
pub(crate) const UNCONFIRMED: &str =
    "The change was not confirmed: set the check mark beside the button.";
pub(crate) const NO_PLAN: &str = "There is no dry run of this change, or the image has changed since. \
    Begin again on the page of changes.";
pub(crate) const CHANGING: &str = "the image is being changed by a visitor of this server";
pub(crate) const CHANGES: &str = "Changes";
pub(crate) const LOG: &str = "Log of changes";
pub(crate) const NO_CHANGES: &str = "Nothing was changed since the server was started.";
pub(crate) const SNAPSHOT_CREATED: &str = "The snapshot was created.";
pub(crate) const SNAPSHOT_RESTORED: &str = "The image was restored from the snapshot.";
pub(crate) const SNAPSHOT_DELETED: &str = "The snapshot was deleted.";
pub(crate) const FILE_WRITTEN: &str = "The file was written.";
pub(crate) const EXISTS: &str = "already exists";
pub(crate) const NO_HOLES: &str =
    "The host does not support sparse files: parts of bands stay allocated.";
pub(crate) const ORPHANS: &str = "Nothing was freed: stored data does not belong to any part of the \
    disk, and it is unknown where it belongs. A repair lists the alternatives.";
pub(crate) const NOTHING_TO_REPAIR: &str = "There is nothing that could be repaired.";
pub(crate) const WOULD_ROLL_BACK: &str = "An interrupted repair would be rolled back.";
pub(crate) const DECIDE: &str = "A decision is needed. Nothing was changed.";
pub(crate) const UNDECIDED: &str =
    "Nothing was changed: a decision is needed. Begin again with a dry run.";
pub(crate) const OTHER_LOSSES: &str = "Nothing was changed: files would be lost that were not accepted. \
    Begin again with a dry run.";
pub(crate) const MANY_LOSSES: &str = "So many losses cannot be accepted on a page. Run \
    `bandsaw repair --dry-run` to list them.";
pub(crate) const BAD_NAME: &str = "The name of an uploaded file must have at most 255 bytes, and \
    contain no separator and no control character; it must not begin with a dot.";
pub(crate) const LARGE_UPLOAD: &str = "The file is larger than uploads may be.";
pub(crate) const UPLOAD_CUT: &str = "The upload ended before its end. Nothing was kept.";
pub(crate) const UPLOAD_SCRIPT: &str = "Uploads need JavaScript.";
