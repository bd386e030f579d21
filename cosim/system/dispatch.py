"""When the Shared Pool is sent to the TLM: four selectable rules, asked whenever the TLM is idle.

A full pool and a batch in which nobody drafts are always sent; the rules differ in how long they wait otherwise.

================  ====================================================================================
``idle``          as soon as a token waits: the paper's words, "pool full or GPU idle" (section IV-C, T4)
``all_stopped``   when nobody drafts any more
``half_stopped``  when at most half of the requests draft
``rate``          when one more DLM step would not raise the expected committed tokens per second (ours)
================  ====================================================================================
"""

from __future__ import annotations

__all__ = ["rate_falls", "should_send"]


def should_send(rule: str, *, waiting: int, drafting: int, batch: int) -> bool:
    """Apply ``idle``, ``all_stopped`` or ``half_stopped``.

    Parameters
    ----------
    rule
        Name of the rule.
    waiting
        Tokens in the Shared Pool.
    drafting, batch
        Requests that go on drafting, and all requests.
    """
    match rule:
        case "idle":
            return waiting > 0
        case "half_stopped":
            return 2 * drafting <= batch
        case "all_stopped":
            return drafting == 0
    raise ValueError(f"unknown dispatch rule {rule!r}")


def rate_falls(*, expected: float, gain: float, now_s: float, later_s: float) -> bool:
    """Apply ``rate``: is (expected + gain) / later no better than expected / now?

    Parameters
    ----------
    expected
        Tokens that a verification now would commit: one per request, plus H of every pooled token.
    gain
        What one more DLM step would add: H times the running mean of p, over the requests that draft.
    now_s, later_s
        Time since the TLM fell idle until the verification would end, without and with that step.

    H stands for the probability that a token is accepted.  Recordings contradict that where p is small.
    """
    return (expected + gain) * now_s <= expected * later_s
