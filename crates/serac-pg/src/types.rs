//! The types of SQL, apart from how Arrow stores their values.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

/// A type, by PostgreSQL's number for it (`pg_type.oid`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// A type and its modifier, as a column has them (`atttypid`, `atttypmod`): the length of a
/// VARCHAR(n), the digits of a NUMERIC(p, s).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ModifiedType {
    /// The type.
    pub id: TypeId,
    /// Its modifier as PostgreSQL packs it; [`NO_MODIFIER`] without a modifier.
    pub modifier: i32,
}

/// The modifier of a type that has none.
pub const NO_MODIFIER: i32 = -1;

/// The number that PostgreSQL adds to a length, and to packed digits.
const HEADER: i32 = 4;

/// The bits of an interval's fields in a modifier, by their words.
const INTERVAL_FIELDS: [(&str, u16); 13] = [
    ("year", 1 << 2),
    ("month", 1 << 1),
    ("day", 1 << 3),
    ("hour", 1 << 10),
    ("minute", 1 << 11),
    ("second", 1 << 12),
    ("year to month", 1 << 2 | 1 << 1),
    ("day to hour", 1 << 3 | 1 << 10),
    ("day to minute", 1 << 3 | 1 << 10 | 1 << 11),
    ("day to second", 1 << 3 | 1 << 10 | 1 << 11 | 1 << 12),
    ("hour to minute", 1 << 10 | 1 << 11),
    ("hour to second", 1 << 10 | 1 << 11 | 1 << 12),
    ("minute to second", 1 << 11 | 1 << 12),
];
/// Stands for all fields of an interval.
const ALL_FIELDS: u16 = 0x7fff;
/// Stands for all digits of a second.
const ALL_DIGITS: u16 = 0xffff;

/// The bits of an interval's fields, by their words: `day to second`.
pub fn interval_fields(words: &str) -> Option<u16> {
    INTERVAL_FIELDS.iter().find(|(own, _)| own.eq_ignore_ascii_case(words)).map(|(_, fields)| *fields)
}

impl From<TypeId> for ModifiedType {
    fn from(id: TypeId) -> Self {
        Self { id, modifier: NO_MODIFIER }
    }
}

impl ModifiedType {
    /// VARCHAR(n) or CHAR(n).
    pub fn of_length(id: TypeId, length: u32) -> Self {
        Self { id, modifier: i32::try_from(length).unwrap_or(i32::MAX).saturating_add(HEADER) }
    }

    /// NUMERIC(p, s). The scale, which may be negative, has the last 11 bits.
    pub fn of_digits(precision: u16, scale: i16) -> Self {
        Self { id: TypeId::NUMERIC, modifier: (i32::from(precision) << 16 | i32::from(scale) & 0x7ff) + HEADER }
    }

    /// INTERVAL of certain fields, by their bits ([`interval_fields`]), or with a number of digits
    /// of a second.
    pub fn of_interval(fields: Option<u16>, digits: Option<u16>) -> Self {
        let fields = i32::from(fields.unwrap_or(ALL_FIELDS));
        Self { id: TypeId::INTERVAL, modifier: fields << 16 | i32::from(digits.unwrap_or(ALL_DIGITS)) }
    }

    /// The digits of a second of an INTERVAL(n) of all fields.
    pub fn interval_digits(self) -> Option<u32> {
        let (fields, digits) = ((self.modifier >> 16) as u16, (self.modifier & 0xffff) as u16);
        let is_told = self.id == TypeId::INTERVAL && self.modifier >= 0 && fields == ALL_FIELDS && digits != ALL_DIGITS;
        is_told.then(|| digits.into())
    }

    /// The words behind INTERVAL: ` day to second(3)`.
    fn interval_words(self) -> String {
        let (fields, digits) = ((self.modifier >> 16) as u16, (self.modifier & 0xffff) as u16);
        let named = INTERVAL_FIELDS.iter().find(|(_, own)| *own == fields).map(|(words, _)| format!(" {words}"));
        let digits = if digits == ALL_DIGITS { String::new() } else { format!("({digits})") };
        named.unwrap_or_default() + &digits
    }

    /// The characters of a VARCHAR(n) or CHAR(n); `None` for other types, and without a length.
    pub fn length(self) -> Option<u32> {
        let has_length = matches!(self.id, TypeId::VARCHAR | TypeId::BPCHAR);
        u32::try_from(self.modifier - HEADER).ok().filter(|_| has_length && self.modifier >= HEADER)
    }

