//! One-sided access within a process. `verbs` has the same tests with a device.

mod one_sided;

use serac_export::rdma::Loopback;
use std::sync::Arc;

macro_rules! tests {
    ($module:ident: $($name:ident),*) => {
        $(#[test]
        fn $name() {
            one_sided::$module::$name(&Loopback::default());
        })*
    };
    (async $module:ident: $($name:ident),*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            one_sided::$module::$name(Arc::new(Loopback::default())).await;
        })*
    };
}

tests! {
    transport: reads_and_writes_arrive, what_is_not_open_is_refused_and_breaks_the_connection,
    a_revoked_key_opens_nothing, a_key_opens_nothing_to_another_peer, revocation_beside_reads,
    wrong_use_is_an_error_and_breaks_nothing
}
tests! {
    async flight: both_ways_give_what_do_get_gives, a_client_without_the_servers_transport_fetches,
    batches_are_given_as_they_come, a_lease_keeps_memory_and_its_end_revokes_the_key,
    a_client_asks_again_after_revocation, hostile_requests_get_errors_and_take_nothing,
    without_room_blocks_are_fetched_or_asked_for_again,
    a_role_leases_what_it_may_read_and_only_as_long_as_it_may
}
