//! Dates as people write them, against the backups that there are.

use bandsaw::Kind;
use bandsaw::fs::Timestamp;

use crate::common::backupd::{History, OFFSET, name_of};
use crate::common::both;

#[test]
fn a_date_selects_one_backup_or_lists_what_there_is() {
    let history = History::new(7, 20, 5);
    for (kind, backups) in both(&history) {
        let last = &history.backups[19];
        let now = Timestamp::from_seconds(last.wall - OFFSET + 600);
        // The difference to UTC is inferred.
        assert_eq!(backups.clock_at(now).0, last.wall + 600, "{kind}");
        let select = |text: &str| backups.select(text, now);
        assert_eq!(select("latest").unwrap(), 19, "{kind}");
        assert_eq!(select("oldest").unwrap(), 0, "{kind}");
        for (number, truth) in history.backups.iter().enumerate() {
            let name = &truth.date;
            let minute = format!("{} {}:{}", &name[..10], &name[11..13], &name[13..15]);
            assert_eq!(select(name).unwrap(), number, "{kind}");
            assert_eq!(select(&minute).unwrap(), number, "{kind}");
            let day = &name[..10];
            let of_day = history
                .backups
                .iter()
                .filter(|one| one.date.starts_with(day));
            let count = of_day.count();
            match select(day) {
                Ok(found) => assert_eq!((found, count), (number, 1), "{kind}: {day}"),
                Err(error) => {
                    assert!(
                        count > 1 && error.kind() == Kind::Invalid,
                        "{kind}: {error}"
                    );
                    assert!(error.to_string().contains(&minute), "{kind}: {error}");
                }
            }
        }
        let absent = select("2025-01-01").unwrap_err();
        assert_eq!(absent.kind(), Kind::NotFound, "{kind}");
        let first = &history.backups[0].date;
        assert!(
            absent.to_string().contains(&first[..10]),
            "{kind}: {absent}"
        );
        assert_eq!(
            select("tomorrow").unwrap_err().kind(),
            Kind::Invalid,
            "{kind}"
        );
        // An unfinished one is chosen only by its own date.
        let unfinished = name_of(last.wall + 3600);
        assert_eq!(select(&unfinished).unwrap(), 20, "{kind}");
    }
}
