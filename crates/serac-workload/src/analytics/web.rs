//! Web analytics: a wide table of page views, most of whose columns are small numbers and flags,
//! and 43 queries of the shapes that dashboards send.
//!
//! Everything is skewed: few sites, pages, users and phrases have most of the views. A user keeps
//! region, address and device. Views are in the order in which they came in, but for an hour.

use super::columns::Columns;
use super::{Answer, Query, Table};
use crate::random::{Random, Zipf, mixed};
use std::fmt::Write;
use std::ops::Range;
use std::sync::LazyLock;

/// The first second of July 2023.
const BEGIN: i64 = 1_688_169_600;
const DAY: i64 = 86_400;
const SECONDS: i64 = 31 * DAY;
/// Sites, and pages of each.
const SITES: u64 = 6_000;
const PAGES: u64 = 20_000;
/// The site of which most filtered queries ask: about one view in 190 is of it.
const SITE: u64 = 20;

static WORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    words(
        &["ba", "cor", "del", "fin", "gru", "hal", "ki", "lo", "mer", "no", "pra", "sta", "tu", "ver", "zo"],
        "market",
    )
});
/// Words of titles and phrases, not all of which are ASCII.
static TITLES: LazyLock<Vec<String>> = LazyLock::new(|| {
    words(
        &["al", "bör", "cha", "дом", "eri", "fun", "gé", "ist", "ла", "mon", "ñu", "ost", "réa", "sol", "ут"],
        "garden",
    )
});

/// A thousand words of syllables. One of the frequent ones is given.
fn words(syllables: &[&str], known: &str) -> Vec<String> {
    let word = |number: u64| -> String {
        let mut random = Random::new(number + 1);
        (0..random.range(2, 4)).map(|_| syllables[random.below(syllables.len() as u64) as usize]).collect()
    };
    let mut words: Vec<String> = (0..1_000).map(word).collect();
    words[30] = known.to_owned();
    words
}

/// Words, of which the first of the list are the most frequent.
fn write_words(text: &mut String, of: &[String], random: &mut Random, count: i32, between: &str) {
    for at in 0..count {
        let word = random.below(1_000) * random.below(1_000) / 1_000;
        let _ = write!(text, "{}{}", if at > 0 { between } else { "" }, of[word as usize]);
    }
}

/// A page of a site.
#[derive(Clone, Copy)]
struct Page {
    site: u64,
    page: u64,
}

impl Page {
    fn number(self) -> u64 {
        mixed(self.site << 32 | self.page)
    }

    /// What the columns of hashes have for it.
    fn hash(self) -> i64 {
        (self.number() >> 1) as i64
    }

    fn write_url(self, text: &mut String) {
        let mut random = Random::new(self.number());
        let secure = if mixed(self.site).is_multiple_of(4) { "" } else { "s" };
        let www = if mixed(self.site).is_multiple_of(3) { "www." } else { "" };
        let word = &WORDS[self.site as usize % WORDS.len()];
        let _ = write!(text, "http{secure}://{www}{word}{}.example/", self.site);
        if self.page == 0 {
            return;
        }
        for _ in 0..random.range(1, 3) {
            let count = random.range(1, 3);
            write_words(text, &WORDS, &mut random, count, "-");
            text.push('/');
        }
        let _ = write!(text, "{}.html", self.page);
        if random.percent(30) {
            text.push('?');
            write_words(text, &WORDS, &mut random, 1, "");
            let _ = write!(text, "={}", random.below(1 << 32));
        }
    }

    fn write_title(self, text: &mut String) {
        let mut random = Random::new(self.number() ^ 1);
        if random.percent(95) {
            let count = random.range(2, 9);
            write_words(text, &TITLES, &mut random, count, " ");
        }
    }
}

fn write_phrase(text: &mut String, phrase: u64, between: &str) {
    let mut random = Random::new(mixed(phrase));
    let count = random.range(1, 5);
    write_words(text, &TITLES, &mut random, count, between);
}

/// The page that led to a view.
#[derive(Clone, Copy)]
enum Referer {
    None,
    /// A search of an engine, for the view's phrase.
    Search,
    Page(Page),
}

