"""Promises of the engine at the wire: promise, source, sentence, and the tests that check it.

`test_manifest.py` compares both: every requirement has a test, and every scenario a requirement.
"""

from __future__ import annotations

import attrs

__all__ = ["REQUIREMENTS", "Requirement"]


@attrs.frozen
class Requirement:
    id: str
    source: str
    sentence: str
    tests: tuple[str, ...]


def _read(text: str) -> tuple[Requirement, ...]:
    """Blocks of `id | source | sentence`, each followed by the tests for it, indented."""
    found: list[Requirement] = []
    for line in filter(str.strip, text.splitlines()):
        if not line.startswith(" "):
            found.append(Requirement(*(part.strip() for part in line.split("|")), tests=()))
        else:
            found[-1] = attrs.evolve(found[-1], tests=(*found[-1].tests, line.strip()))
    return tuple(found)


REQUIREMENTS = _read(
    """
once | invariant | Exactly one answer per request id, whatever crashes, is cancelled or malformed
    test_every_open_request_is_answered_once_when_a_component_is_lost
    test_equal_ids_are_all_answered_when_a_component_is_lost
    test_equal_ids_are_all_answered_when_the_chain_ends
    test_requests_of_one_peer_with_equal_ids_are_each_answered
    test_an_unanswered_request_is_answered_with_an_error_at_the_end_of_the_chain
    test_an_error_that_cannot_be_encoded_is_still_answered
    test_a_late_response_is_dropped_and_the_connection_stays_open
    test_messages_may_arrive_while_a_plugin_stops
    test_a_chain_stopped_during_its_start_answers_every_request
order | invariant | Of each hop and direction, messages leave in the order in which they came
    test_what_an_agent_writes_at_once_arrives_in_order_and_unchanged
    test_what_a_client_writes_at_once_arrives_in_order_and_unchanged
    test_a_cancellation_is_reissued_in_its_place_among_notifications
    test_responses_keep_their_order_among_notifications
    test_messages_sent_before_a_component_ended_are_delivered_before_its_error
    test_an_odd_envelope_keeps_its_place_among_the_notifications_around_it
fidelity | invariant | What nobody asks to see is forwarded byte for byte
    test_any_value_survives_any_chain
    test_odd_values_survive
    test_errors_come_back_unchanged
    test_an_error_re_raised_by_a_handler_keeps_its_code_message_and_data
    test_a_lone_surrogate_passes_every_hop
    test_json_at_the_nesting_limit_does_not_close_the_connection
    test_a_large_value_survives
    test_a_large_value_that_a_proxy_changes_is_checked_again
memory | invariant | A slow reader slows its source down; no deadlock while every peer reads
    test_memory_is_bounded_while_the_client_does_not_read
    test_full_buffers_in_both_directions_do_not_deadlock
    test_a_proxy_that_floods_an_agent_is_stopped_at_the_limit_of_the_chain
    test_the_startup_gate_queues_more_than_the_high_watermark
    test_a_full_startup_gate_is_emptied_by_a_failed_start
local | invariant | A failure names the component; every open request is answered first
    test_requests_of_a_lost_component_are_cancelled_at_the_client
    test_a_component_that_ends_during_initialization_is_named
    test_a_component_that_exceeds_its_start_timeout_is_named
    test_a_component_that_cannot_be_built_is_the_error_of_initialize
    test_initialize_of_a_chain_without_an_agent_is_an_error_that_says_so
    test_a_late_failure_of_a_failed_start_does_not_affect_the_retry
on-error | invariant | on_error: pass is for observers, which change nothing by failing
    test_a_request_is_not_sent_twice_when_an_observer_fails_after_forwarding
ids | invariant | Ids belong to one connection
    test_the_transcript_of_appendix_a
    test_equal_ids_of_different_peers_do_not_collide
cancel | interop §1.5, §3.6 | A cancellation is re-issued once per hop; the real answer still comes
    test_a_cancellation_arrives_once_per_hop_and_so_does_the_response
    test_an_agent_cancels_its_request_to_the_client
    test_a_cancelled_initialize_is_cancelled_at_the_component_that_has_it
    test_a_session_that_is_cancelled_while_the_start_is_retried_stays_cancelled
handshake | RFD proxy-chains, interop §2.1 | initialize reaches proxies as proxy/initialize
    test_initialize_passes_the_chain_forward_and_its_result_backward
    test_proxy_mode_uses_the_dialect_of_its_initialize
    test_an_empty_proxy_chain_forwards_everything
    test_a_chain_may_consist_of_plugins_alone
    test_messages_to_the_client_pass_before_the_initialize_result
lazy | issue 2, Initialize | Lazy start, all components concurrently, on the client's initialize
    test_all_components_start_together_on_the_clients_initialize
    test_messages_before_the_initialize_result_are_queued_and_delivered_in_order
again | issue 2, Initialize | Requests before it, a second one, a failed one: defined
    test_requests_before_initialize_are_refused_and_the_connection_stays_open
    test_a_second_initialize_is_refused
    test_a_second_initialize_is_refused_while_the_first_is_in_flight
    test_a_second_initialize_is_refused_for_every_kind_of_component
    test_proxy_mode_refuses_a_plain_initialize_and_keeps_running
    test_initialize_may_be_retried_after_a_failure
    test_components_of_a_failed_start_are_stopped
timeout | issue 2, Initialize | A component that never answers within start_timeout is an error
    test_the_start_timeout_does_not_run_while_a_proxy_waits_for_its_successor
versions | issue 2, Initialize | Version 1 and 2 handshakes pass through with nothing lost
    test_the_handshake_keeps_all_members_in_both_protocol_versions
    test_mcp_over_acp_is_advertised_to_the_client
dialects | issue 2, Routing; interop §1.6 | Dialects are detected per component and mixed
    test_a_proxy_that_refuses_the_method_is_asked_in_the_other_dialect
    test_a_proxy_that_forwards_initialize_unchanged_is_asked_in_the_other_dialect
    test_a_proxy_that_cannot_be_asked_twice_is_restarted
    test_a_proxy_that_closes_the_connection_is_restarted_in_the_other_dialect
    test_a_proxy_that_does_not_initialize_its_successor_is_an_error
    test_an_agent_listed_as_a_proxy_is_an_error_that_names_it
    test_a_program_that_returns_its_input_is_an_error_that_names_it
    test_a_proxy_that_initializes_its_predecessor_is_an_error_that_names_it
    test_an_error_other_than_method_not_found_reaches_the_client
    test_a_refusal_with_a_lone_surrogate_reaches_the_client
    test_a_configured_dialect_is_the_only_one_tried
    test_proxies_of_all_dialects_work_in_one_chain
unknown | issue 2, Routing | Unknown methods and _vendor/* are forwarded
    test_unknown_methods_are_forwarded_in_both_directions
misuse | issue 2, Routing | Envelope misuse is refused with -32600
    test_only_proxies_may_send_envelopes
    test_only_the_conductor_may_send_proxy_initialize
    test_nested_envelopes_are_refused
envelope | newest schema, interop §0 | Omitted and null params are the same; _meta is hop-local
    test_an_envelope_without_params_passes_as_absent
    test_the_meta_of_an_envelope_is_not_forwarded
batches | issue 2, Wire; interop §3.3 | Batches are answered as one array and never sent on
    test_a_batch_is_forwarded_as_single_messages_and_answered_as_one_array
    test_a_batch_may_contain_initialize
    test_batches_from_components_are_answered_as_arrays
noise | issue 2, Wire | Noise is skipped and counted; a malformed answer settles its request
    test_invalid_lines_of_a_component_are_logged_with_its_name_and_not_answered
    test_a_malformed_response_is_an_error_that_names_the_component
    test_a_message_over_the_limit_is_refused_from_client_and_agent
end | issue 2, Processes | When the client goes, what is in flight is delivered
    test_messages_in_flight_at_eof_of_the_client_are_delivered
    test_eof_from_the_client_waits_for_initialize_in_flight
    test_eof_from_the_client_ends_the_chain_at_once_after_a_refused_initialize
    test_eof_from_the_client_waits_for_a_retry_after_a_failed_start
    test_eof_from_the_client_waits_for_a_second_retry
    test_eof_from_the_parent_during_the_start_ends_the_chain_at_once
"""
)
