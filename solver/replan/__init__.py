"""Re-planning after a change: a solve that starts from the routes of an earlier plan."""

from solver.replan.start import beginning, prices_of, started_from
from solver.replan.survivors import Survivors, survivors

__all__ = ["Survivors", "beginning", "prices_of", "started_from", "survivors"]
