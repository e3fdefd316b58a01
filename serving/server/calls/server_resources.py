"""The resources that the calls of both protocols use."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from serving.server.limits.admission import Admission
from serving.server.limits.budget import RequestLimits
from serving.server.models.model_manager import ModelManager
from serving.server.prometheus_metrics import MeasuredRequest, Metrics


@dataclass(frozen=True)
class Resources:
    """The models, limits and metrics of one server."""

    models: ModelManager
    metrics: Metrics
    admission: Admission
    limits: RequestLimits

    def measured(self, api: str, entrypoint: str) -> AbstractContextManager[MeasuredRequest]:
        """Counts and times the body of a `with` statement as one request; see `Metrics.request`."""
        return self.metrics.request(api, entrypoint, self.models.__contains__)
