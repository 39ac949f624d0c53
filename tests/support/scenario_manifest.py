"""What scenarios hold: requirement, where it comes from, what it says, and which tests check it.

`test_manifest.py` holds the two together: a requirement without a test is a promise nobody keeps, a
scenario without a requirement one that nobody made.
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
once | design §3.1 | Exactly one answer per request id, whatever crashes, is cancelled or malformed
    test_every_open_request_is_answered_once_when_a_component_is_lost
    test_equal_ids_are_all_answered_when_a_component_is_lost
    test_equal_ids_are_all_answered_when_the_chain_ends
    test_equal_ids_of_one_peer_are_answered_each
    test_a_request_without_an_answer_is_answered_at_the_end
    test_an_error_that_is_no_json_is_answered_all_the_same
    test_a_late_answer_is_dropped_and_the_connection_lives
    test_messages_may_come_while_a_plugin_ends
    test_a_chain_that_is_stopped_while_it_starts_answers_everyone
order | design §3.2 | A response never overtakes, nor is overtaken by, a notification
    test_an_answer_is_neither_overtaken_nor_overtakes
    test_what_a_component_sent_before_it_ended_is_delivered_first
fidelity | design §3.3 | What nobody asks to see is forwarded byte for byte
    test_any_value_survives_any_chain
    test_odd_values_survive
    test_errors_come_back_unchanged
    test_an_error_that_a_handler_passes_on_keeps_its_meaning
    test_half_an_emoji_passes_every_hop
    test_what_is_nested_as_deeply_as_can_be_read_ends_nothing
    test_a_large_value_survives
    test_a_large_value_that_a_proxy_changes_is_checked_again
memory | design §3.5 | A slow reader slows its source down; no deadlock while every peer reads
    test_a_client_that_does_not_read_fills_no_memory
    test_both_directions_full_do_not_deadlock
    test_more_than_the_high_water_mark_may_wait_behind_the_door
    test_a_full_door_does_not_outlive_a_failed_start
local | design §3.7 | A failure names the component; every open request is answered first
    test_questions_of_a_lost_component_are_withdrawn_at_the_client
    test_a_component_that_ends_during_initialization_is_named
    test_a_component_that_does_not_answer_is_named_after_its_time
    test_components_that_cannot_be_made_are_an_error_of_initialize
    test_a_chain_without_an_agent_says_so
    test_a_late_failure_of_a_failed_attempt_is_nothing_to_the_next_one
on-error | design §5.7 | on_error: pass is for observers, which change nothing by failing
    test_a_request_is_not_sent_twice_when_an_observer_fails_after_forwarding
ids | design §4 | Ids belong to one connection
    test_the_transcript_of_appendix_a
    test_equal_ids_of_different_peers_do_not_meet
cancel | interop §1.5, §3.6 | A cancellation is re-issued once per hop; the real answer still comes
    test_a_cancellation_arrives_once_per_hop_and_the_real_answer_too
    test_an_agent_withdraws_its_question
    test_a_cancelled_initialize_is_cancelled_where_it_is
handshake | RFD proxy-chains, interop §2.1 | initialize reaches proxies as proxy/initialize
    test_the_handshake_travels_forward_and_back
    test_proxy_mode_speaks_the_dialect_in_which_it_was_initialised
    test_a_proxy_chain_of_nothing_passes_everything
    test_a_chain_of_plugins_alone_is_a_chain
    test_components_may_talk_to_the_client_before_it_has_its_answer
lazy | issue 2, Initialize | Lazy start, all components concurrently, on the client's initialize
    test_nothing_starts_before_the_client_asks_and_then_everything_at_once
    test_what_is_sent_before_the_answer_is_held_and_delivered_in_order
again | issue 2, Initialize | Requests before it, a second one, a failed one: defined
    test_requests_before_initialize_are_refused_and_the_connection_lives
    test_a_second_initialize_is_refused
    test_a_second_initialize_is_refused_while_the_first_is_under_way
    test_a_second_initialize_is_refused_whatever_the_components_are
    test_proxy_mode_refuses_a_plain_initialize_and_stays
    test_a_failed_initialize_may_be_tried_again
    test_what_a_failed_attempt_has_started_is_ended
timeout | issue 2, Initialize | A component that never answers within start_timeout is an error
    test_the_clock_runs_only_for_who_has_the_ball
versions | issue 2, Initialize | Version 1 and 2 handshakes pass through with nothing lost
    test_a_handshake_of_either_version_loses_nothing
    test_mcp_over_acp_is_advertised_to_the_client
dialects | issue 2, Routing; interop §1.6 | Dialects are detected per component and mixed
    test_a_proxy_that_does_not_know_the_name_is_asked_again
    test_a_proxy_that_echoes_the_init_is_recognised
    test_a_proxy_that_is_spent_is_started_again
    test_a_proxy_that_closes_is_started_again
    test_a_component_that_answers_without_its_successor_is_no_proxy
    test_an_agent_in_the_place_of_a_proxy_is_named
    test_a_program_that_sends_everything_back_is_named
    test_a_proxy_that_initializes_its_predecessor_is_named
    test_a_real_refusal_reaches_the_client
    test_a_refusal_with_a_lone_surrogate_reaches_the_client
    test_a_dialect_that_is_given_is_the_only_one_tried
    test_all_dialects_meet_in_one_chain
unknown | issue 2, Routing | Unknown methods and _vendor/* are forwarded
    test_what_nobody_knows_is_forwarded_both_ways
misuse | issue 2, Routing | Envelope misuse is refused with -32600
    test_only_proxies_may_send_envelopes
    test_nobody_but_the_conductor_initializes_proxies
    test_nested_envelopes_are_refused
envelope | newest schema, interop §0 | Omitted and null params are the same; _meta is hop-local
    test_an_envelope_without_params_passes_as_absent
    test_the_meta_of_an_envelope_ends_at_its_hop
batches | issue 2, Wire; interop §3.3 | Batches are answered as one array and never sent on
    test_a_batch_is_taken_apart_and_answered_as_one_array
    test_a_batch_may_hold_initialize_itself
    test_batches_of_components_are_answered_as_arrays_too
noise | issue 2, Wire | Noise is skipped and counted; a malformed answer settles its request
    test_noise_of_a_component_is_reported_under_its_name_and_never_answered
    test_a_malformed_answer_settles_its_request_and_names_the_component
    test_a_message_over_the_limit_is_refused_at_either_end
end | issue 2, Processes | When the client goes, what is in flight is delivered
    test_what_is_in_flight_is_delivered_when_the_client_goes
    test_the_end_of_the_client_waits_for_an_initialization_under_way
    test_a_client_that_goes_is_not_waited_for_when_initialize_is_refused
    test_the_end_of_the_client_waits_for_an_attempt_after_a_failed_start
    test_the_end_of_the_client_waits_for_a_second_attempt_too
    test_a_parent_that_goes_while_the_chain_starts_is_not_waited_for
"""
)
