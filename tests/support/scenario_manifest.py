"""Promises of the engine at the wire: promise, source, sentence, and the tests that check it.

`test_manifest.py` checks that every promise has tests and that they exist.
"""
# ruff: noqa: E501 - one line for each requirement, and for each test

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
    """Blocks of `id | source | sentence`, each followed by the tests for it, indented.

    A test of another directory is `file::name`, with the file's path below `tests/`.
    """
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
    test_a_notification_with_an_id_is_delivered_once_and_answered
    test_a_proxy_may_send_a_notification_with_an_id_to_its_successor
    test_an_unanswered_request_is_answered_with_an_error_at_the_end_of_the_chain
    test_an_error_that_cannot_be_encoded_is_still_answered
    test_a_late_response_is_dropped_and_the_connection_stays_open
    test_each_request_is_answered_once_at_any_moment_of_the_end_of_a_plugin
    test_the_end_of_the_chain_is_no_cancellation_of_what_a_plugin_waits_for
    test_messages_may_arrive_at_any_moment_while_a_plugin_ends
    test_a_cancelled_request_is_cancelled_once_and_answered_once
    test_a_request_with_a_malformed_response_is_answered_once
    test_a_chain_stopped_during_its_start_answers_every_request
order | invariant | Of each hop and direction, messages leave in the order in which they came
    test_what_an_agent_writes_at_once_arrives_in_order_and_unchanged
    test_what_a_client_writes_at_once_arrives_in_order_and_unchanged
    test_a_cancellation_is_reissued_in_its_place_among_notifications
    test_responses_keep_their_order_among_notifications
    test_hundreds_of_messages_in_one_chunk_arrive_in_order
    test_messages_sent_before_a_component_ended_are_delivered_before_its_error
    test_an_odd_envelope_keeps_its_place_among_the_notifications_around_it
blocks | invariant | A block of notifications is treated as its messages one by one
    test_what_only_proxies_may_say_is_removed_from_each_update_of_an_agent
    test_what_only_proxies_may_say_is_removed_from_results_of_an_agent
    test_each_cancelled_turn_of_a_block_is_ended_after_cancel_timeout
    test_a_turn_that_ends_in_a_block_is_not_ended_again
    test_each_prompt_that_waits_for_a_restart_is_cancelled_by_a_block
    test_a_block_for_a_component_that_restarts_waits_for_the_end_of_its_replay
    test_no_part_of_a_replayed_history_reaches_the_client
    test_a_block_begins_the_silence_of_a_turn_anew
fidelity | invariant | What nobody asks to see is forwarded byte for byte
    test_any_value_survives_any_chain
    test_odd_values_survive
    test_errors_come_back_unchanged
    test_an_error_re_raised_by_a_handler_keeps_its_code_message_and_data
    test_a_lone_surrogate_passes_every_hop
    test_json_at_the_nesting_limit_does_not_close_the_connection
    test_a_large_value_survives
    test_a_large_value_that_a_proxy_changes_is_checked_again
    test_a_typed_edit_changes_what_it_names_and_nothing_else
cost | invariant | A message without a handler costs no task switch, and nothing that grows with what is open
    test_a_message_without_a_handler_costs_no_task_switch
    test_a_run_of_updates_without_a_handler_is_forwarded_as_one
    test_the_cost_of_a_message_does_not_grow_with_what_is_open
memory | invariant | A slow reader slows its source down; no deadlock while every peer reads
    test_a_plugin_that_streams_waits_for_a_client_that_does_not_read
    test_an_agent_is_read_again_once_a_plugin_has_handled_what_waited
    test_memory_is_bounded_while_the_client_does_not_read
    test_an_agent_that_does_not_read_slows_the_client_down
    test_a_proxy_that_does_not_read_slows_both_sides_down
    test_a_client_that_does_not_read_slows_the_agent_down_through_any_proxy
    remote/test_websocket.py::test_back_pressure_does_not_trigger_the_ping_timeout
    bridges/test_http_streams.py::test_a_reader_that_stops_slows_the_server_down_and_loses_nothing
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
nothing-left | invariant | Nothing is left behind when the conductor ends, however it ends
    processes/test_stop_signals.py::test_nothing_is_left_whenever_the_conductor_is_killed
    processes/test_client_leaves.py::test_a_client_that_is_killed_in_the_middle_of_a_flood_leaves_nothing
    processes/test_client_leaves.py::test_grandchildren_of_a_stubborn_agent_end
    bridges/test_shim.py::test_the_end_of_the_chain_ends_the_shims_and_leaves_nothing
    bridges/test_kills.py::test_the_conductor_is_killed
