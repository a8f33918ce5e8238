//! Days of the Gregorian calendar, counted from 1970.

use std::time::{SystemTime, UNIX_EPOCH};

/// The number of the day "2026-11-29" since 1970-01-01.
pub fn day(date: &str) -> Option<i64> {
    let parts: Vec<i64> = date.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [year, month, day] = parts[..] else { return None };
    ((1..=12).contains(&month) && (1..=31).contains(&day)).then(|| {
        // Years begin in March here, so that the leap day is the last day of a year.
        let year = if month <= 2 { year - 1 } else { year };
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
    })
}

/// The date of a day.
pub fn date(number: i64) -> String {
    let year_of = |year: i64| day(&format!("{year}-01-01"));
    let mut year = 1970 + number.div_euclid(366);
    while year_of(year + 1).is_some_and(|first| first <= number) {
        year += 1;
    }
    let month = (1..=12)
        .rev()
        .find(|month| day(&format!("{year}-{month}-01")).is_some_and(|first| first <= number))
        .unwrap_or(1);
    let first = day(&format!("{year}-{month}-01")).unwrap_or(number);
    format!("{year}-{month:02}-{:02}", number - first + 1)
}

/// The date of today, in UTC.
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date((seconds / 86_400) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_each_other_s() {
        assert_eq!(["1970-01-01", "2000-03-01", "2026-11-29"].map(day), [Some(0), Some(11_017), Some(20_786)]);
        assert_eq!(["2026-13-01", "2026-11", "x"].map(day), [None; 3]);
        for number in 0..40_000 {
            assert_eq!(day(&date(number)), Some(number));
        }
        assert_eq!([date(11_016), date(20_786)], ["2000-02-29", "2026-11-29"]);
    }
}
