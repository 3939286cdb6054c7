"""The arithmetic on times, with clocks and work that a test controls. No measured time is asserted."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workflow_scripts.lib import timing
from workflow_scripts.lib.specs import MeasureSpec
from workflow_scripts.lib.timing import (
    SYNCHRONISED_RATIOS,
    HostClock,
    check_synchronised,
    count_cold,
    median_interval,
    relative_interval,
    sample_steps,
)

MEASURE = MeasureSpec(min_samples=5, target_interval=-1.0, max_seconds=10.0, timeout_s=100.0)
NEVER = 1e9  # seconds; the target above is never met either


class FakeDevice:
    """Work that takes the times of a list, the last one for ever, each after `launch_s` of the host's.

    With a queue the host goes on meanwhile, until it waits.
    """

    def __init__(self, times, queued=False, launch_s=1e-6):
        self.times = itertools.chain(times, itertools.repeat(times[-1]))
        self.queued, self.launch_s = queued, launch_s
        self.now = self.busy_until = 100.0
        self.events: list[str] = []

    def run(self):
        self.events.append("run")
        self.launch(next(self.times))

    def launch(self, seconds):
        self.now += self.launch_s
        self.busy_until = max(self.busy_until, self.now) + seconds
        if not self.queued:
            self.pass_to(self.busy_until)

    def pass_to(self, moment):
        self.now = max(self.now, moment)

    def synchronise(self):
        self.events.append("synchronise")
        self.pass_to(self.busy_until)

    def clock(self, resolution_s=1e-7):
        return HostClock(lambda: self.now, resolution_s)


class FakeEventClock:
    """Marks in the device's own queue; the time between two is there once the device has passed them."""

    needs_synchronised_marks = False
    resolution_s = 1e-7

    def __init__(self, device):
        self.device = device

    def now(self):
        return self.device.now

    def mark(self):
        return max(self.device.now, self.device.busy_until)

    def seconds(self, start, end):
        self.device.pass_to(end)
        return end - start


def sample(device, clock=None, **changes):
    measure = MeasureSpec(**{**vars(MEASURE), **changes})
    return sample_steps(device.run, device.synchronise, clock=clock or device.clock(), measure=measure)


def test_the_first_steps_cost_stands_apart_from_the_steady_median():
    device = FakeDevice([0.44] + [0.0315] * 9)
    samples = sample(device, target_interval=1.0, min_samples=9)
    assert samples.cold_s == pytest.approx([0.44], rel=1e-4)
    assert len(samples.samples_s) == 9
    assert np.median(samples.samples_s) == pytest.approx(0.0315, rel=1e-4)
    assert samples.stop == "interval"


def test_samples_are_kept_in_order_from_the_very_first_step():
    times = [0.9, 0.5, *(0.1 + 0.001 * (i * 7 % 5) for i in range(40))]
    samples = sample(FakeDevice(times), max_seconds=4.0)
    assert [*samples.cold_s, *samples.samples_s] == pytest.approx(
        times[: len(samples.cold_s + samples.samples_s)], 1e-4
    )
    assert len(samples.cold_s) == 2


