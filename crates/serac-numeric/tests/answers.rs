//! PostgreSQL 15's answers.
//!
//! Each line of `answers.txt` is a function, its arguments, and its value or SQLSTATE, with bars
//! between them. Of a long value there are its length, its first and its last 40 characters; a long
//! argument is `9*length`.

use serac_numeric::sums::Sums;
use serac_numeric::{Numeric, NumericError, Result};

fn number(text: &str) -> Result<Numeric> {
    text.parse()
}

fn truth(value: bool) -> String {
    if value { "t" } else { "f" }.into()
}

fn computed(function: &str, arguments: &[String]) -> Result<String> {
    let at = |at: usize| number(&arguments[at]);
    let whole = |at: usize| arguments[at].parse::<i32>().unwrap();
    let shown = |value: Numeric| value.to_string();
    Ok(match function {
        "text" => shown(at(0)?),
        "+" => shown(at(0)?.plus(&at(1)?)?),
        "-" => shown(at(0)?.minus(&at(1)?)?),
        "*" => shown(at(0)?.times(&at(1)?)?),
        "/" => shown(at(0)?.divided(&at(1)?)?),
        "%" => shown(at(0)?.remainder(&at(1)?)?),
        "div" => shown(at(0)?.divided_whole(&at(1)?)?),
        "=" => {
            let (left, right) = (at(0)?, at(1)?);
            assert_eq!(left == right, left.to_key() == right.to_key());
            truth(left == right)
        }
        "<" => {
            let (left, right) = (at(0)?, at(1)?);
            assert_eq!(left.cmp(&right), left.to_key().cmp(&right.to_key()));
            truth(left < right)
        }
        "round" => shown(at(0)?.rounded(whole(1))?),
        "trunc" => shown(at(0)?.truncated(whole(1))),
        "ceil" => shown(at(0)?.ceiling()?),
        "floor" => shown(at(0)?.floor()?),
        "sign" => shown(at(0)?.sign()),
        "abs" => shown(at(0)?.absolute()),
        "neg" => shown(at(0)?.negated()),
        "sqrt" => shown(at(0)?.square_root()?),
        "exp" => shown(at(0)?.exponential()?),
        "ln" => shown(at(0)?.logarithm()?),
        "log" => shown(at(1)?.logarithm_of_base(&at(0)?)?),
        "power" => shown(at(0)?.power(&at(1)?)?),
        "gcd" => shown(at(0)?.greatest_common_divisor(&at(1)?)?),
        "lcm" => shown(at(0)?.least_common_multiple(&at(1)?)?),
        "min_scale" => at(0)?.least_scale().map_or_else(String::new, |scale| scale.to_string()),
        "scale" => at(0)?.scale().map_or_else(String::new, |scale| scale.to_string()),
        "trim_scale" => shown(at(0)?.trimmed()),
        "int4" => at(0)?.to_whole::<i32>()?.to_string(),
        "int8" => at(0)?.to_whole::<i64>()?.to_string(),
        "float8" => at(0)?.to_f64()?.to_string(),
        "float4" => at(0)?.to_f32()?.to_string(),
        "of_float8" => shown(Numeric::of_f64(arguments[0].parse().unwrap())),
        "of_float4" => shown(Numeric::of_f32(arguments[0].parse().unwrap())),
        "digits" => shown(at(0)?.with_digits(whole(1), whole(2))?),
        "width_bucket" => at(0)?.width_bucket(&at(1)?, &at(2)?, whole(3))?.to_string(),
        "factorial" => shown(Numeric::factorial(whole(0).into())?),
        other => panic!("{other}"),
    })
}

/// The number once more, by each of its forms as bytes.
fn by_bytes(text: &str) {
    let Ok(value) = number(text) else { return };
    let stored = Numeric::of_stored(&value.to_stored()).unwrap();
    assert_eq!(stored.to_string(), value.to_string());
    let mut wire = Vec::new();
    value.write_wire(&mut wire);
    assert_eq!(Numeric::of_wire(&wire).unwrap().to_string(), value.to_string());
    // A key tells no digits behind the point.
    let key = value.to_key();
    let of_key = Numeric::of_key(&key).unwrap();
    assert!(of_key == value, "{of_key} is not {value}");
    assert_eq!(of_key.to_key(), key);
    assert!(Numeric::of_key(&key[..key.len() - 1]).map_or(true, |other| other != value), "{text}");
}

