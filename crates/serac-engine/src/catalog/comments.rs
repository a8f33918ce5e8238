//! The comments on objects and their columns (COMMENT ON). A comment follows its object through
//! renames and is dropped with it.

use crate::security::Object;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The comments of a version of the catalog, by object and, for a comment on a column, by column.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Comment>", into = "Vec<Comment>")]
pub struct Comments(BTreeMap<(Object, Option<String>), String>);

/// As it is logged: JSON's maps have texts as keys only.
type Comment = ((Object, Option<String>), String);

impl From<Vec<Comment>> for Comments {
    fn from(all: Vec<Comment>) -> Self {
        Self(all.into_iter().collect())
    }
}
impl From<Comments> for Vec<Comment> {
    fn from(comments: Comments) -> Self {
        comments.0.into_iter().collect()
    }
}

impl Comments {
    /// All comments, with their objects.
    pub fn iter(&self) -> impl Iterator<Item = (&Object, Option<&str>, &str)> {
        self.0.iter().map(|((object, column), text)| (object, column.as_deref(), text.as_str()))
    }

    /// An object has another name.
    pub(crate) fn renamed(&mut self, object: &Object, new: &Object) {
        let moved: Vec<_> = self.0.extract_if(.., |(of, _), _| of == object).collect();
        self.0.extend(moved.into_iter().map(|((_, column), text)| ((new.clone(), column), text)));
    }

    /// A column has another name.
    pub(crate) fn column_renamed(&mut self, object: &Object, column: &str, new: &str) {
        if let Some(text) = self.0.remove(&(object.clone(), Some(column.to_owned()))) {
            self.0.insert((object.clone(), Some(new.to_owned())), text);
        }
    }

    fn of<'c>(&'c self, object: &'c Object) -> impl Iterator<Item = (&'c (Object, Option<String>), &'c String)> {
        self.0.range((object.clone(), None)..).take_while(move |((of, _), _)| of == object)
    }

    /// The objects with another comment in `other`.
    pub(crate) fn differing(&self, other: &Self) -> BTreeSet<Object> {
        let missing = |from: &Self, at: &Self| -> Vec<Object> {
            from.0.iter().filter(|(key, text)| at.0.get(*key) != Some(*text)).map(|((of, _), _)| of.clone()).collect()
        };
        missing(self, other).into_iter().chain(missing(other, self)).collect()
    }

    /// Whether `other` says the same of an object.
    pub(crate) fn has_same(&self, other: &Self, object: &Object) -> bool {
        self.of(object).eq(other.of(object))
    }

    /// Takes over the comments of an object from `other`.
    pub(crate) fn take(&mut self, object: &Object, other: &Self) {
        if !self.has_same(other, object) {
            self.0.retain(|(of, _), _| of != object);
            self.0.extend(other.of(object).map(|(key, text)| (key.clone(), text.clone())));
        }
    }

    /// Sets the comment on an object or one of its columns; `None` removes it.
    pub(crate) fn set(&mut self, object: &Object, column: Option<&str>, text: Option<String>) {
        let about = (object.clone(), column.map(str::to_owned));
        match text {
            Some(text) => _ = self.0.insert(about, text),
            None => _ = self.0.remove(&about),
        }
    }

    /// Whether there is a comment on an object, or on a column of it, that `exists` denies.
    pub(crate) fn outlive(&self, exists: impl Fn(&Object, Option<&str>) -> bool) -> bool {
        self.0.keys().any(|(object, column)| !exists(object, column.as_deref()))
    }

    /// Forgets the comments on objects and columns that `exists` denies.
    pub(crate) fn forget_gone(&mut self, exists: impl Fn(&Object, Option<&str>) -> bool) {
        self.0.retain(|(object, column), _| exists(object, column.as_deref()));
    }
}
