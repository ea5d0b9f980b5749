//! The messages of the pages, in one place.

pub(crate) const TITLE: &str = "Bandsaw";
pub(crate) const IMAGES: &str = "Images";
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
pub(crate) const NO_PREVIEW: &str = "There is no preview for this type of file.";

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
pub(crate) const NO_IMAGES: &str = "No image was found.";
pub(crate) const ONLY_ORDER: &str = "The folder is large and is shown in the order of the volume. \
    Choose a column to sort it.";
pub(crate) const ZIP_NOTE: &str = "A zip archive has contents and permissions, and at most 65,535 \
    entries; a tar archive has all attributes and resource forks, too.";
pub(crate) const NOT_ALL_MEASURED: &str = "The measurement was ended by its limits: sizes are at \
    least these.";
pub(crate) const INCOMPLETE: &str = "The last download is incomplete";