struct View {
    second: i64,
    user: u64,
    page: Page,
    referer: Referer,
    /// 0 for none.
    phrase: u64,
    /// 0 for none.
    engine: i16,
    region: i32,
    address: i32,
    /// 0 for a computer.
    phone: i16,
    model: u64,
    system: i16,
    browser: i16,
    width: i16,
}

impl View {
    fn write_referer(&self, text: &mut String) {
        match self.referer {
            Referer::None => {}
            Referer::Page(page) => page.write_url(text),
            Referer::Search => {
                let _ = write!(text, "https://www.search{}.example/find?q=", self.engine);
                write_phrase(text, self.phrase, "+");
            }
        }
    }

    fn referer_hash(&self) -> i64 {
        match self.referer {
            Referer::None => 0,
            Referer::Page(page) => page.hash(),
            Referer::Search => (mixed(self.phrase) >> 1) as i64,
        }
    }
}

/// The number of a user, by rank.
fn user_id(rank: u64) -> i64 {
    (mixed(rank + 77) >> 1) as i64
}

/// The distributions from which views are drawn.
struct Views {
    rows: u64,
    users: Zipf,
    sites: Zipf,
    pages: Zipf,
    phrases: Zipf,
    engines: Zipf,
    regions: Zipf,
    systems: Zipf,
    models: Zipf,
}

impl Views {
    fn new(rows: u64) -> Self {
        Self {
            rows,
            users: Zipf::new(rows / 4, 0.6),
            sites: Zipf::new(SITES, 0.95),
            pages: Zipf::new(PAGES, 1.1),
            phrases: Zipf::new(rows / 15, 0.8),
            engines: Zipf::new(30, 1.6),
            regions: Zipf::new(2_000, 1.1),
            systems: Zipf::new(60, 1.1),
            models: Zipf::new(150, 0.9),
        }
    }

    fn view(&self, row: u64, random: &mut Random) -> View {
        let user = self.users.rank(random);
        let page = Page { site: self.sites.rank(random) + 1, page: self.pages.rank(random) };
        let arrived = (SECONDS as u128 * u128::from(row) / u128::from(self.rows)) as i64;
        let has_phrase = random.percent(13);
        let referer = match random.below(100) {
            _ if has_phrase => Referer::Search,
            0..25 => Referer::None,
            25..80 => Referer::Page(Page { page: self.pages.rank(random), ..page }),
            _ => Referer::Page(Page { site: self.sites.rank(random) + 1, page: 0 }),
        };
        let mut device = Random::new(mixed(user));
        let phone = if device.percent(6) { device.range(1, 90) as i16 } else { 0 };
        View {
            second: BEGIN + (arrived - random.below(3_600) as i64).max(0),
            user,
            page,
            referer,
            phrase: if has_phrase { self.phrases.rank(random) + 1 } else { 0 },
            engine: if has_phrase { self.engines.rank(random) as i16 + 1 } else { 0 },
            region: self.regions.rank(&mut device) as i32 + 1,
            address: (device.next() >> 33) as i32,
            phone,
            model: self.models.rank(&mut device),
            system: self.systems.rank(&mut device) as i16 + 1,
            browser: self.systems.rank(&mut device) as i16 + 1,
            width: [0, 1280, 1366, 1440, 1536, 1600, 1920, 2560][device.below(8) as usize],
        }
    }
}

/// How a column of small numbers is drawn.
#[derive(Clone, Copy)]
enum Small {
    /// 1 in so many percent of the rows.
    Flag(i32),
    /// A rank below a number.
    Ranks(u64, f64),
    /// Uniform.
    Range(i32, i32),
    Zero,
}