#[test]
fn answers_are_postgresqls() {
    let (mut all, mut wrong) = (0, Vec::new());
    // Another file may be compared in place of the one that is kept.
    let text = match std::env::var("SERAC_NUMERIC_ANSWERS") {
        Ok(path) => std::fs::read_to_string(path).unwrap(),
        Err(_) => include_str!("answers.txt").to_owned(),
    };
    for line in text.lines() {
        let mut parts: Vec<String> = line.split('|').map(str::to_owned).collect();
        let mut answer = parts.pop().unwrap();
        // Floats are compared as such: the shortest text of one is not always the same.
        if !answer.starts_with('!') {
            match parts[0].as_str() {
                "float8" => answer = answer.parse::<f64>().unwrap().to_string(),
                "float4" => answer = answer.parse::<f32>().unwrap().to_string(),
                _ => {}
            }
        }
        for part in &mut parts {
            if let Some(length) = part.strip_prefix("9*").map(|length| length.parse().unwrap()) {
                *part = "9".repeat(length);
            }
        }
        let given = match computed(&parts[0], &parts[1..]) {
            Ok(value) if value.len() > 400 => {
                format!("#{} {} {}", value.len(), &value[..40], &value[value.len() - 40..])
            }
            Ok(value) => value,
            Err(NumericError { sqlstate, .. }) => format!("!{sqlstate}"),
        };
        by_bytes(&given);
        all += 1;
        if given != answer {
            wrong.push(format!("{line}\n    {given}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {all} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(all >= 500, "{all}");
}

/// The key of a number does not depend on zeros behind it, however many there are.
#[test]
fn keys_leave_zeros_out() {
    for text in ["1", "-1", "0.5", "12345.678", "-7e20", "99999999999999999999", "1e-9", "-0.00012"] {
        let value = number(text).unwrap();
        let longer = value.rounded(60).unwrap();
        assert_eq!((value.to_key(), value.scale() == longer.scale()), (longer.to_key(), false), "{text}");
    }
}

/// Sums of values, in parts and with others taken out again, are those of all.
#[test]
fn sums_are_the_same_in_parts() {
    let values = ["1.5", "-2.25", "1e-20", "NaN", "3", "Infinity", "-Infinity", "99999999999999999999999.5"];
    let values = values.map(|text| number(text).unwrap());
    let shown = |sums: &Sums| {
        let text = |value: Result<Option<Numeric>>| value.unwrap().map(|value| value.to_string());
        let variances = [(false, false), (false, true), (true, false), (true, true)]
            .map(|(is_sample, is_root)| text(sums.variance(is_sample, is_root)));
        (text(sums.sum()), text(sums.average()), variances)
    };
    let of = |values: &[Numeric]| {
        let mut sums = Sums::new(true);
        values.iter().for_each(|value| sums.add(value));
        sums
    };
    for start in 0..values.len() {
        for end in start..=values.len() {
            let mut parts = of(&values[start..end]);
            parts.merge(&of(&values[..start]));
            parts.merge(&of(&values[end..]));
            values[..start].iter().chain(&values[end..]).for_each(|value| parts.remove(value));
            let whole = of(&values[start..end]);
            assert_eq!(shown(&parts), shown(&whole), "{start}..{end}");
            assert_eq!(shown(&Sums::of_bytes(&parts.to_bytes()).unwrap()), shown(&whole));
        }
    }
    assert_eq!(Sums::of_bytes(&[1, 2, 3]).map(|sums| sums.count()), None);
}

/// PostgreSQL's answers for 1.5, 2.25 and 4.
#[test]
fn variances_are_postgresqls() {
    let mut sums = Sums::new(true);
    ["1.5", "2.25", "4"].iter().for_each(|text| sums.add(&number(text).unwrap()));
    let text = |value: Result<Option<Numeric>>| value.unwrap().unwrap().to_string();
    assert_eq!(text(sums.sum()), "7.75");
    assert_eq!(text(sums.average()), "2.5833333333333333");
    assert_eq!(text(sums.variance(true, false)), "1.6458333333333333");
    assert_eq!(text(sums.variance(true, true)), "1.2829003598617210");
    assert_eq!(text(sums.variance(false, false)), "1.09722222222222222222");
    assert_eq!(text(sums.variance(false, true)), "1.04748375749804455964");
}
