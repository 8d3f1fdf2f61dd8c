"""What the tests on GPUs keep of a rank's log."""

from tests.gpu.ranks import head_and_tail


def test_the_stack_of_a_crash_is_kept_and_so_is_the_end():
    assert head_and_tail("short") == "short"
    log = "Fatal Python error\n" + "x" * 9000 + "\nthe end"
    kept = head_and_tail(log, most=100)
    assert kept.startswith("Fatal Python error")
    assert kept.endswith("the end")
    assert f"[{len(log) - 100} characters]" in kept
    assert len(kept) < 130
