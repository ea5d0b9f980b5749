//! Rebalancing of nodes that are too full or too empty: division, sharing with a neighbor, merging
//! with one.

use std::ops::Range;

use super::Tree;
use super::change::PathNode;
use super::draft::Draft;
use crate::hfsplus::layout::node_kind;
use bandsaw_core::Result;

impl Tree {
    /// Rebalances `draft`, a changed node below `parent`. Returns the range of the parent's records
    /// to replace, and the nodes to write in their place, in order; freed nodes are not included.
    pub(super) fn arrange(
        &mut self,
        draft: Draft,
        appended: bool,
        parent: &PathNode,
    ) -> Result<(Range<usize>, Vec<Draft>)> {
        let (slot, size) = (parent.index, usize::from(self.node_size));
        if draft.is_empty() {
            self.unlink(&draft)?;
            self.free_node(draft.number)?;
            return Ok((slot..slot + 1, Vec::new()));
        }
        if draft.used() > size {
            // Records appended in order are likely to continue in order, so the full node stays
            // full.
            let ascending = appended && draft.used_before(draft.len() - 1) <= size;
            if !ascending && let Some(left) = self.neighbor(parent, slot.checked_sub(1))? {
                self.check_adjacent(&left, &draft)?;
                return match share(left, draft, size) {
                    Ok((left, right)) => {
                        self.gains(left.number);
                        Ok((slot - 1..slot + 1, vec![left, right]))
                    }
                    Err(draft) => Ok((slot..slot + 1, self.divide(*draft, appended)?)),
                };
            }
            return Ok((slot..slot + 1, self.divide(draft, appended)?));
        }
        if draft.used() < size / 4 {
            return self.merge(draft, parent);
        }
        Ok((slot..slot + 1, vec![draft]))
    }

    /// Divides a node that is too full: it keeps the first records, a new node after it gets the
    /// rest.
    pub(super) fn divide(&mut self, mut draft: Draft, appended: bool) -> Result<Vec<Draft>> {
        let size = usize::from(self.node_size);
        let last = draft.len().saturating_sub(1);
        let fits = |at: usize| draft.used_before(at) <= size && draft.used_from(at) <= size;
        let middle = (1..=last)
            .find(|&at| draft.used_before(at) >= draft.used_from(at))
            .unwrap_or(last);
        let at = if appended && fits(last) { last } else { middle };
        // Records differ too much in length: any position that fits will do.
        let at = if fits(at) {
            at
        } else {
            (1..=last).find(|&at| fits(at)).unwrap_or(at)
        };
        let mut right = Draft::new(self.take_node()?, draft.kind, draft.height);
        (right.previous, right.next) = (draft.number, draft.next);
        draft.move_tail(at, &mut right);
        self.check_fits(&draft)?;
        self.check_fits(&right)?;
        draft.next = right.number;
        self.link_back(right.next, &right, right.number)?;
        Ok(vec![draft, right])
    }

    /// Merges a node that is nearly empty with a neighbor, if both fit in one node.
    fn merge(&mut self, draft: Draft, parent: &PathNode) -> Result<(Range<usize>, Vec<Draft>)> {
        let (slot, size) = (parent.index, usize::from(self.node_size));
        if let Some(left) = self.neighbor(parent, slot.checked_sub(1))?
            && left.used() + draft.used() <= size
        {
            return Ok((slot - 1..slot + 1, vec![self.join(left, draft)?]));
        }
        if let Some(right) = self.neighbor(parent, Some(slot + 1))?
            && draft.used() + right.used() <= size
        {
            return Ok((slot..slot + 2, vec![self.join(draft, right)?]));
        }
        Ok((slot..slot + 1, vec![draft]))
    }

    /// Moves all records of `right` to the end of `left` and frees `right`.
    fn join(&mut self, mut left: Draft, mut right: Draft) -> Result<Draft> {
        self.check_adjacent(&left, &right)?;
        right.move_head(right.len(), &mut left);
        left.next = right.next;
        self.gains(left.number);
        self.link_back(right.next, &left, left.number)?;
        self.free_node(right.number)?;
        Ok(left)
    }

    /// Checks that two children that are adjacent in the parent are adjacent in the chain of their
    /// level. Otherwise records would be lost.
    fn check_adjacent(&self, left: &Draft, right: &Draft) -> Result<()> {
        if left.next == right.number && right.previous == left.number {
            return Ok(());
        }
        let message = format!(
            "does not link to node {}, which follows it in the index; repair the volume first",
            right.number
        );
        Err(self.corrupt(left.number, message))
    }

    /// Returns the child of `parent` in `slot`, if there is one.
    fn neighbor(&self, parent: &PathNode, slot: Option<usize>) -> Result<Option<Draft>> {
        let Some(slot) = slot
            .and_then(|slot| u16::try_from(slot).ok())
            .filter(|&slot| slot < parent.node.records)
        else {
            return Ok(None);
        };
        let (kind, height) = if parent.node.height == 2 {
            (node_kind::LEAF, 1)
        } else {
            (node_kind::INDEX, parent.node.height - 1)
        };
        let node = self.node(self.child(&parent.node, slot)?, kind, height)?;
        self.draft(&node).map(Some)
    }

    /// Removes a node from the chain of its level.
    fn unlink(&mut self, draft: &Draft) -> Result<()> {
        if draft.previous != 0 {
            let node = self.node(draft.previous, draft.kind, draft.height)?;
            let mut before = self.draft(&node)?;
            before.next = draft.next;
            self.put(&before)?;
        } else if draft.kind == node_kind::LEAF {
            self.head.first_leaf_node = draft.next.into();
        }
        self.link_back(draft.next, draft, draft.previous)
    }

    /// Sets the backward link of `next`, which follows a node like `like`, to `previous`. If `next`
    /// is 0 and the level is the leaves, updates the last leaf in the header.
    fn link_back(&mut self, next: u32, like: &Draft, previous: u32) -> Result<()> {
        if next != 0 {
            let node = self.node(next, like.kind, like.height)?;
            let mut after = self.draft(&node)?;
            after.previous = previous;
            return self.put(&after);
        }
        if like.kind == node_kind::LEAF {
            self.head.last_leaf_node = previous.into();
        }
        Ok(())
    }
}

/// Moves records from the front of `right`, which is too full, to the end of `left`, until both are
/// about equally full. Returns `right` as the error if both together have too little free space.
fn share(mut left: Draft, mut right: Draft, size: usize) -> Result<(Draft, Draft), Box<Draft>> {
    if left.used() + right.used() > 2 * size - size / 8 {
        return Err(Box::new(right));
    }
    let both = left.used() + right.used();
    let fits = |count: &usize| {
        left.used() + right.used_before(*count) <= size && right.used_from(*count) <= size
    };
    let uneven = |count: &usize| (left.used() + right.used_before(*count)).abs_diff(both / 2);
    match (1..right.len()).filter(fits).min_by_key(uneven) {
        None => Err(Box::new(right)),
        Some(count) => {
            right.move_head(count, &mut left);
            Ok((left, right))
        }
    }
}