#[rustfmt::skip]
const SMALL: [(&str, Small); 44] = [
    ("is_refresh", Small::Flag(12)), ("is_link", Small::Flag(9)), ("is_download", Small::Flag(1)),
    ("is_not_bounce", Small::Flag(55)), ("is_internal", Small::Flag(35)), ("is_artificial", Small::Zero),
    ("is_counted", Small::Flag(97)), ("is_event", Small::Flag(4)), ("is_parameter", Small::Zero),
    ("is_first_view", Small::Flag(20)), ("is_logged_in", Small::Flag(15)), ("is_robot", Small::Flag(2)),
    ("has_cookies", Small::Flag(98)), ("has_script", Small::Flag(99)), ("has_flash", Small::Flag(3)),
    ("has_java", Small::Flag(30)), ("has_iframe", Small::Flag(8)), ("has_gps", Small::Flag(1)),
    ("has_goals", Small::Flag(5)), ("has_blocker", Small::Flag(25)), ("has_consent", Small::Flag(70)),
    ("is_dark", Small::Flag(40)), ("is_touch", Small::Flag(45)), ("is_full_screen", Small::Flag(2)),
    ("traffic_source", Small::Ranks(10, 1.2)), ("window_width", Small::Range(300, 2_560)),
    ("window_height", Small::Range(200, 1_440)), ("color_depth", Small::Ranks(4, 2.5)),
    ("browser_major", Small::Range(60, 120)), ("flash_major", Small::Zero), ("flash_minor", Small::Zero),
    ("script_version", Small::Ranks(12, 2.0)), ("zone_minutes", Small::Ranks(30, 1.4)),
    ("client_hour", Small::Range(0, 23)), ("age", Small::Ranks(6, 0.5)), ("sex", Small::Range(0, 2)),
    ("income", Small::Ranks(5, 0.4)), ("interests", Small::Ranks(2_000, 1.3)), ("robotness", Small::Ranks(3, 3.0)),
    ("scroll_percent", Small::Range(0, 100)), ("connection", Small::Ranks(7, 1.3)), ("tab_count", Small::Ranks(40, 1.5)),
    ("history_length", Small::Ranks(100, 1.2)), ("experiment", Small::Ranks(16, 0.3)),
];
/// Times in milliseconds, and other numbers with long tails.
const INTS: [(&str, u64); 14] = [
    ("dns_ms", 1_000),
    ("connect_ms", 2_000),
    ("tls_ms", 2_000),
    ("response_start_ms", 20_000),
    ("response_end_ms", 30_000),
    ("dom_ready_ms", 60_000),
    ("load_ms", 120_000),
    ("paint_ms", 30_000),
    ("redirect_ms", 5_000),
    ("visit_seconds", 7_200),
    ("bytes_sent", 10_000_000),
    ("clicks", 500),
    ("referer_category", 15_000),
    ("url_category", 15_000),
];
/// Texts most of which are empty: how many percent are not, and how many there are.
const RARE_TEXTS: [(&str, i32, u64); 10] = [
    ("utm_source", 6, 200),
    ("utm_medium", 6, 20),
    ("utm_campaign", 6, 3_000),
    ("utm_content", 3, 5_000),
    ("utm_term", 2, 8_000),
    ("order_number", 1, 1 << 40),
    ("click_id", 2, 1 << 40),
    ("social_network", 3, 12),
    ("social_action", 1, 5),
    ("parameters", 5, 50_000),
];

