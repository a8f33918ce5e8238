//! All that a version of the catalog knows of roles, owners and grants.

use super::{DefaultGrant, Grant, Membership, Object, ObjectKind, PREDEFINED, Privilege, Privileges, Role, RoleId};
use crate::catalog::definition::DEFAULT_SCHEMA;
use crate::error::{Result, missing};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Maps whose keys are no texts, as lists of pairs: JSON has only text keys.
mod pairs {
    use super::{BTreeMap, Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}

/// Roles, owners and grants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Security {
    #[serde(with = "pairs")]
    roles: BTreeMap<RoleId, Role>,
    /// Objects that are not here belong to the bootstrap role.
    #[serde(with = "pairs")]
    pub(super) owners: BTreeMap<Object, RoleId>,
    /// Objects that are not here have the grants that all of their kind begin with.
    #[serde(with = "pairs")]
    grants: BTreeMap<Object, Vec<Grant>>,
    pub(super) defaults: Vec<DefaultGrant>,
}

impl Default for Security {
    fn default() -> Self {
        Self {
            roles: BTreeMap::from([(RoleId::BOOTSTRAP, Role::bootstrap())]),
            owners: BTreeMap::new(),
            grants: BTreeMap::new(),
            defaults: Vec::new(),
        }
    }
}

/// The privileges of everybody on an object without any GRANT or REVOKE.
fn initial_grants(object: &Object, owner: RoleId) -> Vec<Grant> {
    use Privilege::{Connect, Execute, Temporary, Usage};
    let privileges = match object {
        Object::Database => Privileges::of(&[Connect, Temporary]),
        Object::Schema(name) if name == DEFAULT_SCHEMA => Privileges::of(&[Usage]),
        Object::Procedure(_) => Privileges::of(&[Execute]),
        // A function's maker is responsible for the objects that it reaches.
        Object::Schema(_) | Object::Relation(..) | Object::Function(_) => return Vec::new(),
    };
    vec![Grant { grantee: RoleId::PUBLIC, grantor: owner, column: None, privileges, grantable: Privileges::NONE }]
}

/// The privileges that predefined roles have on all objects of a kind.
const ALL_DATA: [Privilege; 5] =
    [Privilege::Select, Privilege::Insert, Privilege::Update, Privilege::Delete, Privilege::Usage];

/// The roles that have a privilege on all objects of a kind.
fn everywhere(object: &Object, privilege: Privilege) -> &'static [RoleId] {
    use Privilege::{Delete, Insert, Select, Update, Usage};
    match (object, privilege) {
        (Object::Schema(_), Usage) => &[RoleId::READ_ALL_DATA, RoleId::WRITE_ALL_DATA],
        (Object::Relation(..), Select) => &[RoleId::READ_ALL_DATA],
        (Object::Relation(..), Insert | Update | Delete) => &[RoleId::WRITE_ALL_DATA],
        _ => &[],
    }
}

/// Takes from each grant the privileges that do not derive from the owner: those that neither the
/// owner nor a derived holder with grant option has given. Returns whether there was any.
pub(super) fn drop_unsupported(grants: &mut Vec<Grant>, owner: RoleId) -> bool {
    let mut supported = vec![Privileges::NONE; grants.len()];
    // From the owner outwards, so that two roles that have it from each other alone do not keep it.
    loop {
        let mut grew = false;
        for (at, grant) in grants.iter().enumerate() {
            let gives = |other: &Grant| {
                other.grantee == grant.grantor && (other.column.is_none() || other.column == grant.column)
            };
            let bases = grants.iter().zip(&supported).filter(|(other, _)| gives(other));
            let options = bases.fold(Privileges::NONE, |all, (other, held)| all.or(held.and(other.grantable)));
            let held = if grant.grantor == owner { grant.privileges } else { grant.privileges.and(options) };
            grew |= held != supported[at];
            supported[at] = held;
        }
        if !grew {
            break;
        }
    }
    let mut lost = false;
    for (grant, held) in grants.iter_mut().zip(supported) {
        lost |= grant.privileges != held;
        grant.privileges = held;
        grant.grantable = grant.grantable.and(held);
    }
    grants.retain(|grant| !grant.privileges.is_empty());
    lost
}

impl Security {
    // ---- roles