    /// The precision and the scale of a NUMERIC(p, s).
    pub fn digits(self) -> Option<(u16, i16)> {
        let packed = u32::try_from(self.modifier.checked_sub(HEADER)?).ok()?;
        // The scale's sign is its eleventh bit.
        let scale = ((packed & 0x7ff) ^ 0x400) as i16 - 0x400;
        let digits = (u16::try_from(packed >> 16).ok()?, scale);
        (self.id == TypeId::NUMERIC).then_some(digits)
    }

    /// The type that several values of one type have together: their modifier if it is the same.
    pub fn common(id: TypeId, all: impl IntoIterator<Item = Self>) -> Self {
        let mut all = all.into_iter();
        match all.next() {
            Some(first) if first.id == id && all.all(|other| other == first) => first,
            _ => id.into(),
        }
    }
}

/// The category of a type (`pg_type.typcategory`). Types of one category are cast to each other
/// more readily.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Arrays.
    Array,
    /// BOOLEAN.
    Boolean,
    /// Rows.
    Composite,
    /// Dates and times.
    DateTime,
    /// Numbers, and the numbers of catalog objects.
    Numeric,
    /// Types that stand for others.
    Pseudo,
    /// Texts.
    String,
    /// Intervals.
    Timespan,
    /// Others.
    User,
    /// A constant whose type is not known yet.
    Unknown,
    /// For internal use.
    Internal,
}

/// The properties of a type.
#[derive(Debug)]
struct Facts {
    name: &'static str,
    number: TypeId,
    category: Category,
    is_preferred: bool,
    bytes: i16,
    array: Option<TypeId>,
    element: Option<TypeId>,
    sql_name: String,
}

impl Facts {
    /// The properties of the arrays of this type.
    fn of_arrays(&self) -> Option<Self> {
        Some(Self {
            name: format!("_{}", self.name).leak(),
            number: self.array?,
            category: Category::Array,
            is_preferred: false,
            bytes: -1,
            array: None,
            element: Some(self.number),
            sql_name: format!("{}[]", self.sql_name),
        })
    }
}

struct Types {
    by_number: HashMap<TypeId, Facts>,
    by_name: HashMap<&'static str, TypeId>,
}

/// Types that are arrays, too, by the types of their elements.
const VECTORS: [(&str, TypeId); 2] = [("int2vector", TypeId::INT2), ("oidvector", TypeId::OID)];

static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let number = |word: &str| word.parse().expect("the table has numbers");
    let facts = |row: Vec<&'static str>| Facts {
        name: row[0],
        number: TypeId(number(row[1])),
        category: Category::of_letter(row[2]),
        is_preferred: row[3] == "preferred",
        bytes: row[4].parse().expect("the table has sizes"),
        array: Some(TypeId(number(row[5]))).filter(|array| array.0 != 0),
        element: VECTORS.iter().find(|(name, _)| *name == row[0]).map(|(_, element)| *element),
        sql_name: row[6].replace('_', " "),
    };
    let of_both = |facts: Facts| facts.of_arrays().into_iter().chain([facts]).collect::<Vec<_>>();
    let all = crate::rows(include_str!("facts/types.txt")).flat_map(|row| of_both(facts(row)));
    let by_number: HashMap<_, _> = all.map(|facts| (facts.number, facts)).collect();
    let by_name = by_number.values().map(|facts| (facts.name, facts.number)).collect();
    Types { by_number, by_name }
});

impl Category {
    fn of_letter(letter: &str) -> Self {
        match letter {
            "A" => Self::Array,
            "B" => Self::Boolean,
            "C" => Self::Composite,
            "D" => Self::DateTime,
            "N" => Self::Numeric,
            "P" => Self::Pseudo,
            "S" => Self::String,
            "T" => Self::Timespan,
            "X" => Self::Unknown,
            "Z" => Self::Internal,
            _ => Self::User,
        }
    }
}

