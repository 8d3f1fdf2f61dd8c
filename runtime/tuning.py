"""Finding the NCCL settings that help on this machine: each against the default, in fresh processes, in turns.

NCCL reads its settings once per process, so every measurement starts its ranks anew. A setting and the default are
measured right after each other, several times; what a second default differs from the first by is the noise, and only
what beats the default in every round by more than that is kept. Names as in NCCL's own library and its user guide.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from synth.errors import InputError, SynthError

Setting = Mapping[str, str]
Measure = Callable[[Setting], Mapping[str, float]]
"""Seconds by row (a size under a schedule) of ranks started under some settings."""

CANDIDATES: tuple[dict[str, str], ...] = (
    {"NCCL_MIN_P2P_NCHANNELS": "16"},
    {"NCCL_MIN_P2P_NCHANNELS": "32"},
    {"NCCL_MAX_P2P_NCHANNELS": "16"},
    {"NCCL_P2P_NVL_CHUNKSIZE": "1048576"},
    {"NCCL_P2P_NVL_CHUNKSIZE": "131072"},
    {"NCCL_P2P_PCI_CHUNKSIZE": "524288"},
    {"NCCL_P2P_NET_CHUNKSIZE": "524288"},
    {"NCCL_NCHANNELS_PER_NET_PEER": "4"},
    {"NCCL_BUFFSIZE": "8388608", "NCCL_P2P_NVL_CHUNKSIZE": "1048576"},
    {"NCCL_MIN_CTAS": "32"},
    {"SYNTH_REGISTER": "on"},
)
LEAST_NOISE = 0.01
"""Gains below this are never told from noise."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting beside the default.

    Attributes:
        setting: variables; empty for a second default.
        ratios: the default's time over the setting's, by round: geometric mean over the rows.
        failure: why it could not be measured, None where it could.
    """

    setting: Setting
    ratios: tuple[float, ...] = ()
    failure: str | None = None

    @property
    def gain(self) -> float:
        """Median ratio; above 1 is faster."""
        return statistics.median(self.ratios) if self.ratios else 0.0

    @property
    def name(self) -> str:
        """``A=1 B=2``."""
        return " ".join(f"{name}={value}" for name, value in self.setting.items()) or "default again"


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a tuning found.

    Attributes:
        noise: by how much a second default differed at most, as a part of the time.
        tried: all settings.
        kept: what to set; empty where nothing beats the default.
        gain: of what is kept, as :attr:`Tried.gain`.
    """

    noise: float
    tried: tuple[Tried, ...]
    kept: Setting
    gain: float

    def beats_default(self, one: Tried) -> bool:
        """Whether a setting was faster than noise explains, in every round."""
        return bool(one.setting) and bool(one.ratios) and min(one.ratios) > 1 + self.noise

    def environment(self) -> str:
        """Lines for a shell, with the gain seen."""
        if not self.kept:
            return f"# no setting beats NCCL's defaults by more than the noise of {self.noise:.1%}\n"
        exports = "".join(f"export {name}={value}\n" for name, value in sorted(self.kept.items()))
        return f"# {self.gain:.3f} times as fast as NCCL's defaults; noise {self.noise:.1%}\n{exports}"


def tune(
    measure: Measure,
    candidates: Sequence[Setting] = CANDIDATES,
    *,
    rounds: int = 3,
    tell: Callable[[Tried], None] = lambda tried: None,
) -> Tuned:
    """Try every setting, then what was kept together.

    Args:
        measure: starts ranks under a setting and times them.
        candidates: settings to try.
        rounds: how often each is measured beside a default of its own.
        tell: called with each result as it comes.

    Raises:
        SynthError: the default itself cannot be measured.
    """
    again = _beside_default(measure, {}, rounds)
    if again.failure is not None:
        raise InputError(f"tuning: the default settings cannot be measured: {again.failure}")
    noise = max(LEAST_NOISE, *(abs(ratio - 1) for ratio in again.ratios))
    tried = [again]
    tell(again)
    for setting in candidates:
        tried.append(_beside_default(measure, setting, rounds))
        tell(tried[-1])
    judge = Tuned(noise, tuple(tried), {}, 1.0)
    good = sorted((one for one in tried if judge.beats_default(one)), key=lambda one: -one.gain)
    together: dict[str, str] = {}
    for one in good:  # of settings that contradict each other the better
        if not any(together.get(name, value) != value for name, value in one.setting.items()):
            together |= one.setting
    if good and together != dict(good[0].setting):
        tried.append(_beside_default(measure, together, rounds))
        tell(tried[-1])
        good.append(tried[-1])
    best = max((one for one in good if judge.beats_default(one)), key=lambda one: one.gain, default=None)
    return Tuned(noise, tuple(tried), dict(best.setting) if best else {}, best.gain if best else 1.0)


def parse_settings(texts: Iterable[str]) -> tuple[dict[str, str], ...]:
    """``"A=1 B=2"`` as variables.

    Raises:
        InputError: it is not of this form.
    """
    found = []
    for text in texts:
        pairs = [word.partition("=") for word in text.split()]
        if not pairs or any(not (name and equals and value) for name, equals, value in pairs):
            raise InputError(f"--setting: {text!r} must look like NCCL_BUFFSIZE=8388608, several with blanks between")
        found.append({name: value for name, _, value in pairs})
    return tuple(found)


def _beside_default(measure: Measure, setting: Setting, rounds: int) -> Tried:
    ratios = []
    try:
        for turn in range(rounds):
            first, second = ({}, setting) if turn % 2 == 0 else (setting, {})
            one, two = measure(first), measure(second)
            default, other = (one, two) if turn % 2 == 0 else (two, one)
            rows = [row for row in default if row in other]
            if not rows:
                return Tried(setting, failure="nothing was measured")
            ratios.append(math.exp(statistics.fmean(math.log(default[row] / other[row]) for row in rows)))
    except SynthError as error:
        return Tried(setting, failure=error.message)
    return Tried(setting, tuple(ratios))
