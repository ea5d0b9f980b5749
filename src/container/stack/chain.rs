//! Validation of the order of layers. A layer does not name the file below it, but stores the UUID
//! that the image below had when the layer was made; an image gets a new UUID when it is written
//! to. Source: docs/formats/stack.md §2.

use uuid::Uuid;

use super::LAYER;
use crate::{Error, Kind, Reason, Result};

/// The UUIDs and the role of an image of a stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Identity {
    /// The UUID that layers above refer to; nil for an image without one, such as a raw disk.
    pub uuid: Uuid,
    /// The UUID of the image below: nil for an image of its own, and above one without a UUID.
    pub parent: Uuid,
    /// Another valid UUID of the image below: the one chosen for an intended write to it.
    pub next_parent: Option<Uuid>,
    /// True if it stores copies of the blocks below it.
    pub is_cache: bool,
}

/// An image of a stack, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLink {
    /// Its file name.
    pub name: String,
    /// Its UUIDs and role.
    pub identity: Identity,
}

/// Checks that the images, the base first, were made above each other. Errors name the file.
///
/// [`Kind::NotFound`]: the first is itself a layer, and the image below it is missing.
/// [`Kind::Conflict`]: a layer was made above another image, or the image below was changed since.
pub fn check_chain(links: &[ChainLink]) -> Result<()> {
    if let Some(base) = links
        .first()
        .filter(|base| base.identity.is_cache || !base.identity.parent.is_nil())
    {
        let what = if base.identity.is_cache {
            "a cache"
        } else {
            "an overlay"
        };
        let missing = match base.identity.parent {
            parent if parent.is_nil() => {
                format!("{what} of an image without a UUID, which is missing below it")
            }
            parent => {
                format!("{what} of the image with UUID {parent}, which is missing below it")
            }
        };
        return Err(Error::new(Kind::NotFound, LAYER, missing).in_file(&base.name));
    }
    for pair in links.windows(2) {
        if let [below, layer] = pair {
            check_pair(below, layer)?;
        }
    }
    Ok(())
}

fn check_pair(below: &ChainLink, layer: &ChainLink) -> Result<()> {
    let Identity {
        parent,
        next_parent,
        ..
    } = layer.identity;
    let found = below.identity.uuid;
    if found == parent || next_parent == Some(found) {
        return Ok(());
    }
    let named = |uuid: Uuid| {
        if uuid.is_nil() {
            "no UUID".to_owned()
        } else {
            format!("UUID {uuid}")
        }
    };
    let message = format!(
        "the layer was created over an image with {}, but {} has {}: it is another image, or was \
         changed since",
        named(parent),
        below.name,
        named(found)
    );
    Err(Error::conflict(LAYER, message)
        .because(Reason::LayersChanged)
        .in_file(&layer.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, uuid: u128, parent: u128) -> ChainLink {
        let identity = Identity {
            uuid: Uuid::from_u128(uuid),
            parent: Uuid::from_u128(parent),
            ..Identity::default()
        };
        ChainLink {
            name: name.to_owned(),
            identity,
        }
    }

    #[test]
    fn layers_follow_their_parents() {
        check_chain(&[]).unwrap();
        check_chain(&[
            link("base", 0, 0),
            link("over a raw disk", 1, 0),
            link("next", 2, 1),
        ])
        .unwrap();
        let mut cache = link("cache", 7, 7);
        cache.identity.is_cache = true;
        check_chain(&[link("base", 7, 0), cache, link("next", 2, 7)]).unwrap();
    }

    #[test]
    fn others_are_refused_by_name() {
        let error = check_chain(&[link("base", 7, 0), link("next", 2, 9)]).unwrap_err();
        assert_eq!((error.kind(), error.file()), (Kind::Conflict, Some("next")));
        assert!(
            error
                .message()
                .contains("base has UUID 00000000-0000-0000-0000-000000000007"),
            "{error}"
        );
        assert!(error.message().contains("000000000009"), "{error}");
        let error = check_chain(&[link("base", 7, 0), link("over a raw disk", 2, 0)]).unwrap_err();
        assert!(
            error.message().contains("over an image with no UUID"),
            "{error}"
        );
    }

    #[test]
    fn a_base_is_no_layer() {
        let error = check_chain(&[link("alone", 7, 9), link("next", 2, 7)]).unwrap_err();
        assert_eq!(
            (error.kind(), error.file()),
            (Kind::NotFound, Some("alone"))
        );
        let mut cache = link("cache", 0, 0);
        cache.identity.is_cache = true;
        assert!(
            check_chain(&[cache])
                .unwrap_err()
                .message()
                .contains("a cache of an image without a UUID")
        );
    }

    #[test]
    fn a_circle_has_no_base() {
        let circle = [link("one", 1, 2), link("two", 2, 1), link("one", 1, 2)];
        assert_eq!(check_chain(&circle).unwrap_err().kind(), Kind::NotFound);
    }

    #[test]
    fn a_change_on_purpose_is_followed() {
        let mut layer = link("layer", 2, 5);
        layer.identity.next_parent = Some(Uuid::from_u128(7));
        check_chain(&[link("base", 7, 0), layer.clone()]).unwrap();
        check_chain(&[link("base", 5, 0), layer.clone()]).unwrap();
        assert!(check_chain(&[link("base", 6, 0), layer]).is_err());
    }
}
