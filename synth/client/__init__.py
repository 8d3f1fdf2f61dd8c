"""Getting plans from a synth server: a light HTTP client, a content-addressed cache, and what to do without either.

Only the standard library: a training image has nothing else.
"""

from synth.client.cache import Cache
from synth.client.client import Client, Resolved
from synth.client.environment import Environment
from synth.client.find import Found, find_plan
from synth.client.request import PlanRequest

__all__ = ["Cache", "Client", "Environment", "Found", "PlanRequest", "Resolved", "find_plan"]