stdout | invariant | stdout is the protocol: what a plugin prints goes to stderr
    processes/test_kinds_of_stdio.py::test_prints_of_a_plugin_go_to_stderr
secrets | invariant | Secrets appear in no log, trace, error or process argument
    processes/test_secrets_stay.py::test_no_process_argument_contains_the_secret
    processes/test_secrets_stay.py::test_the_error_of_a_failed_start_does_not_contain_the_secret
    processes/test_secrets_stay.py::test_the_error_of_a_dead_component_does_not_contain_the_secret
    processes/test_secrets_stay.py::test_a_secret_on_the_command_line_is_in_no_error
    processes/test_secrets_stay_inside.py::test_a_secret_is_masked_in_logs_and_errors
    processes/test_secrets_stay_inside.py::test_the_options_of_a_plugin_are_in_no_process_argument
    tracing/test_masking.py::test_a_known_secret_in_any_string_is_masked
    tracing/test_masking.py::test_log_events_stderr_names_places_and_errors_are_masked
nesting | invariant | A chain in a chain behaves as its components in a row
    test_what_an_agent_writes_at_once_arrives_in_order_and_unchanged
    test_any_value_survives_any_chain
    test_a_cancelled_request_is_cancelled_once_and_answered_once
    processes/test_nested_processes.py::test_three_levels_are_one_chain
    processes/test_nested_processes.py::test_a_cancellation_passes_three_levels
    processes/test_nested_processes.py::test_a_failure_in_a_nested_conductor_is_in_the_error_of_the_outer_one
    processes/test_nested_processes.py::test_a_nested_conductor_that_is_killed_takes_its_components_along
bridge | interop §0, §1.1 | Agents and providers of MCP over ACP of any two bindings understand each other
    test_an_agent_calls_a_tool_of_a_provider_with_another_binding
    bridges/test_native_agent.py::test_progress_reaches_a_stateless_agent_under_its_own_request_id
    bridges/test_native_agent.py::test_a_cancelled_request_is_cancelled_behind_the_translation
    bridges/test_shim.py::test_tools_are_listed_and_called
on-error | invariant | on_error: pass is for observers, which change nothing by failing
    test_a_request_is_not_sent_twice_when_an_observer_fails_after_forwarding
ids | invariant | Ids belong to one connection
    test_the_transcript_of_appendix_a
    test_equal_ids_of_different_peers_do_not_collide
cancel | interop §1.5, §3.6 | A cancellation is re-issued once per hop; the real answer still comes
    test_a_cancelled_initialize_is_cancelled_in_the_other_dialect_too
    test_a_cancelled_request_cancels_all_that_its_handler_waits_for
    test_a_cancellation_arrives_once_per_hop_and_so_does_the_response
    test_an_agent_cancels_its_request_to_the_client
    test_a_cancelled_initialize_is_cancelled_at_the_component_that_has_it
    test_a_session_that_is_cancelled_while_the_start_is_retried_stays_cancelled
notification-id | JSON-RPC 2.0 §4.1 | A notification that is sent with an id is delivered, and answered {}
    test_a_notification_with_an_id_is_delivered_once_and_answered
    test_a_proxy_may_send_a_notification_with_an_id_to_its_successor
