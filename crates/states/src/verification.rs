//! The state of verification that macOS keeps in a Time Machine bundle.

use std::collections::BTreeMap;
use std::io::Cursor;

use bandsaw::device::BlockDeviceExt;
use bandsaw::progress::Progress;
use bandsaw::store::{HostStore, Open, Put};
use bandsaw::{Error, Result};
use plist::{Dictionary, Value};

use crate::bundle::{BundleFolder, Identity};
use crate::swap::{self, Phase, Plan, Step};
use crate::{Change, LAYER};

/// The state of verification with which macOS refuses a bundle.
pub const REFUSED: i64 = 2;

/// The lists with the state.
pub(crate) const MACHINE: [&str; 2] = [
    "com.apple.TimeMachine.MachineID.plist",
    "com.apple.TimeMachine.MachineID.bckup",
];
const STATE: &str = "VerificationState";
const DECLINED: &str = "RecoveryBackupDeclinedDate";
/// Maximum length of a list in bytes; real ones have less than 1 KiB.
const MAX_LIST_LEN: u64 = 1 << 20;

/// The result of [`reset_verification`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reset {
    /// Names of the lists that were changed, or are to be.
    pub changed: Vec<String>,
    /// True if an interrupted run was resumed.
    pub resumed: bool,
}

/// Returns the state of verification that macOS recorded: 0 if nothing is wrong, [`REFUSED`] if it
/// refuses the bundle. `None`: the bundle has no such list, or the list has no state.
pub fn verification_state(bundle: &BundleFolder) -> Result<Option<i64>> {
    let Some(list) = read(bundle.store(), MACHINE[0])? else {
        return Ok(None);
    };
    let list = parse(&list).ok_or_else(|| unreadable(bundle, MACHINE[0]))?;
    Ok(state_of(&list))
}

/// Makes macOS forget that it found the bundle damaged: sets the state to 0, and removes the date on
/// which a new backup was declined. The old lists are kept until the change is committed.
pub fn reset_verification(
    bundle: &BundleFolder,
    dry_run: bool,
    progress: &dyn Progress,
) -> Result<Reset> {
    if dry_run {
        let _nobody_writes = bundle.lock_shared()?;
        let changed = resets(bundle)?.into_keys().collect();
        return Ok(Reset {
            changed,
            resumed: false,
        });
    }
    let _locks = bundle.lock_exclusive()?;
    if let Some(plan) = Plan::get(bundle, Change::Verification)?
        && plan.phase != Phase::Done
    {
        let plan = swap::resume(bundle, Change::Verification, progress)?;
        let changed = plan.map_or_else(Vec::new, |plan| plan.steps.into_keys().collect());
        return Ok(Reset {
            changed,
            resumed: true,
        });
    }
    let resets = resets(bundle)?;
    if resets.is_empty() {
        return Ok(Reset::default());
    }
    swap::check_unused(bundle, Change::Verification)?;
    let bundle = &bundle.reopened()?;
    let listing = bundle.list()?;
    let mut steps = BTreeMap::new();
    for (name, bytes) in &resets {
        let new = swap::new_name(Change::Verification, name);
        bundle.store().put(&new, bytes, Put::Replace)?;
        bundle.store().set_owner_of(&new, name)?;
        let step = Step {
            old: listing.get(name).copied(),
            new: bundle.identity(&new)?,
        };
        steps.insert(name.clone(), step);
    }
    let mut untouched = listing;
    untouched.retain(|name, _| !steps.contains_key(name));
    let mut plan = Plan {
        phase: Phase::Moving,
        state: String::new(),
        steps,
        untouched,
    };
    swap::begin(bundle, Change::Verification, &mut plan, progress)?;
    Ok(Reset {
        changed: resets.into_keys().collect(),
        resumed: false,
    })
}

/// Returns the new contents of the lists that record something.
fn resets(bundle: &BundleFolder) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut changed = BTreeMap::new();
    for name in MACHINE {
        let Some(bytes) = read(bundle.store(), name)? else {
            continue;
        };
        let list = parse(&bytes).ok_or_else(|| unreadable(bundle, name))?;
        if let Some(reset) = reset(list)? {
            changed.insert(name.to_owned(), reset);
        }
    }
    Ok(changed)
}

/// Returns a list with the state reset. `None`: it records nothing.
fn reset(mut list: Dictionary) -> Result<Option<Vec<u8>>> {
    let is_set = |value: &Value| value.as_signed_integer() != Some(0);
    let state = list.get(STATE).is_some_and(is_set);
    if !state && !list.contains_key(DECLINED) {
        return Ok(None);
    }
    if list.contains_key(STATE) {
        list.insert(STATE.to_owned(), Value::Integer(0.into()));
    }
    list.remove(DECLINED);
    let mut bytes = Vec::new();
    Value::Dictionary(list)
        .to_writer_xml(&mut bytes)
        .map_err(|error| Error::invalid(LAYER, format!("cannot write the list: {error}")))?;
    bytes.push(b'\n');
    Ok(Some(bytes))
}

/// Resets the state in prepared files of a roll-back. Lists that cannot be read stay as they are.
/// `false`: there was nothing to reset.
pub(crate) fn reset_prepared(store: &dyn HostStore, name: &str) -> Result<bool> {
    let list = read(store, name)?.and_then(|bytes| parse(&bytes));
    if let Some(list) = list
        && let Some(bytes) = reset(list)?
    {
        return store.put(name, &bytes, Put::Replace);
    }
    Ok(false)
}

/// Returns true if macOS refuses the bundle, or would because its list cannot be parsed.
pub(crate) fn is_refused(bundle: &BundleFolder) -> Result<bool> {
    let Some(bytes) = read(bundle.store(), MACHINE[0])? else {
        return Ok(false);
    };
    Ok(parse(&bytes).is_none_or(|list| state_of(&list) == Some(REFUSED)))
}

/// Returns the state of verification in a list.
fn state_of(list: &Dictionary) -> Option<i64> {
    list.get(STATE).and_then(Value::as_signed_integer)
}

fn read(store: &dyn HostStore, name: &str) -> Result<Option<Vec<u8>>> {
    let Some(file) = store.open(name, Open::Read)? else {
        return Ok(None);
    };
    let len = file.info().len;
    if len > MAX_LIST_LEN {
        return Err(Error::limit(LAYER, "too long for a property list").named(name));
    }
    file.read_vec(0, bandsaw::size::to_usize(len)).map(Some)
}

fn parse(bytes: &[u8]) -> Option<Dictionary> {
    Value::from_reader(Cursor::new(bytes))
        .ok()?
        .into_dictionary()
}

fn unreadable(bundle: &BundleFolder, name: &str) -> Error {
    let message = "not a property list";
    bundle
        .store()
        .named(Error::new(bandsaw::Kind::Corrupt, LAYER, message), name)
}

/// Returns the identity of a prepared file after all changes of it.
pub(crate) fn prepared(bundle: &BundleFolder, name: &str) -> Result<Identity> {
    bundle
        .identity(name)?
        .ok_or_else(|| Error::not_found(LAYER, name).in_file(bundle.path()))
}