pub(super) fn table(rows: u64) -> Table {
    let of = Views::new(rows);
    Table::new("views", rows, move |range: Range<u64>, mut random: Random| {
        let views: Vec<View> = range.clone().map(|row| of.view(row, &mut random)).collect();
        let each = || views.iter();
        let mut columns = Columns::default()
            .big("view_id", range.clone().map(|row| (mixed(row + 1) >> 1) as i64))
            .int("counter_id", each().map(|view| view.page.site as i32))
            .time("event_time", each().map(|view| view.second))
            .date("event_date", each().map(|view| (view.second / DAY) as i32))
            .big("user_id", each().map(|view| user_id(view.user)))
            .big("session_id", each().map(|view| (mixed(view.user << 12 | (view.second / 3_600) as u64) >> 1) as i64))
            .int("region_id", each().map(|view| view.region))
            .int("client_ip", each().map(|view| view.address))
            .int("server_ip", each().map(|view| mixed(view.page.site) as i32 & 0x7FFF_FFFF))
            .written("url", each(), |text, view| view.page.write_url(text))
            .written("title", each(), |text, view| view.page.write_title(text))
            .written("referer", each(), |text, view| view.write_referer(text))
            .written("search_phrase", each().map(|view| view.phrase), |text, phrase| {
                if phrase > 0 {
                    write_phrase(text, phrase, " ");
                }
            })
            .big("url_hash", each().map(|view| view.page.hash()))
            .big("referer_hash", each().map(View::referer_hash))
            .small("search_engine_id", each().map(|view| view.engine))
            .small("system_id", each().map(|view| view.system))
            .small("browser_id", each().map(|view| view.browser))
            .small("mobile_phone", each().map(|view| view.phone))
            .written("mobile_model", each(), |text, view| {
                if view.phone > 0 {
                    let _ = write!(text, "{} {}", WORDS[view.phone as usize], view.model);
                }
            })
            .small("screen_width", each().map(|view| view.width))
            .small("screen_height", each().map(|view| (i32::from(view.width) * 9 / 16) as i16))
            .written("language", each(), |text, view| text.push_str(&WORDS[view.region as usize % 40][..2]))
            .written("country", each(), |text, view| text.push_str(&WORDS[view.region as usize % 150]))
            .text("charset", each().map(|view| if view.page.site % 9 == 0 { "windows-1251" } else { "utf-8" }))
            .small(
                "adv_engine_id",
                each()
                    .map(|_| if random.percent(1) { random.range(1, 40) as i16 } else { 0 })
                    .collect::<Vec<_>>()
                    .into_iter(),
            )
            .big("random_id", each().map(|_| (random.next() >> 1) as i64).collect::<Vec<_>>().into_iter())
            .float(
                "price",
                each().map(|_| if random.percent(2) { f64::from(random.range(1, 99_999)) / 100.0 } else { 0.0 }),
            );
        for (name, draw) in SMALL {
            let ranks = match draw {
                Small::Ranks(count, exponent) => Zipf::new(count, exponent),
                _ => Zipf::new(1, 2.0),
            };
            columns = columns.small(
                name,
                each().map(|_| match draw {
                    Small::Flag(percent) => i16::from(random.percent(percent)),
                    Small::Ranks(..) => ranks.rank(&mut random) as i16,
                    Small::Range(from, to) => random.range(from, to) as i16,
                    Small::Zero => 0,
                }),
            );
        }
        for (name, limit) in INTS {
            let ranks = Zipf::new(limit, 0.9);
            columns = columns.int(name, each().map(|_| ranks.rank(&mut random) as i32));
        }
        for (name, percent, count) in RARE_TEXTS {
            let ranks = Zipf::new(count, 0.7);
            let drawn = each().map(|_| if random.percent(percent) { Some(ranks.rank(&mut random)) } else { None });
            columns = columns.written(name, drawn, |text, rank| {
                if let Some(rank) = rank {
                    let _ = write!(text, "{}_{rank}", WORDS[rank as usize % WORDS.len()]);
                }
            });
        }
        columns.batch()
    })
}