cancel-questions | protocol v1, prompt turn, Cancellation | Questions of a cancelled turn are answered, if the client does not do so
    test_an_open_question_is_answered_shortly_after_the_turn_was_cancelled
    test_a_prompt_that_is_cancelled_as_a_request_leaves_no_question_open
    test_a_client_that_answers_its_open_questions_itself_is_heard
    test_a_question_that_comes_after_the_cancellation_is_answered_at_once
    test_a_prompt_after_the_cancellation_may_ask
    test_a_prompt_that_waited_for_the_end_of_the_cancelled_turn_may_ask
    test_a_question_between_turns_is_cancelled_with_the_session_in_version_1
    test_plugins_that_ask_the_user_are_answered
unannounced | protocol v1, initialization, Client Capabilities | What the client does not announce is refused in its place
    test_a_request_for_what_the_client_does_not_announce_is_refused_in_its_place
    test_a_request_for_what_the_client_announces_reaches_it
    test_a_question_in_a_mode_that_the_client_does_not_announce_is_refused
    test_a_proxy_that_announces_files_answers_for_the_client
handshake | RFD proxy-chains, interop §2.1 | initialize reaches proxies as proxy/initialize
    test_initialize_passes_the_chain_forward_and_its_result_backward
    test_proxy_mode_uses_the_dialect_of_its_initialize
    test_an_empty_proxy_chain_forwards_everything
    test_a_chain_may_consist_of_plugins_alone
    test_messages_to_the_client_pass_before_the_initialize_result
lazy | initialize | Lazy start, all components concurrently, on the client's initialize
    test_all_components_start_together_on_the_clients_initialize
    test_messages_before_the_initialize_result_are_queued_and_delivered_in_order
again | initialize | Requests before it, a second one, a failed one: defined
    test_requests_before_initialize_are_refused_and_the_connection_stays_open
    test_a_second_initialize_is_refused
    test_a_second_initialize_is_refused_while_the_first_is_in_flight
    test_a_second_initialize_is_refused_for_every_kind_of_component
    test_proxy_mode_refuses_a_plain_initialize_and_keeps_running
    test_initialize_may_be_retried_after_a_failure
    test_components_of_a_failed_start_are_stopped
    test_components_before_one_that_cannot_be_started_are_stopped
timeout | initialize | A component that never answers within start_timeout is an error
    test_a_proxy_that_keeps_the_answer_of_its_successor_exceeds_its_start_timeout
    test_the_start_timeout_does_not_run_while_a_proxy_waits_for_its_successor
versions | initialize | Version 1 and 2 handshakes pass through with nothing lost
    test_the_handshake_keeps_all_members_in_both_protocol_versions
    test_mcp_over_acp_is_advertised_to_the_client
v1-v2 | adapters | Client and agent of different versions have turns with each other
    test_a_client_of_version_1_has_a_turn_of_an_agent_of_version_2
    test_a_client_of_version_2_has_a_turn_of_an_agent_of_version_1
dialects | routing; interop §1.6 | Dialects are detected per component and mixed
    test_a_component_that_cannot_be_reached_is_not_tried_in_the_other_dialect
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
    test_either_envelope_is_accepted_from_a_proxy_at_any_time