/// The constants, each with the name that the table gives to its number.
macro_rules! constants {
    ($($(#[$doc:meta])* $constant:ident = $number:literal $name:literal;)*) => {
        impl TypeId {
            $($(#[$doc])* pub const $constant: Self = Self($number);)*
        }
        #[cfg(test)]
        const CONSTANTS: &[(TypeId, &str)] = &[$((TypeId::$constant, $name)),*];
    };
}

constants! {
    /// BOOLEAN.
    BOOL = 16 "bool";
    /// BYTEA.
    BYTEA = 17 "bytea";
    /// "char": a single byte.
    CHAR = 18 "char";
    /// NAME: of a catalog object.
    NAME = 19 "name";
    /// BIGINT.
    INT8 = 20 "int8";
    /// SMALLINT.
    INT2 = 21 "int2";
    /// INTEGER.
    INT4 = 23 "int4";
    /// TEXT.
    TEXT = 25 "text";
    /// The number of a catalog object.
    OID = 26 "oid";
    /// The place of a row in its table.
    TID = 27 "tid";
    /// The number of a function.
    REGPROC = 24 "regproc";
    /// The number of a relation.
    REGCLASS = 2205 "regclass";
    /// The number of a type.
    REGTYPE = 2206 "regtype";
    /// TEXT[].
    TEXT_ARRAY = 1009 "_text";
    /// SMALLINTs in a catalog, the first of which has the number 0.
    INT2VECTOR = 22 "int2vector";
    /// OIDs in a catalog, the first of which has the number 0.
    OIDVECTOR = 30 "oidvector";
    /// JSON.
    JSON = 114 "json";
    /// REAL.
    FLOAT4 = 700 "float4";
    /// DOUBLE PRECISION.
    FLOAT8 = 701 "float8";
    /// A quoted constant, or NULL, whose type is not known yet.
    UNKNOWN = 705 "unknown";
    /// CHAR(n).
    BPCHAR = 1042 "bpchar";
    /// VARCHAR(n).
    VARCHAR = 1043 "varchar";
    /// DATE.
    DATE = 1082 "date";
    /// TIME.
    TIME = 1083 "time";
    /// TIMESTAMP.
    TIMESTAMP = 1114 "timestamp";
    /// TIMESTAMP WITH TIME ZONE.
    TIMESTAMPTZ = 1184 "timestamptz";
    /// INTERVAL.
    INTERVAL = 1186 "interval";
    /// TIME WITH TIME ZONE.
    TIMETZ = 1266 "timetz";
    /// NUMERIC.
    NUMERIC = 1700 "numeric";
    /// A row.
    RECORD = 2249 "record";
    /// The result type of a function without a value. The value is an empty text.
    VOID = 2278 "void";
    /// Any type, as the type of an argument.
    ANY = 2276 "any";
    /// The array of the type that ANYELEMENT stands for.
    ANYARRAY = 2277 "anyarray";
    /// One type, the same for all arguments that have it.
    ANYELEMENT = 2283 "anyelement";
    /// As ANYELEMENT; arrays are left out.
    ANYNONARRAY = 2776 "anynonarray";
    /// UUID.
    UUID = 2950 "uuid";
    /// JSONB.
    JSONB = 3802 "jsonb";
    /// The common type of all arguments that have it.
    ANYCOMPATIBLE = 5077 "anycompatible";
    /// The array of the type that ANYCOMPATIBLE stands for.
    ANYCOMPATIBLEARRAY = 5078 "anycompatiblearray";
    /// As ANYCOMPATIBLE; arrays are left out.
    ANYCOMPATIBLENONARRAY = 5079 "anycompatiblenonarray";
}

impl TypeId {
    /// The type of a name of PostgreSQL's own: `int4`.
    pub fn by_name(name: &str) -> Option<Self> {
        TYPES.by_name.get(name).copied()
    }

    /// All types.
    pub fn all() -> impl Iterator<Item = Self> {
        TYPES.by_number.keys().copied()
    }

    fn facts(self) -> Option<&'static Facts> {
        TYPES.by_number.get(&self)
    }

    /// PostgreSQL's own name: `int4`.
    pub fn name(self) -> &'static str {
        self.facts().map_or("???", |facts| facts.name)
    }

    /// The name in SQL, as errors have it: `integer`.
    pub fn sql_name(self) -> &'static str {
        self.facts().map_or("???", |facts| &facts.sql_name)
    }

    /// Its category.
    pub fn category(self) -> Category {
        self.facts().map_or(Category::User, |facts| facts.category)
    }

    /// Whether it is the preferred type of its category for casts.
    pub fn is_preferred(self) -> bool {
        self.facts().is_some_and(|facts| facts.is_preferred)
    }

    /// Bytes of a value; -1 where they vary.
    pub fn bytes(self) -> i16 {
        self.facts().map_or(-1, |facts| facts.bytes)
    }

    /// The type of its arrays.
    pub fn array(self) -> Option<Self> {
        self.facts()?.array
    }

    /// The type of an array's elements; `None` for other types.
    pub fn element(self) -> Option<Self> {
        self.facts()?.element
    }

    /// Whether it is one of those that count their elements from 0.
    pub fn is_vector(self) -> bool {
        VECTORS.iter().any(|(name, _)| *name == self.name())
    }
}

/// Whether PostgreSQL has a type of a name that is not among those here.
pub fn is_left_out(name: &str) -> bool {
    include_str!("facts/other_types.txt").split_ascii_whitespace().any(|other| other == name)
}

impl fmt::Debug for TypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
impl fmt::Display for ModifiedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.id, self.length(), self.digits()) {
            // CHARACTER alone would be CHAR(1).
            (TypeId::BPCHAR, None, _) => f.write_str("bpchar"),
            (id, Some(length), _) => write!(f, "{id}({length})"),
            (id, _, Some((precision, scale))) => write!(f, "{id}({precision},{scale})"),
            (id @ (TypeId::TIME | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ), ..) if self.modifier >= 0 => {
                let (name, zone) = id.sql_name().split_once(' ').unwrap_or((id.sql_name(), ""));
                write!(f, "{name}({}) {zone}", self.modifier)
            }
            (TypeId::INTERVAL, ..) if self.modifier >= 0 => write!(f, "interval{}", self.interval_words()),
            (id, ..) => id.fmt(f),
        }
    }
}
impl fmt::Display for TypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.facts() {
            Some(facts) => f.write_str(&facts.sql_name),
            None => write!(f, "??? (OID {})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_their_numbers() {
        for (constant, name) in CONSTANTS {
            assert_eq!(TypeId::by_name(name), Some(*constant));
        }
    }