def test_every_sample_begins_and_ends_synchronised():
    device = FakeDevice([0.1], queued=True)
    samples = sample(device, max_seconds=1.0)
    assert samples.samples_s == pytest.approx([0.1] * len(samples.samples_s), rel=1e-4)
    assert device.events[0] == "synchronise"
    assert device.events[1:] == ["run", "synchronise"] * (len(device.events) // 2)


def test_a_clock_of_the_device_need_not_wait_after_every_step():
    times = [0.3, 0.02, *(0.01 + 0.001 * (i % 3) for i in range(500))]
    device = FakeDevice(times, queued=True)
    samples = sample(device, FakeEventClock(device), max_seconds=2.0)
    everything = [*samples.cold_s, *samples.samples_s]
    assert everything == pytest.approx(times[: len(everything)], rel=1e-3)
    assert device.events.count("synchronise") < device.events.count("run") / 3


def test_steps_of_such_a_clock_run_beside_their_neighbours_but_for_the_first_and_the_one_after_the_wait():
    host_s, left_s = 0.03, 0.009  # what the device still has to do when a step has been launched
    device = FakeDevice([left_s], queued=True, launch_s=host_s)
    samples = sample(device, FakeEventClock(device), max_seconds=2.0)
    assert samples.cold_s == pytest.approx([host_s + left_s] * 2)
    assert samples.samples_s == pytest.approx([host_s] * len(samples.samples_s))
    assert len(samples.samples_s) > 2.0 / host_s
    assert len(samples.cold_s) + len(samples.samples_s) == device.events.count("run")
    assert device.events.count("synchronise") == 2  # before and after the first step


def test_a_device_is_never_without_work_while_the_host_reads():
    device, left_s = FakeDevice([0.01], queued=True), []

    class Watched(FakeEventClock):
        def seconds(self, start, end):
            found = super().seconds(start, end)
            left_s.append(device.busy_until - device.now)
            return found

    samples = sample(device, Watched(device), max_seconds=3.0)
    last_burst = int(timing.BURST_S / 0.01)
    assert min(left_s[1:-last_burst]) >= 0.01 - 1e-5  # but after the first step and at the end
    assert sum(samples.samples_s) <= samples.elapsed_s


def test_blocks_launched_ahead_are_means_over_as_many_steps_as_they_have():
    device = FakeDevice([2e-5], queued=True)
    samples = sample(device, FakeEventClock(device), max_seconds=0.5)
    assert samples.block_size == 5
    assert len(samples.cold_s) == timing.PILOT_SAMPLES
    assert samples.samples_s == pytest.approx([2e-5] * len(samples.samples_s), rel=1e-3)


def test_sampling_stops_when_the_interval_is_narrow_enough():
    generator = np.random.default_rng(0)
    times = list(0.1 * (1 + 0.05 * generator.standard_normal(5000)))
    samples = sample(FakeDevice(times), target_interval=0.02, max_seconds=NEVER)
    assert samples.stop == "interval"
    assert relative_interval(samples.samples_s) <= 0.02
    assert 50 < len(samples.samples_s) < 500


def test_sampling_stops_when_the_time_is_up_and_says_so():
    generator = np.random.default_rng(0)
    times = list(0.1 * (1 + 0.5 * generator.random(5000)))
    samples = sample(FakeDevice(times), target_interval=0.0001, max_seconds=3.0)
    assert samples.stop == "budget"
    assert sum(samples.samples_s) == pytest.approx(3.0, abs=0.4)


def test_the_time_counts_from_the_end_of_the_first_step_which_may_compile():
    samples = sample(FakeDevice([60.0] + [0.5] * 20), max_seconds=3.0)
    assert samples.cold_s == pytest.approx([60.0])
    assert len(samples.samples_s) == 6


def test_a_step_longer_than_the_budget_leaves_one_sample_and_no_interval():
    samples = sample(FakeDevice([40.0, 30.0]), max_seconds=5.0)
    assert (len(samples.cold_s), len(samples.samples_s), samples.stop) == (1, 1, "budget")
    assert median_interval(samples.samples_s) is None


def test_more_than_enough_samples_end_it(monkeypatch):
    monkeypatch.setattr(timing, "MAX_SAMPLES", 50)
    assert sample(FakeDevice([0.1, 0.2] * 50), max_seconds=NEVER).stop == "max_samples"


def test_steps_shorter_than_the_clock_deserves_are_timed_in_blocks():
    device = FakeDevice([1e-4])
    samples = sample(device, device.clock(resolution_s=1e-6), max_seconds=0.5)
    assert samples.block_size == 10  # 1000 resolutions are 1 ms
    assert len(samples.cold_s) == timing.PILOT_SAMPLES  # single steps are not mixed with means
    assert np.median(samples.samples_s) == pytest.approx(1e-4, rel=0.02)


def test_steps_that_the_clock_cannot_see_are_timed_in_large_blocks():
    device = FakeDevice([0.0])
    frozen = HostClock(lambda: round(device.now, 3), resolution_s=1e-3)
    assert sample(device, frozen, max_seconds=0.05).block_size == timing.RESOLUTIONS_PER_SAMPLE


def test_a_device_that_slows_down_keeps_its_fast_start():
    drifting = [0.5, *np.linspace(0.1, 0.115, 60)]
    samples = sample(FakeDevice(drifting), max_seconds=6.0)
    assert len(samples.cold_s) == 1
    third = len(samples.samples_s) // 3
    assert np.median(samples.samples_s[-third:]) > 1.05 * np.median(samples.samples_s[:third])


@pytest.mark.parametrize(
    ("values", "n_cold"),
    [
        ([0.4], 1),
        ([0.4, 0.1], 1),
        ([0.4] + [0.1] * 9, 1),
        ([0.4, 0.3, 0.2, 0.15] + [0.1] * 10, 4),
        ([0.4, 0.1, 0.3, *[0.1] * 10], 3),  # one fast step among slow ones does not end the warm-up
        ([0.1] * 10, 1),
        ([0.4, *[0.1] * 6, 0.9, *[0.1] * 6], 1),  # a spike among warm steps is a warm sample
        ([0.1, 0.1, 0.9] * 6, 9),  # never three alike: half of them
        ([9] * 6 + [1] * 4, 5),  # at most half
    ],
)
def test_where_the_warm_up_ends(values, n_cold):
    assert count_cold(values) == n_cold


@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=60))
def test_warm_up_takes_at_least_one_sample_and_at_most_half(values):
    assert 1 <= count_cold(values) <= max(1, len(values) // 2)


@pytest.mark.parametrize("n", [6, 7, 8, 20, 100, 1000])
def test_the_intervals_rank_is_the_binomials(n):
    low, high = median_interval(list(range(1, n + 1)))
    assert stats.binom.cdf(low - 1, n, 0.5) <= 0.025 < stats.binom.cdf(low, n, 0.5)
    assert high == n + 1 - low


def test_fewer_than_six_samples_have_no_interval():
    assert median_interval([1.0] * 5) is None
    assert relative_interval([1.0] * 5) == relative_interval([]) == math.inf
    assert median_interval([1.0] * 6) == (1.0, 1.0)


def test_the_interval_covers_the_median_as_often_as_it_says():
    generator = np.random.default_rng(1)
    samples = generator.lognormal(size=(2000, 25))  # skewed, as times are; its median is 1
    covered = [low <= 1.0 <= high for low, high in map(median_interval, samples)]
    assert 0.94 < np.mean(covered) < 0.985


def test_reports_come_after_the_first_sample_and_then_once_a_second():
    device, seen = FakeDevice([0.5] + [0.1] * 100), []
    sample_steps(device.run, device.synchronise, clock=device.clock(), measure=MEASURE, report=seen.append)
    assert seen[0].cold_s == pytest.approx([0.5], rel=1e-4)
    assert 8 <= len(seen) <= 11
    lengths = [len(part.cold_s) + len(part.samples_s) for part in seen]
    assert lengths == sorted(lengths)


def test_samples_never_add_up_to_more_than_the_time_that_passed():
    samples = sample(FakeDevice([0.3] + [0.1] * 10))
    assert sum(samples.cold_s + samples.samples_s) <= samples.elapsed_s + 1e-9


@pytest.mark.parametrize("queued", [False, True])
def test_the_self_check_sees_twice_the_work_in_one_launch(queued):
    device = FakeDevice([0.0], queued)
    ratio = check_synchronised(lambda scale: device.launch(0.01 * scale), device.synchronise, device.clock())
    assert ratio == pytest.approx(2.0, rel=1e-3)


def test_the_self_check_catches_a_synchronisation_that_is_skipped():
    device = FakeDevice([0.0], queued=True)
    ratio = check_synchronised(lambda scale: device.launch(0.01 * scale), lambda: None, device.clock())
    assert not SYNCHRONISED_RATIOS[0] <= ratio <= SYNCHRONISED_RATIOS[1]


def test_the_hosts_clock_knows_its_resolution():
    assert HostClock(iter([0.0, 0.0, 0.5] * 100).__next__).resolution_s == 0.5