pub(super) fn queries() -> Vec<Query> {
    let sums: Vec<String> = (0..90).map(|n| format!("sum(screen_width + {n}) AS sum_{n}")).collect();
    let (front, second) = (Page { site: SITE, page: 0 }.hash(), Page { site: SITE, page: 1 }.hash());
    let user = user_id(5);
    let site = format!("counter_id = {SITE}");
    let july = format!("{site} AND event_date >= '2023-07-01' AND event_date <= '2023-07-31'");
    let counted = format!("{july} AND is_counted = 1 AND is_refresh = 0");
    // Ties are broken by the columns of the groups, so that there is one answer.
    #[rustfmt::skip]
    let texts = [
        "SELECT count(*) FROM views".into(),
        "SELECT count(*) FROM views WHERE adv_engine_id <> 0".into(),
        "SELECT sum(adv_engine_id), count(*), avg(screen_width) FROM views".into(),
        "SELECT avg(user_id) FROM views".into(),
        "SELECT count(DISTINCT user_id) FROM views".into(),
        "SELECT count(DISTINCT search_phrase) FROM views".into(),
        "SELECT min(event_date), max(event_date) FROM views".into(),
        "SELECT adv_engine_id, count(*) AS n FROM views WHERE adv_engine_id <> 0 GROUP BY adv_engine_id ORDER BY n DESC, adv_engine_id".into(),
        "SELECT region_id, count(DISTINCT user_id) AS users FROM views GROUP BY region_id ORDER BY users DESC, region_id LIMIT 10".into(),
        "SELECT region_id, sum(adv_engine_id), count(*) AS n, avg(screen_width), count(DISTINCT user_id) FROM views \
         GROUP BY region_id ORDER BY n DESC, region_id LIMIT 10".into(),
        "SELECT mobile_model, count(DISTINCT user_id) AS users FROM views WHERE mobile_model <> '' \
         GROUP BY mobile_model ORDER BY users DESC, mobile_model LIMIT 10".into(),
        "SELECT mobile_phone, mobile_model, count(DISTINCT user_id) AS users FROM views WHERE mobile_model <> '' \
         GROUP BY mobile_phone, mobile_model ORDER BY users DESC, mobile_phone, mobile_model LIMIT 10".into(),
        "SELECT search_phrase, count(*) AS n FROM views WHERE search_phrase <> '' \
         GROUP BY search_phrase ORDER BY n DESC, search_phrase LIMIT 10".into(),
        "SELECT search_phrase, count(DISTINCT user_id) AS users FROM views WHERE search_phrase <> '' \
         GROUP BY search_phrase ORDER BY users DESC, search_phrase LIMIT 10".into(),
        "SELECT search_engine_id, search_phrase, count(*) AS n FROM views WHERE search_phrase <> '' \
         GROUP BY search_engine_id, search_phrase ORDER BY n DESC, search_engine_id, search_phrase LIMIT 10".into(),
        "SELECT user_id, count(*) AS n FROM views GROUP BY user_id ORDER BY n DESC, user_id LIMIT 10".into(),
        "SELECT user_id, search_phrase, count(*) AS n FROM views GROUP BY user_id, search_phrase \
         ORDER BY n DESC, user_id, search_phrase LIMIT 10".into(),
        "SELECT user_id, search_phrase, count(*) FROM views GROUP BY user_id, search_phrase LIMIT 10".into(),
        "SELECT user_id, extract(minute FROM event_time) AS minute, search_phrase, count(*) AS n FROM views \
         GROUP BY user_id, minute, search_phrase ORDER BY n DESC, user_id, minute, search_phrase LIMIT 10".into(),
        format!("SELECT user_id FROM views WHERE user_id = {user}"),
        "SELECT count(*) FROM views WHERE url LIKE '%market%'".into(),
        "SELECT search_phrase, min(url), count(*) AS n FROM views WHERE url LIKE '%market%' AND search_phrase <> '' \
         GROUP BY search_phrase ORDER BY n DESC, search_phrase LIMIT 10".into(),
        "SELECT search_phrase, min(url), min(title), count(*) AS n, count(DISTINCT user_id) FROM views \
         WHERE title LIKE '%garden%' AND url NOT LIKE '%.market.%' AND search_phrase <> '' \
         GROUP BY search_phrase ORDER BY n DESC, search_phrase LIMIT 10".into(),
        "SELECT * FROM views WHERE url LIKE '%market%' ORDER BY event_time, view_id LIMIT 10".into(),
        "SELECT search_phrase FROM views WHERE search_phrase <> '' ORDER BY event_time, view_id LIMIT 10".into(),
        "SELECT search_phrase FROM views WHERE search_phrase <> '' ORDER BY search_phrase LIMIT 10".into(),
        "SELECT search_phrase FROM views WHERE search_phrase <> '' ORDER BY event_time, search_phrase LIMIT 10".into(),
        "SELECT counter_id, avg(length(url)) AS mean, count(*) AS n FROM views WHERE url <> '' \
         GROUP BY counter_id HAVING count(*) > 1000 ORDER BY mean DESC, counter_id LIMIT 25".into(),
        "SELECT regexp_replace(referer, '^https?://(?:www\\.)?([^/]+)/.*$', '\\1') AS site, avg(length(referer)) AS mean, \
         count(*) AS n, min(referer) FROM views WHERE referer <> '' \
         GROUP BY site HAVING count(*) > 1000 ORDER BY mean DESC, site LIMIT 25".into(),
        format!("SELECT {} FROM views", sums.join(", ")),
        "SELECT search_engine_id, client_ip, count(*) AS n, sum(is_refresh), avg(screen_width) FROM views \
         WHERE search_phrase <> '' GROUP BY search_engine_id, client_ip ORDER BY n DESC, search_engine_id, client_ip LIMIT 10".into(),
        "SELECT view_id, client_ip, count(*) AS n, sum(is_refresh), avg(screen_width) FROM views \
         WHERE search_phrase <> '' GROUP BY view_id, client_ip ORDER BY n DESC, view_id, client_ip LIMIT 10".into(),
        "SELECT view_id, client_ip, count(*) AS n, sum(is_refresh), avg(screen_width) FROM views \
         GROUP BY view_id, client_ip ORDER BY n DESC, view_id, client_ip LIMIT 10".into(),
        "SELECT url, count(*) AS n FROM views GROUP BY url ORDER BY n DESC, url LIMIT 10".into(),
        "SELECT 1 AS one, url, count(*) AS n FROM views GROUP BY one, url ORDER BY n DESC, url LIMIT 10".into(),
        "SELECT client_ip, client_ip - 1 AS a, client_ip - 2 AS b, client_ip - 3 AS c, count(*) AS n FROM views \
         GROUP BY client_ip, a, b, c ORDER BY n DESC, client_ip LIMIT 10".into(),
        format!("SELECT url, count(*) AS n FROM views WHERE {counted} AND url <> '' GROUP BY url ORDER BY n DESC, url LIMIT 10"),
        format!("SELECT title, count(*) AS n FROM views WHERE {counted} AND title <> '' GROUP BY title ORDER BY n DESC, title LIMIT 10"),
        format!("SELECT url, count(*) AS n FROM views WHERE {july} AND is_refresh = 0 AND is_link = 1 AND is_download = 0 \
                 GROUP BY url ORDER BY n DESC, url LIMIT 10 OFFSET 100"),
        format!("SELECT traffic_source, search_engine_id, adv_engine_id, \
                 CASE WHEN search_engine_id = 0 AND adv_engine_id = 0 THEN referer ELSE '' END AS source, url, count(*) AS n \
                 FROM views WHERE {july} AND is_refresh = 0 GROUP BY traffic_source, search_engine_id, adv_engine_id, source, url \
                 ORDER BY n DESC, traffic_source, search_engine_id, adv_engine_id, source, url LIMIT 10 OFFSET 100"),
        format!("SELECT url_hash, event_date, count(*) AS n FROM views WHERE {july} AND is_refresh = 0 AND traffic_source IN (1, 6) \
                 AND referer_hash = {front} GROUP BY url_hash, event_date ORDER BY n DESC, url_hash, event_date LIMIT 10 OFFSET 10"),
        format!("SELECT window_width, window_height, count(*) AS n FROM views WHERE {counted} AND url_hash = {second} \
                 GROUP BY window_width, window_height ORDER BY n DESC, window_width, window_height LIMIT 10 OFFSET 10"),
        format!("SELECT date_trunc('minute', event_time) AS minute, count(*) AS n FROM views WHERE {site} \
                 AND event_date >= '2023-07-14' AND event_date <= '2023-07-15' AND is_refresh = 0 AND is_counted = 1 \
                 GROUP BY minute ORDER BY minute LIMIT 10 OFFSET 1000"),
    ];
    let answer =
        |sql: &str| if sql.contains("LIMIT") && !sql.contains("ORDER BY") { Answer::Count } else { Answer::Rows };
    (1..)
        .zip(texts)
        .map(|(number, sql): (u32, String)| Query::new(format!("Q{number}"), sql.clone(), answer(&sql)))
        .collect()
}