unknown | routing | Unknown methods and _vendor/* are forwarded
    test_unknown_methods_are_forwarded_in_both_directions
misuse | routing | Envelope misuse is refused with -32600
    test_only_proxies_may_send_envelopes
    test_only_the_conductor_may_send_proxy_initialize
    test_nested_envelopes_are_refused
envelope | newest schema, interop §0 | Omitted and null params are the same; _meta is hop-local
    test_an_envelope_without_params_passes_as_absent
    test_the_meta_of_an_envelope_is_not_forwarded
batches | wire; interop §3.3 | Batches are answered as one array and never sent on
    test_a_batch_is_forwarded_as_single_messages_and_answered_as_one_array
    test_a_batch_may_contain_initialize
    test_batches_from_components_are_answered_as_arrays
noise | wire | Noise is skipped and counted; a malformed answer settles its request
    test_invalid_lines_of_a_component_are_logged_with_its_name_and_not_answered
    test_a_malformed_response_is_an_error_that_names_the_component
    test_a_message_over_the_limit_is_refused_from_client_and_agent
end | processes | When the client goes, what is in flight is delivered
    test_messages_in_flight_at_eof_of_the_client_are_delivered
    test_eof_from_the_client_waits_for_initialize_in_flight
    test_eof_from_the_client_ends_the_chain_at_once_after_a_refused_initialize
    test_eof_from_the_client_waits_for_a_retry_after_a_failed_start
    test_eof_from_the_client_waits_for_a_second_retry
    test_eof_from_the_parent_during_the_start_ends_the_chain_at_once
start-error | reliability, Failed start | `initialize` fails with component, reason, command, exit status, stderr and place, and may be repeated
    test_a_failed_start_is_the_error_of_initialize_with_its_reason_and_place
    test_a_program_that_cannot_be_started_is_named
    processes/test_start_failures.py::test_initialize_is_answered_with_the_reason_and_may_be_tried_again
start-timeout | reliability, Hangs | `start_timeout` is 30 s by default, and names who did not answer
    test_start_timeout_is_30_seconds_and_names_who_did_not_answer
start-again | reliability, Failed start | The chain file and its plugin files are read again for each attempt
    test_the_chain_file_is_read_again_for_each_attempt
start-file | reliability, Failed start | A wrong or missing chain file is reported with `problems`; at a terminal the command exits at once
    processes/test_explaining.py::test_without_explanations_a_wrong_chain_file_is_the_error_of_initialize
    processes/test_explaining.py::test_a_wrong_file_at_a_terminal_ends_at_once
start-usage | reliability, Failed start | Mistakes on the command line are reported in the same way; the exit code is 2
    cli/test_usage_errors.py::test_a_usage_error_is_the_response_to_initialize
    cli/test_usage_errors.py::test_run_explains_a_usage_error_in_the_chat
explain | reliability, Failed start | With `explain`, each prompt is answered with the failure, what to try, and where the log is
    test_with_explain_each_prompt_is_answered_with_the_failure
    test_requests_during_a_failing_start_are_answered_in_order
explain-again | reliability, Failed start | Each set-up of a session tries again; the new session runs in the chain, old ones keep the explanation
    test_each_set_up_of_a_session_tries_again_with_the_clients_initialize
    test_another_failed_attempt_is_explained_too
    test_a_session_that_is_loaded_once_the_chain_runs_belongs_to_the_chain
explain-baseline | reliability, Failed start | What was not promised is named in the first new session
    test_what_was_not_promised_is_named_in_the_first_new_session
explain-restart | reliability, Failed start | Another protocol version, or a required login, needs a restart of the agent in the editor
    test_a_chain_of_another_version_can_be_used_only_after_a_restart
    test_an_agent_that_requires_a_login_can_be_used_only_after_a_restart
explain-exit | reliability, Failed start | The exit code is 3, or 2 for a chain file with mistakes
    processes/test_explaining.py::test_a_failed_start_answers_the_prompt_with_the_error_and_its_place
    processes/test_explaining.py::test_a_chain_file_that_stays_wrong_is_exit_code_2
slow-start | reliability, Slow start | After two seconds the log names the component and what the chain waits for, not a proxy that waits
    test_a_component_that_does_not_answer_initialize_is_named_after_two_seconds
    test_a_plugin_whose_lifespan_does_not_begin_is_named
    test_a_slow_new_session_is_logged_with_the_mcp_servers_that_may_be_starting
slow-session | reliability, Slow start | In a session that exists the user gets a notice, too
    test_the_user_gets_a_notice_in_a_session_that_exists
slow-server | reliability, Slow start | A slow MCP server has a warning of its own
    bridges/test_server_starts.py::test_a_slow_server_is_named_before_its_time_is_over
prewarm | reliability, Start before the client asks | With `prewarm`, programs start before the client asks, and end with it
    processes/test_early_start.py::test_with_prewarm_the_agent_starts_before_initialize_and_ends_with_the_client
    processes/test_early_start.py::test_with_prewarm_a_client_that_leaves_at_once_leaves_no_process
prewarm-serve | reliability, Start before the client asks | In `serve` a process waits for the next client, and is replaced
    server/test_spares.py::test_a_client_of_serve_gets_the_processes_that_waited
    server/test_spares.py::test_a_process_that_was_taken_is_replaced_after_a_pause
    server/test_spares.py::test_a_process_that_ended_is_replaced_only_after_a_client_has_started_one
    server/test_spares.py::test_the_process_ends_with_the_server
failed-answers | reliability, Failed component | Each unanswered request gets an error with cause, stderr, place and what happens next
    test_each_unanswered_request_gets_an_error_with_cause_stderr_place_and_what_is_next
    test_the_chat_names_what_an_agent_last_said_of_its_failure
    test_stderr_before_a_refused_prompt_explains_a_later_failure
    test_a_prompt_that_never_reached_the_agent_says_so
failed-turn | reliability, Failed component | In version 2 the state `idle` that ends the turn has the error
    test_in_version_2_the_state_idle_of_the_turn_has_the_error
failed-once | reliability, Failed component | Nothing is sent again
    test_nothing_is_sent_again_after_a_restart
failed-cancels | reliability, Failed component | Its own open requests are cancelled, and the turn of a prompt that a proxy sent on
    test_open_requests_of_a_failed_agent_are_cancelled_at_the_client
    test_the_turn_of_a_prompt_that_a_failed_proxy_sent_on_is_cancelled
    test_the_turn_of_a_failed_proxy_is_cancelled_behind_a_plugin_too
failed-others | reliability, Failed component | Other requests continue
    test_other_requests_continue
failed-stream | reliability, Failed component | A component that closes stdout or stdin has failed
    test_a_component_that_closes_its_stdout_has_failed
    processes/test_restart_of_an_agent.py::test_an_agent_that_closes_a_stream_has_failed
restart-budget | reliability, Failed component | `restart`: delays grow from 0.1 s to 10 s, less up to a half, until the budget is spent
    test_restarts_come_after_growing_delays_until_the_budget_is_spent
    test_a_component_that_failed_long_ago_has_its_whole_budget
end-chain | reliability, Failed component | The chain ends with the agent, or with a required component, that is not restarted
    test_the_chain_ends_with_an_agent_that_is_not_restarted
    test_the_chain_ends_with_a_required_proxy
    test_the_chain_ends_with_a_plugin_that_must_not_be_bypassed
    test_a_turn_behind_a_plugin_that_ends_the_chain_ends_at_once_with_its_failure
    test_what_a_nested_chain_has_sent_on_is_answered_when_its_plugin_ends_it
    test_the_turn_of_an_agent_plugin_is_answered_with_the_failure_that_ends_the_chain
    processes/test_process_exit_codes.py::test_1_when_a_required_component_is_lost
restart-queue | reliability, Failed component | Messages to a restarting component wait, in order, and count as its backlog
    test_messages_to_a_restarting_component_wait_in_order
    test_messages_to_a_restarting_proxy_wait_in_order_in_both_directions
    test_what_waits_for_a_restart_stops_those_who_send_it
    test_a_prompt_that_waits_for_a_restart_can_be_cancelled
notices | reliability, Failed component | The user is told in each session: by a notice if the client shows notices, else in the chat
    test_the_user_is_told_in_each_session_by_a_notice_if_the_client_shows_notices
plugin-handler | reliability, Plugins | An exception of a handler, callback or task fails only that request or task
    test_an_exception_of_a_handler_or_task_fails_only_that_request_or_task
plugin-lifespan | reliability, Plugins | A plugin whose `lifespan()` raises has failed, and is bypassed by default
    test_a_plugin_whose_lifespan_raises_has_failed_and_is_bypassed
plugin-start | reliability, Plugins | A plugin that fails before it is ready is the error of `initialize`, with its place and cause
    test_a_plugin_that_fails_before_it_is_ready_is_the_error_of_initialize
plugin-made | reliability, Plugins | A plugin is imported and created once, where it lives; isolated, in its own process
    processes/test_plugin_starts.py::test_a_plugin_is_imported_and_made_once_where_it_lives
    processes/test_plugin_starts.py::test_module_code_of_an_isolated_plugin_runs_in_its_own_process
    processes/test_restart_of_a_proxy.py::test_a_plugin_is_restarted_if_the_chain_file_says_so
replay | reliability, Restarted proxy | The new process gets handshake and open sessions; its successor sees nothing
    test_a_restarted_proxy_gets_the_answers_of_its_successor_not_its_own
    test_a_restarted_proxy_is_asked_in_the_dialect_that_it_had
    test_the_new_process_gets_handshake_and_open_sessions_and_its_successor_nothing
    test_a_closed_session_is_not_announced_to_the_new_process
    test_a_session_is_not_renamed_by_another_id_after_the_restart
replay-lost | reliability, Restarted proxy | Notifications that it had not forwarded are lost, without an error
    test_notifications_that_a_proxy_had_not_forwarded_are_lost_without_an_error
    test_a_response_to_a_proxy_that_failed_is_dropped
on-restart | reliability, Restarted proxy | `on_restart` gets the open sessions before any other message; if it fails, so does the restart
    test_on_restart_gets_the_open_sessions_before_any_other_message
    test_on_restart_that_raises_or_does_not_return_fails_the_restart
    processes/test_restart_hook.py::test_the_restart_hook_gets_the_open_sessions_before_other_messages
restored | reliability, Restarted agent | The new process gets the same `initialize`; another version fails the restart
    test_a_restarted_agent_gets_the_same_initialize
    test_another_protocol_version_fails_the_restart
restored-sessions | reliability, Restarted agent | Sessions are resumed, else loaded without their history (version 2: resumed only)
    test_a_session_that_the_client_resumed_with_its_history_is_resumed_without
    test_a_session_is_resumed_or_else_loaded_without_its_history
    test_a_conversation_that_is_loaded_without_history_may_be_lost
    test_a_conversation_that_the_user_had_loaded_may_be_lost_too
    test_a_session_that_cannot_be_resumed_is_loaded
    test_in_version_2_a_session_is_only_resumed
restored-settings | reliability, Restarted agent | Mode, model and options are set again; else the client gets the real values
    test_what_the_agent_tells_while_it_is_restored_is_not_what_the_user_has_set
    test_what_the_agent_tells_after_a_restart_is_restored_by_the_next
    test_a_mode_that_was_refused_is_not_set_at_the_next_restart
    test_mode_model_and_options_are_set_again_with_the_values_last_reported
    test_the_client_gets_the_real_mode_if_the_agent_refuses_to_set_it_again
lost-sessions | reliability, Restarted agent | A lost session gets one error that says so, and can be created again
    test_a_lost_session_is_not_told_of_later_restarts
    test_what_waited_for_a_lost_session_is_refused_after_the_notice
    test_a_lost_session_gets_one_error_and_can_be_created_again
    test_a_lost_session_can_be_loaded_at_once
    test_a_session_whose_set_up_is_not_kept_is_lost
lost-login | reliability, Restarted agent | A login is repeated if it needs nothing of the user; else errors say why to log in again
    test_a_login_that_needs_nothing_of_the_user_is_repeated
    test_any_other_login_is_left_to_the_user_who_is_told_why
    test_after_the_user_has_logged_in_again_a_refusal_is_the_agents_own
    test_a_login_is_not_repeated_after_a_logout
restart-timeout | reliability, Hangs | Each step of a restart has `start_timeout`
    test_each_step_of_a_restart_has_start_timeout
bypass | reliability, Bypassed proxy | Its neighbours are connected, and the client gets one notice in every session
    test_the_neighbours_of_a_bypassed_proxy_are_connected_and_each_session_is_told_once
bypass-refused | reliability, Bypassed proxy | What only the proxy could handle is refused; calls to its MCP server get an error
    test_a_request_that_only_the_bypassed_proxy_could_handle_is_refused
    test_a_client_is_asked_for_an_mcp_server_only_if_it_has_declared_one
    processes/test_bypass_of_a_provider.py::test_tool_calls_to_a_bypassed_provider_are_answered_with_an_error
bypass-queue | reliability, Failed component | Messages that waited for a restart are sent past a component that is bypassed in the end
    test_messages_that_waited_for_a_restart_are_sent_past_a_proxy_that_is_bypassed
cancel-timeout | reliability, Hangs | A cancelled turn that continues is ended after `cancel_timeout`; a notice names the component
    test_cancel_timeout_of_the_agent_is_that_of_the_whole_chain
    test_a_cancelled_turn_that_continues_is_ended_after_cancel_timeout
    test_a_turn_that_ends_in_time_is_not_reported
    test_turns_of_other_sessions_go_on
    test_in_version_2_a_prompt_that_was_not_accepted_is_refused
    test_in_version_2_a_cancellation_without_a_turn_is_no_failure
cancel-late | reliability, A cancelled turn that continues | The session can be used again; only the late response is dropped
    test_the_session_can_be_used_when_the_component_reacts_again
cancel-restart | reliability, Hangs | `on_cancel_timeout: restart` restarts the component, too
    test_on_cancel_timeout_restart_restarts_the_component_too
cancel-blocked | reliability, A cancelled turn that continues | The component that blocks is named; those after it are cancelled in its place
    test_the_end_of_a_turn_that_a_plugin_blocks_passes_the_proxies_before_it
    test_a_plugin_is_told_that_a_turn_it_has_deferred_was_ended
    test_a_prompt_that_was_answered_in_its_place_is_not_forwarded_later
    test_a_proxy_that_blocks_the_turn_is_named_and_the_agent_is_cancelled_in_its_place
    test_a_prompt_that_a_proxy_never_passed_on_ends_too
    test_a_plugin_that_holds_the_turn_is_named_and_its_handler_is_cancelled
cancel-request | reliability, A cancelled turn that continues | Cancelled requests are answered -32800; a prompt first becomes `session/cancel`
    test_another_cancelled_request_is_answered_after_the_same_time
    test_a_request_that_a_deaf_plugin_holds_is_answered_after_its_cancellation
    test_a_cancelled_prompt_request_becomes_session_cancel_and_has_another_timeout
cancel-nested | reliability, A cancelled turn that continues | A chain of proxies leaves the timeout to the outer conductor
    test_a_chain_of_proxies_leaves_the_timeout_to_the_outer_conductor
request-timeout | reliability, Hangs | `request_timeout` answers the request and cancels it; for a prompt, the turn, too
    test_request_timeout_answers_the_request_and_cancels_it_at_the_component
    test_request_timeout_of_a_prompt_also_cancels_the_turn
stall-timeout | reliability, Hangs | A silent turn is reported; `on_stall` names the last step after it
    test_a_silent_turn_is_reported_then_cancelled_then_restarted
    test_on_stall_names_the_last_step
    test_any_message_of_the_session_begins_the_silence_anew
stall-none | reliability, Hangs | Silence while a tool runs, a question is open or no turn runs is no stall
    test_silence_while_a_tool_runs_a_question_is_open_or_no_turn_runs_is_no_stall
    test_a_proxy_is_not_blamed_for_the_silence_of_its_successor
stopped | reliability, Hangs | A stopped process is named where its component does not react
    test_a_process_that_is_stopped_at_the_start_is_named
    test_a_stopped_process_is_named_where_its_component_does_not_react
blocked-loop | reliability, A handler that blocks the event loop | A handler that blocks is logged once, with its place
    processes/test_blocked_loop.py::test_a_handler_that_blocks_is_logged_once_with_its_place
stop-answers | reliability, Shutdown | After EOF open requests are answered, for up to `stop_timeout`, also during the start
    test_a_chain_that_is_stopped_does_not_wait_for_handlers_that_wait
    test_the_end_of_a_chain_is_no_failure_of_its_components
    test_after_eof_open_requests_are_answered_first
    test_a_request_that_is_never_answered_gets_an_error_after_stop_timeout
    test_a_stopped_chain_does_not_blame_the_agent_that_it_has_ended
    test_eof_during_the_start_waits_for_the_answers_too
    test_the_chain_ends_at_once_while_a_component_waits_for_its_restart
stop-mcp | reliability, Shutdown | MCP requests of the agent do not delay the end of a proxy
    test_a_stand_alone_proxy_does_not_wait_for_mcp_requests_at_eof
stop-turns | reliability, Shutdown | Running turns are cancelled, and their end is awaited for 2 s
    test_an_agent_that_goes_on_with_a_cancelled_turn_delays_a_signal_by_two_seconds
    test_running_turns_are_cancelled_and_their_end_is_awaited
stop-signals | reliability, Shutdown | EOF, SIGTERM after `stop_timeout`, SIGKILL after the same time
    test_a_component_that_does_not_end_does_not_delay_the_end_of_those_after_it
    test_a_process_that_does_not_end_gets_sigterm_then_sigkill_after_stop_timeout_each
stop-order | reliability, Shutdown | From the client to the agent; after a failure from the agent to the client
    test_components_are_stopped_from_client_to_agent_and_after_a_failure_backwards
    test_what_a_failure_means_for_the_client_passes_the_proxies_before_the_end
stop-plugins | reliability, Shutdown | A plugin that does not end is given up after `stop_timeout`; one that blocks the loop ends the process
    chain/test_shutdown.py::test_a_stuck_plugin_is_given_up_after_stop_timeout
    processes/test_busy_plugins.py::test_a_blocked_event_loop_does_not_keep_the_process_alive
    processes/test_busy_plugins.py::test_a_regular_expression_that_backtracks_does_not_keep_the_process_alive
    processes/test_busy_plugins.py::test_serve_releases_a_client_whose_plugin_does_not_end
stop-twice | reliability, Shutdown | After a second signal every wait is at most one second
    processes/test_stop_signals.py::test_a_second_signal_kills_now
backlog-client | reliability, Memory | 1.5 MiB wait for the client; then the agent is not read
    test_a_client_that_does_not_read_stops_the_agent_after_a_megabyte_and_a_half
backlog-proxy | reliability, Memory | A proxy is not read beyond the share of its receiver, or 5/4 of the buffers in the whole chain
    test_a_proxy_whose_receiver_does_not_read_is_not_read_beyond_its_share
backlog-mcp | reliability, Memory | The proxy whose answers an MCP client does not read is not read
    processes/test_slow_mcp_client.py::test_answers_that_an_mcp_client_does_not_read
limits | reliability, Memory | A peer that exceeds a limit gets an error
    test_a_peer_with_too_many_open_requests_gets_an_error_for_the_next
    test_a_session_more_than_max_sessions_is_refused
    test_a_batch_of_more_than_max_batch_members_is_refused
    test_a_larger_initialize_than_max_initialize_bytes_is_refused
limit-params | reliability, Memory | 64 MiB of params of requests whose handlers wait in a plugin
    plugins/test_handled_bytes.py::test_requests_over_the_limit_are_refused_until_others_are_answered
limit-calls | reliability, Memory | Unfinished tool calls that are remembered are bounded
    proxy/test_kept_tool_calls.py::test_outputs_of_calls_that_never_end_are_forgotten_but_not_what_they_do
    proxies/v1_v2/test_kept_content.py::test_the_content_of_all_calls_and_sessions_is_bounded_and_the_oldest_is_forgotten
limit-stderr | reliability, Memory | 64 KiB of stderr a second are logged
    supervision/test_stderr.py::test_a_flood_costs_no_memory_and_is_not_logged
limit-reports | reliability, Memory | 20 reports of malformed messages a second
    test_malformed_messages_are_reported_at_most_20_times_a_second
projects | projects | A session runs in the chain of its project, from its set-up to its end
    test_a_session_that_is_set_up_while_its_chain_closes_gets_a_new_one
    test_a_session_of_a_chain_that_failed_can_be_loaded_in_a_new_one
    test_an_open_session_keeps_its_chain_when_it_is_loaded_after_a_change_of_the_file
    test_the_bypass_of_a_proxy_is_told_in_the_sessions_of_its_chain_only
    test_a_cancelled_turn_of_a_project_is_ended_once_and_by_its_chain
    test_a_chain_of_another_version_than_the_client_was_told_takes_no_session
"""
)
