//! Roles that are always there.

use super::{IndexGrant, Role};

/// Name of the administrator's role.
pub(crate) const ADMIN: &str = "admin";

/// Lists the built-in roles.
pub(crate) fn roles() -> Vec<(&'static str, Role)> {
    let everything = || {
        let grant = IndexGrant { allow_restricted_indices: true, ..grant("*", &["all"]) };
        role(
            "everything; system indices are read, and changed through their own operations",
            &["all"],
            vec![grant],
        )
    };
    let read = ["read", "view_index_metadata"];
    vec![
        (ADMIN, everything()),
        ("superuser", everything()),
        ("all_access", everything()),
        (
            "alert",
            role(
                "alert rules and alerts",
                &["cluster:monitor/main", "cluster:console/alert/*"],
                vec![grant("alert*", &read)],
            ),
        ),
        (
            "intelligence",
            role(
                "AI rules and their results",
                &["cluster:monitor/main", "cluster:console/intelligence/*"],
                vec![grant("intelligence", &read)],
            ),
        ),
        ("reader", role("reads all indices but those of the system", &["monitor"], vec![grant("*", &read)])),
        (
            "ingest",
            role(
                "writes into all indices but those of the system, and creates them by that",
                &["cluster:monitor/main"],
                vec![grant("*", &["write", "auto_configure"])],
            ),
        ),
        (
            "monitor",
            role(
                "state and figures of the cluster and of indices",
                &["monitor"],
                vec![grant("*", &["monitor"])],
            ),
        ),
    ]
}

/// Returns whether a role is built in.
pub(crate) fn is_reserved(name: &str) -> bool {
    ["admin", "superuser", "all_access", "alert", "intelligence", "reader", "ingest", "monitor"]
        .contains(&name)
}

fn role(description: &str, cluster: &[&str], indices: Vec<IndexGrant>) -> Role {
    let cluster = cluster.iter().map(|name| (*name).to_owned()).collect();
    Role { description: description.to_owned(), cluster, indices, reserved: true, ..Role::default() }
}

fn grant(name: &str, privileges: &[&str]) -> IndexGrant {
    let privileges = privileges.iter().map(|name| (*name).to_owned()).collect();
    IndexGrant { names: vec![name.to_owned()], privileges, ..IndexGrant::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ones_are_those_that_there_are() {
        for (name, role) in roles() {
            assert!(is_reserved(name) && role.reserved);
            role.check(&crate::privileges::AnyQuery).unwrap();
        }
        assert_eq!(roles().len(), 8);
    }
}
