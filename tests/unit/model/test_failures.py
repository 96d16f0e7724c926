"""When a failed connector or task is restarted."""

from hypothesis import given
from hypothesis import strategies as st

from drover.model.failures import (
    ATTEMPTS_LIMIT,
    FAILURES_KEPT,
    MESSAGE_MAX_CHARS,
    Failure,
    FailureCause,
    FailureHistory,
    RestartPolicy,
    summary_of,
)

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def failure(failed_ms: int = NOW_MS, cause: FailureCause = FailureCause.PLUGIN) -> Failure:
    return Failure(failed_ms, cause, "worker-a:7411", "boom")


def fail(
    policy: RestartPolicy, *failures: Failure, history: FailureHistory | None = None
) -> FailureHistory:
    history = history or FailureHistory(3)
    for each in failures:
        history = history.with_failure(each, policy, "c-0")
    return history


def delay_ms(history: FailureHistory) -> int:
    assert history.last is not None
    return history.restart_ms - history.last.failed_ms


def test_the_back_off_doubles_up_to_its_limit_and_is_spread_by_a_fifth() -> None:
    policy = RestartPolicy(backoff_ms=1_000, backoff_max_ms=8_000, attempts_max=-1)
    history, delays = FailureHistory(3), []
    for _ in range(6):
        history = fail(policy, failure(), history=history)
        delays.append(delay_ms(history))
    for delay, nominal in zip(delays, [1_000, 2_000, 4_000, 8_000, 8_000, 8_000], strict=True):
        assert 0.8 * nominal <= delay <= 1.2 * nominal


def test_what_failed_together_is_not_tried_again_together() -> None:
    policy = RestartPolicy()
    times = {policy.next_restart((failure(),), f"c-{task}")[0] for task in range(50)}
    assert len(times) > 25


def test_after_its_restarts_the_next_failure_is_for_good() -> None:
    policy = RestartPolicy(attempts_max=2, window_ms=10 * MINUTE_MS)
    twice = fail(policy, failure(), failure())
    assert twice.restart_ms
    assert not twice.no_restart_reason
    third = fail(policy, failure(), history=twice)
    assert third.restart_ms == 0
    assert third.no_restart_reason == (
        "3 failures within 600 s (restart.window.ms): restart.attempts.max=2"
    )
    assert third.count == 3


def test_failures_before_the_window_do_not_count() -> None:
    policy = RestartPolicy(attempts_max=1, window_ms=MINUTE_MS)
    history = fail(policy, failure(NOW_MS), failure(NOW_MS + 2 * MINUTE_MS))
    assert history.restart_ms
    assert delay_ms(history) <= 1.2 * policy.backoff_ms
    assert history.count == 2


def test_an_outage_of_ten_minutes_and_of_ten_days_ends_with_a_restart() -> None:
    policy = RestartPolicy(attempts_max=2)
    for outage_ms in (10 * MINUTE_MS, 10 * 24 * 60 * MINUTE_MS):
        history, now_ms, restarts = FailureHistory(3), NOW_MS, 0
        while now_ms < NOW_MS + outage_ms:
            history = fail(policy, failure(now_ms, FailureCause.OUTAGE), history=history)
            assert not history.no_restart_reason
            assert delay_ms(history) <= 1.2 * policy.backoff_max_ms
            now_ms, restarts = history.restart_ms, restarts + 1
        assert restarts > policy.attempts_max
    # an error of the connector itself is counted from zero
    assert fail(policy, failure(now_ms), failure(now_ms), history=history).restart_ms


def test_rejected_credentials_have_the_longest_back_off_at_once() -> None:
    policy = RestartPolicy(attempts_max=0)
    history = fail(policy, failure(cause=FailureCause.CREDENTIALS))
    assert delay_ms(history) >= 0.8 * policy.backoff_max_ms


def test_never_applies_to_outages_too() -> None:
    for cause in (FailureCause.OUTAGE, FailureCause.CREDENTIALS):
        history = fail(RestartPolicy(restarts=False), failure(cause=cause))
        assert (history.restart_ms, history.no_restart_reason) == (0, "restart.policy=never")


def test_never_is_never() -> None:
    history = fail(RestartPolicy(restarts=False), failure())
    assert (history.restart_ms, history.no_restart_reason) == (0, "restart.policy=never")


def test_the_engines_failures_are_not_the_connectors() -> None:
    by_engine = failure(cause=FailureCause.ENGINE)
    policy = RestartPolicy(restarts=False)
    assert fail(policy, by_engine).restart_ms
    policy = RestartPolicy(attempts_max=1)
    history = fail(policy, *[by_engine] * 5, failure())
    assert history.restart_ms
    assert delay_ms(history) <= 1.2 * policy.backoff_ms


def test_what_went_beyond_a_limit_is_not_tried_again() -> None:
    history = fail(RestartPolicy(attempts_max=-1), failure(cause=FailureCause.LIMIT))
    assert history.restart_ms == 0
    assert "limit" in history.no_restart_reason


@given(st.integers(0, ATTEMPTS_LIMIT), st.integers(1, 60))
def test_a_history_is_bounded_and_still_knows_when_to_end(attempts_max: int, count: int) -> None:
    policy = RestartPolicy(attempts_max=attempts_max)
    history = FailureHistory(3)
    for number in range(1, count + 1):
        history = fail(policy, failure(NOW_MS + number), history=history)
        assert bool(history.restart_ms) == (number <= attempts_max)
        assert bool(history.restart_ms) != bool(history.no_restart_reason)
    assert len(history.failures) <= FAILURES_KEPT
    assert history.count == count


def test_a_policy_is_read_from_a_config_and_faults_are_defaults() -> None:
    assert RestartPolicy.of({}) == RestartPolicy()
    assert RestartPolicy.of(
        {
            "restart.policy": "never",
            "restart.backoff.ms": "5",
            "restart.backoff.max.ms": "50",
            "restart.attempts.max": "-1",
            "restart.window.ms": "1000",
        }
    ) == RestartPolicy(False, 5, 50, -1, 1_000)
    faulty = {"restart.backoff.ms": "soon", "restart.attempts.max": "-7", "restart.window.ms": "0"}
    assert RestartPolicy.of(faulty) == RestartPolicy()


def test_one_line_of_a_trace_says_what_happened() -> None:
    trace = "Traceback (most recent call last):\n  File x\nValueError: no such city\n"
    assert summary_of(trace) == "ValueError: no such city"
    own = (
        "Traceback (most recent call last):\ndrover.record.errors.RetriableError: http://a is busy"
    )
    assert summary_of(own) == "RetriableError: http://a is busy"
    assert summary_of("record 7 of t/0: no JSON\n\nTraceback …") == "record 7 of t/0: no JSON"
    assert summary_of("\n \n") == ""
    assert len(summary_of("x" * 1_000)) == MESSAGE_MAX_CHARS