    /// All roles, those that every database has among them.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        let unchanged = PREDEFINED.values().filter(|role| !self.roles.contains_key(&role.id));
        self.roles.values().chain(unchanged)
    }

    /// A role.
    pub fn role(&self, id: RoleId) -> Option<&Role> {
        self.roles.get(&id).or_else(|| PREDEFINED.get(&id))
    }

    /// The role with this name.
    ///
    /// # Errors
    /// [`EngineError::Missing`](crate::EngineError::Missing).
    pub fn role_named(&self, name: &str) -> Result<&Role> {
        self.roles().find(|role| role.name == name).map_or_else(|| missing("role", name), Ok)
    }

    /// The name of a role; "public" for everybody.
    pub fn name_of(&self, id: RoleId) -> &str {
        match self.role(id) {
            Some(role) => &role.name,
            None if id == RoleId::PUBLIC => "public",
            None => "unknown",
        }
    }

    /// Whether a role may do everything.
    pub fn is_superuser(&self, id: RoleId) -> bool {
        self.role(id).is_some_and(|role| role.superuser)
    }

    /// Whether there are roles besides those that every database has.
    pub fn has_own_roles(&self) -> bool {
        self.roles.keys().any(|id| id.0 >= RoleId::FIRST)
    }

    /// Whether a role has a password.
    pub fn has_passwords(&self) -> bool {
        self.roles().any(|role| role.verifier.is_some())
    }

    pub(super) fn role_mut(&mut self, id: RoleId) -> &mut Role {
        self.roles.entry(id).or_insert_with(|| PREDEFINED.get(&id).expect("the role is there").clone())
    }

    pub(super) fn put_role(&mut self, role: Role) {
        self.roles.insert(role.id, role);
    }

    pub(super) fn remove_role(&mut self, id: RoleId) {
        self.roles.remove(&id);
        self.roles.values_mut().for_each(|role| role.member_of.retain(|membership| membership.role != id));
        self.defaults.retain(|default| default.owner != id && default.grantee != id);
    }

    /// The roles that can be reached by memberships, the role itself included; `through` says
    /// whether the memberships of a role count.
    fn reachable(&self, role: RoleId, through: impl Fn(&Role) -> bool) -> BTreeSet<RoleId> {
        let (mut found, mut next) = (BTreeSet::new(), vec![role]);
        while let Some(id) = next.pop() {
            if let Some(role) = self.role(id)
                && found.insert(id)
                && through(role)
            {
                next.extend(role.member_of.iter().map(|membership| membership.role));
                if id == self.owner(&Object::Database) {
                    next.push(RoleId::DATABASE_OWNER);
                }
            }
        }
        found
    }

    /// The roles whose privileges a role has: itself, and those that it inherits from. Empty for a
    /// role that is gone.
    pub fn inherited(&self, role: RoleId) -> BTreeSet<RoleId> {
        self.reachable(role, |role| role.inherit)
    }

    /// Whether a role is, by any number of steps, a member of another, so that it may SET ROLE to
    /// it.
    pub fn is_member(&self, role: RoleId, of: RoleId) -> bool {
        self.is_superuser(role) || self.reachable(role, |_| true).contains(&of)
    }

    /// As [`is_member`](Self::is_member), where being a superuser does not count.
    pub(super) fn is_declared_member(&self, role: RoleId, of: RoleId) -> bool {
        self.reachable(role, |_| true).contains(&of)
    }

    // ---- owners

    /// The owner of an object.
    pub fn owner(&self, object: &Object) -> RoleId {
        self.owners.get(object).copied().unwrap_or(RoleId::BOOTSTRAP)
    }

    /// Whether a role has the owner's rights.
    pub fn owns(&self, role: RoleId, object: &Object) -> bool {
        self.is_superuser(role) || self.inherited(role).contains(&self.owner(object))
    }

    /// The objects whose noted owner is a role.
    pub fn owned_by(&self, role: RoleId) -> impl Iterator<Item = &Object> {
        self.owners.iter().filter(move |(_, owner)| **owner == role).map(|(object, _)| object)
    }

    // ---- grants

    /// The grants on an object, without its owner's own rights.
    pub fn grants(&self, object: &Object) -> Cow<'_, [Grant]> {
        match self.grants.get(object) {
            Some(grants) => Cow::Borrowed(grants),
            None => Cow::Owned(initial_grants(object, self.owner(object))),
        }
    }

    /// Whether there was a GRANT or REVOKE on an object.
    pub fn has_grants(&self, object: &Object) -> bool {
        self.grants.contains_key(object)
    }

    /// All grants that GRANT has made.
    pub fn all_grants(&self) -> impl Iterator<Item = (&Object, &Grant)> {
        self.grants.iter().flat_map(|(object, grants)| grants.iter().map(move |grant| (object, grant)))
    }

    /// The default privileges of objects that are made later.
    pub fn defaults(&self) -> &[DefaultGrant] {
        &self.defaults
    }

    pub(super) fn grants_mut(&mut self, object: &Object) -> &mut Vec<Grant> {
        let owner = self.owner(object);
        self.grants.entry(object.clone()).or_insert_with(|| initial_grants(object, owner))
    }

    /// Drops grants, on all objects, and the grants that derive from them.
    pub(super) fn retain_grants(&mut self, keep: impl Fn(&Grant) -> bool) {
        for (object, grants) in &mut self.grants {
            grants.retain(&keep);
            drop_unsupported(grants, self.owners.get(object).copied().unwrap_or(RoleId::BOOTSTRAP));
        }
    }

    /// Whether a role has a privilege on a whole object.
    pub fn may(&self, role: RoleId, object: &Object, privilege: Privilege) -> bool {
        self.may_column(role, object, None, privilege)
    }

    /// Whether a role has a privilege on a column of an object, or on all of it.
    pub fn may_column(&self, role: RoleId, object: &Object, column: Option<&str>, privilege: Privilege) -> bool {
        let has = |grant: &Grant| {
            grant.privileges.contains(privilege) && (grant.column.is_none() || grant.column.as_deref() == column)
        };
        self.has_grant(role, object, &[privilege], has)
    }

    /// Whether a role has any privilege on an object, or on one of its columns.
    pub fn may_any(&self, role: RoleId, object: &Object) -> bool {
        self.has_grant(role, object, &ALL_DATA, |_| true)
    }

    /// Whether a role owns an object, has one of `privileges` on all objects of its kind, or one of
    /// the grants on it that `has` selects.
    fn has_grant(&self, role: RoleId, object: &Object, privileges: &[Privilege], has: impl Fn(&Grant) -> bool) -> bool {
        if self.owns(role, object) {
            return true;
        }
        let roles = self.inherited(role);
        let of_all_data =
            |&privilege: &Privilege| everywhere(object, privilege).iter().any(|role| roles.contains(role));
        let of_role = |grantee: RoleId| grantee == RoleId::PUBLIC || roles.contains(&grantee);
        !roles.is_empty()
            && (privileges.iter().any(of_all_data)
                || self.grants(object).iter().any(|grant| of_role(grant.grantee) && has(grant)))
    }

    // ---- what differs from another version

    /// The objects that have another owner, or other grants, in `other`.
    pub(crate) fn differing_objects(&self, other: &Self) -> BTreeSet<Object> {
        let all = [self, other].into_iter().flat_map(|version| version.owners.keys().chain(version.grants.keys()));
        all.filter(|object| !self.has_same_rights(other, object)).cloned().collect()
    }

    /// The roles that are different in `other`, or only in one of the two.
    pub(crate) fn differing_roles(&self, other: &Self) -> BTreeSet<RoleId> {
        let all = self.roles.keys().chain(other.roles.keys());
        all.filter(|id| self.roles.get(id) != other.roles.get(id)).copied().collect()
    }

    /// Whether owners, grants, default privileges and memberships, which name roles, are the same
    /// as in `other`.
    pub(crate) fn names_the_same_roles(&self, other: &Self) -> bool {
        self.owners == other.owners
            && self.grants == other.grants
            && self.defaults == other.defaults
            && self.has_same_memberships(other)
    }

    /// Whether the memberships are the same as in `other`.
    pub(crate) fn has_same_memberships(&self, other: &Self) -> bool {
        fn memberships(version: &Security) -> impl Iterator<Item = (RoleId, &Vec<Membership>)> {
            let all = version.roles.values().map(|role| (role.id, &role.member_of));
            all.filter(|(_, member_of)| !member_of.is_empty())
        }
        memberships(self).eq(memberships(other))
    }

    /// Whether an object has the same owner and grants in `other`.
    pub(crate) fn has_same_rights(&self, other: &Self, object: &Object) -> bool {
        self.owners.get(object) == other.owners.get(object) && self.grants.get(object) == other.grants.get(object)
    }

    /// Gives an object the owner and the grants that it has in `other`.
    pub(crate) fn take_rights(&mut self, object: &Object, other: &Self) {
        match other.owners.get(object) {
            Some(owner) => _ = self.owners.insert(object.clone(), *owner),
            None => _ = self.owners.remove(object),
        }
        match other.grants.get(object) {
            Some(grants) => _ = self.grants.insert(object.clone(), grants.clone()),
            None => _ = self.grants.remove(object),
        }
    }

    /// Takes over a role from `other`.
    pub(crate) fn take_role(&mut self, id: RoleId, other: &Self) {
        match other.roles.get(&id) {
            Some(role) => _ = self.roles.insert(id, role.clone()),
            None => _ = self.roles.remove(&id),
        }
    }

    /// Takes the grants on objects still to be made from `other`.
    pub(crate) fn take_defaults(&mut self, other: &Self) {
        self.defaults.clone_from(&other.defaults);
    }

    // ---- what becomes of objects

    /// Notes the owner of a new object, and makes the grants of that role's defaults.
    pub(crate) fn created(&mut self, object: Object, kind: ObjectKind, owner: RoleId) {
        if owner != RoleId::BOOTSTRAP {
            self.owners.insert(object.clone(), owner);
        }
        let schema = match &object {
            Object::Relation(schema, _) => Some(schema.as_str()),
            _ => None,
        };
        let kind = match kind {
            ObjectKind::View | ObjectKind::ForeignTable => ObjectKind::Table,
            kind => kind,
        };
        let of_object = |default: &&DefaultGrant| {
            default.owner == owner
                && default.kind == kind
                && default.schema.as_deref().is_none_or(|own| Some(own) == schema)
        };
        let grants: Vec<Grant> = self.defaults.iter().filter(of_object).map(|d| d.on_object()).collect();
        if !grants.is_empty() {
            self.grants_mut(&object).extend(grants);
        }
    }

    /// An object has another name.
    pub(crate) fn renamed(&mut self, object: &Object, new: Object) {
        if let Some(owner) = self.owners.remove(object) {
            self.owners.insert(new.clone(), owner);
        }
        if let Some(grants) = self.grants.remove(object) {
            self.grants.insert(new, grants);
        }
    }

    /// A column has another name.
    pub(crate) fn column_renamed(&mut self, object: &Object, column: &str, new: &str) {
        for grant in self.grants.get_mut(object).into_iter().flatten() {
            if grant.column.as_deref() == Some(column) {
                grant.column = Some(new.to_owned());
            }
        }
    }

    /// Whether an owner or a grant is noted for an object, or for a column of it, that `exists`
    /// denies.
    pub(crate) fn outlives(&self, exists: impl Fn(&Object, Option<&str>) -> bool) -> bool {
        self.owners.keys().any(|object| !exists(object, None))
            || self.grants.keys().any(|object| !exists(object, None))
            || self.all_grants().any(|(object, grant)| !exists(object, grant.column.as_deref()))
            || self.defaults.iter().filter_map(DefaultGrant::in_schema).any(|schema| !exists(&schema, None))
    }

    /// Forgets the objects and columns that `exists` denies.
    pub(crate) fn forget_gone(&mut self, exists: impl Fn(&Object, Option<&str>) -> bool) {
        self.owners.retain(|object, _| exists(object, None));
        self.grants.retain(|object, _| exists(object, None));
        for (object, grants) in &mut self.grants {
            grants.retain(|grant| exists(object, grant.column.as_deref()));
        }
        self.defaults.retain(|default| default.in_schema().is_none_or(|schema| exists(&schema, None)));
    }
}

impl DefaultGrant {
    /// The schema for whose objects it is, if it is for those of one.
    fn in_schema(&self) -> Option<Object> {
        self.schema.clone().map(Object::Schema)
    }

    fn on_object(&self) -> Grant {
        let Self { owner, grantee, privileges, grantable, .. } = self.clone();
        Grant { grantee, grantor: owner, column: None, privileges, grantable }
    }
}