    #[test]
    fn names_are_sqls() {
        assert_eq!(TypeId::TIMESTAMPTZ.to_string(), "timestamp with time zone");
        assert_eq!(TypeId::INT4.to_string(), "integer");
        assert_eq!(TypeId(869).to_string(), "??? (OID 869)");
        assert_eq!(TypeId::by_name("char").unwrap().to_string(), "\"char\"");
    }

    #[test]
    fn modifiers_are_packed_as_in_postgresql() {
        let varchar = ModifiedType::of_length(TypeId::VARCHAR, 5);
        assert_eq!((varchar.modifier, varchar.length(), varchar.digits()), (9, Some(5), None));
        let numeric = ModifiedType::of_digits(12, 2);
        assert_eq!((numeric.modifier, numeric.digits(), numeric.length()), (786_438, Some((12, 2)), None));
        let negative = ModifiedType::of_digits(2, -3);
        assert_eq!((negative.modifier, negative.digits()), (133_121, Some((2, -3))));
        let seconds = ModifiedType::of_interval(None, Some(2));
        let range = ModifiedType::of_interval(interval_fields("DAY TO SECOND"), Some(2));
        assert_eq!((seconds.modifier, range.modifier), (2_147_418_114, 470_286_338));
        let fields = ModifiedType::of_interval(interval_fields("year to month"), None);
        assert_eq!(
            [seconds, range, fields].map(|of| of.to_string()),
            ["interval(2)", "interval day to second(2)", "interval year to month"]
        );
        let none = ModifiedType::from(TypeId::NUMERIC);
        assert_eq!((none.digits(), ModifiedType::from(TypeId::VARCHAR).length()), (None, None));
        let shown =
            [varchar, numeric, none, TypeId::BPCHAR.into(), ModifiedType { id: TypeId::TIMESTAMP, modifier: 3 }];
        assert_eq!(
            shown.map(|of| of.to_string()),
            ["character varying(5)", "numeric(12,2)", "numeric", "bpchar", "timestamp(3) without time zone"]
        );
        assert_eq!(ModifiedType::common(TypeId::VARCHAR, [varchar, varchar]), varchar);
        assert_eq!(ModifiedType::common(TypeId::VARCHAR, [varchar, TypeId::VARCHAR.into()]), TypeId::VARCHAR.into());
        assert_eq!(ModifiedType::common(TypeId::TEXT, [varchar, varchar]), TypeId::TEXT.into());
    }

    #[test]
    fn others_are_left_out() {
        assert!(is_left_out("point") && is_left_out("tsvector"));
        assert!(TypeId::all().all(|id| !is_left_out(id.name())));
    }

    #[test]
    fn types_have_arrays() {
        let array = TypeId::INT4.array().unwrap();
        assert_eq!((array.0, array.name(), array.to_string().as_str()), (1007, "_int4", "integer[]"));
        assert_eq!((array.element(), array.array(), array.category()), (Some(TypeId::INT4), None, Category::Array));
        assert_eq!(TypeId::INT2VECTOR.element(), Some(TypeId::INT2));
        assert_eq!(TypeId::ANYELEMENT.array(), None);
    }
}
